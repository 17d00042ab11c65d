# SPDX-License-Identifier: Apache-2.0
"""Names instead of numbers: what ``moehub.json`` says of a generated hub."""

import json


class Sidecar:
    """Registers, stream items and sizes of one hub, by name.

    ``parameters``: of the configuration, as {name: value}.
    """

    def __init__(self, path):
        data = json.loads(path.read_text())
        self.parameters = data["parameters"]
        self._values = {name: each["values"] for name, each in data["enumerations"].items()}
        self._words = {name: each["fields"] for name, each in data["structures"].items()}
        self._addresses, self._items = data["registers"], {}
        self._fields = {
            f"{page['name']}.{register['name']}": {f["name"]: f for f in register["fields"]}
            for page in data["register_map"]["pages"]
            for register in page["registers"]
        }
        for interface in data["axi_wrapper"]["interfaces"]:
            tdata = next((p for p in interface["ports"] if p["field"] == "tdata"), None)
            if tdata:
                fields = {f["name"].rpartition("_")[2]: f for f in tdata["hub"]}
                self._items[interface["name"]] = tdata["width"] // 8, fields

    def value(self, enumeration, name):
        """The number of a name: ``value("event_kind", "READY")``."""
        return self._values[enumeration][name]

    def structure(self, name, **values):
        """A word of 64 bits: ``structure("operand_row", handle=0, rowid=5)``; fields not named are
        0."""
        low = {field["name"]: field["low"] for field in self._words[name]}
        return sum(value << low[field] for field, value in values.items())

    def address(self, register):
        """Address of ``"page.REGISTER"``."""
        return self._addresses[register]

    def word(self, register, **values):
        """The word to write to a register: ``word("handles.FLAGS", valid=1, epoch=3)``. A register
        with one field calls it ``value``."""
        return sum(value << self._fields[register][name]["low"] for name, value in values.items())

    def field(self, register, name, word):
        """One field of a word that was read."""
        field = self._fields[register][name]
        return word >> field["low"] & (1 << field["width"]) - 1

    def pack(self, interface, **values):
        """The bytes of ``tdata`` for an item of a stream; fields not named are 0."""
        size, fields = self._items[interface]
        return sum(v << fields[name]["low"] for name, v in values.items()).to_bytes(size, "little")

    def unpack(self, interface, tdata):
        """The fields of an item, from the bytes of ``tdata``."""
        word = int.from_bytes(tdata, "little")
        _, fields = self._items[interface]
        return {n: word >> f["low"] & (1 << f["width"]) - 1 for n, f in fields.items()}
