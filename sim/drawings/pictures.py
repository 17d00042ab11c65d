# amaranth: UnusedElaboratable=no
# SPDX-License-Identifier: Apache-2.0
"""All drawings of the blocks' pages, as files of ``docs/images/blocks``."""

from functools import partial

from hub_rtl.contract.config import preset
from hub_rtl.decoder.decoder import LogicalDestinationDecoder
from hub_rtl.hub.link_slice import LinkSlice
from hub_rtl.memory.memory import MemoryWriter
from hub_rtl.packet_manager.packet_manager import PacketManager
from hub_rtl.producer.producer import ProducerControl
from hub_rtl.receive_pool.receive_pool import ReceivePool
from hub_rtl.refusals.refusals import RefusalLog
from hub_rtl.register_bank.register_bank import CsrBank
from hub_rtl.remote_fence.remote_fence import FenceAsks
from hub_rtl.scoreboard.scoreboard import ReadinessScoreboard
from hub_rtl.slot_allocator.slot_allocator import SlotAllocator
from sim.folders import ROOT

from .journey import journey_svg
from .scene import record
from .symbol import symbol_svg
from .timing import DIAGRAMS, diagram_svg

__all__ = ["FOLDER", "SYMBOLS", "pictures"]

FOLDER = ROOT / "docs" / "images" / "blocks"

#: The component on a block's page, by the block's word.
SYMBOLS = {
    "decoder": LogicalDestinationDecoder,
    "packet_manager": PacketManager,
    "producer": ProducerControl,
    "link": LinkSlice,
    "receive_pool": partial(ReceivePool, slice_bytes=32, links=1, places=64),
    "slot_allocator": SlotAllocator,
    "memory": MemoryWriter,
    "scoreboard": ReadinessScoreboard,
    "remote_fence": FenceAsks,
    "refusals": RefusalLog,
    "register_bank": CsrBank,
}


def pictures():
    """{file name: SVG text}. Same design, same bytes."""
    recording, cfg = record(), preset("small")
    return {
        **{f"{word}.svg": symbol_svg(block(cfg)) for word, block in SYMBOLS.items()},
        **{f"{name}_timing.svg": diagram_svg(d, recording) for name, d in DIAGRAMS.items()},
        "journey.svg": journey_svg(recording),
    }
