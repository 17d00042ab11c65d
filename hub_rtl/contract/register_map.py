# SPDX-License-Identifier: Apache-2.0
"""Words to describe registers with: fields, registers, pages, and the map of all pages.

Plain Python (no Amaranth). Access of a field:

* ``ro``: driven by hardware, or the constant ``reset`` when the register is ``constant``;
* ``rw``: stored here, read back; with ``load`` hardware may load the whole register too;
* ``w1c``: set by hardware, cleared by writing 1; setting wins over clearing in the same cycle;
* ``wo``: reads as 0; a write to the register is an order, answered SLVERR (and without effect) when
  it cannot be taken.

Registers are 32 bits. A write needs all four byte strobes. Unmapped addresses, and writes to
registers without a writable field, answer SLVERR.
"""

from dataclasses import dataclass

from .fields import REGISTER
from .words import enumeration_of

__all__ = ["Field", "Register", "Page", "RegisterMap", "PAGE_BYTES"]

PAGE_BYTES = 4096


@dataclass(frozen=True)
class Field:
    """Bits ``low .. low + width - 1`` of a register. ``values``: the enumeration whose values it
    has, or None."""

    name: str
    low: int
    width: int
    access: str
    reset: int = 0
    text: str = ""
    values: type | None = None


@dataclass(frozen=True)
class Register:
    """One 32-bit register at ``offset`` in its page. ``load``: hardware may load it. ``external``:
    read from a memory. ``guarded``: hardware may refuse a write to its ``rw`` fields, as it may
    refuse an order. ``policy``: its value goes to the packet managers, in their bundle."""

    name: str
    offset: int
    fields: tuple
    text: str = ""
    constant: bool = False
    load: bool = False
    external: bool = False
    guarded: bool = False
    policy: bool = False

    def __post_init__(self):
        used = 0
        for field in self.fields:
            bits = ((1 << field.width) - 1) << field.low
            if field.low + field.width > REGISTER or used & bits or field.width < 1:
                raise ValueError(
                    f"{self.name}.{field.name} = {field.low}+{field.width}: must lie in "
                    f"{REGISTER} bits, alone"
                )
            used |= bits

    @property
    def readable(self):
        return any(f.access != "wo" for f in self.fields)

    @property
    def order(self):
        """A write is an order: it makes a strobe in hardware."""
        return any(f.access == "wo" for f in self.fields)

    @property
    def writable(self):
        return any(f.access in ("rw", "w1c", "wo") for f in self.fields)


@dataclass(frozen=True)
class Page:
    """4 KiB of registers."""

    name: str
    number: int
    registers: tuple
    text: str = ""

    @property
    def base(self):
        return self.number * PAGE_BYTES


class RegisterMap:
    """All pages of one configuration. ``address("control.TIMEOUT")`` gives the byte address of a
    register."""

    def __init__(self, pages, counters):
        self.pages, self.counters = pages, counters
        self._index = {}
        seen = set()
        for page in pages:
            for register in page.registers:
                address = page.base + register.offset
                if address in seen or register.offset % 4 or register.offset >= PAGE_BYTES:
                    raise ValueError(
                        f"{page.name}.{register.name} = {address:#x}: must be a free word "
                        "of its page"
                    )
                seen.add(address)
                self._index[f"{page.name}.{register.name}"] = (address, register)

    def __iter__(self):
        """(path, address, register) in address order."""
        return (
            (path, address, register)
            for path, (address, register) in sorted(
                self._index.items(), key=lambda item: item[1][0]
            )
        )

    def address(self, path):
        return self._index[path][0]

    def register(self, path):
        return self._index[path][1]

    def as_dict(self):
        """For the JSON sidecar."""
        return {
            "pages": [
                {
                    "name": page.name,
                    "base": page.base,
                    "text": page.text,
                    "registers": [
                        {
                            "name": r.name,
                            "address": page.base + r.offset,
                            "constant": r.constant,
                            "load": r.load,
                            "external": r.external,
                            "text": r.text,
                            "fields": [
                                {
                                    "name": f.name,
                                    "low": f.low,
                                    "width": f.width,
                                    "access": f.access,
                                    "reset": f.reset,
                                    "text": f.text,
                                    **(
                                        {"enumeration": enumeration_of(f.values)}
                                        if f.values
                                        else {}
                                    ),
                                }
                                for f in r.fields
                            ],
                        }
                        for r in page.registers
                    ],
                }
                for page in self.pages
            ],
            "counters": list(self.counters),
        }
