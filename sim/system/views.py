# SPDX-License-Identifier: Apache-2.0
"""The files in which a run of ``moe-hub run`` is looked at, beside ``report.json``."""

from pathlib import Path

from .fabric import cycle_ns
from .page.page import page_text
from .timeline import draw_before_after, draw_timeline
from .trace import trace_text

__all__ = ["VIEWS", "write_views"]

#: Names of the files, and what they show.
VIEWS = {
    "page.html": "the hub above, software below, in a browser",
    "trace.json": "the same for Perfetto",
    "timeline.png": "every rank's links, the hub's way",
    "before_after.png": "all links together, each way",
}


def _setting(report, cfg):
    """What was run, a line."""
    way = report["latency_cycles"] * cycle_ns(cfg)
    return (
        f"{report['tokens']} tokens, top-{report['top_k']}, {cfg.ranks} GPUs, each with a hub of "
        f"{cfg.lanes} × {cfg.slice_links} links at 25 GB/s; {way:,.0f} ns from hub to hub; rows of "
        f"{report['row_bytes']:,} bytes, answers of {report['answer_bytes']:,}; tiles of "
        f"{report['tile_rows']}; routing: {report['routing']}"
    )


def write_views(histories, reports, folder):
    """Writes :data:`VIEWS` into a folder; returns the paths. ``histories``, ``reports``: by name of
    the way, of runs that ended. Without the hub's way there is nothing to see, without software no
    ``before_after.png``; what an earlier run left under these names goes away."""
    folder = Path(folder)
    for name in VIEWS:
        (folder / name).unlink(missing_ok=True)
    if "hub" not in histories:
        return []
    hub, report = histories["hub"], reports["hub"]
    setting = _setting(report, hub.cfg)
    title = f"{report['model']}: one MoE layer, {report['tokens']} tokens on {hub.ranks} GPUs"
    page = page_text(histories, reports, setting)
    (folder / "page.html").write_text(page, encoding="utf-8")
    trace = trace_text(histories, f"{title}; {setting}")
    (folder / "trace.json").write_text(trace, encoding="utf-8")
    draw_timeline(hub, folder / "timeline.png", title)
    if len(histories) > 1:
        draw_before_after(histories, folder / "before_after.png", title)
    return [folder / name for name in VIEWS if (folder / name).exists()]
