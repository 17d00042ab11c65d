# SPDX-License-Identifier: Apache-2.0
"""The blocks under mutation: component, configuration, and the bench that has to notice."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from hub_rtl.contract.config import HubConfig, preset
from hub_rtl.decoder.decoder import LogicalDestinationDecoder
from hub_rtl.link.link import LinkPort
from hub_rtl.link.loop_port import LoopPort
from hub_rtl.memory.memory import MemoryWriter
from hub_rtl.packet_manager.packet_manager import PacketManager
from hub_rtl.producer.producer import ProducerControl
from hub_rtl.refusals.refusals import RefusalLog, RejectSender
from hub_rtl.register_bank.register_bank import CsrBank
from hub_rtl.scoreboard.scoreboard import ReadinessScoreboard
from hub_rtl.slot_allocator.slot_allocator import SlotAllocator

__all__ = ["BLOCKS", "CREDITS", "Block"]

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

BLOCKS = {
    "decoder": Block(
        LogicalDestinationDecoder,
        ODD,
        "sim.cocotb.decoder.tests,sim.cocotb.decoder.moments",
        params={"rounds": 6},
    ),
    "packet_manager": Block(
        PacketManager,
        TINY.replace(pool_depth=16),
        "sim.cocotb.packet_manager.tests,sim.cocotb.packet_manager.limits,"
        "sim.cocotb.packet_manager.places,sim.cocotb.packet_manager.moments",
        (
            "random_traffic",
            "latency",
            "interleaved",
            "sustained",
            "order",
            "starvation",
            "timers",
            "pool_full",
            "fence_and_close",
            "dead_peer",
            "same_address",
            "next_batch",
            "young_and_dead",
            "places",
            "neighbours",
            "marks_of_one",
            "place_in_a_moment",
            "old_at_once",
            "units",
            "mark_moments",
            "quota_moments",
            "lock_moments",
            "death_moments",
            "timer_moments",
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
        ("loop_traffic", "loop_full"),
        {"packets": 25},
        word="link",
    ),
    # With `tiny`'s four groups and eight slots bits that must be 0 are so anyway.
    "slot_allocator": Block(
        SlotAllocator,
        preset("tiny", groups=64, capacity=15),
        ",".join(
            f"sim.cocotb.slot_allocator.{part}"
            for part in ("tests", "limits", "pressure", "turns", "moments")
        ),
        (
            "traffic",
            "thrash",
            "full_regions",
            "spill_faults",
            "overlap",
            "purge",
            "blocked_outputs",
            "opened_in_a_row",
            "old_rows",
            "reset_in_traffic",
            "latency",
            "full_rate",
            "plain_bounds",
            "range_groups",
            "refusals_told_apart",
            "row_bounds",
            "epochs",
            "state_changes_in_check",
            "tables_written_again",
            "every_slot",
            "damaged_words",
            "reset_forgets",
            "header_alone",
            "overflow_region_ends_first",
            "answers_wait",
            "queues_stay_full",
            "all_at_once",
            "turns",
            "turns_of_words",
            "opened_while_answering",
            "ended_while_answering",
            "purge_each",
            "purge_in_turns",
            "purge_waits",
            "overflow_region_opens",
            "sources",
            "turns_of_overlaps",
            "hits_do_not_wait",
            "waits_named",
            "stalls_counted",
            "tables_change_in_check",
            "spill_faults_between_banks",
            "purge_meets_row",
        ),
        target=100,
        strobes=("obs_alloc", "o_overlap", "waiting__0", "waiting__1"),
    ),
    "memory_writer": Block(
        MemoryWriter,
        TINY,
        "sim.cocotb.memory.tests,sim.cocotb.memory.moments",
        params={"writes": 50},
        word="memory",
    ),
    "scoreboard": Block(
        ReadinessScoreboard,
        TINY,
        ",".join(
            f"sim.cocotb.scoreboard.{part}"
            for part in ("tests", "faults", "promises", "tables", "epochs", "moments", "tells")
        ),
        params={"epochs": 8, "pour": 40000},
        target=100,
        strobes=("command_error", "o_region_update", "purge", "o_timeout", "bad_close"),
    ),
    # With more ranks than places for messages, for no rank has two on their way.
    "producer_control": Block(
        ProducerControl,
        ODD.replace(ranks=5, pool_depth=8),
        "sim.cocotb.producer.tests,sim.cocotb.producer.limits,sim.cocotb.producer.moments",
        (
            "random_commands",
            "every_fault",
            "two_epochs_ahead",
            "slow_peer",
            "dead_peer",
            "many_fences",
            "software_reads",
            "reset_in_traffic",
            "latency",
            "turns",
            "blocked_messages",
            "software_turns",
            "before_cleared",
            "drains",
            "dead_turns",
            "sink_meets_verdict",
            "fence_meets_answer",
            "close_all_but_one",
            "hold_ends_in_close_all",
            "write_meets_close",
            "death_meets_message",
        ),
        {"commands": 40, "other": True},
        strobes=("o_handle_write", "o_mark", "ledger_read"),
        word="producer",
    ),
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
