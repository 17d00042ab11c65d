# SPDX-License-Identifier: Apache-2.0
"""Enumerations and words that software meets, as C, as JSON and as SystemRDL, from their one
table."""

from inspect import cleandoc

from hub_rtl.contract.words import ENUMERATIONS, STRUCTURES

__all__ = ["words_header", "words_sidecar", "words_systemrdl"]


#: Of the words of C, those that a field could be named as.
_KEYWORDS = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
    ]
)


def _member(field):
    """The field's name in C: `short` is a keyword."""
    return f"{field}_" if field in _KEYWORDS else field


def _text(values):
    """The docstring of an enumeration as one line."""
    return " ".join(cleandoc(values.__doc__).split())


def words_header():
    """Lines of C: an enumeration each; of a word a struct of its fields, their shifts and masks,
    and the functions that join and part them."""
    lines = ["#include <stdint.h>", ""]
    for name, values in ENUMERATIONS.items():
        lines += [f"/* {_text(values)} */", f"enum moehub_{name} {{"]
        lines += [f"  MOEHUB_{name.upper()}_{each.name} = {int(each)}," for each in values]
        lines += ["};", ""]
    for name, structure in STRUCTURES.items():
        lines += [f"/* {structure.text} ({structure.bits} bits). */", *_macros(name, structure)]
        lines += [f"struct moehub_{name} {{"]
        lines += [f"  uint64_t {_member(each)};" for each in structure.fields]
        lines += ["};", *_functions(name, structure), ""]
    return lines


def _macros(name, structure):
    for field, (low, width) in structure.fields.items():
        part = f"MOEHUB_{name.upper()}_{field.upper()}"
        yield f"#define {part}_SHIFT {low}"
        yield f"#define {part}_MASK {((1 << width) - 1) << low:#018x}ull"


def _functions(name, structure):
    """The word of the fields, of which bits that do not fit are dropped; the fields of a word."""
    parts = {field: f"MOEHUB_{name.upper()}_{field.upper()}" for field in structure.fields}
    yield f"static inline uint64_t moehub_{name}_pack(struct moehub_{name} f) {{"
    yield (
        "  return "
        + " |\n         ".join(
            f"((f.{_member(field)} << {part}_SHIFT) & {part}_MASK)" for field, part in parts.items()
        )
        + ";"
    )
    yield "}"
    yield f"static inline struct moehub_{name} moehub_{name}_unpack(uint64_t word) {{"
    yield f"  struct moehub_{name} f = {{"
    for field, part in parts.items():
        yield f"    (word & {part}_MASK) >> {part}_SHIFT, /* {field} */"
    yield "  };"
    yield "  return f;"
    yield "}"


def words_sidecar():
    """The same for the JSON sidecar: {"enumerations": ..., "structures": ...}."""
    return {
        "enumerations": {
            name: {"text": _text(values), "values": {each.name: int(each) for each in values}}
            for name, values in ENUMERATIONS.items()
        },
        "structures": {
            name: {
                "text": structure.text,
                "bits": structure.bits,
                "fields": [
                    {"name": field, "low": low, "width": width}
                    for field, (low, width) in structure.fields.items()
                ],
            }
            for name, structure in STRUCTURES.items()
        },
    }


def words_systemrdl(used):
    """Lines of SystemRDL: those enumerations that a field refers to."""
    for name in used:
        values = " ".join(f"{each.name} = {int(each)};" for each in ENUMERATIONS[name])
        yield f"  enum {name} {{ {values} }};"
