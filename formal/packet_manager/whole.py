# SPDX-License-Identifier: Apache-2.0
"""Promise of the packet manager as a whole: what was stored leaves, once."""

from amaranth import Cat, Signal

from formal.kit.spec import Spec, moves
from hub_rtl.contract.config import ceil_log2
from hub_rtl.packet_manager.packet_manager import PacketManager

__all__ = ["BytesLeaveOnce"]

ROW = ("region", "epoch", "rowid")


class BytesLeaveOnce(Spec):
    """A byte that was stored leaves in one record of its block, with its value, and in no other;
    and its rank drains from a mark until then.

    An arbitrary byte of an arbitrary block is followed, which is not stored again before it has
    left, while other bytes of its block and other blocks come and go. No peer dies; the policy
    stands still.
    """

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = PacketManager(cfg)
        self.free_inputs(dut, but=("policy", "peer_dead"))
        m.d.comb += dut.policy.eq(self.constant(len(dut.policy.as_value()), "policy"))
        store, record = dut.i_store, dut.o_record
        followed = self.constant(record.p.header.shape(), "followed")
        place = self.constant(range(cfg.packet_bytes), "place")
        byte, part = place[: ceil_log2(cfg.slice_bytes)], place[ceil_log2(cfg.slice_bytes) :]
        dest = self.constant(cfg.dest_width, "dest")
        full = self.constant(cfg.bytes_width, "full")
        lengths = (full[:4] == 0) & (full != 0) & (full <= cfg.packet_bytes)
        self.suppose("blocks are whole units", lengths)
        its, leaves = (
            (each.p.part == part) & each.p.mask.bit_select(at, 1) & moves(each)
            for each, at in ((store, byte), (record, place))
        )
        self.suppose("ranks exist", store.p.rank < cfg.ranks)
        self.suppose(
            "a row's blocks are few",
            store.p.plain | ((store.p.block >> cfg.row_block_width) == 0),
            when=store.valid,
        )
        of_block = self._same(store.p, followed)
        self.suppose(
            "stores of a block name one length", store.p.full == full, when=store.valid & of_block
        )
        self.suppose(
            "stores of a row name one destination",
            store.p.dest == dest,
            when=store.valid & of_block & ~store.p.plain,
        )
        pending, value, covered = Signal(), Signal(8), Signal()
        comes, goes = its & of_block, leaves & self._same(record.p.header, followed)
        self.suppose("stored again only when it has left", ~pending, when=comes)
        self.flag(pending, comes, goes)
        with m.If(comes):
            m.d.sync += value.eq(store.p.data.word_select(byte, 8))
        marked = dut.mark.en & (
            dut.mark.all | (~followed.plain & (dest >> ceil_log2(cfg.replicas) == dut.mark.handle))
        )
        self.flag(covered, marked & (comes | (pending & ~goes)), goes | comes)
        self.always("it was stored, and had not left", pending, when=goes)
        sent = record.p.data.word_select(byte, 8)
        self.always("value as it was stored", sent == value, when=goes)
        self.always(
            "its rank drains", dut.draining.bit_select(followed.rank, 1), when=covered & pending
        )

    @staticmethod
    def _same(one, other):
        """Of the same block."""
        row = Cat(one[name] == other[name] for name in ROW).all()
        return (
            (one.plain == other.plain)
            & (one.rank == other.rank)
            & (one.block == other.block)
            & (one.plain | row)
        )
