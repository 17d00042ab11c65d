# SPDX-License-Identifier: Apache-2.0
"""One HTML page of a layer's run that needs nothing but itself: the hub above, a way of software
below on the same axis of time, why links were idle, the figures of the report."""

import json
from html import escape
from pathlib import Path
from string import Template

from hub_rtl.contract.registers import COUNTERS
from sim.system.fabric import cycle_ns
from sim.system.figures import STALLS
from sim.system.history import USES, best_software
from sim.system.ways import WAYS

__all__ = ["FIGURES", "page_text"]

#: Figures of the table: text, unit, and where the report has them.
FIGURES = (
    ("layer", "cycles", "layer_cycles"),
    ("first tile or set usable", "cycles", "usable.first"),
    ("median tile or set usable", "cycles", "usable.median"),
    ("last tile or set usable", "cycles", "usable.last"),
    ("first answers ready", "cycles", "answers.first"),
    ("last answers ready", "cycles", "answers.last"),
    ("the wire's own time", "cycles", "bound_cycles"),
    ("efficiency: the wire's own time over the layer's", "share", "efficiency"),
    ("links busy", "share", "links_busy"),
    ("wire efficiency: payload over flits", "share", "wire_efficiency"),
    ("tiles or sets", "", "tiles"),
    ("rows dispatched", "", "rows"),
    ("bytes stored", "bytes", "store_bytes"),
    ("bytes over links", "bytes", "link_bytes"),
    ("packets over links", "", "packets"),
    ("bytes compared with the golden model", "bytes", "compared_bytes"),
    ("mismatches", "", "mismatches"),
)
#: Times shown large: text, and where the report has them.
CARDS = (
    ("The layer takes", "layer_cycles"),
    ("The first tile is usable after", "usable.first"),
    ("The median tile is usable after", "usable.median"),
    ("The last tile is usable after", "usable.last"),
)


def value_at(report, path):
    """What the report has at a path, names with dots between them."""
    for name in path.split("."):
        report = report[name]
    return report


def _shown(value, unit, ns):
    """A figure for the reader, and its unit; of cycles the time in front."""
    if value is None:
        return "–"
    if unit == "cycles":
        return f"{value * ns / 1000:,.2f} µs <small>{value:,} cycles</small>"
    return f"{100 * value:.2f} %" if unit == "share" else f"{value:,} {unit}".strip()


def _table(reports, ns):
    titles = "".join(f'<th scope="col" class="number">{WAYS[name].title}</th>' for name in reports)
    rows = [
        f'<table id="report"><thead><tr><th scope="col">figure</th>{titles}</tr></thead><tbody>'
    ]
    stalls = [name for name in STALLS if any(r["stalls"][name] for r in reports.values())]
    counted = [(f"counter: {COUNTERS[name]}", "", f"stalls.{name}") for name in stalls]
    for text, unit, path in (*FIGURES, *counted):
        cells = "".join(
            f'<td class="number" data-way="{name}" data-path="{path}" '
            f'data-value="{json.dumps(value_at(report, path))}">'
            f"{_shown(value_at(report, path), unit, ns)}</td>"
            for name, report in reports.items()
        )
        rows.append(f'<tr><th scope="row">{escape(text)}</th>{cells}</tr>')
    return "\n".join([*rows, "</tbody></table>"])


def _card(text, path, reports, below, ns):
    """A figure of the hub, large, and how much less or more it is than software's."""
    own = value_at(reports["hub"], path)
    lines = [f'<span class="what">{escape(text)}</span>']
    lines += [f'<span class="hub">{own * ns / 1000:,.2f} <small>µs</small></span>']
    if below:
        other, title = value_at(reports[below], path), WAYS[below].title
        change = 100 * (own / other - 1)
        word, mark = ("more", "what") if change > 0 else ("less", "better")
        lines += [
            f'<span class="{mark}">{abs(change):.1f} % {word} than {title} '
            f"({other * ns / 1000:,.2f} µs)</span>"
        ]
    return f"<li>{''.join(lines)}</li>"


def _way(told):
    """A history as the script takes it: of each rank the cycles of its links by use, zeros at the
    end left out."""

    def without_end(values):
        kept = len(values)
        while kept and not values[kept - 1]:
            kept -= 1
        return values[:kept]

    use = told.use.sum(axis=2).transpose(0, 2, 1)
    return {
        "name": told.way,
        "title": told.title,
        "line": WAYS[told.way].line,
        "layer": told.layer,
        "bin": told.bin,
        "bins": told.bins,
        "use": [[without_end(bins) for bins in rank] for rank in use.tolist()],
        "usable": told.usable,
        "answers": told.answers,
    }


def _choice(histories, below):
    """What to show below, where there is a choice."""
    others = [told for name, told in histories.items() if name != "hub"]
    if len(others) < 2:
        return ""
    options = "".join(
        f'<option value="{told.way}"{" selected" if told.way == below else ""}>'
        f"{told.title}</option>"
        for told in others
    )
    return f'<label>Below: <select id="below">{options}</select></label>'


def page_text(histories, reports, setting):
    """The page's text; same input, same bytes.

    ``histories``, ``reports``: by name of the way, the hub's first; ``setting``: what was run, a
    line. Below stands the way of software whose layer was shortest.
    """
    folder = Path(__file__).parent
    hub, below = histories["hub"], best_software(histories)
    ns = cycle_ns(hub.cfg)
    data = {
        "cycle_ns": ns,
        "ranks": hub.ranks,
        "below": below,
        "uses": [{"name": kind.name.lower(), **vars(use)} for kind, use in USES.items()],
        "ways": [_way(told) for told in histories.values()],
    }
    title = f"{reports['hub']['model']}: one MoE layer, there and back, "
    title += f"the hub beside {WAYS[below].title} software" if below else "through the hub"
    return Template((folder / "page.html").read_text()).substitute(
        title=escape(title),
        setting=escape(setting),
        style=(folder / "page.css").read_text(),
        script=(folder / "page.js").read_text(),
        cards="\n".join(_card(text, path, reports, below, ns) for text, path in CARDS),
        choice=_choice(histories, below),
        cycle=f"{ns:g}",
        figures=_table(reports, ns),
        # An end of a tag inside a text must not end the element.
        data=json.dumps(data, separators=(",", ":")).replace("</", "<\\/"),
    )
