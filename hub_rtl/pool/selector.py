"""Chooses which pool entry leaves next: round-robin over destinations, then a tournament over one destination's entries."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import ROWID_WIDTH
from ..lib.arbiter import RoundRobin
from .pool_types import by_rank, decode, encode, pool_types_of

__all__ = ["Selector"]


class Selector(wiring.Component):
    """Picks the rank, then the best entry of that rank, and locks it.

    Contract: among ranks with an eligible entry, ``dest_ready`` and not dead: round-robin. Within a rank: old entries first,
    then full, then normal before ``.nop``, then plain and row-sparse in turn, then the smallest RowID, then the lowest entry
    number. An entry is never locked while a better one of its rank has been eligible for 4 cycles or more: what is eligible
    in the cycle of the pick takes part, and the lock comes 3 cycles after the pick.

    Latency: pick (cycle 0), first half of the tournament (1), second half (2), lock and ``take`` (3). A rank's entry shows to
    the pick one cycle after it became eligible, or at once through ``hint``. One lock per 5 cycles at most.

    Stalls: picks only while ``go``. ``dest_ready`` may answer to a ``take`` one cycle later (it is looked at again two cycles
    after the take), so a single credit is never taken twice.

    Parameters: ``cfg``, HubConfig.
    Ports: ``valid``, ``eligible``, ``old``, ``full``, ``nop``, ``plain`` In, one bit per entry; ``rank_onehot``, ``rowid``
    In, per entry; ``hint`` In {en, rank}, an entry of this rank has just become full; ``dest_ready``, ``peer_dead`` In ranks;
    ``go`` In; ``lock`` Out {en, index}, ``lock_onehot`` Out; ``take`` Out {en, rank}; ``starved`` Out, eligible entries wait
    and none has a credit.

    Source: architecture 6.2 (order); the paper's priority queue, with a bounded age added.
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t, depth = self._types, cfg.pool_depth
        super().__init__({name: In(depth) for name in ("valid", "eligible", "old", "full", "nop", "plain")} | {
            "rank_onehot": In(cfg.ranks).array(depth), "rowid": In(ROWID_WIDTH).array(depth),
            "hint": In(t.take), "dest_ready": In(cfg.ranks), "peer_dead": In(cfg.ranks), "go": In(1),
            "lock": Out(t.entry), "lock_onehot": Out(depth), "take": Out(t.take), "starved": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        cfg, depth = self._cfg, self._cfg.pool_depth

        # Cycle 0: the rank.
        has, has_now, could, picked = (Signal(cfg.ranks, name=name) for name in ("has", "has_now", "could", "picked"))
        pick = Signal()
        step = Signal(3)                                        # one-hot: cycles 1, 2, 3 of a selection
        m.submodules.ranks = ranks = RoundRobin(cfg.ranks)
        m.d.sync += has.eq(by_rank(m, self.eligible, self.rank_onehot, cfg.ranks, "has"))
        m.d.comb += [
            has_now.eq((has | decode(m, self.hint.rank, cfg.ranks, self.hint.en, "hinted")) & ~self.peer_dead),
            could.eq(has_now & self.dest_ready),
            ranks.requests.eq(could),
            pick.eq(self.go & (step == 0) & could.any()),
            ranks.advance.eq(pick),
            self.starved.eq(self.go & (step == 0) & has_now.any() & ~could.any()),
        ]
        m.d.sync += step.eq(Cat(pick, step[:2]))
        with m.If(pick):
            m.d.sync += picked.eq(ranks.grant_onehot)

        # Cycles 1 and 2: the tournament. Smallest key wins; the lower entry number on a tie.
        last_plain = Signal()                                   # kind of the entry locked last: the other kind is preferred
        runners = Signal(depth)
        keys = []
        for n in range(depth):
            key = Signal(ROWID_WIDTH + 5, name=f"key_{n}")
            m.d.comb += [
                runners[n].eq(self.eligible[n] & (self.rank_onehot[n] & picked).any()),
                key.eq(Cat(Mux(self.plain[n], 0, self.rowid[n]), self.plain[n] == last_plain, self.nop[n],
                           ~self.full[n], ~self.old[n], ~runners[n])),
            ]
            keys.append((key, []))
        levels = (depth - 1).bit_length()
        for level in range(levels):
            keys = [self._better(m, keys[n], keys[n + 1], f"{level}_{n // 2}") for n in range(0, len(keys), 2)]
            if level in ((levels + 1) // 2 - 1, levels - 1):
                keys = [self._register(m, key, index, f"{level}_{n}") for n, (key, index) in enumerate(keys)]
        winner, index = keys[0]

        # Cycle 3: the lock. A runner that was sunk meanwhile has lost its place.
        alive = Signal(depth)
        m.d.sync += alive.eq(Mux(step[0], runners, alive) & self.valid)
        m.d.comb += [
            self.lock.index.eq(Cat(index)),
            self.lock.en.eq(step[2] & ~winner[-1] & (alive & self.valid).bit_select(self.lock.index, 1)
                            & ~(picked & self.peer_dead).any()),
            self.lock_onehot.eq(decode(m, self.lock.index, depth, self.lock.en, "locks")),
            self.take.en.eq(self.lock.en), self.take.rank.eq(Cat(encode(picked, cfg.rank_width))),
        ]
        with m.If(self.lock.en):
            m.d.sync += last_plain.eq(self.plain.bit_select(self.lock.index, 1))
        return m

    def _better(self, m, left, right, name):
        """The better of two (key, index bits); the loser's side becomes the next index bit."""
        (left_key, left_index), (right_key, right_index) = left, right
        take_right = Signal(name=f"right_{name}")
        key, index = Signal.like(left_key, name=f"best_{name}"), Signal(len(left_index) + 1, name=f"where_{name}")
        m.d.comb += [
            take_right.eq(right_key < left_key),
            key.eq(Mux(take_right, right_key, left_key)),
            index.eq(Cat(*(Mux(take_right, b, a) for a, b in zip(left_index, right_index, strict=True)), take_right)),
        ]
        return key, list(index)

    def _register(self, m, key, index, name):
        key_q, index_q = Signal.like(key, name=f"key_q_{name}"), Signal(len(index), name=f"where_q_{name}")
        m.d.sync += [key_q.eq(key), index_q.eq(Cat(index))]
        return key_q, list(index_q)
