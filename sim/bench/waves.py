# SPDX-License-Identifier: Apache-2.0
"""What is written beside the waves of a bench, so that a viewer opens them in order and in words.

* ``bench.gtkw``, for GTKWave: a group per block, in it its ports, a stream's as ``valid``,
  ``ready``, payload and the payload's fields; fields with an enumeration show its names, from the
  tables in ``filters/``.
* ``bench.sucl``, commands for Surfer: the same signals in the same order, a divider per block.
  ``mnemonic/`` has the enumerations as Surfer's mnemonic tables.

Records of the design have a wire per field in the Verilog. :func:`with_fields` gives the same to
vectors that carry a packet's header or a store's operand.
"""

import io
import re
from enum import IntEnum

from vcd.gtkw import GTKWSave

from hub_rtl.contract import packets
from hub_rtl.contract.fields import (
    COMMAND_OP,
    FLIT,
    KIND,
    OP,
    ORDER_ERROR,
    REASON,
    STATE,
    TYPE,
    WORD,
)

__all__ = ["WAVES", "how_to_open", "with_fields", "write_layouts"]

WAVES, GTKWAVE, SURFER = "dump.fst", "bench.gtkw", "bench.sucl"
ZOOM = -15.0  # of GTKWave: 200 pixels for 2**15 ps, 12 for a cycle of the benches
#: Blocks below the top in the layouts: what is deeper is one click away in the viewer's tree.
DEPTH = 2
#: Vectors with a format: their names, least width, and the fields of their lowest bits.
FORMATS = (
    (r"(\w+_)?tdata|\w+_link\d+_data|(\w+__)?[io]_control__payload", FLIT, packets.HEADER),
    (r"(\w+_)?operand", WORD, packets.OPERAND_ROW),
)
#: Enumerations: the name of a field, its width, and what its values mean.
ENUMERATIONS = (
    (r"(.*\.)?type", TYPE, packets.PacketType),
    (r"(.*[._])?(reason|status)", REASON, packets.Reason),
    (r"(.*[._])?reason", ORDER_ERROR, packets.OrderError),
    (r".*event.*kind", KIND, packets.EventKind),
    (r"(.*[._])?state", STATE, packets.RegionState),
    (r".*region.*command.*op", OP, packets.RegionOp),
    (r".*command.*op", COMMAND_OP, packets.CommandOp),
)
MODULE = re.compile(r"^module (\\\S+ |\w+)(.*?)^endmodule$", re.M | re.S)
PORT = re.compile(r"^  (?:input|output) (?:\[\d+:0\] )?(\\\S+|\w+) ?;$", re.M)
INSTANCE = re.compile(r"^  (\\\S+|\w+) +(\\\S+|\w+) +\($", re.M)
DECLARED = re.compile(r"^  (?:wire|reg) \[(\d+):0\] (\w+)(?: = .*)?;$", re.M)


def with_fields(text):
    """The Verilog text, in each module a wire for every field of a header or an operand there.

    They read what is there and drive nothing. Of a link's beats only a packet's first is a header.
    """
    return MODULE.sub(_with_fields, text)


def _with_fields(module):
    body, wires = module[0], []
    for top, name in DECLARED.findall(body):
        for pattern, width, layout in FORMATS:
            if int(top) + 1 < width or not re.fullmatch(pattern, name) or f"\\{name}." in body:
                continue
            wires += [
                f"  wire [{size - 1}:0] \\{name}.{field}  = {name}[{low + size - 1}:{low}];\n"
                for field, (low, size) in layout.items()
            ]
    return body.removesuffix("endmodule") + "".join(wires) + "endmodule"


def _ports(text, top):
    """{path of a block: names of its ports} of a Verilog text, from the module ``top`` down."""
    modules = {plain(name): body for name, body in MODULE.findall(text)}

    def walk(module, path):
        body = modules[module]
        found[path] = {plain(name) for name in PORT.findall(body)}
        for kind, name in INSTANCE.findall(body):
            if plain(kind) in modules:
                walk(plain(kind), f"{path}.{plain(name)}")

    found = {}
    walk(top, top)
    return found


def plain(name):
    """A name without what Verilog puts around one that is not a word."""
    return name.strip().removeprefix("\\")


def _blocks(file, ports):
    """{path of a block: [(name in the file, width)]} of a wave file, from the top to ``DEPTH``:
    its ports, what has a format, and the fields of both."""
    from pywellen import Waveform

    blocks = {}
    for signal in Waveform(str(file)).all_vars():
        path = signal.full_name.removesuffix(f".{signal.name}")
        whole = plain(signal.name).partition(".")[0]
        formatted = any(re.fullmatch(pattern, whole) for pattern, *_ in FORMATS)
        if path.count(".") <= DEPTH and (formatted or whole in ports.get(path, ())):
            blocks.setdefault(path, []).append((signal.name, signal.bitwidth or 1))
    return {path: sorted(signals, key=_place) for path, signals in sorted(blocks.items())}


def _place(signal):
    """Order within a block: clock, reset, then streams as ``valid``, ``ready``, payload, fields."""
    name = plain(signal[0])
    port, _, part = name.partition("__")
    first = ["clk", "rst"].index(name) if name in ("clk", "rst") else 2
    return first, port, {"valid": 0, "ready": 1}.get(part, 2), name


def enumeration(name, width):
    """The enumeration of a signal's values, or None."""
    for pattern, bits, values in ENUMERATIONS:
        if bits == width and re.fullmatch(pattern, plain(name)):
            return values
    return None


def _gtkwave(blocks):
    """Text of the save file."""
    save = GTKWSave(io.StringIO())
    save.dumpfile(WAVES, abspath=False)
    save.size(1600, 900)
    save.signals_width(340)
    save.zoom_markers(ZOOM)
    for path, signals in blocks.items():
        with save.group(path, closed="." in path):
            for name, width in signals:
                values = enumeration(name, width)
                save.trace(
                    f"{path}.{name}" + (f"[{width - 1}:0]" if width > 1 else ""),
                    alias=plain(name).replace(".", ":"),  # it shows what follows the last point
                    datafmt="hex" if width > 1 else "bin",
                    translate_filter_file=f"filters/{values.__name__}.txt" if values else None,
                )
    return save.file.getvalue()


def _surfer(blocks):
    """Text of the command file. A name with a point is found only from its own scope."""
    lines = []
    for path, signals in blocks.items():
        lines += [f"divider_add {path}", f"scope_select {path}"]
        lines += [f"variable_add_from_scope {name}" for name, _ in signals]
    return "\n".join([*lines, "zoom_fit", ""])


def _tables(values: type[IntEnum], width):
    """(GTKWave's, Surfer's) table of an enumeration."""
    digits = -(-width // 4)
    filtered = "".join(f"{value:0{digits}X} {value.name}\n" for value in values)
    words = "".join(f"0x{value:x} {value.name}\n" for value in values)
    return filtered, f"Name: {values.__name__}\nBits: {width}\n{words}"


def write_layouts(run, text, top):
    """Writes the layouts for the waves, in the folder ``run``, of the module ``top`` of a Verilog
    text."""
    blocks = _blocks(run / WAVES, _ports(text, top))
    (run / GTKWAVE).write_text(_gtkwave(blocks))
    (run / SURFER).write_text(_surfer(blocks))
    for folder in ("filters", "mnemonic"):
        (run / folder).mkdir(exist_ok=True)
    for _, width, values in ENUMERATIONS:
        for folder, text in zip(("filters", "mnemonic"), _tables(values, width), strict=True):
            (run / folder / f"{values.__name__}.txt").write_text(text)


def how_to_open(run):
    """Lines: where the waves are and which commands open them."""
    return [
        f"waves: {run / WAVES}",
        f"  cd {run} && gtkwave {WAVES} {GTKWAVE}",
        f"  cd {run} && surfer {WAVES} --command-file {SURFER}",
    ]
