# SPDX-License-Identifier: Apache-2.0
"""A self-checking bench around the AXI wrapper, as Verilog text for any simulator: a row from the
store port to memory, its READY and its ALL.

Everything is sampled a moment after the falling edge, when what the rising edge will see is
settled, so no simulator's order of events matters. An unknown value is not the one that is waited
for. A failure ends a batch run with an exit code.
"""

from flow.driver import Driver, Handle, Recorder, Region
from hub_rtl.contract.packets import OPERAND_ROW, CommandOp, EventKind, Reason, pack
from hub_rtl.contract.ports import clocks

from .axi_wrapper import AXI_TOP, OUTER_CLOCKS, axi_interfaces
from .licence import SPDX

__all__ = ["BENCH", "self_checking_bench"]

BENCH = "moehub_tb"
MOST = 128  # bytes of the row, where a row may have as many
BASE, SPILL, WINDOW = 0x10000, 0x20000, 0x1000
HANDLE, REGION, ROWID, RANK = 0, 0, 0, 0

_START = f"""\
// {SPDX}
// Self-checking bench of {AXI_TOP}, configuration %s: one row of %s bytes that the hub
// stores to its own rank, its READY and its ALL, and memory byte by byte. Ends with PASS, or with
// FAIL and an exit code.
`timescale 1ns/1ps
module {BENCH};
"""

_TASKS = """\
  integer i, waited, failed;
  initial failed = 0;

  task fail(input [8*40-1:0] what);
    begin
      $display("FAIL: %0s at %0t", what, $time);
      failed = 1;
`ifdef __ICARUS__
      $finish_and_return(1);
`else
      $stop;
`endif
    end
  endtask

  // A moment after a falling edge; not for ever.
  task step;
    begin
      @(negedge aclk);
      #0.1;
      waited = waited + 1;
      if (waited == 5000) fail("nothing happened for 5000 cycles");
    end
  endtask

  task write(input [31:0] address, input [31:0] value);
    reg took;
    begin
      waited = 0;
      s_axil_awaddr = address;
      s_axil_wdata = value;
      s_axil_awvalid = 1;
      s_axil_wvalid = 1;
      while (s_axil_awvalid | s_axil_wvalid) begin
        #0.1 took = s_axil_awready;
        if (s_axil_wready & s_axil_wvalid) begin
          step;
          s_axil_wvalid = 0;
        end else step;
        if (took) s_axil_awvalid = 0;
      end
      while (!s_axil_bvalid) step;
      if (s_axil_bresp !== 0) fail("a register write was refused");
      s_axil_bready = 1;
      step;
      s_axil_bready = 0;
    end
  endtask

  task poll(input [31:0] address, input [31:0] mask, input [31:0] value);
    reg [31:0] word;
    integer reads;
    begin
      word = ~value;
      reads = 0;
      while ((word & mask) !== value) begin
        waited = 0;
        s_axil_araddr = address;
        s_axil_arvalid = 1;
        #0.1;
        while (!s_axil_arready) step;
        step;
        s_axil_arvalid = 0;
        while (!s_axil_rvalid) step;
        word = s_axil_rdata;
        s_axil_rready = 1;
        step;
        s_axil_rready = 0;
        reads = reads + 1;
        if (reads == 10000) fail("a status bit never came");
      end
    end
  endtask
"""


def _fields(interface):
    """{field: (low, width)} of the ``tdata`` of a stream."""
    tdata = next(port for port in interface.ports if port.field == "tdata")
    return {name.rpartition("_")[2]: (low, width) for name, low, width in tdata.inner}


def _word(fields, **values):
    return sum(int(value) << fields[name][0] for name, value in values.items())


def _memory(port, name, row):
    """A write port of the memory: a burst at a time; (declarations, what it does in a cycle)."""
    width = next(p.width for p in port.ports if p.field == "wdata")
    size = width // 8
    at = f"({name}_at + lane - {BASE})"
    return (
        [f"  reg [63:0] {name}_at;", f"  reg {name}_burst;"],
        f"""\
      if ({name}_awvalid & {name}_awready) begin
        {name}_at = {name}_awaddr / {size} * {size};
        {name}_awready <= 0;
        {name}_wready <= 1;
        {name}_bid <= {name}_awid;
      end
      if ({name}_wvalid & {name}_wready) begin
        for (lane = 0; lane < {size}; lane = lane + 1)
          if ({name}_wstrb[lane]) begin
            if ({name}_at + lane < {BASE} || {name}_at + lane >= {BASE + row})
              fail("a byte beside the row was written");
            else memory[{at}] = {name}_wdata[8*lane +: 8];
          end
        {name}_at = {name}_at + {size};
        if ({name}_wlast) begin
          {name}_wready <= 0;
          {name}_bvalid <= 1;
        end
      end
      if ({name}_bvalid & {name}_bready) begin
        {name}_bvalid <= 0;
        {name}_awready <= 1;
      end
""",
    )


def _set_up(cfg, row):
    """The register accesses of software, as calls of the bench's tasks."""
    recorder = Recorder()
    driver = Driver(cfg, recorder)
    driver.start(RANK)
    driver.region(
        REGION,
        Region(
            base=(BASE, BASE + WINDOW),
            spill_base=(SPILL, SPILL + WINDOW),
            stride=-(-row // cfg.packet_bytes) * cfg.packet_bytes,
            row_bytes=row,
            capacity=1,
            group_base=0,
            log2_tile=0,
            expected=1,
            row_span=64,
        ),
    )
    driver.open(REGION, 0)
    driver.handle(HANDLE, Handle(targets=((RANK, REGION),), row_bytes=row))
    return [
        f"    write('h{address:x}, 'h{value:x});"
        if kind == "write"
        else f"    poll('h{address:x}, 'h{mask:x}, 'h{value:x});"
        for kind, address, value, mask in recorder.accesses
    ]


def _send(name, width, word):
    """An item of an input stream."""
    return [
        f"    {name}_tdata = {width}'h{word:x};",
        f"    {name}_tvalid = 1;",
        f"    waited = 0; #0.1; while (!{name}_tready) step;",
        "    step;",
        f"    {name}_tvalid = 0;",
    ]


def _take(name, fields, what, **wanted):
    """An item of an output stream, and what its fields have to say."""
    wrong = " || ".join(
        f"{name}_tdata[{fields[field][0]} +: {fields[field][1]}] !== {int(value)}"
        for field, value in wanted.items()
    )
    return [
        f"    waited = 0; while (!{name}_tvalid) step;",
        f'    if ({wrong}) fail("{what}");',
        f"    {name}_tready = 1;",
        "    step;",
        f"    {name}_tready = 0;",
    ]


def self_checking_bench(cfg):
    """Verilog of the bench of a configuration: module ``moehub_tb``, without ports."""
    interfaces = {interface.name: interface for interface in axi_interfaces(cfg)}
    row = min(MOST, cfg.max_row_bytes)
    lines = [_START % (cfg.name, row)]
    domains = {domain: OUTER_CLOCKS[domain] for domain in clocks(cfg)}
    for (clock, reset), half in zip(domains.values(), ("2.0", "1.334"), strict=False):
        lines += [f"  reg {clock} = 0, {reset} = 0;", f"  always #{half} {clock} = ~{clock};"]
    ports = [port for interface in interfaces.values() for port in interface.ports]
    for port in ports:
        bits = f"[{port.width - 1}:0] "
        kind = "reg" if port.direction == "in" else "wire"
        lines.append(f"  {kind} {bits}{port.name}{' = 0' * (kind == 'reg')};")
    names = [name for pair in domains.values() for name in pair] + [port.name for port in ports]
    lines += [
        f"\n  {AXI_TOP} dut (",
        ",\n".join(f"    .{name}({name})" for name in names),
        "  );\n",
    ]
    lines.append(_TASKS)

    memories = [i for i in interfaces.values() if i.kind == "axi4-write"]
    lines += [f"  reg [7:0] memory [0:{row - 1}];", "  integer lane;"]
    cycles = []
    for port in memories:
        declared, cycle = _memory(port, port.name, row)
        lines += declared[:1]
        cycles.append(cycle)
    lines += [
        "  initial begin",
        *(f"    {port.name}_awready = 1;" for port in memories),
        "  end",
        "  always @(posedge aclk)",
        "    if (aresetn) begin",
        "".join(cycles).rstrip(),
        "    end\n",
    ]

    store, command = interfaces["s_axis_store0"], interfaces["s_axis_command"]
    fields = {name: _fields(i) for name, i in interfaces.items() if i.kind == "axi4-stream"}
    size = fields["s_axis_store0"]["data"][1] // 8
    data = bytes(range(1, row + 1))
    width = {i.name: i.ports[0].width for i in (store, command)}
    lines += [
        "  initial begin",
        f"    for (i = 0; i < {row}; i = i + 1) memory[i] = 0;",
        *(f"    m_axis_tx{n}_tready = 1;" for n in range(cfg.lanes * cfg.slice_links)),
        "    s_axil_wstrb = 15;",
        "    waited = 0;",
        "    repeat (8) step;",
        *(f"    {reset} = 1;" for _, reset in domains.values()),
        "    repeat (8) step;",
        "    // What software does once.",
        *_set_up(cfg, row),
        f"    // The row, {size} bytes at a time; each store is answered.",
    ]
    for tag, at in enumerate(range(0, row, size)):
        part, tag = data[at : at + size], tag % (1 << cfg.tag_width)
        operand = pack(OPERAND_ROW, handle=HANDLE, rowid=ROWID, row_off=at // 16)
        item = _word(
            fields["s_axis_store0"],
            operand=operand,
            data=int.from_bytes(part, "little"),
            mask=(1 << len(part)) - 1,
            tag=tag,
        )
        answer = fields["m_axis_response0"]
        lines += _send("s_axis_store0", width["s_axis_store0"], item)
        lines += _take("m_axis_response0", answer, "a store was refused", tag=tag, status=Reason.OK)
    item = _word(fields["s_axis_command"], op=CommandOp.CLOSE, handle=HANDLE, tag=1)
    event = fields["m_axis_event"]
    lines += [
        "    // Nothing more comes in this epoch.",
        *_send("s_axis_command", width["s_axis_command"], item),
        *_take(
            "m_axis_command_response",
            fields["m_axis_command_response"],
            "CLOSE was refused",
            tag=1,
            status=Reason.OK,
        ),
        *_take("m_axis_event", event, "READY is wrong", kind=EventKind.READY, rows=1),
        "    // READY: memory has every byte.",
        f"    for (i = 0; i < {row}; i = i + 1)",
        '      if (memory[i] !== i + 1) fail("a byte in memory is wrong");',
        *_take("m_axis_event", event, "ALL is wrong", kind=EventKind.ALL, rows=1),
        '    if (!failed) $display("PASS: a row in memory, READY, ALL");',
        "    $finish;",
        "  end",
        "endmodule",
        "",
    ]
    return "\n".join(lines)
