# SPDX-License-Identifier: Apache-2.0
"""What the specifications of the scoreboard's parts share: narrower byte counts, and inner signals
for lemmas."""

from functools import cache

from amaranth import Signal
from amaranth.hdl import Const, Fragment
from amaranth.hdl._mem import MemoryInstance

from hub_rtl.contract.config import HubConfig

__all__ = ["Opened", "covers", "narrow"]


@cache
def _narrow_class(tile_width, total_width):
    return type(
        "NarrowConfig", (HubConfig,), {"tile_width": tile_width, "total_width": total_width}
    )


def narrow(cfg, tile_width, total_width):
    """``cfg`` with so many bits for the bytes of a tile and of a bank (24 and 34 in a hub); nothing
    else depends on them."""
    return _narrow_class(tile_width, total_width)(**cfg.as_dict())


def covers(run, region, bank):
    """Whether a strobe for a run of banks is for this one too."""
    return run.en & (run.region <= region) & (region <= run.last) & (run.bank == bank)


class Opened:
    """A part added to ``m``, with the signals of its bodies by name (``tiles.walk``) and the words
    of its memories.

    For lemmas: what a proof by induction must know of the inner state. They are asserted like
    everything else.
    """

    def __init__(self, m, part, at="dut"):
        self.fragment = fragment = Fragment.get(part, None)
        fragment.origins = None
        part.elaborate = lambda platform: (
            fragment
        )  # the same body for the design, of which the ports are still known
        m.submodules[at] = part

    def _at(self, path):
        fragment = self.fragment
        for name in path:
            fragment = next(each for each, found, _ in fragment.subfragments if found == name)
        return fragment

    def signals(self, *paths):
        """Signals by name; ``$signal#2`` is the third of those that have no name of their own, as
        they are assigned."""
        found = []
        for path in paths:
            *place, name = path.split(".")
            name, _, number = name.partition("#")
            named = {
                id(signal): signal
                for statements in self._at(place).statements.values()
                for statement in statements
                for signal in statement._lhs_signals()
                if signal.name == name
            }
            found.append(list(named.values())[int(number or 0)])
        return found

    def word(self, path, row, name):
        """``(word, memory, body)``: the present word of the memory in the part at ``path``, that
        memory, the part's body."""
        body = self._at(path.split("."))
        memory = next(
            each
            for each in (body, *(part for part, _, _ in body.subfragments))
            if isinstance(each, MemoryInstance)
        )
        read = memory._read_ports[0]
        word = Signal(len(read._data), name=name)
        memory.read_port(
            domain="comb",
            addr=(row + Const(0, len(read._addr)))[: len(read._addr)],
            data=word,
            en=Const(1, 1),
            transparent_for=(),
        )
        return word, memory, body

    def row(self, spec, path, row, name):
        """``(word, known)``: the present word of the Ram at ``path`` in ``row``, and whether its
        walker has passed there.

        Asserts the collision rule for that row: what was read one cycle ago is the word now.
        """
        word, memory, ram = self.word(path, row, f"{name}_word")
        read = memory._read_ports[0]
        inside = {
            signal.name: signal
            for statements in ram.statements.values()
            for statement in statements
            for signal in statement._lhs_signals()
        }
        data = inside["r_data"]
        here = spec.past(read._en & (read._addr == row), f"{name}_read_here")
        spec.lemma(f"{name} read", data == word, when=here)
        known = Const(1, 1)
        if "walk" in inside:
            walk, depth = inside["walk"], memory._data.depth
            known = walk > row
            spec.lemma(f"{name} walk", walk <= depth)
        return word, known
