"""What the specifications of the scoreboard's parts share: narrower byte counts, and a look at inner signals for lemmas."""

from functools import cache

from amaranth.hdl import Fragment

from hub_rtl.config import HubConfig

__all__ = ["inner", "narrow"]


@cache
def _narrow_class(tile_width, total_width):
    return type("NarrowConfig", (HubConfig,), {"tile_width": tile_width, "total_width": total_width})


def narrow(cfg, tile_width, total_width):
    """``cfg`` with so many bits for the bytes of a tile and of a bank (24 and 34 in a hub); nothing else depends on them."""
    return _narrow_class(tile_width, total_width)(**cfg.as_dict())


def inner(m, part, *names, at="dut"):
    """Adds ``part`` to ``m`` and gives the signals of its own body with these names: for lemmas only."""
    fragment = Fragment.get(part, None)
    m.submodules[at] = fragment
    found = {signal.name: signal for statements in fragment.statements.values() for statement in statements
             for signal in statement._lhs_signals()}
    return [found[name] for name in names]
