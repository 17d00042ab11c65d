# SPDX-License-Identifier: Apache-2.0
"""Sends one line of text over a serial line."""

from amaranth import Array, C, Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["LineSender"]


class LineSender(wiring.Component):
    """Sends a text with the digits of a number in it, 8 data bits, no parity, one stop bit, again
    and again.

    Parameters: ``text``, ASCII, with ``#`` for each hexadecimal digit of ``number``, the highest
    one first; ``divisor``, clock cycles per bit, 2 or more; ``pause``, bits between two lines.
    Ports: ``number`` In, four bits per ``#``; ``send`` In, while 1 lines are sent; ``tx`` Out.
    """

    def __init__(self, text, divisor, pause=1 << 10):
        self._text, self._divisor, self._pause = text, divisor, pause
        super().__init__(
            {"number": In(max(1, 4 * text.count("#"))), "send": In(1), "tx": Out(1, init=1)}
        )

    def elaborate(self, platform):
        m = Module()
        digits = iter(reversed(range(self._text.count("#"))))
        nibbles = [self.number[4 * n : 4 * n + 4] for n in range(len(self.number) // 4)]
        hexadecimal = Array(C(ord(c), 8) for c in "0123456789abcdef")
        line = Array(
            hexadecimal[nibbles[next(digits)]] if c == "#" else C(ord(c), 8) for c in self._text
        )
        place = Signal(range(len(self._text) + 1))
        tick = Signal(range(self._divisor))
        shift = Signal(10)
        bits = Signal(range(self._pause + 11))  # that are not yet out, one more while it pauses
        m.d.sync += tick.eq(tick + 1)
        with m.If(tick == self._divisor - 1):
            m.d.sync += tick.eq(0)
            with m.If(bits != 0):
                m.d.sync += [
                    self.tx.eq(shift[0]),
                    shift.eq(Cat(shift[1:], 1)),
                    bits.eq(bits - 1),
                ]
            with m.Elif(self.send):
                with m.If(place == len(self._text)):
                    m.d.sync += [
                        place.eq(0),
                        bits.eq(self._pause),
                        shift.eq(-1),
                    ]
                with m.Else():
                    m.d.sync += [
                        place.eq(place + 1),
                        shift.eq(Cat(C(0, 1), line[place], C(1, 1))),
                        bits.eq(10),
                    ]
        return m
