// SPDX-License-Identifier: Apache-2.0
// A system on a chip for simulation: a PicoRV32, a hub, and a memory that both see.
//
//   0x0000_0000  memory, 64 KiB: program, data, and what the hub writes
//   0x1000_0000  registers of the hub
//   0x2000_0000  bridge to the hub's streams: stores out, events in (board.h has the map)
//   0x3000_0000  console: a character; 0x3000_0004 exit: the verdict of the program
module soc (
  input  wire        clk,
  input  wire        resetn,
  output wire        console_valid,
  output wire        exit_valid,
  output wire [31:0] console_or_exit
);
  // -- core: an AXI4-Lite master with one access at a time ----------------------------------------
  wire awvalid, awready, wvalid, wready, bvalid, bready, arvalid, arready, rvalid, rready, trap;
  wire [31:0] awaddr, wdata, araddr, rdata;
  wire [3:0] wstrb;

  picorv32_axi core (
    .clk(clk), .resetn(resetn), .trap(trap), .irq(32'd0),
    .mem_axi_awvalid(awvalid), .mem_axi_awready(awready), .mem_axi_awaddr(awaddr),
    .mem_axi_wvalid(wvalid), .mem_axi_wready(wready), .mem_axi_wdata(wdata),
    .mem_axi_wstrb(wstrb), .mem_axi_bvalid(bvalid), .mem_axi_bready(bready),
    .mem_axi_arvalid(arvalid), .mem_axi_arready(arready), .mem_axi_araddr(araddr),
    .mem_axi_rvalid(rvalid), .mem_axi_rready(rready), .mem_axi_rdata(rdata)
  );

  // The core keeps its address until it is answered, so the address also chooses the answer.
  wire write_hub = awaddr[31:28] == 4'h1, read_hub = araddr[31:28] == 4'h1;
  wire hub_awready, hub_wready, hub_bvalid, hub_arready, hub_rvalid;
  wire [1:0] hub_bresp, hub_rresp;
  wire [31:0] hub_rdata;
  reg here_bvalid, here_rvalid;
  reg [31:0] here_rdata;

  // -- bridge: a write of the byte mask is the store ----------------------------------------------
  reg [63:0] operand;
  reg [255:0] data;
  reg answered, slverr;
  reg [3:0] answer;
  wire store_ready, answer_valid, event_valid;
  wire [15:0] answer_data;
  wire [63:0] event_data;
  wire writes = awvalid & wvalid & ~write_hub;  // memory, bridge and console
  wire at_bridge = writes & awaddr[31:28] == 4'h2;
  wire store_valid = at_bridge & awaddr[7:0] == 8'h08;  // MASK
  wire event_taken = at_bridge & awaddr[7:0] == 8'h10;  // EVENT
  wire written = writes & (~store_valid | store_ready);  // the bus waits with the store

  assign console_valid = written & awaddr[31:28] == 4'h3 & ~awaddr[2];
  assign exit_valid = (written & awaddr[31:28] == 4'h3 & awaddr[2]) | trap;
  assign console_or_exit = trap ? 32'hffff_ffff : wdata;

  always @(posedge clk) begin
    if (at_bridge & awaddr[7:0] == 8'h00) operand[31:0] <= wdata;
    if (at_bridge & awaddr[7:0] == 8'h04) operand[63:32] <= wdata;
    if (at_bridge & awaddr[7:5] == 3'b001) data[32 * awaddr[4:2] +: 32] <= wdata;
    if (store_valid) answered <= 0;
    if (answer_valid) {answered, answer} <= {1'b1, answer_data[11:8]};
    // PicoRV32 cannot take a bus error: it is kept for software to look at.
    if (hub_bvalid & hub_bresp != 0 | hub_rvalid & hub_rresp != 0) slverr <= 1;
    if (~resetn) {answered, slverr} <= 0;
  end

  // -- memory: 64 KiB, written by the core and by three ports of the hub --------------------------
  reg [7:0] memory [0:65535];
  reg [8 * 256:1] firmware;
  integer i, n;
  initial begin
    for (i = 0; i < 65536; i = i + 1) memory[i] = 0;
    if (!$value$plusargs("firmware=%s", firmware)) firmware = "firmware.hex";
    $readmemh(firmware, memory);
  end

  wire row0_en, row1_en, spill_en;
  wire [15:0] row0_at, row1_at, spill_at;
  wire [255:0] row0_data, row1_data;
  wire [31:0] row0_strb, row1_strb;
  wire [63:0] spill_data;
  wire [7:0] spill_strb;
  wire spill_read;
  wire [47:0] spill_araddr;
  reg spill_rvalid;
  reg [63:0] spill_rdata;

  always @(posedge clk) begin
    for (n = 0; n < 4; n = n + 1)
      if (written & awaddr[31:28] == 0 & wstrb[n]) memory[awaddr[15:0] + n] <= wdata[8 * n +: 8];
    for (n = 0; n < 32; n = n + 1) begin
      if (row0_en & row0_strb[n]) memory[row0_at + n] <= row0_data[8 * n +: 8];
      if (row1_en & row1_strb[n]) memory[row1_at + n] <= row1_data[8 * n +: 8];
    end
    for (n = 0; n < 8; n = n + 1) begin
      if (spill_en & spill_strb[n]) memory[spill_at + n] <= spill_data[8 * n +: 8];
      if (spill_read) spill_rdata[8 * n +: 8] <= memory[spill_araddr[15:0] + n];
    end
    spill_rvalid <= resetn & spill_read;  // the hub's rready is always 1
  end

  // -- answers to the core ------------------------------------------------------------------------
  wire reads = arvalid & ~read_hub;
  wire [15:0] a = araddr[15:0];

  always @(posedge clk) begin
    here_bvalid <= resetn & (written | here_bvalid & ~bready);
    here_rvalid <= resetn & (reads | here_rvalid & ~rready);
    if (reads) case ({araddr[31:28], a[7:2]})
      {4'h2, 6'h03}: here_rdata <= {22'd0, slverr, answered, 4'd0, answer};  // ANSWER
      {4'h2, 6'h04}: here_rdata <= {31'd0, event_valid};  // EVENT
      {4'h2, 6'h05}: here_rdata <= event_data[31:0];
      {4'h2, 6'h06}: here_rdata <= event_data[63:32];
      default: here_rdata <= {memory[a + 3], memory[a + 2], memory[a + 1], memory[a]};
    endcase
  end
  assign awready = write_hub ? hub_awready : written;
  assign wready = write_hub ? hub_wready : written;
  assign bvalid = write_hub ? hub_bvalid : here_bvalid;
  assign arready = read_hub ? hub_arready : reads;
  assign rvalid = read_hub ? hub_rvalid : here_rvalid;
  assign rdata = read_hub ? hub_rdata : here_rdata;

  // -- hub ----------------------------------------------------------------------------------------
  `define WRITE_PORT(name, at) \
    .name``_awaddr(at``_awaddr), .name``_awvalid(at``_awvalid), .name``_awready(at``_awready), \
    .name``_wdata(at``_data), .name``_wstrb(at``_strb), .name``_wlast(at``_wlast), \
    .name``_wvalid(at``_wvalid), .name``_wready(at``_wready), \
    .name``_bid(1'b0), .name``_bresp(2'b00), .name``_bvalid(at``_bvalid), .name``_bready()
  `define WRITE_WIRES(at) \
    wire [47:0] at``_awaddr; \
    wire at``_awvalid, at``_awready, at``_wlast, at``_wvalid, at``_wready, at``_bvalid;
  `define WRITER(at, bytes) \
    burst_writer #(bytes) at``_writer (clk, resetn, at``_awaddr[15:0], at``_awvalid, \
      at``_awready, at``_wlast, at``_wvalid, at``_wready, at``_bvalid, at``_en, at``_at);
  `WRITE_WIRES(row0)
  `WRITE_WIRES(row1)
  `WRITE_WIRES(spill)
  `WRITER(row0, 32)
  `WRITER(row1, 32)
  `WRITER(spill, 8)

  moehub_axi hub (
    .aclk(clk), .aresetn(resetn),
    // registers: 64 KiB of the core's address space
    .s_axil_awaddr(awaddr[15:0]), .s_axil_awprot(3'd0),
    .s_axil_awvalid(awvalid & write_hub), .s_axil_awready(hub_awready),
    .s_axil_wdata(wdata), .s_axil_wstrb(wstrb),
    .s_axil_wvalid(wvalid & write_hub), .s_axil_wready(hub_wready),
    .s_axil_bresp(hub_bresp), .s_axil_bvalid(hub_bvalid), .s_axil_bready(bready & write_hub),
    .s_axil_araddr(araddr[15:0]), .s_axil_arprot(3'd0),
    .s_axil_arvalid(arvalid & read_hub), .s_axil_arready(hub_arready),
    .s_axil_rdata(hub_rdata), .s_axil_rresp(hub_rresp),
    .s_axil_rvalid(hub_rvalid), .s_axil_rready(rready & read_hub),
    // stores: mask, data, operand; class, owner and tag are 0
    .s_axis_store0_tdata({8'd0, wdata, data, 16'd0, operand}),
    .s_axis_store0_tvalid(store_valid), .s_axis_store0_tready(store_ready),
    .m_axis_response0_tdata(answer_data), .m_axis_response0_tvalid(answer_valid),
    .m_axis_response0_tready(1'b1),
    // events
    .m_axis_event_tdata(event_data), .m_axis_event_tvalid(event_valid),
    .m_axis_event_tready(event_taken),
    // closes are given through control.COMMAND: the command port rests
    .s_axis_command_tdata(96'd0), .s_axis_command_tvalid(1'b0),
    .m_axis_command_response_tready(1'b1),
    // one hub alone: the link rests
    .s_axis_rx0_tdata(128'd0), .s_axis_rx0_tvalid(1'b0), .s_axis_rx0_tlast(1'b0),
    .m_axis_tx0_tready(1'b1),
    // memory: what comes from the link, what comes from this hub, spilled rows
    `WRITE_PORT(m_axi_0, row0),
    `WRITE_PORT(m_axi_1, row1),
    `WRITE_PORT(m_axi_spill, spill),
    .m_axi_spill_araddr(spill_araddr), .m_axi_spill_arvalid(spill_read),
    .m_axi_spill_arready(1'b1), .m_axi_spill_rid(1'b0), .m_axi_spill_rdata(spill_rdata),
    .m_axi_spill_rresp(2'b00), .m_axi_spill_rlast(1'b1), .m_axi_spill_rvalid(spill_rvalid)
  );
endmodule

// The target of AXI4's write channels: one burst at a time, a beat per cycle, answered behind the
// last one, as the hub needs it: what is answered is in memory.
module burst_writer #(parameter BYTES = 32) (
  input  wire        clk,
  input  wire        resetn,
  input  wire [15:0] awaddr,
  input  wire        awvalid,
  output wire        awready,
  input  wire        wlast,
  input  wire        wvalid,
  output wire        wready,
  output reg         bvalid,
  output wire        en,
  output reg  [15:0] at
);
  reg busy;
  assign awready = ~busy & ~bvalid;
  assign wready = busy;
  assign en = wvalid & busy;

  always @(posedge clk) begin
    if (awvalid & awready) {busy, at} <= {1'b1, awaddr};
    if (en) {busy, at} <= {~wlast, at + BYTES[15:0]};
    bvalid <= resetn & en & wlast;  // the hub's bready is always 1
    if (~resetn) busy <= 0;
  end
endmodule
