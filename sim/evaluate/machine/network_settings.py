# SPDX-License-Identifier: Apache-2.0
"""Rates and latencies of the network model, for a machine or as given, and the hub's figures they
come from."""

import json
from dataclasses import dataclass
from functools import cache
from math import ceil, inf
from pathlib import Path

from hub_rtl.contract.config import RESERVE, first_share
from hub_rtl.receive_pool.receive_pool import PERIOD
from sim.golden.pool_grants import VISIT
from sim.system.fabric import HUB_GHZ, LINK_CLOCK

__all__ = [
    "HUB_FILE",
    "NetworkSettings",
    "carried",
    "credit_cycles",
    "flits_of",
    "hub_figures",
    "hub_preset",
    "links_for",
    "loops_for",
]

CLOCKS = LINK_CLOCK[1] / LINK_CLOCK[0]  # of the hub, in cycles of links with a clock of their own
HUB_FILE = Path(__file__).parents[1] / "data" / "hub.json"


@cache
def hub_figures():
    """The hub's latencies (cycles) and rates, as measured on the RTL by
    ``sim/evaluate/calibrate.py``.

    Raises ValueError when the file is not there or is not what the benchmark writes.
    """
    try:
        return json.loads(HUB_FILE.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{HUB_FILE}: {error}; `moe-hub evaluate calibrate` measures it") from None


def hub_preset(ranks, hub=None):
    """Slices, their links, loopback slices and pools of the hub that a GPU of a system of so many
    ranks has: of nvl8, from 9 on of nvl72.

    Presets are there for 8 and 72 ranks. Between them a hub has the same pools, shared by its
    sources, and as many loopback slices as :func:`loops_for` says.
    """
    made_for = (hub or hub_figures())["presets"]["nvl8" if ranks <= 8 else "nvl72"]
    return made_for | {"loop_lanes": loops_for(ranks, made_for["lanes"])}


def links_for(fabric, hub_ghz=HUB_GHZ):
    """Links of a hub of this clock, a flit in each of its cycles, that carry a GPU's rate."""
    return max(1, round(fabric.link_gbps / hub_ghz / fabric.flit_bytes))


def loops_for(ranks, lanes):
    """Loopback slices beside so many slices: enough for two rows in ``ranks``, which is how both
    presets are sized."""
    return min(lanes, ceil(2 * lanes / max(1, ranks - 1)))


def passed(built):
    """Bytes of payload that a slice passes on in a cycle of its links: a beat per cycle of the
    hub's clock."""
    return built["slice_bytes"] * (CLOCKS if built["link_clock"] else 1)


def carried(built):
    """Bytes that a slice carries on its links in a cycle of theirs, headers included: what it
    passes on, nine flits for each 128 bytes of payload (docs/blocks/receive_pool.md)."""
    return min(16 * built["slice_links"], passed(built) * 9 / 8)


def credit_cycles(hub):
    """Cycles that the two hubs add to the way of a credit back, without the wait for a visit, half
    a round of them where they were measured."""
    return hub["latency_cycles"]["arrival_to_credit"] - VISIT * (hub["config"]["ranks"] - 1) / 2


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Rates and latencies of a network, in bytes and in one unit of time of the caller's choice.

    ``rate``: bytes per unit of time that a GPU's links carry in one direction, all planes together.
    ``planes``: switch planes, each with an equal share of the rate; with ``spray`` every message is
    spread evenly over all, so that they act as one. ``latency``: from the end of a packet on the
    sender's link to its beginning on the receiver's, both hops and the switch. ``store_latency``:
    last store of a packet to its header on the link. ``write_latency``: last flit at the receiver
    to memory's acknowledgement. ``local_rate``, ``local_latency``: of the loopback path, which
    takes packets without headers in beats of ``beat_bytes``, the latter from the last store to the
    acknowledgement.
    ``age_limit``: the lists of a destination with a message that has waited for so long take turns.

    ``places``: packets for which a destination has room, per plane, None: any number; ``pools``:
    of slices, in which they are. ``visit``: of a source by the pools' policy, ``period``: of that
    policy (:class:`.grants.Grants`). ``credit_latency``: what the two hubs add to the way of a
    credit back, from the end of a packet at the receiver on. ``batch_packets``: packets of one turn
    of the round robin. ``pool_packets``: packets that wait in a hub for its links, at most, None:
    no hub. ``hub_cycle``: of the hub's clock, 0 without one.
    """

    ranks: int
    rate: float
    latency: float
    planes: int = 1
    spray: bool = True
    store_latency: float = 0.0
    write_latency: float = 0.0
    places: int | None = None
    pools: int = 1
    visit: float = 0.0
    period: float = inf
    credit_latency: float = 0.0
    local_rate: float = inf
    beat_bytes: int = 16
    local_latency: float = 0.0
    age_limit: float = inf
    flit_bytes: int = 16
    header_flits: int = 1
    batch_packets: int = 128
    pool_packets: int | None = None
    hub_cycle: float = 0.0

    def __post_init__(self):
        for name, low in (
            ("ranks", 1),
            ("planes", 1),
            ("flit_bytes", 1),
            ("beat_bytes", 1),
            ("header_flits", 0),
            ("batch_packets", 1),
            ("pools", 1),
        ):
            if getattr(self, name) < low:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least {low}")
        for name in ("rate", "local_rate", "period"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} = {getattr(self, name)}: must be above 0")
        for name in (
            "latency",
            "store_latency",
            "write_latency",
            "credit_latency",
            "visit",
            "local_latency",
            "age_limit",
        ):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least 0")
        least = self.pools * RESERVE * max(1, self.ranks - 1)
        if self.places is not None and self.places < least:
            raise ValueError(f"places = {self.places}: must be at least {least}, or None")

    @property
    def first_share(self):
        """Packets that may be on their way per source, destination and plane at the start, ``inf``
        without a bound."""
        if self.places is None:
            return inf
        return self.pools * first_share(max(2, self.ranks), self.places // self.pools)

    @classmethod
    def of(cls, machine, *, hub=None, hub_ghz=HUB_GHZ, memory_us=0.0, batch_packets=128, built=()):
        """Settings of a machine, in microseconds: ``machine.ranks`` and ``machine.fabric``
        (``sim/evaluate/machine/hardware.py``).

        ``hub``: figures in place of those of ``data/hub.json``; ``hub_ghz``: the hub's clock.
        ``memory_us``: time that memory takes to answer a write. A GPU's rate takes as many
        links of the hub as that clock needs, in slices with the credits of :func:`hub_preset` each,
        and loopback slices in the same proportion; messages are spread over slices and planes.
        ``built``: fields of that hub to replace, as (name, value) pairs; a hub whose slices carry
        less than the links is as fast as its slices, and ``lanes`` is how many there are.
        """
        hub, fabric = hub or hub_figures(), machine.fabric
        cycle, cycles, reports = 1e-3 / hub_ghz, hub["latency_cycles"], hub["reports"]
        served = hub_preset(machine.ranks, hub)
        if unknown := dict(built).keys() - served.keys():
            raise ValueError(f"{min(unknown)}: must be one of {', '.join(served)}")
        served |= dict(built)
        slices = -(-links_for(fabric, hub_ghz) // served["slice_links"])
        rate = fabric.link_gbps * 1e3
        if built:
            slices = served["lanes"]
            rate = min(rate, slices * carried(served) / cycle)
        return cls(
            ranks=machine.ranks,
            rate=rate,
            latency=2e-3 * fabric.hop_ns,
            planes=fabric.planes,
            store_latency=cycle * cycles["store_to_link"],
            write_latency=cycle * cycles["arrival_to_write"] + memory_us,
            places=slices * served["pool_places"],
            pools=slices,
            visit=cycle * VISIT,
            period=cycle * PERIOD,
            credit_latency=cycle * credit_cycles(hub),
            local_rate=slices * served["loop_lanes"] / served["lanes"] * passed(served) / cycle,
            beat_bytes=served["slice_bytes"],
            local_latency=cycle * cycles["store_to_own_write"] + memory_us,
            age_limit=cycle * reports["age_limit"],
            flit_bytes=fabric.flit_bytes,
            header_flits=fabric.header_flits,
            batch_packets=batch_packets,
            pool_packets=slices * served["pool_depth"],
            hub_cycle=cycle,
        )


def flits_of(payload_bytes, *, packet_bytes=128, row_bytes=None, flit_bytes=16, header_flits=1):
    """(packets, flits) that carry ``payload_bytes`` in rows of ``row_bytes`` (None: one row); a
    packet never spans two rows."""
    row_bytes = row_bytes or payload_bytes
    rows, rest = divmod(payload_bytes, row_bytes) if row_bytes else (0, 0)
    packets = flits = 0
    for count, length in ((rows, row_bytes), (1, rest)):
        if count and length:
            whole, part = divmod(length, packet_bytes)
            of_row = whole + (part > 0)
            packets += count * of_row
            flits += count * (
                of_row * header_flits
                + whole * -(-packet_bytes // flit_bytes)
                + -(-part // flit_bytes)
            )
    return packets, flits
