# SPDX-License-Identifier: Apache-2.0
"""Promises of what the lists give to packets (``hub_rtl/producer/news_engine.py``,
docs/interfaces.md section 3)."""

from amaranth import Cat, Mux, Signal

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec, same
from hub_rtl.contract.config import HubConfig
from hub_rtl.producer.news_engine import NewsEngine
from hub_rtl.producer.producer import ProducerControl

__all__ = ["ClaimsHaveTheirCredit", "EntriesTellTheWord"]


class ByteTotals(HubConfig):
    """A configuration with totals of 6 bits: they wrap earlier, nothing else."""

    total_width = 6


class _Engine(Spec):
    """The engine with free inputs. Its lists are cut out: which peers are filled and ready, and
    what is popped, is anything that ``producer.tells_kept`` and ``producer.closes_wait`` allow.
    The packer is cut out (``producer.news_packed``): it has room or not as it likes; ``sent`` is an
    entry that it gets. ``whole``: within its block, the rest of which is cut out too, but for the
    sequences of commands and flushes."""

    def __init__(self, cfg, whole=False):
        super().__init__(ByteTotals(**cfg.as_dict()))
        self._whole = whole

    def build(self, m):
        block = ProducerControl(self._cfg) if self._whole else NewsEngine(self._cfg)
        m.submodules.dut = self.block = block
        dut = observe(block).engine if self._whole else block
        if self._whole:
            inner = observe(block)
            for part in (inner.table, inner.answers, inner.fences):
                cut(self, part)
        self.tells, self.closes, self.packer = tells, closes, packer = observe(dut)[:3]
        for part in (tells, closes):
            cut(self, part, but=("popped",))
            self.give(m, part)
        cut(self, packer)
        self.free_inputs(block)
        self.put, self.sent = packer.put, packer.put.en
        self.suppose("grants follow requests", dut.unpend.valid, when=dut.unpend_granted)
        self.tell_stays(m, tells)
        self.specify(m, dut)

    def give(self, m, part):
        """What is popped comes two cycles after the pop; anything else of it is free."""
        popped = Signal.like(part.popped)
        self.free(popped)
        m.d.comb += [
            part.popped.eq(popped),
            part.popped.en.eq(self.past(self.past(part.pop.en))),
        ]

    def tell_stays(self, m, tells):
        """A ready list is filled, and stays filled until it is popped."""
        self.suppose("ready lists are filled", (tells.ready & ~tells.filled) == 0)
        pop = tells.pop
        recent = pop.en | self.past(pop.en) | self.past(self.past(pop.en))
        for n in range(self._cfg.ranks):
            here = recent & (pop.rank == n)
            kept = Signal(name=f"kept{n}")
            m.d.sync += kept.eq(tells.filled[n] & ~here)
            self.suppose(f"list {n} stays filled", tells.filled[n], when=kept)


class EntriesTellTheWord(_Engine):
    """Two cycles after a tell or close leaves its list it is an entry for the rank whose list it
    was, or a drop. A tell says the bytes told. A close says that, and abort as it was asked; if it
    was told, in the ledger's word or as one of the rest, short or over as the word says; if the
    word has no tell it tells, 0 as one of the rest, else what was sent. A close reads and clears
    its word as it leaves. ``unpend`` names each, from the next cycle until it is granted; nothing
    is popped while it waits."""

    def specify(self, m, dut):
        past, entry, put = self.past, self.put.entry, self.put
        told, closed = self.tells.popped, self.closes.popped
        tell, close = past(past(told.en)), past(past(closed.en))
        read = self.block.ledger_read
        self.always(
            "a close reads its word",
            (read.en == closed.en)
            & ((read.dest == closed.dest) & (read.bank == closed.bank) | ~closed.en),
        )
        self.always("told once", dut.told + dut.told_dropped == tell)
        self.always("sent once", dut.sent + dut.dropped == close)
        self.always("an entry of each", self.sent == dut.told | dut.sent)
        body = Signal(told.body.shape())
        m.d.comb += body.eq(Mux(tell, past(past(told.body)), past(past(closed.body))))
        rank = past(
            past(past(past(Mux(self.tells.pop.en, self.tells.pop.rank, self.closes.pop.rank))))
        )
        self.always(
            "of its peer",
            (put.rank == rank) & same(entry, region=body.region, epoch=body.epoch),
            when=self.sent,
        )
        self.always(
            "what was told",
            same(entry, tell=1, close=0, abort=0, short=0, over=0, ragged=0)
            & (entry.bytes16 == self.tells.bytes16),
            when=dut.told,
        )
        word = self.block.ledger_word
        known, size = word.told | body.zero, (0 - word.left)[: self._cfg.total_width]
        self.always(
            "the word of a close",
            same(
                entry,
                tell=~word.told,
                close=1,
                abort=body.abort,
                short=known & (word.left > 0),
                over=known & (word.left < 0),
                ragged=~known & (size[:4] != 0),
                bytes16=Mux(known, 0, size[4:]),
            ),
            when=dut.sent,
        )
        owes = Signal()
        name = Signal(len(Cat(told.dest, 1, 1)))
        leaves = told.en | closed.en
        with m.If(leaves):
            m.d.sync += [
                owes.eq(1),
                name.eq(Mux(told.en, Cat(told.dest, 1), Cat(closed.dest, 0, closed.bank))),
            ]
        with m.Elif(dut.unpend_granted):
            m.d.sync += owes.eq(0)
        unpend = dut.unpend
        self.always("unpend until it is granted", unpend.valid == owes)
        self.always(
            "unpend of what has left",
            Cat(unpend.dest, unpend.tell, ~unpend.tell & unpend.bank) == name,
            when=unpend.valid,
        )
        self.always("one after the other", ~unpend.valid | dut.unpend_granted, when=leaves)


class ClaimsHaveTheirCredit(_Engine):
    """A credit is claimed only for a rank that wanted one and was shown one in the cycle before,
    and while the packer has room. Each claim begins a packet of 1 to 16 entries, which ends for
    that rank, in the order of the claims. Of a peer's closes only those are popped that were ready
    since its pop before; lists are popped at least 3 cycles apart, tells only when filled."""

    def specify(self, m, dut):
        packer, claim, past = self.packer, dut.claim, self.past
        tells, closes, put = self.tells, self.closes, self.put
        self.always(
            "claimed with a credit",
            past(dut.wanted & dut.may_send).bit_select(claim.rank, 1) & packer.room,
            when=claim.en,
        )
        self.always("a claim begins a packet", packer.begin == claim.en)
        self.always_fifo("packet", claim.en, claim.rank, put.end, put.rank, most=3)
        count = Signal(5)
        m.d.sync += count.eq(Mux(put.end, 0, count + put.en))
        self.always("an end comes alone, after an entry", ~put.en & (count != 0), when=put.end)
        self.always("at most 16 entries", count != 16, when=put.en)
        pops = tells.pop.en | closes.pop.en
        recent = past(pops) | past(past(pops))
        self.always("3 cycles apart", ~recent & ~(tells.pop.en & closes.pop.en), when=pops)
        self.always(
            "tells of filled lists", tells.filled.bit_select(tells.pop.rank, 1), when=tells.pop.en
        )
        was_ready = Signal(self._cfg.ranks)
        for n in range(self._cfg.ranks):
            popping = closes.pop.en & (closes.pop.rank == n)
            self.flag(was_ready[n], closes.ready[n] & ~recent & ~popping, popping)
        may_pop = was_ready | Mux(recent, 0, closes.ready)
        self.always(
            "closes of ready peers", may_pop.bit_select(closes.pop.rank, 1), when=closes.pop.en
        )
