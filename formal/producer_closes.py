"""Promises of the pending closes (``hub_rtl/producer/close_engine.py``, docs/interfaces.md section 3)."""

from amaranth import Signal

from hub_rtl.config import HubConfig
from hub_rtl.formats import PacketType
from hub_rtl.producer.close_engine import CloseEngine
from hub_rtl.types import header_layout

from .producer_tables import OpenRam
from .spec import Spec

__all__ = ["ClosesAreSentOnce", "OneMessagePerPeer"]


class ByteTotals(HubConfig):
    """A configuration with totals of 6 bits: they wrap earlier, nothing else."""

    total_width = 6


class _Engine(Spec):
    """The engine with free inputs; closes of one replica, each (handle, bank) accepted again only after its ``unpend``,
    as the decoder table does (producer_control.entries_atomic). The memories are lib.ram's double."""

    def __init__(self, cfg):
        super().__init__()
        self._cfg = ByteTotals(**cfg.as_dict())

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = self.with_constants(CloseEngine(cfg), {
            "hub_rtl.lib.multi_queue.Ram": OpenRam, "hub_rtl.lib.ram_queue.Ram": OpenRam})
        self.free_inputs(dut)
        close, unpend = dut.i_close.payload, dut.unpend
        self.put = dut.i_close.valid & dut.i_close.ready
        self.sent = dut.o_control.valid & dut.o_control.ready
        self.message = header_layout(PacketType.CLOSE)(dut.o_control.payload)
        self.suppose("handles and ranks exist", (close.index < cfg.handles) & (close.replica[0].rank < cfg.ranks)
                     & (close.log2_replicas == 0), when=dut.i_close.valid)
        unsent = Signal(2 * cfg.handles)
        node = close.index << 1 | close.epoch[0]
        for n in range(len(unsent)):
            with m.If(self.put & (node == n)):
                m.d.sync += unsent[n].eq(1)
            with m.Elif(dut.unpend_granted & ((unpend.index << 1 | unpend.bank) == n)):
                m.d.sync += unsent[n].eq(0)
        self.suppose("one close of a bank at a time", ~unsent.bit_select(node, 1), when=dut.i_close.valid)
        self.suppose("grants follow requests", unpend.valid, when=dut.unpend_granted)
        self.specify(m, dut)


class ClosesAreSentOnce(_Engine):
    """An accepted close is never stalled; its totals are read and cleared once, after ``release`` and after its peer's
    ``draining`` was seen 0 since; ``unpend`` follows, once. While no peer is dead its message follows, once, in the order
    of the reads, with its rank, region, epoch and the sum of all ledgers."""

    def specify(self, m, dut):
        cfg, close, read = self._cfg, dut.i_close.payload, dut.ledger_read
        index, bank = self.constant(cfg.handle_width, "index"), self.constant(1, "bank")
        self.suppose("handle exists", index < cfg.handles)
        self.suppose("no peer is dead", dut.peer_dead == 0)
        waiting, released, drained, owes = Signal(), Signal(), Signal(), Signal()
        rank, region, epoch = Signal(cfg.rank_width), Signal(cfg.region_width), Signal(4)
        mine = self.put & (close.index == index) & (close.epoch[0] == bank)
        reads = read.en & (read.dest == index) & (read.bank == bank)
        asks = dut.unpend.valid & (dut.unpend.index == index) & (dut.unpend.bank == bank)
        now = released | dut.release
        with m.If(mine):
            m.d.sync += [waiting.eq(1), released.eq(0), drained.eq(0), rank.eq(close.replica[0].rank),
                         region.eq(close.replica[0].region), epoch.eq(close.epoch)]
        with m.Elif(waiting):
            m.d.sync += [released.eq(now), drained.eq(drained | (now & ~dut.draining.bit_select(rank, 1)))]
        with m.If(reads):
            m.d.sync += [waiting.eq(0), owes.eq(1)]
        with m.Elif(asks & dut.unpend_granted):
            m.d.sync += owes.eq(0)
        self.always("never stalled", dut.i_close.ready, when=dut.i_close.valid)
        self.always("read once, after it has drained", waiting & released & drained, when=reads)
        self.always("every read clears", read.clear, when=read.en)
        self.always("unpend follows the read", owes | reads, when=asks)
        nowhere = waiting & ~reads & ~dut.staged & ~dut.pending.bit_select(rank, 1)
        self.always("staged or pending until the cycle before the read", reads, when=self.past(nowhere))

        # Its message: as many leave before it as were read before it.
        inside, follows, ahead = Signal(4), Signal(), Signal(4)
        total, body = Signal(cfg.total_width), Signal(cfg.rank_width + cfg.region_width + 4)
        m.d.sync += inside.eq(inside + read.en - self.sent)
        with m.If(reads):
            m.d.sync += [follows.eq(1), ahead.eq(inside - self.sent), body.eq(rank | region << cfg.rank_width)]
        with m.Elif(follows & self.sent):
            m.d.sync += [follows.eq(ahead != 0), ahead.eq(ahead - 1)]
        with m.If(self.past(reads)):
            m.d.sync += total.eq(sum(dut.ledger_total[1:], dut.ledger_total[0]))
        out = self.message
        told = (out.type == PacketType.CLOSE) & (out.dst == rank) & (out.region == region) & (out.epoch == epoch)
        self.always("message after the read", inside != 0, when=dut.o_control.valid)
        self.always("at most four inside", inside <= 4)
        self.always("message", told & (out.sent16 == total[4:]) & (out.ragged == (total[:4] != 0)) & ~out.abort,
                    when=dut.o_control.valid & follows & (ahead == 0) & ~waiting)
        self.always("sent told", dut.sent == self.sent)
        self.always("none dropped", ~dut.dropped)


class OneMessagePerPeer(_Engine):
    """From its choice until four cycles after ``ctl_done`` a peer is ``ctl_busy``, and no second message for it leaves. A
    peer is chosen only if it had a control credit and the other sender was not busy with it two cycles before. Closes of
    a dead peer are dropped and told; every read is followed by one message or one drop."""

    def specify(self, m, dut):
        cfg, past = self._cfg, self.past
        peer = self.constant(cfg.rank_width, "peer")

        def of(bits):
            return bits.bit_select(peer, 1)
        on_way, sends = Signal(), self.sent & (self.message.dst == peer)
        self.suppose("done after it was sent", on_way | sends, when=of(dut.ctl_done))
        with m.If(of(dut.ctl_done)):
            m.d.sync += on_way.eq(0)
        with m.Elif(sends):
            m.d.sync += on_way.eq(1)
        busy = of(dut.ctl_busy)
        offered = dut.o_control.valid & (self.message.dst == peer)
        self.always("one message at a time", ~on_way, when=offered)
        self.always("busy while it is inside or on its way", busy, when=offered | on_way)
        rises = busy & ~past(busy)
        self.always("chosen with a credit", past(past(of(dut.ctl_ready) & ~of(dut.ctl_other))), when=rises)
        self.always("busy falls only after done", past(past(past(past(of(dut.ctl_done))))), when=past(busy) & ~busy)
        inside = Signal(4)
        m.d.sync += inside.eq(inside + dut.ledger_read.en - self.sent - dut.dropped)
        self.always("a message or a drop for every read", inside != 0, when=dut.o_control.valid | dut.dropped)
        self.always("at most four inside", inside <= 4)
