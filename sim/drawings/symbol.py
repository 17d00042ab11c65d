# SPDX-License-Identifier: Apache-2.0
"""The symbol of a block, from its signature: inputs at the left, outputs at the right."""

from html import escape

from amaranth import Shape
from amaranth.lib.wiring import In

__all__ = ["symbol_svg", "page_svg"]

ROW, MARGIN, CHARACTER, ARROW = 20, 16, 7.3, 44  # pixels
FONT = "font-family='ui-monospace, Menlo, Consolas, monospace' font-size='12'"


def page_svg(width, height, body):
    """An SVG file: white ground, so that it is read on a dark page too."""
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width:.0f}' height='{height:.0f}' "
        f"viewBox='0 0 {width:.0f} {height:.0f}'>\n"
        f"<rect width='100%' height='100%' fill='#fff'/>\n{body}\n</svg>\n"
    )


def _ports(component):
    """(name, is an input, is a stream, width) of each member, in the order of the signature."""
    for name, member in component.signature.members.items():
        label = name + "".join(f"[{size}]" for size in member.dimensions)
        if member.is_port:
            yield label, member.flow is In, False, Shape.cast(member.shape).width
            continue
        port = getattr(component, name)
        while isinstance(port, (list, tuple)):
            port = port[0]
        width = sum(Shape.cast(each.shape).width for _, each, _ in port.signature.flatten(port))
        yield label, name.startswith("i_"), True, width


def _arrow(x, y, inward, stream, width):
    """A port's arrow of ARROW pixels from ``x`` on; thick for a stream, with its wires."""
    stroke, colour = (3, "#1565c0") if stream else (1.2, "#37474f")
    tip = x + ARROW - 6
    return (
        f"<line x1='{x}' y1='{y}' x2='{tip}' y2='{y}' stroke='{colour}' stroke-width='{stroke}'/>"
        f"<path d='M{tip} {y - 4} l7 4 l-7 4 z' fill='{colour}'/>"
        f"<text x='{x + ARROW / 2 - 4:.1f}' y='{y - 4}' text-anchor='middle' font-size='9' "
        f"fill='#607d8b'>{width}</text>"
    )


def symbol_svg(component):
    """Symbol of a component, SVG text: streams thick, other ports thin, each with its width in
    bits (a stream's with ``valid`` and ``ready``)."""
    ports = list(_ports(component))
    sides = [[p for p in ports if p[1]], [p for p in ports if not p[1]]]
    longest = [max((len(p[0]) for p in side), default=0) * CHARACTER for side in sides]
    title = type(component).__name__
    inside = max(sum(longest) + 40, len(title) * CHARACTER + 30)
    height = ROW * max(map(len, sides)) + 2 * MARGIN + ROW + 8
    left, right = MARGIN + ARROW, MARGIN + ARROW + inside
    body = [
        f"<g {FONT}>",
        f"<rect x='{left}' y='{MARGIN}' width='{inside:.1f}' height='{height - 2 * MARGIN}' "
        "fill='#eef4fb' stroke='#1565c0' rx='5'/>",
        f"<text x='{left + inside / 2:.1f}' y='{MARGIN + 15}' text-anchor='middle' "
        f"font-weight='bold'>{escape(title)}</text>",
    ]
    for side, start, anchor, x in (
        (sides[0], MARGIN, "start", left + 6),
        (sides[1], right, "end", right - 6),
    ):
        for n, (label, inward, stream, width) in enumerate(side):
            y = MARGIN + ROW * (n + 1) + 14
            body.append(_arrow(start, y, inward, stream, width))
            body.append(f"<text x='{x:.1f}' y='{y + 4}' text-anchor='{anchor}'>{label}</text>")
    return page_svg(right + ARROW + MARGIN, height, "\n".join([*body, "</g>"]))
