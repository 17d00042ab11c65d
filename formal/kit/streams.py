# SPDX-License-Identifier: Apache-2.0
"""Promises about the streams and AXI channels of whole blocks: what waits stays as it is."""

import importlib

from amaranth import Cat
from amaranth.lib import wiring

from hub_rtl.contract.config import HubConfig

from .spec import Spec, Stream, streams

__all__ = ["BlockHoldsItems", "channels"]

PREFIXES = ("aw", "w", "b", "ar", "r", "t")


def channels(part):
    """``(name, flow, Stream)`` of every AXI channel among the ports of a component; the payload is
    the rest of the channel."""
    groups = {}
    for path, member, value in part.signature.flatten(part):
        groups.setdefault(path[:-1], {})[path[-1]] = (member.flow, value)
    for path, members in groups.items():
        for prefix in PREFIXES:
            if f"{prefix}valid" in members and f"{prefix}ready" in members:
                flow, valid = members[f"{prefix}valid"]
                rest = [
                    value
                    for name, (_, value) in members.items()
                    if name.startswith(prefix) and name not in (f"{prefix}valid", f"{prefix}ready")
                ]
                yield (
                    ".".join([*map(str, path), prefix]),
                    flow,
                    Stream(valid, members[f"{prefix}ready"][1], Cat(rest)),
                )


class BlockHoldsItems(Spec):
    """Every output stream and AXI channel of the block keeps valid and payload until the item is
    taken, whatever the inputs do; inputs that never wait take at once.

    The input streams and channels keep theirs, too. Parameters: ``block``, ``module:Class``;
    ``cfg``, if it takes one; ``never_wait``, names of inputs; ``but``, outputs that another check
    has; ``arguments`` of the block.
    """

    def __init__(self, block, cfg: HubConfig = None, never_wait=(), but=(), **arguments):
        super().__init__()
        module, _, name = block.partition(":")
        self._part = getattr(importlib.import_module(module), name)(
            *([cfg] if cfg else []), **arguments
        )
        self._never_wait, self._but = never_wait, but

    def build(self, m):
        m.submodules.dut = dut = self._part
        for _, member, value in dut.signature.flatten(dut):
            if member.flow == wiring.In:
                self.free(value)
        for name, flow, port in (*streams(dut), *channels(dut)):
            if name in self._never_wait:
                self.always(f"{name}: taken at once", port.ready, when=port.valid)
            elif flow == wiring.In:
                self.suppose_held(port, name)
            elif name not in self._but:
                self.always_held(port, name)
