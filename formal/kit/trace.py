# SPDX-License-Identifier: Apache-2.0
"""A counterexample as text: the items that moved over the ports of the part, and the
specification's own signals."""

from collections import defaultdict

from amaranth.lib import data, wiring
from vcd.reader import TokenKind, tokenize

from .spec import streams

__all__ = ["stream_fields", "transactions"]


def stream_fields(spec):
    """``{part.stream: [(field, low bit, width)]}`` of every stream port of the parts that a
    specification wraps."""
    found = {}
    for name, part in spec.wrapped.items():
        if isinstance(part, wiring.Component):
            for stream, _, port in streams(part):
                layout = port.payload.shape() if isinstance(port.payload, data.View) else None
                found[f"{name}.{stream.replace('.', '__')}"] = (
                    [(str(key), each.offset, each.width) for key, each in layout]
                    if layout
                    else [("", 0, len(port.payload))]
                )
    return found


def _cycles(path):
    """Values {path of names: number} at the end of each cycle of a VCD of SymbiYosys (10 time units
    each)."""
    scope, names, values = [], defaultdict(list), {}
    with open(path, "rb") as file:
        time = 0
        for token in tokenize(file):
            if token.kind is TokenKind.SCOPE:
                scope.append(token.scope.ident)
            elif token.kind is TokenKind.UPSCOPE:
                scope.pop()
            elif token.kind is TokenKind.VAR:
                names[token.var.id_code].append(".".join([*scope[1:], token.var.reference]))
            elif token.kind is TokenKind.CHANGE_TIME:
                if token.time_change // 10 != time // 10:
                    yield dict(values)
                time = token.time_change
            elif token.kind is TokenKind.CHANGE_VECTOR:
                text = token.vector_change.value
                number = (
                    text
                    if isinstance(text, int)
                    else int("".join("0" if bit in "xz" else bit for bit in text), 2)
                )
                values.update(dict.fromkeys(names[token.vector_change.id_code], number))
            elif token.kind is TokenKind.CHANGE_SCALAR:
                values.update(
                    dict.fromkeys(
                        names[token.scalar_change.id_code], int(token.scalar_change.value == "1")
                    )
                )


def transactions(path, fields):
    """Lines of text: per cycle, each item taken from a stream (``fields`` of :func:`stream_fields`)
    and each change of a signal of the specification itself."""
    before = {}
    for cycle, values in enumerate(_cycles(path)):
        for stream, parts in fields.items():
            # A side that is always 1 is not in the waveform.
            if (
                f"{stream}__payload" in values
                and values.get(f"{stream}__valid", 1)
                and values.get(f"{stream}__ready", 1)
            ):
                item = values[f"{stream}__payload"]
                shown = [
                    f"{name}={item >> low & (1 << width) - 1:#x}".lstrip("=")
                    for name, low, width in parts
                ]
                yield f"{cycle:5}  {stream:24} {' '.join(shown)}"
        for name, value in sorted(values.items()):
            if value != before.get(name, 0) and not any(
                mark in name for mark in (".", "$", "__", "smt_")
            ):
                yield f"{cycle:5}  {name:24} {before.get(name, 0):#x} -> {value:#x}"
        before = values
