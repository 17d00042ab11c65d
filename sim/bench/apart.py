# SPDX-License-Identifier: Apache-2.0
"""Which modules of a Verilog text are worth a program part of their own: large ones that stand in
it several times. Verilator writes the code of each instance; of a part it is written once, and
runs a little slower.
"""

import collections
import re

__all__ = ["LEAST", "Text"]

#: Bytes of Verilog that are not compiled again: for less, a block's bench runs longer than that.
LEAST = 700_000

_MODULE = re.compile(r"^module (\w+)\s*[(;].*?^endmodule\n", re.M | re.S)
_INSTANCE = re.compile(r"^  (\w+) (?:\w+|\\\S+ ) ?\($", re.M)


class Text:
    """Modules of a Verilog text as Yosys writes it, ``top`` the one that has all others in it.

    ``apart``: names of those to be compiled by themselves, a part before one that has it inside;
    none if a name needs escaping, as it does where equal modules were not merged.
    """

    def __init__(self, text, top):
        self._modules = {found[1]: found[0] for found in _MODULE.finditer(text)}
        known = self._modules.keys()
        self._inside = {
            name: collections.Counter(kind for kind in _INSTANCE.findall(module) if kind in known)
            for name, module in self._modules.items()
        }
        whole = top in known and text.count("\nendmodule") == len(known)
        self._top, self.apart = top, []
        if whole:
            self._choose()

    def _choose(self):
        order = self._from_above()
        size = {}  # of a module and of all instances below it
        for name in reversed(order):
            below = (times * size[kind] for kind, times in self._inside[name].items())
            size[name] = len(self._modules[name]) + sum(below)
        count = collections.Counter({self._top: 1})
        for name in order:
            if (count[name] - 1) * size[name] >= LEAST:
                self.apart.append(name)
                count[name] = 1  # what is inside is written as often as there
            for kind, times in self._inside[name].items():
                count[kind] += times * count[name]
        self.apart.reverse()

    def _from_above(self):
        """Modules, each before all that are inside of it."""
        order, seen = [], set()

        def visit(name):
            if name not in seen:
                seen.add(name)
                for kind in self._inside[name]:
                    visit(kind)
                order.append(name)

        visit(self._top)
        return order[::-1]

    def of(self, name):
        """The text of a module and of what is inside, without parts: ``(text, [part, ...])``."""
        parts, needed, waiting = [], [], [name]
        while waiting:
            this = waiting.pop()
            needed.append(this)
            for kind in self._inside[this]:
                if kind in self.apart:
                    parts += [kind] if kind not in parts else []
                elif kind not in needed and kind not in waiting:
                    waiting.append(kind)
        chosen = set(needed)
        return "".join(text for key, text in self._modules.items() if key in chosen), parts
