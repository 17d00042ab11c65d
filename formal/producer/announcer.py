# SPDX-License-Identifier: Apache-2.0
"""Announcements, one after the other without a pause (``hub_rtl/producer/announcer.py``,
docs/interfaces.md section 3)."""

from amaranth import Cat, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec, moves, same
from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.packets import Reason
from hub_rtl.producer.announcer import Announcer

__all__ = ["AnnouncementsAreAnswered", "TellsAreWhatWasAccepted"]

MOST = 10  # commands inside


class _Announcer(Spec):
    """The announcer with free inputs. The table grants when asked, after any time, and answers two
    cycles later, ``wait`` only with OK (``producer.entries_atomic``)."""

    def build(self, m):
        m.submodules.dut = dut = Announcer(self._cfg)
        self.inside = observe(dut)
        self.free_inputs(dut)
        self.granted = dut.ask_granted
        self.suppose("grants follow requests", dut.ask.valid, when=self.granted)
        self.suppose(
            "answers follow grants", dut.result.valid == self.past(self.past(self.granted))
        )
        self.suppose("wait only with OK", dut.result.reason == Reason.OK, when=dut.result.wait == 1)
        self.good = dut.result.valid & (dut.result.reason == Reason.OK) & ~dut.result.wait
        self.specify(m, dut)

    def seen(self, event, times):
        """Whether ``event`` was there ``times`` times."""
        count = Signal(range(times + 1))
        self.m.d.sync += count.eq(count + (event & (count != times)))
        return count == times

    def dest(self, handle, replica):
        return Cat(replica[: ceil_log2(self._cfg.replicas)], handle)


class AnnouncementsAreAnswered(_Announcer):
    """Of an arbitrary command: the table is asked for its handle, epoch, owner and replica, once,
    and again after each ``wait``. It is answered once, in order, with the reason that the table
    gave last; if that is OK, its tell went out before, once, with its sizes; without ``more`` the
    list was urged before, when it had shown the ledger all. ``busy`` exactly while some are inside.
    Of it alone it is supposed that no command has its tag meanwhile."""

    def specify(self, m, dut):
        command, tag = dut.i.payload, self.constant(self._cfg.tag_width, "tag")
        taken, answer, tell = moves(dut.i), dut.o_answer.payload, dut.o_tell.payload
        comes = taken & (command.tag == tag)
        answered = moves(dut.o_answer) & (answer.tag == tag)
        open_, mine = Signal(name="open"), Signal.like(command, name="followed")
        self.suppose("tag not in use", ~open_, when=dut.i.valid & (command.tag == tag))
        # Commands are asked in order: `ahead`, those of the not yet asked that came before it.
        oldest = self.inside.oldest
        again = self.granted & self.inside.is_in["AGAIN"]
        first = self.granted & ~again
        unasked = Signal(range(MOST))
        ahead = Signal(range(MOST))
        asked = Signal()
        mine_first = first & open_ & ~asked & (ahead == 0)
        is_oldest = oldest.valid & (oldest.command.tag == tag)
        mine_again = again & is_oldest
        mine_result = self.past(self.past(mine_first | mine_again))
        last = Signal.like(dut.result)
        known = Signal(name="known")
        told = Signal(2)
        urged = Signal(name="urged")
        good = known & (last.reason == Reason.OK) & ~last.wait
        mine_told = moves(dut.o_tell) & is_oldest
        m.d.sync += [
            unasked.eq(unasked + taken - first),
            open_.eq((open_ | comes) & ~answered),
        ]
        with m.If(comes):
            m.d.sync += [
                mine.eq(command),
                ahead.eq(unasked - first),
                *(each.eq(0) for each in (asked, known, told, urged)),
            ]
        with m.Elif(open_):
            m.d.sync += [
                ahead.eq(ahead - (first & ~asked & (ahead != 0))),
                asked.eq(asked | mine_first),
                told.eq(told + (mine_told & (told != 3))),
                urged.eq(urged | (dut.urge & good & (told | mine_told))),
            ]
            with m.If(mine_result):
                m.d.sync += [last.eq(dut.result), known.eq(1)]
        self.always(
            "asked as told",
            same(dut.ask, index=mine.handle, epoch=mine.epoch, owner=mine.owner)
            & (dut.ask.replica == mine.replica),
            when=mine_first | mine_again,
        )
        self.always("again after a wait", known & last.wait, when=mine_again)
        self.always("answered after the table", open_ & known & ~last.wait, when=answered)
        self.always("the table's reason", answer.status == last.reason, when=answered)
        self.always("told once, if it was accepted", told == good, when=answered)
        self.always(
            "told as asked",
            same(tell, epoch=mine.epoch, bytes16=mine.bytes16, target=last.target)
            & (tell.dest == self.dest(mine.handle, mine.replica)),
            when=mine_told,
        )
        self.always("urged without more", urged, when=answered & good & ~mine.more)
        self.always("urged when the ledger has all", ~dut.telling, when=dut.urge)
        inside, _, _ = self.always_fifo(
            "answers", taken, command.tag, moves(dut.o_answer), answer.tag, most=MOST
        )
        self.always("busy while some are inside", dut.busy == (inside != 0))
        self.always("asks only while busy", dut.busy, when=dut.ask.valid | dut.o_tell.valid)
        self.reach("told after it waited twice", answered & good & self.seen(mine_again, 2))
        tells = moves(dut.o_tell)
        self.reach("tells without a pause", tells & self.past(tells))


class TellsAreWhatWasAccepted(_Announcer):
    """Of an arbitrary destination: a tell goes out for each ask that the table accepted, of the
    replica that it named, before the table is asked for that destination again: so tells of a
    destination are in the order of their commands, and one that has to wait is not overtaken."""

    def specify(self, m, dut):
        ask, tell = dut.ask, dut.o_tell.payload
        dest = self.constant(len(tell.dest), "dest")
        here = self.granted & (self.dest(ask.index, ask.replica) == dest)
        accepted = self.good & self.past(self.past(here))
        epoch = self.past(self.past(ask.epoch))
        told = moves(dut.o_tell) & (tell.dest == dest)
        inside, _, _ = self.always_fifo(
            "tells", accepted, Cat(dut.result.target, epoch), told, Cat(tell.target, tell.epoch), 1
        )
        under_way = self.past(here) | self.past(self.past(here))
        self.always("none of it is under way", ~under_way & (inside == 0), when=here)
        self.reach("two of them", self.seen(told, 2))
