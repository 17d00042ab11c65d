# SPDX-License-Identifier: Apache-2.0
"""Promises of the producer's tables (``hub_rtl/producer``, docs/interfaces.md section 3): send
totals and decoder entries."""

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring

from formal.kit.inside import observe, stand_in
from formal.kit.spec import Spec, same
from hub_rtl.contract.config import HubConfig
from hub_rtl.contract.packets import Reason
from hub_rtl.contract.records import types_of
from hub_rtl.producer.handle_table import HandleTable
from hub_rtl.producer.ledger import SendLedger

__all__ = ["EntriesAreAtomic", "TotalsAreExact"]


class NarrowTotals(HubConfig):
    """A configuration with totals of 2 bits: they wrap earlier, nothing else."""

    total_width = 2


class TotalsAreExact(Spec):
    """A read shows exactly the bytes sent for its (dest, bank) in the cycles before it and not
    taken away by a clearing read; ``clear`` takes them away. So each byte is in exactly one
    clearing read, the first after it. The answer comes two cycles later and is held until that of
    the next read. Shown with totals modulo 4.

    Updates come at most every second cycle, reads as well (a row packet has at least two flits).
    """

    def __init__(self, cfg):
        super().__init__(NarrowTotals(**cfg.as_dict()))

    def build(self, m):
        cfg, past = self._cfg, self.past
        m.submodules.dut = dut = SendLedger(cfg)
        self.free_inputs(dut)
        sent, read = dut.sent, dut.read
        dest, bank = self.constant(cfg.dest_width, "dest"), self.constant(1, "bank")
        self.suppose("dest exists", dest < cfg.dests)
        self.suppose("dest of an update exists", sent.dest < cfg.dests, when=sent.en)
        self.suppose("updates at most every second cycle", ~sent.en, when=past(sent.en))
        self.suppose("reads at most every second cycle", ~read.en, when=past(read.en))
        self.suppose("nothing while clearing", ~(sent.en | read.en), when=dut.clearing)
        news, total = (
            Signal(cfg.bytes_width),
            Signal(cfg.total_width),
        )  # total: sent before this cycle, not yet taken away
        mine = read.en & (read.dest == dest) & (read.bank == bank)
        m.d.comb += news.eq(Mux(sent.en & (sent.dest == dest) & (sent.bank == bank), sent.bytes, 0))
        answered, cleared = past(past(mine)), past(mine & read.clear)
        m.d.sync += total.eq(total + news - Mux(cleared, past(total), 0))
        self.always("the answer is the total", dut.total == past(past(total)), when=answered)
        self.always(
            "answer held", dut.total == past(dut.total), when=~past(past(read.en)) & self.started
        )
        self.reach("two reads", answered & (dut.total != 0) & past(past(answered)))


def entry_usable(cfg, handle):
    """docs/interfaces.md section 2: what makes an entry usable (else UNKNOWN)."""
    needed = 1 << handle.log2_replicas
    pairs = Cat(
        (needed <= n) | ((pair.rank < cfg.ranks) & (pair.region < cfg.regions))
        for n, pair in enumerate(handle.replica[n] for n in range(cfg.replicas))
    )
    return (
        handle.valid
        & (needed <= cfg.replicas)
        & pairs.all()
        & (handle.row_bytes % 16 == 0)
        & (handle.row_bytes <= cfg.max_row_bytes)
    )


class OpenRam(wiring.Component):
    """Stands for ``ram``, a :class:`~hub_rtl.parts.ram.Ram` (``parts.ram`` proves the same of
    it), with ``words`` that an invariant can name."""

    def __init__(self, ram):
        super().__init__(ram.signature)
        self._clear = ram.clear
        self.words = Array(Signal.like(ram.r_data, name=f"word{n}") for n in range(ram.depth))
        stand_in(ram, self)

    def elaborate(self, platform):
        m = Module()
        if self._clear:
            cleared = Signal(range(len(self.words) + 1))
            m.d.comb += self.clearing.eq(cleared != len(self.words))
            m.d.sync += cleared.eq(cleared + self.clearing)
        with m.If(self.w_en & ~self.clearing):
            m.d.sync += self.words[self.w_addr].eq(self.w_data)
        with m.If(self.r_en):
            m.d.sync += self.r_data.eq(
                Mux(self.w_en & (self.w_addr == self.r_addr), self.w_data, self.words[self.r_addr])
            )
        return m


class EntriesAreAtomic(Spec):
    """Operations on an entry take effect whole and in the order in which they are granted (write,
    read, unpend, close): a write changes the entry, a close is refused like a store (UNKNOWN,
    FOREIGN, EPOCH_*, AFTER_CLOSE; EPOCH_EARLY while held) and then changes nothing, or turns it
    into {epoch + 1, closed}. Each change, and nothing else, is broadcast two cycles later, with
    ``hold`` exactly while closes of the entry's own bank are not all sent; a write keeps their
    count.

    ``unpend`` comes at most once per replica of an accepted close.
    """

    def build(self, m):
        cfg, past = self._cfg, self.past
        m.submodules.dut = dut = HandleTable(cfg)
        memory = OpenRam(observe(dut).table)
        self.free_inputs(dut)
        write, read, close, unpend = dut.write, dut.read, dut.close, dut.unpend
        index = self.constant(cfg.handle_width, "index")
        self.suppose("handle exists", index < cfg.handles)
        entry, unsent = (
            Signal(types_of(cfg).handle),
            [Signal(range(cfg.replicas + 1), name=f"unsent{n}") for n in range(2)],
        )
        idle = ~dut.clearing
        writes = write.en & idle & (write.index == index)
        unpends, closes = (
            dut.unpend_granted & (unpend.index == index),
            dut.close_granted & (close.index == index),
        )
        self.suppose(
            "unpend of an accepted close", Mux(unpend.bank, unsent[1], unsent[0]) != 0, when=unpends
        )

        held, ahead = (
            Mux(entry.epoch[0], unsent[1], unsent[0]) != 0,
            (close.epoch - entry.epoch)[:4],
        )
        in_order = Mux(
            ahead == 0,
            Mux(held, Reason.EPOCH_EARLY, Reason.OK),
            Mux(
                (ahead == 15) & entry.closed,
                Reason.AFTER_CLOSE,
                Mux(ahead < 8, Reason.EPOCH_EARLY, Reason.EPOCH_STALE),
            ),
        )
        reason = Signal(4)
        m.d.comb += reason.eq(
            Mux(
                entry_usable(cfg, entry),
                Mux(entry.owner == close.owner, in_order, Reason.FOREIGN),
                Reason.UNKNOWN,
            )
        )
        changes = Signal()
        m.d.comb += changes.eq(writes | unpends | (closes & (reason == Reason.OK)))
        with m.If(writes):
            m.d.sync += entry.eq(write.handle)
        with m.Elif(closes & (reason == Reason.OK)):
            m.d.sync += [
                entry.epoch.eq(entry.epoch + 1),
                entry.closed.eq(1),
            ]
        for n in range(2):
            with m.If(unpends & (unpend.bank == n)):
                m.d.sync += unsent[n].eq(unsent[n] - 1)
            with m.Elif(closes & (reason == Reason.OK) & (close.epoch[0] == n)):
                m.d.sync += unsent[n].eq(1 << entry.log2_replicas)

        busy = write.en | read.en
        self.always(
            "granted in order",
            same(
                dut,
                unpend_granted=unpend.valid & idle & ~busy,
                close_granted=close.valid & idle & ~busy & ~unpend.valid,
            ),
        )
        out, result = dut.o_write, dut.result
        told = past(entry, "told")  # the entry after the operation granted two cycles ago
        self.always(
            "every change is broadcast", (out.en & (out.index == index)) == past(past(changes))
        )
        self.always(
            "broadcast is the entry", out.handle.as_value() == told, when=past(past(changes))
        )
        self.always(
            "hold while closes are unsent",
            out.hold == past(Mux(entry.epoch[0], unsent[1], unsent[0]) != 0),
            when=past(past(changes)),
        )
        self.always("close answered", result.valid == past(past(dut.close_granted)))
        self.always(
            "reason as documented", result.reason == past(past(reason)), when=past(past(closes))
        )
        self.always(
            "held tells why",
            result.held == past(past((reason == Reason.EPOCH_EARLY) & (ahead == 0))),
            when=past(past(closes)),
        )
        was = past(past(entry))
        staged = result.staged
        before = Signal(types_of(cfg).handle)
        m.d.comb += before.eq(was)
        self.always(
            "staged as the entry was",
            same(
                staged,
                index=index,
                epoch=past(past(close.epoch)),
                log2_replicas=before.log2_replicas,
            )
            & (staged.replica.as_value() == before.replica.as_value()),
            when=past(past(closes)),
        )
        reads = read.en & ~write.en & idle & (read.index == index)
        self.always("entry is read", dut.read_data.as_value() == told, when=past(past(reads)))
        self.always(
            "read is held",
            dut.read_data.as_value() == past(dut.read_data),
            when=past(past(~read.en)) & past(self.started),
        )
        # Helper: the word in memory is the entry of one operation earlier.
        word = memory.words[index]
        known = Cat(word.handle, word.unsent[0], word.unsent[1]) == past(
            Cat(entry, *unsent), "entry_before"
        )
        self.always("memory holds the entry", known)
        self.reach("refused for the hold", past(past(closes)) & result.held)
