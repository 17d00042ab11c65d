# SPDX-License-Identifier: Apache-2.0
"""Promise of the packet manager as a whole: what was stored leaves, once."""

from amaranth import Cat, Mux, Signal

from formal.kit.spec import Spec, moves
from hub_rtl.contract.fields import BYTE, FLIT_BYTES
from hub_rtl.packet_manager.packet_manager import PacketManager

__all__ = ["BytesLeaveOnce"]

BLOCKS = 2  # log2 of the blocks, of rows and of addresses, that are stored to


class BytesLeaveOnce(Spec):
    """A byte that was stored leaves in one record of its block, with its value, and in no other;
    and its rank drains from a mark of everything until then.

    A byte of an arbitrary block is followed, which is not stored again before it has left, while
    other units of its block, and other blocks of all ranks, come and go. Slices as wide as a
    packet; a few blocks; all bytes of a unit alike; no merge timer, no peer dies.
    """

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = PacketManager(cfg)
        self.free_inputs(dut, but=("i_store", "policy", "peer_dead", "mark"))
        store, record, units = dut.i_store, dut.o_record, cfg.packet_flits
        m.d.comb += [
            dut.policy.merge_timeout.eq(-1),
            dut.policy.age_limit.eq(-1),
            dut.policy.max_entries.eq(cfg.pool_depth),
            dut.mark.all.eq(1),
        ]
        # A store that waits is drawn anew: nothing is supposed of it.
        plain = Signal()
        cls = Signal()
        rank = Signal(cfg.rank_width)
        number = Signal(BLOCKS)
        mask = Signal(units)
        values = Signal(units * BYTE)
        self.free(store.valid, dut.mark.en, plain, cls, rank, number, mask, values)
        self.suppose("ranks exist", rank < cfg.ranks)
        m.d.comb += [
            store.p.plain.eq(plain),
            store.p.cls.eq(cls),
            store.p.rank.eq(rank),
            store.p.rowid.eq(Mux(plain, 0, number)),
            store.p.block.eq(Mux(plain, number, 0)),
            store.p.full.eq(cfg.packet_bytes),
            store.p.dest.eq(rank),
            store.p.mask.eq(Cat(bit.replicate(FLIT_BYTES) for bit in mask)),
            store.p.data.eq(
                Cat(values.word_select(n, BYTE).replicate(FLIT_BYTES) for n in range(units))
            ),
        ]
        block = self.constant(1 + cfg.rank_width + BLOCKS, "block")
        comes = Signal()
        goes = Signal()
        header = record.p.header
        place = Mux(header.plain, header.block[:BLOCKS], header.rowid[:BLOCKS])
        m.d.comb += [
            comes.eq(moves(store) & mask[0] & (Cat(plain, rank, number) == block)),
            goes.eq(
                moves(record) & record.p.mask[0] & (Cat(header.plain, header.rank, place) == block)
            ),
        ]
        pending = Signal()
        value = Signal(BYTE)
        covered = Signal()
        self.suppose("stored again only when it has left", ~pending, when=comes)
        self.flag(pending, comes, goes)
        with m.If(comes):
            m.d.sync += value.eq(values[:BYTE])
        self.flag(covered, dut.mark.en & (comes | (pending & ~goes)), goes | comes)
        self.always("it was stored, and had not left", pending, when=goes)
        self.always("value as it was stored", record.p.data[:BYTE] == value, when=goes)
        drains = dut.draining.bit_select(block[1 : 1 + cfg.rank_width], 1)
        self.always("its rank drains", drains, when=covered & pending)
