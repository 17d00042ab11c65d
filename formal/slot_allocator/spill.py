# SPDX-License-Identifier: Apache-2.0
"""Promises of the spill filter and of the spill engine (``hub_rtl/slot_allocator/spill_filter.py``,
``hub_rtl/slot_allocator/spill.py``)."""

from amaranth import Array, Cat, Const, Mux, Signal
from amaranth.lib import data

from formal.kit.inside import observe, peek
from formal.kit.spec import Spec, blocked, moves, same
from hub_rtl.contract.axi import RESP_OKAY
from hub_rtl.slot_allocator.spill import SpillEngine
from hub_rtl.slot_allocator.spill_filter import SpillFilter

__all__ = [
    "EngineAddressesWords",
    "EngineAnswersEach",
    "EngineKeepsAxiRules",
    "FilterHasNoFalseNegatives",
]


class FilterHasNoFalseNegatives(Spec):
    """``maybe`` = 0 means that no row with the index looked at is counted. User: one operation per
    cycle, none while clearing, one change per ``look``, and ``down`` only for rows counted
    before."""

    def __init__(self, depth, width):
        super().__init__()
        self._depth, self._width = depth, width

    def build(self, m):
        m.submodules.dut = dut = SpillFilter(self._depth, self._width)
        self.free_inputs(dut)
        index = self.constant(len(dut.index), "index")
        counted = Signal(self._width + 2)  # rows of this index that are spilled; stays when full
        at_look = Signal.like(counted)
        ours = Signal()
        fresh = Signal()  # looked, not changed since
        with m.If(dut.look):
            m.d.sync += [
                at_look.eq(counted),
                ours.eq(dut.index == index),
                fresh.eq(1),
            ]
        with m.If(dut.up | dut.down):
            m.d.sync += fresh.eq(0)
        with m.If(dut.up & ours & ~counted.all()):
            m.d.sync += counted.eq(counted + 1)
        with m.If(dut.down & ours & ~counted.all()):
            m.d.sync += counted.eq(counted - 1)
        self.suppose(
            "one operation per cycle",
            ~(dut.look & dut.up) & ~(dut.look & dut.down) & ~(dut.up & dut.down),
        )
        self.suppose("nothing while clearing", ~(dut.look | dut.up | dut.down), when=dut.clearing)
        self.suppose("one change per look", fresh, when=dut.up | dut.down)
        self.suppose("only counted rows leave", at_look.any(), when=dut.down & ours)
        self.always("no false negative", dut.maybe, when=ours & fresh & at_look.any())
        self.always(
            "clears once", ~dut.clearing, when=self.started & ~self.past(dut.clearing, "cleared")
        )
        once = Signal()
        with m.If(counted.any()):
            m.d.sync += once.eq(1)
        self.reach("says no again", once & ours & fresh & ~dut.maybe)


def _engine(spec, m, cfg):
    """A spill engine whose memory answers only what was asked: reads after ``ar``, writes after
    ``aw`` and ``w``."""
    dut = SpillEngine(cfg, cfg.slices)
    m.submodules.dut = dut
    spec.free_inputs(dut, but=("mem",))
    mem = dut.mem
    spec.free(
        mem.aw.ready,
        mem.w.ready,
        mem.ar.ready,
        mem.b.valid,
        mem.b.payload,
        mem.r.valid,
        mem.r.payload,
    )
    left = {name: Signal(2, name=f"{name}_left") for name in ("aw", "w", "ar")}
    done = {name: moves(getattr(mem, name)) for name in ("aw", "w", "ar", "b", "r")}
    for name in ("aw", "w"):
        m.d.sync += left[name].eq(left[name] + done[name] - done["b"])
    m.d.sync += left["ar"].eq(left["ar"] + done["ar"] - done["r"])
    spec.suppose("b answers a write", left["aw"].any() & left["w"].any(), when=mem.b.valid)
    spec.suppose("r answers a read", left["ar"].any(), when=mem.r.valid)
    return dut, left


class EngineKeepsAxiRules(Spec):
    """One access is open at most: an address or data item goes out only when every earlier access
    was answered, each write has one address and one data item, what waits is held, and every answer
    of memory is taken at once."""

    def build(self, m):
        dut, left = _engine(self, m, self._cfg)
        mem = dut.mem
        self.always_held_all(dut)
        self.always("one write address open", ~left["aw"].any(), when=mem.aw.valid)
        self.always("one write word open", ~left["w"].any(), when=mem.w.valid)
        self.always("one read open", ~left["ar"].any(), when=mem.ar.valid)
        self.always(
            "reads and writes apart",
            ~(mem.ar.valid | left["ar"].any()),
            when=mem.aw.valid | mem.w.valid | left["aw"].any() | left["w"].any(),
        )
        self.always("write answers taken", mem.b.ready, when=mem.b.valid)
        self.always("read answers taken", mem.r.ready, when=mem.r.valid)
        self.suppose(
            "spill tables are aligned",
            Cat(base[:3] for base in dut.geometry_write.geometry.spill_base) == 0,
            when=dut.geometry_write.en,
        )
        self.always(
            "words aligned",
            (mem.aw.payload[:3] == 0) & (mem.ar.payload[:3] == 0),
            when=mem.aw.valid | mem.ar.valid,
        )


class EngineAnswersEach(Spec):
    """Every request of every slice gets exactly one ``done``, with the word and the error of its
    own access, and at most ``WAIT`` cycles after it was taken while memory answers within
    ``MEMORY`` cycles; an idle engine takes a request in the next cycle."""

    MEMORY, WAIT = 3, 12

    def build(self, m):
        cfg = self._cfg
        dut, left = _engine(self, m, cfg)
        mem = dut.mem
        n = self.constant(range(cfg.slices), "slice")
        self.suppose("slice exists", n < cfg.slices)
        requests = Array(dut.i_request)
        took = Signal()
        m.d.comb += took.eq(Array([moves(each) for each in dut.i_request])[n])
        any_took = Cat(moves(each) for each in dut.i_request).any()
        answered = Signal()
        m.d.comb += answered.eq(Array(dut.done)[n])
        open_ = Signal()
        busy = Signal()
        write = Signal()
        word = Signal(64)
        error = Signal()
        with m.If(took):
            m.d.sync += [
                open_.eq(1),
                write.eq(requests[n].payload.write),
            ]
        with m.Elif(answered):
            m.d.sync += open_.eq(0)
        self.flag(busy, any_took, dut.done.any())
        m.d.sync += [
            word.eq(mem.r.p.data),
            error.eq(Mux(write, mem.b.payload, mem.r.p.resp) != RESP_OKAY),
        ]
        self.always("done only when asked", open_, when=answered)
        self.always("one at a time", ~busy | dut.done.any(), when=any_took)
        self.always("one slice at a time", (dut.done & (dut.done - 1)) == 0)
        self.always("word is memory's", dut.reply.word == word, when=answered & ~write)
        self.always("error is memory's", dut.reply.error == error, when=answered)
        self.always("write does what is asked", write, when=open_ & (mem.aw.valid | mem.w.valid))
        self.always("read does what is asked", ~write, when=open_ & mem.ar.valid)
        # Bounded wait: memory takes each item, and answers, within MEMORY cycles.
        ages = {}
        waiting = {
            "aw": blocked(mem.aw),
            "w": blocked(mem.w),
            "ar": blocked(mem.ar),
            "b": left["aw"].any() & left["w"].any() & ~mem.b.valid,
            "r": left["ar"].any() & ~mem.r.valid,
        }
        for name, waits in waiting.items():
            ages[name] = Signal(range(self.MEMORY + 1), name=f"{name}_age")
            m.d.sync += ages[name].eq(Mux(waits, ages[name] + 1, 0))
            self.suppose(f"memory serves {name} in time", ages[name] < self.MEMORY, when=waits)
        age = Signal(range(self.WAIT + 2))
        m.d.sync += age.eq(Mux(open_ & ~answered, age + (age <= self.WAIT), 0))
        self.always("answered in time", age <= self.WAIT)
        self.reach("slow memory", answered & (age >= 2 * self.MEMORY))
        due = Cat(each.valid for each in dut.i_request).any() & ~any_took & (~busy | dut.done.any())
        self.always("idle engine takes a request", any_took, when=self.past(due, "due"))


class EngineAddressesWords(Spec):
    """A request's access goes to spill_base[bank] + 8 * (RowID - row_first) of its region, with its
    own word, for any values that software has written there. Software: no geometry is written while
    clearing; what is written for the region is always the same (it is FREE, and its rows are not in
    use, when that changes), and comes before its first request."""

    def build(self, m):
        cfg = self._cfg
        dut, left = _engine(self, m, cfg)
        mem, write = dut.mem, dut.geometry_write
        region = self.constant(cfg.region_width, "region")
        first, bases = self.constant(24, "first"), [self.constant(48, f"base{n}") for n in range(2)]
        ours = write.en & (write.region == region)
        written = Signal()
        with m.If(ours):
            m.d.sync += written.eq(1)
        mine = Signal()
        job = Signal(dut.i_request[0].payload.shape())
        for each in dut.i_request:
            with m.If(moves(each)):
                m.d.sync += [
                    mine.eq(each.payload.region == region),
                    job.eq(each.payload),
                ]
        values = write.geometry
        self.suppose(
            "one geometry",
            (values.row_first == first)
            & (values.spill_base[0] == bases[0])
            & (values.spill_base[1] == bases[1]),
            when=ours,
        )
        self.suppose("no geometry while clearing", ~write.en, when=dut.clearing)
        for n, each in enumerate(dut.i_request):
            self.suppose(
                f"geometry before request {n}",
                written,
                when=each.valid & (each.payload.region == region),
            )
        address = Signal(48)
        m.d.comb += address.eq(
            Mux(job.bank, bases[1], bases[0]) + Cat(Const(0, 3), (job.rowid - first)[:24])
        )
        self.always("write address", mem.aw.payload == address, when=mine & mem.aw.valid)
        self.always("read address", mem.ar.payload == address, when=mine & mem.ar.valid)
        self.always("write word", mem.w.payload == job.word, when=mine & mem.w.valid)
        self.always("write writes", job.write, when=mine & (mem.aw.valid | mem.w.valid))
        self.always("read only reads", ~job.write, when=mine & mem.ar.valid)
        # Helper invariants: the engine works on this request, and looks up what was written.
        view = data.StructLayout({"row_first": 24, "spill_base": data.ArrayLayout(48, 2)})
        inside = observe(dut)
        kept, seen = view(peek(m, inside.views, region)), view(inside.views.r_data)
        self.lemma("word kept", self._is(kept, first, bases), when=written)
        self.lemma("word seen", self._is(seen, first, bases), when=mine & inside.is_in["DISTANCE"])
        self.lemma(
            "parts known",
            same(inside, base=Mux(job.bank, bases[1], bases[0]), distance=(job.rowid - first)[:24]),
            when=mine & inside.is_in["ADDRESS"],
        )
        self.lemma(
            "same request",
            inside.request == job,
            when=mine & ~(inside.is_in["IDLE"] | inside.is_in["TAKE"]),
        )
        self.lemma("known region", written, when=mine)
        self.lemma("cleared before", ~dut.clearing, when=written)
        waits, writes = inside.is_in["WAIT"], inside.request.write
        for name, kind in (("aw", writes), ("w", writes), ("ar", ~writes)):
            self.lemma(f"one {name} each", getattr(mem, name).valid + left[name] == (waits & kind))

    @staticmethod
    def _is(view, first, bases):
        return (
            (view.row_first == first)
            & (view.spill_base[0] == bases[0])
            & (view.spill_base[1] == bases[1])
        )
