# SPDX-License-Identifier: Apache-2.0
"""Ports of a design under cocotb: values of a shape to and from flat vectors, single ports,
streams.

Verilog names: a stream port ``i_x`` is ``i_x__payload``, ``i_x__valid``, ``i_x__ready``; one of an
array ``i_x__0__payload``; a struct payload or a plain struct port is one flat vector, which
:class:`Codec` packs.
"""

from functools import cached_property, partial

import cocotb
from amaranth.hdl import Shape
from amaranth.lib import data

__all__ = ["Codec", "SignalPort", "StreamPort", "hub_port", "reader", "writer"]

NUMBER = 31  # bits that the simulator hands over as a number, without a sign
TWO_VALUED = str.maketrans("XZxz", "0000")
DEPOSIT = 0  # what cocotb calls an ordinary write


def reader(handle):
    """A function without arguments that reads a signal: an unsigned integer.

    ``int(handle.value)`` says the same and makes an array of four-valued bits first, which took a
    fifth of a bench's time. Where the simulator has four values, an ``x`` or ``z`` reads as 0, as
    everything that was never written does under Verilator: what a payload shows beside ``valid`` =
    0 is nobody's business. What it calls is inside cocotb, whose version ``requirements.lock``
    names.
    """
    if len(handle) <= NUMBER:
        return handle._handle.get_signal_val_long
    text = handle._handle.get_signal_val_binstr
    if cocotb.SIM_NAME == "Verilator":
        return lambda: int(text(), 2)
    return lambda: int(text().translate(TWO_VALUED), 2)


def writer(handle):
    """A function that drives a signal with an unsigned integer, which has to fit.

    ``handle.value = number`` says the same in three calls more. Under Verilator both leave it to
    the simulator that the write takes effect behind the clock's edge; elsewhere cocotb sees to it.
    """
    if cocotb.SIM_NAME != "Verilator":
        return partial(setattr, handle, "value")
    if len(handle) <= NUMBER:
        return partial(handle._handle.set_signal_val_int, DEPOSIT)
    text, form = handle._handle.set_signal_val_binstr, f"0{len(handle)}b"
    return lambda number: text(DEPOSIT, format(number, form))


class Codec:
    """Packs and unpacks the values of a shape: layouts become dictionaries (lists for arrays),
    nested as they are.

    ``pack`` takes a dictionary with any of the fields (the others are 0) or an integer; it raises
    ValueError for an unknown field or a value that does not fit. ``unpack`` gives all fields,
    unsigned.
    """

    def __init__(self, shape):
        self._fields = None
        self._list = False
        if isinstance(shape, type) and issubclass(shape, data.Struct):
            shape = data.Layout.cast(shape)
        if isinstance(shape, data.Layout):
            self._fields = {key: (field.offset, Codec(field.shape)) for key, field in shape}
            self._list = isinstance(shape, data.ArrayLayout)
            parts = self._fields.items()
            self._numbers = [
                (key, at, part._mask) for key, (at, part) in parts if not part.is_layout
            ]
            self._nested = [(key, at, part) for key, (at, part) in parts if part.is_layout]
        self.width = Shape.cast(shape).width
        self._mask = (1 << self.width) - 1

    @property
    def is_layout(self):
        return self._fields is not None

    def pack(self, value, name="value"):
        if self._fields is None or isinstance(value, int):
            value = int(value)
            if value & ~self._mask:
                raise ValueError(f"{name} = {value}: must fit {self.width} bits")
            return value
        word = 0
        for key, part in enumerate(value) if self._list else value.items():
            if key not in self._fields:
                raise ValueError(
                    f"{name}.{key}: no such field; the fields are "
                    f"{', '.join(map(str, self._fields))}"
                )
            offset, codec = self._fields[key]
            word |= codec.pack(part, f"{name}.{key}") << offset
        return word

    def unpack(self, word):
        if self._fields is None:
            return word & self._mask
        if self._list:
            return [codec.unpack(word >> offset) for offset, codec in self._fields.values()]
        fields = {key: word >> offset & mask for key, offset, mask in self._numbers}
        for key, offset, codec in self._nested:
            fields[key] = codec.unpack(word >> offset)
        return fields


class StreamPort:
    """A stream port of the design by its Verilog names; values of ``shape`` (None: integers).

    ``is_valid()``, ``is_ready()`` and ``read()``, the payload, are integers.
    """

    def __init__(self, dut, name, shape=None):
        self.name = name
        self.valid, self.ready = getattr(dut, f"{name}__valid"), getattr(dut, f"{name}__ready")
        self.is_valid, self.is_ready = reader(self.valid), reader(self.ready)
        self.write_valid, self.write_ready = writer(self.valid), writer(self.ready)
        self._payload = getattr(dut, f"{name}__payload")
        self.read, self.write = reader(self._payload), writer(self._payload)
        self.codec = Codec(len(self._payload) if shape is None else shape)
        if self.codec.width != len(self._payload):
            raise ValueError(
                f"{name}: the port has {len(self._payload)} bits, the shape {self.codec.width}"
            )

    def pack(self, item):
        return self.codec.pack(item, self.name)

    def unpack(self, raw):
        return self.codec.unpack(raw)

    def clear(self):
        self.write(0)


class SignalPort:
    """A stream of separate signals: ``fields`` is {field name: signal name}; ``valid`` and
    ``ready`` are signal names.

    ``ready`` may be None for a channel that is always ready.
    """

    def __init__(self, dut, name, valid, ready, fields):
        self.name = name
        self.valid, self.ready = (
            getattr(dut, valid),
            getattr(dut, ready) if ready is not None else None,
        )
        self.fields = {key: getattr(dut, signal) for key, signal in fields.items()}

    @cached_property
    def is_valid(self):
        return reader(self.valid)

    @cached_property
    def is_ready(self):
        return reader(self.ready) if self.ready is not None else lambda: 1

    @cached_property
    def write_valid(self):
        return writer(self.valid)

    @cached_property
    def write_ready(self):
        return writer(self.ready)

    @cached_property
    def _readers(self):
        return [*map(reader, self.fields.values())]

    def pack(self, item):
        unknown = set(item) - set(self.fields)
        if unknown:
            raise ValueError(
                f"{self.name}: no such field {', '.join(unknown)}; the fields are "
                f"{', '.join(self.fields)}"
            )
        return tuple(int(item.get(key, 0)) for key in self.fields)

    def unpack(self, raw):
        return dict(zip(self.fields, raw, strict=True))

    def read(self):
        return tuple([read() for read in self._readers])

    def write(self, raw):
        for handle, value in zip(self.fields.values(), raw, strict=True):
            handle.value = value

    def clear(self):
        for handle in self.fields.values():
            handle.value = 0


def hub_port(dut, interface, prefix=""):
    """The :class:`SignalPort` of a stream or AXI4-Stream :class:`hub_rtl.contract.ports.Interface`
    of the hub's top.

    AXI4-Stream fields lose their ``t``: ``data``, ``last``, ``dest``. ``prefix`` stands before each
    name.
    """
    letter = "t" if interface.kind == "axi4-stream" else ""
    names = {port.field.removeprefix(letter): prefix + port.name for port in interface.ports}
    return SignalPort(dut, prefix + interface.name, names.pop("valid"), names.pop("ready"), names)
