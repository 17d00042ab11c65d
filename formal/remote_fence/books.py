# SPDX-License-Identifier: Apache-2.0
"""What the proofs of both ends of a remote fence say of the packets of one rank."""

from amaranth import Cat, Const, Signal

from formal.kit.inside import known_word, observe
from hub_rtl.contract.fields import PLAINS

__all__ = ["PHASES", "book_lemmas", "counted"]

PHASES = range(2)


def counted(m, counts, name):
    """How often ``counts`` was 1 since reset, mod 4096."""
    number = Signal(PLAINS, name=name)
    m.d.sync += number.eq(number + counts)
    return number


def book_lemmas(spec, book, rank, numbers):
    """Both memories of a :class:`~hub_rtl.remote_fence.remote_fence.PlainBook` hold the ``numbers``
    of packets by phase, but for the one that came in the cycle before."""
    inner = observe(book)
    late, before = inner.counted, spec.past(book.counts, "counts_before")
    spec.lemma("what came is counted", late.as_value() == before)
    for phase, number in zip(PHASES, numbers, strict=True):
        row = Cat(Const(phase, 1), rank)
        word, known = known_word(spec, inner.book, row, f"book_{phase}")
        shown, _ = known_word(spec, inner.shown, row, f"shown_{phase}")
        one = late.en & (late.rank == rank) & (late.phase == phase)
        spec.lemma(f"book {phase}", (word + one)[:PLAINS] == number, known)
        spec.lemma(f"shown {phase}", shown == word, known)
        spec.lemma(f"nothing yet {phase}", (number == 0) & ~late.en, book.clearing)
    spec.lemma("one walk", inner.book.observe.walk == inner.shown.observe.walk)
