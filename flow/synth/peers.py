# SPDX-License-Identifier: Apache-2.0
"""Open modules that do a job like one of ours, as measured with this flow: what a fair clock and
size are."""

from dataclasses import dataclass

__all__ = ["LUT_RATIO", "PEERS", "Peer", "peer_of"]

LUT_RATIO = 1.5  # a block may have so many times the LUTs of its peer


@dataclass(frozen=True)
class Peer:
    """name, source: module and repository. parameters: it was measured with. job: what it has in
    common with our ``part`` (None: reported, stands beside no part). lut, ff, bram, mhz: ECP5-85F
    speed 8, out of context, one seed. kge, sg13g2_mhz: SG13G2, memories as flip-flops; asap7_ps:
    ASAP7; None: not measured. Cells were mapped with Yosys' own ABC script, which leaves large
    fan-outs to small gates: beside cells.ABC they look slower than they are. judged: our LUTs are
    held to a multiple of the peer's."""

    name: str
    source: str
    parameters: str
    job: str
    part: str | None
    lut: int
    ff: int
    bram: int
    mhz: int
    kge: float | None = None
    sg13g2_mhz: int | None = None
    asap7_ps: int | None = None
    judged: bool = True


PEERS = (
    Peer(
        "queue_manager",
        "corundum/corundum",
        "op table 16",
        "table of pointers, looked up and changed in order",
        "decoder",
        876,
        432,
        4,
        111,
    ),
    Peer(
        "queue_manager",
        "corundum/corundum",
        "op table 16",
        "base and pointer of every queue",
        "address_table",
        876,
        432,
        4,
        111,
    ),
    Peer(
        "cc_id_queue",
        "pulp-platform/common_cells",
        "16 ids, capacity 16",
        "associative match, oldest first",
        "packet_manager",
        4085,
        800,
        0,
        66,
        12.2,
        177,
        842,
    ),
    Peer(
        "cc_id_queue",
        "pulp-platform/common_cells",
        "16 ids, capacity 16",
        "what is in flight, found by its name",
        "row_lookup",
        4085,
        800,
        0,
        66,
        12.2,
        177,
        842,
    ),
    Peer(
        "cpl_queue_manager",
        "corundum/corundum",
        "op table 16",
        "completions counted, events sent",
        "scoreboard",
        949,
        436,
        4,
        114,
        judged=False,  # it knows neither bytes of tiles nor epochs
    ),
    Peer(
        "dma_if_axi_wr",
        "corundum/corundum",
        "128 bits",
        "AXI writes from a stream",
        "memory_writer",
        7940,
        1107,
        0,
        91,
    ),
    Peer(
        "dma_if_desc_mux",
        "corundum/corundum",
        "4 ports",
        "requests of several to one port, answers back",
        "spill_port_merge",
        461,
        670,
        0,
        319,
        7.8,
        599,
    ),
    Peer(
        "axis_arb_mux",
        "alexforencich/verilog-axis",
        "4 x 128 bits",
        "several streams into one",
        None,
        623,
        890,
        0,
        318,
        10.4,
        559,
        261,
    ),
    Peer(
        "axis_fifo",
        "alexforencich/verilog-axis",
        "128 bits, 4 KiB, frames",
        "packet queue",
        None,
        136,
        196,
        5,
        180,
    ),
    Peer(
        "cc_credit_counter",
        "pulp-platform/common_cells",
        "64 credits",
        "credits of one source",
        None,
        44,
        7,
        0,
        325,
        0.12,
        639,
    ),
    Peer(
        "rx_hash",
        "corundum/corundum",
        "Toeplitz, 128 bits",
        "hash of a header",
        None,
        2379,
        226,
        0,
        195,
        12.0,
        496,
        349,
    ),
    Peer(
        "axis_ram_switch",
        "alexforencich/verilog-axis",
        "4 x 4, 128 bits, 4 KiB",
        "switch with shared memory",
        None,
        24525,
        13212,
        15,
        100,
    ),
    Peer(
        "FlooNoC AXI router",
        "pulp-platform/FlooNoC",
        "its synthesis wrapper, 5 ports",
        "router of a network on chip",
        None,
        6384,
        3940,
        0,
        91,
        49.1,
        243,
        654,
    ),
)


def peer_of(part):
    """The :class:`Peer` that a part is judged by, or None."""
    return next((peer for peer in PEERS if peer.part == part), None)
