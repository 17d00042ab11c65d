# SPDX-License-Identifier: Apache-2.0
"""Hubs in which some blocks are cut out: their outputs become free, or what a specification
says."""

from amaranth import Cat
from amaranth.hdl import ValueCastable

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec, Stream
from hub_rtl.contract.ports import hub_interfaces
from hub_rtl.hub.hub import Hub

__all__ = ["CutHub", "fields_of", "joined_pairs", "same_pairs", "whole"]


#: Of a hub's parts, those that join the others: they stay.
JOINTS = ("HubProducer", "HubConsumer", "ControlRouter", "StreamMerge")


class CutHub(Spec):
    """A hub without its blocks. ``self.blocks``: those that were emptied, by class, in the order of
    lanes or slices. Their outputs and the hub's inputs are free: streams, too, may drop what they
    offered."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg

    def hub(self, m, keep=()):
        """The hub, with the blocks of the classes ``keep`` as they are."""
        m.submodules.dut = self.dut = dut = Hub(self.cfg)
        hub = observe(dut)
        self.blocks = {}
        for found in (*hub, *observe(hub.producer), *observe(hub.consumer)):
            for block in found if isinstance(found, list) else [found]:
                name = type(block).__name__
                if name not in (*JOINTS, *keep):
                    cut(self, block)
                    self.blocks.setdefault(name, []).append(block)
        self.free_inputs(dut)
        return dut

    def one(self, name):
        """The block of that class."""
        (block,) = self.blocks[name]
        return block

    def port(self, name, fields):
        """A stream of the hub's flat ports, its payload as the fields of a struct are laid out."""
        member = {
            field: getattr(self.dut, f"{name}_{field}") for field in ("valid", "ready", *fields)
        }
        return Stream(member["valid"], member["ready"], Cat(member[field] for field in fields))

    def same(self, name, *pairs):
        """:func:`same_pairs`, as a method."""
        same_pairs(self, name, *pairs)

    def joined(self, name, source, target):
        """Items of ``source`` are those of ``target``, in the same cycle."""
        same_pairs(self, name, *joined_pairs(source, target))


def same_pairs(spec, name, *pairs):
    """``x == y`` in every cycle, for every pair; looked at through registers, so that they are two
    values to the tools too."""
    spec.always(name, Cat(spec.past(x) == spec.past(y) for x, y in pairs).all())


def joined_pairs(source, target):
    """What is the same of two streams whose items are the same, in the same cycle."""
    return (
        (source.valid, target.valid),
        (source.payload, target.payload),
        (source.ready, target.ready),
    )


def whole(value):
    """A struct, or a value, as one value."""
    return value.as_value() if isinstance(value, ValueCastable) else value


def fields_of(cfg, name):
    """Names of an interface's ports, without valid and ready, in their order."""
    interface = next(each for each in hub_interfaces(cfg) if each.name == name)
    return [port.field for port in interface.ports if port.field not in ("valid", "ready")]
