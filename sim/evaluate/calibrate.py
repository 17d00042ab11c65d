# SPDX-License-Identifier: Apache-2.0
"""Measures what the system model has to know of the hub, on the generated Verilog, and writes
``data/hub.json``.

    moe-hub evaluate calibrate            # about ten minutes, most of it building simulators

Small runs of preset ``small`` on the native harness, each of which isolates one figure and is
checked against the golden model; what ``moe-hub bench`` measures is taken from there. Latencies are
cycles *of the hub*: those of fabric and memory, which the harness sets, are taken away. The file
names configuration and a key of all that was measured (Verilog and harness), so that
:func:`is_current` can tell whether the figures are those of the present design; it has no date, so
that the same design gives the same bytes.
"""

import json

import numpy as np

from flow.driver import Handle, Region
from flow.kept import digest
from flow.verilog.licence import LICENCE
from hub_rtl.contract.config import PRESETS, RESERVE, preset
from hub_rtl.contract.packets import EventKind
from hub_rtl.contract.registers import register_map
from sim.evaluate.machine.network import HUB_FILE, hub_figures
from sim.system.bench_speed import close, measure, one_to_many, row_packets, run_checked
from sim.system.building import harness_sources, hub_verilog
from sim.system.scenario import Scenario

__all__ = ["calibrate", "content_key", "is_current", "write"]

CONFIG = preset("small")
MEMORY_LATENCY = 20  # cycles that the harness' memory takes to answer
LATENCIES = 64, 128  # of the fabric; a hub's own share must not depend on it
BOUND = 96, 128  # of the fabric: a window goes round slower than the wire takes its packets
ROW_BYTES = 32, 64, 128, 256, 512, 1024, 2048, 4096, 5776, 7408, 8192
MARK = 1
ALONE = 1000  # packets of one source, after which the others have given back what they do not use
SERVED = "nvl8", "nvl72"  # presets whose lanes and credits the system model's GPUs have


def _without_licence(text):
    """The text without a licence line at its start: no figure depends on it."""
    first, _, rest = text.partition("\n")
    return rest if "SPDX-License-" in first else text


def content_key():
    """Key of what the figures depend on: the Verilog of the configuration and the harness around
    it."""
    return digest(hub_verilog(CONFIG), *map(_without_licence, harness_sources()))


def is_current():
    """Were the figures of ``data/hub.json`` measured on the design as it is now?"""
    return hub_figures()["key"] == content_key()


def _same(name, values, spread=2):
    """The figure of runs that must agree; a latency that depends on the fabric would be
    misunderstood."""
    if max(values) - min(values) > spread:
        raise AssertionError(
            f"calibrate: {name} = {values}: must be the same whatever the fabric's latency"
        )
    return float(np.median(values))


def _event(result, rank, kind):
    events = result.log("events", rank)
    return events["cycle"][events["kind"] == kind].astype(int)


def _one_packet(dest):
    """One full packet through idle hubs, to another rank or the own one: (last store to memory's
    answer, header to answer)."""
    s = one_to_many(CONFIG, 128, consumers=(dest,), tile=0, mem_latency=MEMORY_LATENCY)
    s.row(0, dest, 0, bytes(range(128)))
    s.program(0).sync()
    s.program(0).wait_cycles(300)
    close(s, (0,), (dest,))
    result = run_checked(s, CONFIG)
    stored, answer = result.ranks[0]["last_accept"], result.ranks[dest]["last_answer"]
    arrived = int(row_packets(result, (1,))[0]["last"]) if dest else None
    result.remove()
    return answer - stored - MEMORY_LATENCY, arrived and answer - arrived - MEMORY_LATENCY


def _credit_return(latency):
    """From a packet's end at an idle receiver until its credit has made the sender send: one
    stream, bound by its credits."""
    rng, rows = np.random.default_rng(1), 100
    s = one_to_many(CONFIG, 2048, consumers=(1,), latency=latency, window=latency)
    for n in range(rows):
        s.row(0, 1, n, rng.bytes(2048))
    close(s, (0,), (1,))
    result = run_checked(s, CONFIG)
    first = row_packets(result, (1,))["first"].astype(int)[ALONE:]
    result.remove()
    # Alone for so long it has been granted all places but those that the others keep.
    places = CONFIG.pool_places - RESERVE * (CONFIG.ranks - 2)
    window = places * (first[-1] - first[0]) / (len(first) - 1)
    # A window goes round once per both ways, a packet on each, and the packets that wait until an
    # eighth is told.
    return window - 2 * latency - (1 + places // 8) * (CONFIG.packet_flits + 1)


def _closes(latency):
    """CLOSE_ALL of eight regions of another rank, all rows long there: (command to the first ALL,
    from one to the next)."""
    s = Scenario(CONFIG, hidden=[(0, 4096)], mem_spill=(0, 4096), latency=latency, window=latency)
    for number in range(CONFIG.regions):
        base = 0x10000 + 4096 * number
        s.region(
            1,
            number,
            Region(
                base=(base, base),
                stride=128,
                row_bytes=128,
                capacity=8,
                group_base=8 * number,
                log2_tile=0,
                expected=1,
                row_span=64,
            ),
        )
        s.handle(0, number, Handle(targets=((1, number),), row_bytes=128))
    s.barrier()
    for number in range(CONFIG.regions):
        s.row(0, number, number, bytes(128))
    s.sync(0)
    s.program(0).wait_cycles(600)
    s.program(0).mark(MARK)
    s.close_all(0)
    s.program(1).wait_events(EventKind.ALL, CONFIG.regions)
    result = run_checked(s, CONFIG)
    done, start = _event(result, 1, EventKind.ALL), result.marks(0)[MARK]
    result.remove()
    return done[0] - start - latency, float(np.diff(done).mean())


def _row_lengths():
    """What rows of a length cost on the wire, stored by four streams in turns as by warps of a
    GPU."""
    rng, table = np.random.default_rng(2), []
    for row_bytes in ROW_BYTES:
        s, rows = one_to_many(CONFIG, row_bytes), 24
        for n in range(rows):
            s.row(0, 1 + n % 3, n, rng.bytes(row_bytes))
        close(s, (0,), (1, 2, 3))
        result = run_checked(s, CONFIG)
        packets = row_packets(result, (1, 2, 3))
        stores = result.ranks[0]["stores"]
        result.remove()
        flits = int(packets["flits"].sum())
        table.append(
            {
                "row_bytes": row_bytes,
                "packets_per_row": len(packets) / rows,
                "flits_per_row": flits / rows,
                "stores_per_packet": round(stores / len(packets), 4),
                "wire_efficiency": round(rows * row_bytes / (CONFIG.flit_bytes * flits), 4),
            }
        )
    return table


def calibrate():
    """All figures, as they are written to ``data/hub.json``; raises AssertionError when a run is
    wrong."""
    lines = {line.name: line for line in measure(quick=True)}
    one_way, arrival = _one_packet(1)
    own, _ = _one_packet(0)
    closes = [_closes(latency) for latency in LATENCIES]
    fabric = (
        20 + CONFIG.packet_flits + 1
    )  # default latency of a scenario, and the packet's own flits
    figure = {name: line.figure for name, line in lines.items()}
    return {
        "license": LICENCE,
        "written_by": "moe-hub evaluate calibrate",
        "unit": (
            "cycles of the hub's clock, bytes; a flit is 16 bytes and takes one cycle on a lane"
        ),
        "key": content_key(),
        "config": CONFIG.as_dict(),
        "latency_cycles": {
            "store_to_link": figure["last store of a packet to header on the link"],
            "arrival_to_write": arrival,
            "answer_to_ready": figure["memory's answer to READY"],
            "store_to_own_write": own,
            # Grants are told in eighths: the cycles of a window are not the same everywhere.
            "arrival_to_credit": round(
                _same(
                    "arrival_to_credit",
                    [_credit_return(latency) for latency in BOUND],
                    spread=4,
                ),
                2,
            ),
            "hub_to_hub": one_way - fabric,
            "close_to_all": _same("close_to_all", [first for first, _ in closes]),
            "close_to_next": round(_same("close_to_next", [turn for _, turn in closes]), 2),
        },
        "latency_means": {
            "store_to_link": "last store of a packet accepted, to its header on the link",
            "arrival_to_write": (
                "last flit of a packet at the receiver, to memory's "
                "acknowledgement, less memory's own time"
            ),
            "answer_to_ready": "memory's acknowledgement of a tile's last byte, to READY",
            "store_to_own_write": (
                "the same way for the own rank: last store to "
                "acknowledgement, less memory's own time"
            ),
            "arrival_to_credit": (
                "end of a packet at an idle receiver, to the next that its "
                "credit lets go, less the fabric"
            ),
            "hub_to_hub": (
                "last store accepted to memory's acknowledgement at another rank, "
                "less fabric, flits and memory"
            ),
            "close_to_all": "CLOSE_ALL to ALL of the first region at another rank, less the fabric",
            "close_to_next": "ALL of a region, to that of the next whose close is in the packet",
        },
        "rates": {
            "link_busy_percent": figure["link busy while rows of 2,048 bytes wait"],
            "new_rows_link_busy_percent": figure[
                "link busy while 1,000 rows of one packet are opened"
            ],
            "stores_of_16_rows_in_turn_percent": {
                str(size): round(
                    figure[f"wire efficiency, stores of 16 rows in turn, {size}-byte packets"], 4
                )
                for size in (128, 256)
            },
            "unmerged_stores_percent": round(
                figure["wire efficiency of single 32-byte stores (nothing to merge)"], 4
            ),
        },
        "rows": _row_lengths(),
        "reports": {
            "age_limit": register_map(CONFIG).register("control.AGE_LIMIT").fields[0].reset,
        },
        "presets": {
            name: {
                key: getattr(PRESETS[name], key)
                for key in (
                    "lanes",
                    "slice_links",
                    "slice_bytes",
                    "link_clock",
                    "loop_lanes",
                    "packet_bytes",
                    "pool_places",
                    "ctl_credits",
                    "pool_depth",
                )
            }
            for name in SERVED
        },
    }


def write(path=HUB_FILE):
    """Measures and writes the file; returns the figures."""
    figures = calibrate()
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(figures, indent=1) + "\n")
    hub_figures.cache_clear()
    return figures
