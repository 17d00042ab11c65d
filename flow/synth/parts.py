# SPDX-License-Identifier: Apache-2.0
"""The parts that are measured, out of context: each block, one lane, what all lanes share, the
whole hub."""

import importlib
from dataclasses import dataclass, field

from flow.verilog.netlist import to_rtlil
from hub_rtl.contract.config import ConfigError

__all__ = ["PARTS", "Part", "part_rtlil"]


@dataclass(frozen=True)
class Part:
    """name: as typed. source: ``module:Class`` within ``hub_rtl``. per: how many a hub has
    (``lane``, ``slice``, ``loop`` or ``hub``). arguments: of the class, beside the
    configuration."""

    name: str
    source: str
    per: str
    configured: bool = True
    arguments: dict = field(default_factory=dict)

    def count(self, cfg):
        """Instances in a hub of this configuration."""
        return {"lane": cfg.lanes, "loop": cfg.loop_lanes, "slice": cfg.slices, "hub": 1}[self.per]


PARTS = {
    part.name: part
    for part in (
        Part("decoder", "decoder.decoder:LogicalDestinationDecoder", "lane"),
        Part("packet_manager", "packet_manager.packet_manager:PacketManager", "slice"),
        Part(
            "receive_pool",
            "receive_pool.receive_pool:ReceivePool",
            "slice",
            arguments={"slice_bytes": 64, "links": 3, "places": 576},
        ),
        Part(
            "deserializer",
            "link.deserializer:Deserializer",
            "lane",
            arguments={"slice_bytes": 64},
        ),
        Part(
            "slice_credits",
            "link.slice_credits:SliceCredits",
            "slice",
            arguments={"places": 576},
        ),
        Part("ledger", "producer.ledger:SendLedger", "hub"),
        Part("link", "link.link:LinkPort", "lane"),
        Part("loop_port", "link.loop_port:LoopPort", "loop"),
        Part("row_lookup", "slot_allocator.row_lookup:RowLookup", "slice"),
        Part("address_table", "slot_allocator.address_table:AddressTable", "hub"),
        Part("slot_allocator", "slot_allocator.slot_allocator:SlotAllocator", "hub"),
        Part("memory_writer", "memory.memory:MemoryWriter", "slice"),
        Part("scoreboard", "scoreboard.scoreboard:ReadinessScoreboard", "hub"),
        Part("producer_control", "producer.producer:ProducerControl", "hub"),
        Part("reject_sender", "refusals.refusals:RejectSender", "hub"),
        Part("refusal_log", "refusals.refusals:RefusalLog", "hub"),
        Part("fence_asks", "remote_fence.remote_fence:FenceAsks", "slice"),
        Part("fence_answers", "remote_fence.remote_fence:FenceAnswers", "slice"),
        Part("spill_port_merge", "memory.flag_port:SpillPortMerge", "hub", configured=False),
        Part("csr", "register_bank.register_bank:CsrBank", "hub"),
        Part("hub", "hub.hub:Hub", "hub"),
    )
}


def part_rtlil(name, cfg):
    """RTLIL of a part with ``top`` as its top module. Raises ConfigError for an unknown part."""
    if name not in PARTS:
        raise ConfigError(f"part = {name!r}: must be one of {', '.join(PARTS)}")
    part = PARTS[name]
    module, _, cls = part.source.partition(":")
    make = getattr(importlib.import_module(f"hub_rtl.{module}"), cls)
    return to_rtlil(make(*([cfg] if part.configured else []), **part.arguments), "top")
