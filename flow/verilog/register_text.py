# SPDX-License-Identifier: Apache-2.0
"""Manual and C header of the registers, from the one description."""

from hub_rtl.contract.packets import Reason
from hub_rtl.contract.registers import register_map
from hub_rtl.contract.words import values_text

from .licence import SPDX
from .words_text import words_header

__all__ = ["registers_markdown", "registers_header"]


def _bits(field):
    return str(field.low) if field.width == 1 else f"{field.low + field.width - 1}:{field.low}"


def _values(values):
    """What a field may be; of the reasons, where they are told."""
    return "a [reason](formats.md#reasons)" if values is Reason else values_text(values)


def registers_markdown(cfg):
    """The register manual."""
    out = [
        "# Registers",
        "",
        f"Written by `moe-hub registers --markdown --preset {cfg.name}` from "
        "`hub_rtl/contract/registers.py`; "
        f"widths follow the configuration, here `{cfg.name}`.",
        "",
        "Registers are 32 bits, at byte addresses; a write needs all four byte strobes.",
        "Access: `ro` read only, `rw` read and write, `w1c` set by hardware and cleared by "
        "writing 1, `wo` an order:",
        "written, reads as 0. An unmapped address, a write to a register without a writable "
        "field, and an order that",
        "cannot be taken answer SLVERR and have no effect.",
        "",
    ]
    for page in register_map(cfg).pages:
        out += [
            f"## {page.number}. `{page.name}`: {page.text}",
            "",
            "| Address | Register | Bits | Field | Access | Reset | Meaning |",
            "|---|---|---|---|---|---|---|",
        ]
        for register in page.registers:
            head = f"`{page.base + register.offset:#06x}` | `{register.name}`"
            for n, field in enumerate(register.fields):
                text = "; ".join(
                    filter(
                        None,
                        (
                            register.text if n == 0 and field.text != register.text else "",
                            field.text,
                            field.values and _values(field.values),
                        ),
                    )
                )
                reset = f"{field.reset:#x}" if field.reset > 9 else str(field.reset)
                name = "" if field.name == "value" else f"`{field.name}`"
                out.append(
                    f"| {head if n == 0 else ' | '} | {_bits(field)} | {name} | "
                    f"{field.access} | {reset} | {text} |"
                )
        out.append("")
    return "\n".join(out).rstrip() + "\n"


def registers_header(cfg):
    """C header: an address per register, shift and mask per field; the enumerations, and the words
    that software makes or reads."""
    out = [
        f"/* {SPDX} */",
        f"/* Registers of the MoE-Hub, configuration {cfg.name}. Generated from "
        "hub_rtl/contract/registers.py. */",
        "#ifndef MOEHUB_REGS_H",
        "#define MOEHUB_REGS_H",
        "",
        *words_header(),
    ]
    for page in register_map(cfg).pages:
        out += [f"/* {page.text} */"]
        for register in page.registers:
            name = f"MOEHUB_{page.name.upper()}_{register.name}"
            out.append(f"#define {name} {page.base + register.offset:#06x}u")
            for field in register.fields:
                if field.name == "value" and field.width == 32:
                    continue
                part = name if field.name == "value" else f"{name}_{field.name.upper()}"
                out += [
                    f"#define {part}_SHIFT {field.low}",
                    f"#define {part}_MASK {((1 << field.width) - 1) << field.low:#010x}u",
                ]
        out.append("")
    out += ["#endif", ""]
    return "\n".join(out)
