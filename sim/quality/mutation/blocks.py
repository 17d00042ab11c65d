# SPDX-License-Identifier: Apache-2.0
"""The blocks under mutation: component, configuration, and the bench that has to notice."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from hub_rtl.contract.config import HubConfig, preset
from hub_rtl.decoder.decoder import LogicalDestinationDecoder
from hub_rtl.hub.news_split import NewsSplit
from hub_rtl.link.deserializer import Deserializer
from hub_rtl.link.link import LinkPort
from hub_rtl.link.loop_port import LoopPort
from hub_rtl.link.serializer import Serializer
from hub_rtl.link.slice_credits import SliceCredits
from hub_rtl.memory.flag_port import SpillPortMerge
from hub_rtl.memory.memory import MemoryWriter
from hub_rtl.packet_manager.packet_manager import PacketManager
from hub_rtl.producer.ledger import SendLedger
from hub_rtl.producer.news import NewsLanes
from hub_rtl.producer.producer import ProducerControl
from hub_rtl.receive_pool.receive_pool import ReceivePool
from hub_rtl.refusals.refusals import RefusalLog, RejectSender
from hub_rtl.register_bank.register_bank import CsrBank
from hub_rtl.remote_fence.remote_fence import FenceAnswers, FenceAsks
from hub_rtl.scoreboard.scoreboard import ReadinessScoreboard
from hub_rtl.slot_allocator.slot_allocator import SlotAllocator
from sim.cocotb.decoder.parts import Parts

__all__ = ["BLOCKS", "CREDITS", "MEANT", "Block"]

#: Mutants of these files have to be killed without exception, whatever block they are in.
CREDITS = "hub_rtl/link/credits.py"


@dataclass(frozen=True)
class Block:
    """``tests``: names of cocotb tests of ``module``, all when empty; ``target``: least kill rate
    in percent; ``strobes``: outputs whose bit 0, ``en`` or ``valid``, says that the rest counts;
    ``word``: the block of the tree that it is, or is part of."""

    component: Callable
    cfg: HubConfig
    module: str
    tests: tuple = ()
    params: dict = field(default_factory=dict)
    target: int = 95
    strobes: tuple = ()
    word: str = ""

    def make(self):
        return self.component(self.cfg)


TINY = preset("tiny")
# Beside `tiny`: what has only one of a kind there would be constant.
ODD = preset("tiny", ranks=3, lanes=3, handles=5, regions=3, replicas=2)

# With `tiny`'s credits every buffer is reported at once.
LINK = preset("tiny", ranks=3, ctl_credits=8)

FENCES = preset("tiny", ranks=3, packet_bytes=256)

# With few places an eighth of them is none, and all needs are met or none.
POOL = {"slice_bytes": 128, "links": 2, "places": 37, "period": 200}

ALLOCATOR = ",".join(
    f"sim.cocotb.slot_allocator.{part}"
    for part in ("tests", "limits", "pressure", "turns", "moments")
)
SHOWN = ("obs_alloc", "o_overlap", "waiting__0", "waiting__1")

BLOCKS = {
    "decoder": Block(
        LogicalDestinationDecoder,
        ODD,
        "sim.cocotb.decoder.tests,sim.cocotb.decoder.moments",
        params={"rounds": 6},
    ),
    "store_steer": Block(Parts, ODD, "sim.cocotb.decoder.steer", word="decoder"),
    "packet_manager": Block(
        PacketManager,
        TINY.replace(pool_depth=16),
        ",".join(
            f"sim.cocotb.packet_manager.{part}"
            for part in ("tests", "limits", "places", "moments", "lists", "ways", "visits", "room")
        ),
    ),
    # Turns can be told from priorities with four peers.
    "link": Block(
        LinkPort,
        LINK.replace(ranks=5, pool_depth=8),
        "sim.cocotb.link.tests,sim.cocotb.link.credits,sim.cocotb.link.faults",
        params={"packets": 40},
        strobes=("o_bad",),
    ),
    "loop_port": Block(
        LoopPort,
        LINK,
        "sim.cocotb.link.loop",
        params={"packets": 25},
        word="link",
    ),
    # Nothing is a power of two.
    "serializer": Block(
        partial(Serializer, slice_bytes=32),
        preset("tiny", packet_bytes=256),
        "sim.cocotb.link.serializer",
        params={"slice_bytes": 32, "records": 60},
        word="link",
    ),
    "deserializer": Block(
        partial(Deserializer, slice_bytes=32),
        preset("tiny", ranks=4, pool_depth=8, packet_bytes=256),
        "sim.cocotb.link.deserializer",
        params={"slice_bytes": 32, "packets": 40},
        word="link",
    ),
    "slice_credits": Block(
        partial(SliceCredits, places=15),
        preset("tiny", ranks=3),
        "sim.cocotb.link.slice_credits",
        params={"events": 100, "places": 15},
        target=100,
        word="link",
    ),
    "receive_pool": Block(
        partial(ReceivePool, **POOL),
        preset("tiny", ranks=3, packet_bytes=256),
        "sim.cocotb.receive_pool.tests,sim.cocotb.receive_pool.policy",
        params={"packets": 25, **POOL},
    ),
    "fence_asks": Block(
        FenceAsks,
        FENCES,
        "sim.cocotb.remote_fence.asks",
        params={"packets": 150},
        word="remote_fence",
    ),
    "fence_answers": Block(
        FenceAnswers,
        FENCES,
        "sim.cocotb.remote_fence.answers",
        params={"events": 600},
        word="remote_fence",
    ),
    # With `tiny`'s four groups and eight slots bits that must be 0 are so anyway.
    "slot_allocator": Block(
        SlotAllocator,
        preset("tiny", groups=64, capacity=15),
        ALLOCATOR,
        target=100,
        strobes=SHOWN,
    ),
    "victim_store": Block(
        SlotAllocator,
        preset("tiny", victim_sets=1, capacity=64),
        f"{ALLOCATOR},sim.cocotb.slot_allocator.store",
        target=100,
        strobes=SHOWN,
        word="slot_allocator",
    ),
    "memory_writer": Block(
        MemoryWriter,
        TINY,
        "sim.cocotb.memory.tests,sim.cocotb.memory.moments",
        params={"writes": 50},
        word="memory",
    ),
    "spill_port": Block(
        lambda cfg: SpillPortMerge(),
        TINY,
        "sim.cocotb.memory.shared_port",
        params={"words": 60},
        word="memory",
    ),
    "scoreboard": Block(
        ReadinessScoreboard,
        TINY,
        ",".join(
            f"sim.cocotb.scoreboard.{part}"
            for part in (
                "tests",
                "faults",
                "promises",
                "tables",
                "epochs",
                "moments",
                "tells",
                "overflow",
                "ranges",
                "widths",
            )
        ),
        params={"epochs": 8, "pour": 40000},
        target=100,
        strobes=("command_error", "o_region_update", "purge", "o_timeout", "bad_close"),
    ),
    # With more ranks than places for messages, for no rank has two on their way.
    "producer_control": Block(
        ProducerControl,
        ODD.replace(ranks=5, pool_depth=8),
        ",".join(
            f"sim.cocotb.producer.{part}" for part in ("tests", "limits", "moments", "announce")
        ),
        params={"commands": 40},
        strobes=("o_handle_write", "o_mark", "ledger_read"),
        word="producer",
    ),
    "send_ledger": Block(
        SendLedger,
        ODD.replace(lanes=5, loop_lanes=2),
        "sim.cocotb.producer.ledger",
        word="producer",
    ),
    "news_lanes": Block(
        NewsLanes, ODD.replace(loop_lanes=2), "sim.cocotb.producer.lanes", word="producer"
    ),
    "news_split": Block(NewsSplit, TINY, "sim.cocotb.hub.news", word="hub"),
    "reject_sender": Block(RejectSender, ODD, "sim.cocotb.refusals.tests", word="refusals"),
    # In a log of two entries most that is logged is never read.
    "refusal_log": Block(
        RefusalLog, ODD.replace(log_depth=13), "sim.cocotb.refusals.log", word="refusals"
    ),
    # Of 48 bits most would stay 0.
    "csr": Block(
        partial(CsrBank, counter_width=14),
        ODD,
        "sim.cocotb.register_bank.tests,sim.cocotb.register_bank.access,"
        "sim.cocotb.register_bank.orders",
        params={"counter_width": 14},
        word="register_bank",
    ),
}

#: What is asked about mutants of meaning: besides, of three regions one neither overflows nor is
#: overflowed into.
MEANT = BLOCKS | {
    "scoreboard_of_three": Block(
        ReadinessScoreboard,
        TINY.replace(regions=3, groups=8),
        "sim.cocotb.scoreboard.ranges",
        word="scoreboard",
    ),
}
