# SPDX-License-Identifier: Apache-2.0
"""The registers in SystemRDL 2.0, from the one description, for register tools such as PeakRDL."""

from hub_rtl.contract.registers import register_map
from hub_rtl.contract.words import enumeration_of

from .licence import SPDX
from .words_text import words_systemrdl

__all__ = ["registers_systemrdl"]

#: Software's and hardware's access of a field, by access in the description.
_ACCESS = {
    "ro": "sw=r; hw=w;",
    "rw": "sw=rw; hw=r;",
    "w1c": "sw=rw; onwrite=woclr; hw=w; hwset; precedence=hw;",
    "wo": "sw=w; hw=r;",
}


def _text(*parts):
    """`` desc="..."`` of the parts that say something, or nothing."""
    text = " ".join(dict.fromkeys(filter(None, parts))).replace("\\", "\\\\").replace('"', '\\"')
    return f' desc="{text}";' if text else ""


def _field(register, field):
    access = "sw=r; hw=na;" if register.constant else _ACCESS[field.access]
    if register.load:
        access = access.replace("hw=r;", "hw=rw; we;")
    # The backslash keeps names apart from SystemRDL's reserved words (`number` is one); tools do
    # not show it.
    encode = f" encode={enumeration_of(field.values)};" if field.values else ""
    return (
        f"      field {{ {access}{encode}{_text(field.text)} }} "
        f"\\{field.name}[{field.low + field.width - 1}:{field.low}]"
        f" = {field.width}'h{field.reset:x};"
    )


def registers_systemrdl(cfg):
    """SystemRDL of a configuration: an address map ``moehub`` with a register file per page."""
    out = [
        f"// {SPDX}",
        f"// Registers of the MoE-Hub, configuration {cfg.name}. Generated from "
        "hub_rtl/contract/registers.py.",
        "addrmap moehub {",
        '  name="MoE-Hub";',
        '  desc="32-bit registers at byte addresses; a write needs all four byte strobes. A '
        "field that can only be written "
        "reads as 0. An unmapped address, a write to a register without a writable field, "
        "and an order that cannot be taken "
        'answer SLVERR and have no effect.";',
        "  littleendian; addressing=compact; default regwidth=32; default accesswidth=32;",
    ]
    fields = [field for _, _, register in register_map(cfg) for field in register.fields]
    out += words_systemrdl(
        dict.fromkeys(enumeration_of(field.values) for field in fields if field.values)
    )
    for page in register_map(cfg).pages:
        out += ["", "  regfile {", f'    name="{page.name}";{_text(page.text)}']
        for register in page.registers:
            out += [
                f"    {'external ' if register.external else ''}reg {{{_text(register.text)}",
                *(_field(register, field) for field in register.fields),
                f"    }} {register.name} @ {register.offset:#x};",
            ]
        out.append(f"  }} {page.name} @ {page.base:#06x};")
    return "\n".join([*out, "};", ""])
