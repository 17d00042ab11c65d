# SPDX-License-Identifier: Apache-2.0
"""Rates and latencies of the network model, for a machine or as given, and the hub's figures they
come from."""

import json
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path

from hub_rtl.contract.config import first_share
from sim.system.fabric import HUB_GHZ

__all__ = ["HUB_FILE", "NetworkSettings", "flits_of", "hub_figures", "hub_preset"]

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
    """Slices, their links, loopback slices and credits of the hub that a GPU of a system of so many
    ranks has: of nvl8, from 9 on of nvl72."""
    return (hub or hub_figures())["presets"]["nvl8" if ranks <= 8 else "nvl72"]


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Rates and latencies of a network, in bytes and in one unit of time of the caller's choice.

    ``rate``: bytes per unit of time that a GPU's links carry in one direction, all planes together.
    ``planes``: switch planes, each with an equal share of the rate; with ``spray`` every message is
    spread evenly over all, so that they act as one. ``latency``: from the end of a packet on the
    sender's link to its beginning on the receiver's, both hops and the switch. ``store_latency``:
    last store of a packet to its header on the link. ``write_latency``: last flit at the receiver
    to memory's acknowledgement. ``local_rate``, ``local_latency``: of the loopback path, the latter
    from the last store to the acknowledgement. ``age_limit``: the lists of a destination with a
    message that has waited for so long take turns.

    ``credits``: packets that may be on their way per source, destination and plane, None: any
    number. ``credit_latency``: what the two hubs add to the way of a credit back. ``patience``: how
    long a flit that only tells credits lets packets go first. ``batch_packets``: packets of one
    turn of the round robin. ``pool_packets``: packets that wait in a hub for its links, at most,
    None: no hub. ``hub_cycle``: of the hub's clock, 0 without one.
    """

    ranks: int
    rate: float
    latency: float
    planes: int = 1
    spray: bool = True
    store_latency: float = 0.0
    write_latency: float = 0.0
    credits: int | None = None
    credit_latency: float = 0.0
    patience: float = 0.0
    local_rate: float = inf
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
            ("header_flits", 0),
            ("batch_packets", 1),
        ):
            if getattr(self, name) < low:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least {low}")
        for name in ("rate", "local_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} = {getattr(self, name)}: must be above 0")
        for name in (
            "latency",
            "store_latency",
            "write_latency",
            "credit_latency",
            "patience",
            "local_latency",
            "age_limit",
        ):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least 0")
        if self.credits is not None and self.credits < 1:
            raise ValueError(f"credits = {self.credits}: must be at least 1, or None")

    @classmethod
    def of(cls, machine, *, hub=None, hub_ghz=HUB_GHZ, memory_us=0.0, batch_packets=128):
        """Settings of a machine, in microseconds: ``machine.ranks`` and ``machine.fabric``
        (``sim/evaluate/machine/hardware.py``).

        ``hub``: figures in place of those of ``data/hub.json``; ``hub_ghz``: the hub's clock.
        ``memory_us``: time that memory takes to answer a write. A GPU's rate takes as many
        links of the hub as that clock needs, in slices with the credits of :func:`hub_preset` each,
        and loopback slices in the same proportion; messages are spread over slices and planes.
        """
        hub, fabric = hub or hub_figures(), machine.fabric
        cycle, rate, cycles, reports = (
            1e-3 / hub_ghz,
            fabric.link_gbps * 1e3,
            hub["latency_cycles"],
            hub["reports"],
        )
        served = hub_preset(machine.ranks, hub)
        links = max(1, round(rate * cycle / fabric.flit_bytes))
        slices = -(-links // served["slice_links"])
        return cls(
            ranks=machine.ranks,
            rate=rate,
            latency=2e-3 * fabric.hop_ns,
            planes=fabric.planes,
            store_latency=cycle * cycles["store_to_link"],
            write_latency=cycle * cycles["arrival_to_write"] + memory_us,
            credits=slices * first_share(machine.ranks, served["pool_places"]),
            credit_latency=cycle * cycles["arrival_to_credit"],
            patience=cycle * reports["patience"],
            local_rate=rate * served["loop_lanes"] / served["lanes"],
            local_latency=cycle * cycles["store_to_own_write"] + memory_us,
            age_limit=cycle * reports["age_limit"],
            flit_bytes=fabric.flit_bytes,
            header_flits=fabric.header_flits,
            batch_packets=batch_packets,
            pool_packets=slices * served["pool_places"],
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
