# SPDX-License-Identifier: Apache-2.0
"""What ProducerControl promises of each port in every cycle, beside the bytes and the messages."""

from collections import deque

from hub_rtl.contract.packets import NEWS_ENTRIES, CommandOp, Reason
from sim.quality.coverage import cover


class Marks:
    """Flush, flush of the merges, mark: in this order, each after what came before has ended, and
    never without a cause."""

    def __init__(self, world):
        self._world, self._stage = world, "none"

    def flush(self):
        w = self._world
        assert self._stage == "none", f"a flush after a {self._stage}"
        assert self._close() or any(one["op"] == CommandOp.FENCE for one in w.open.values()), (
            "a flush without a cause"
        )
        self._stage = "flush"

    def flush_merge(self):
        assert self._stage == "flush", f"a flush of the merges after a {self._stage}"
        assert not any(pipe.older for pipe in self._world.lanes), "decoders still have older stores"
        self._stage = "flush of the merges"

    def mark(self, mark):
        """Returns the fences that this mark is for, None when it is for a close."""
        assert self._stage == "flush of the merges", f"a mark after a {self._stage}"
        assert not any(pipe.older for pipe in self._world.merges), "merges still have older stores"
        self._stage = "none"
        command = self._close()
        if command is None:
            assert mark["all"], "a fence that does not mark everything"
            return [
                one
                for one in self._world.open.values()
                if one["op"] == CommandOp.FENCE and "group" not in one
            ]
        command["marked"] = True
        if command["op"] == CommandOp.CLOSE:
            assert not mark["all"] and mark["handle"] == command["handle"], f"{mark} for {command}"
        else:
            assert mark["all"], "CLOSE_ALL does not mark everything"
        return None

    def _close(self):
        """The command whose closes wait for their mark."""
        command = self._world.running
        return (
            command
            if command is not None and command["closed"] and "marked" not in command
            else None
        )


class Fences:
    """Fences of one mark have one answer: PEER_DEAD exactly if entries were sunk since the answer
    before."""

    def __init__(self):
        self._marked, self._answered, self._sunk = -1, -1, []

    def sunk(self, cycle):
        self._sunk.append(cycle)

    def group(self, fences, cycle):
        assert fences, "a mark for no fence"
        one = {"before": self._marked, "answered": self._answered, "marked": cycle, "status": None}
        for fence in fences:
            fence["group"] = one
        self._marked = cycle
        cover("producer.fence_group", len(fences) > 1)

    def answer(self, fence, status, cycle):
        assert "group" in fence, "a fence was answered without a mark"
        group = fence["group"]
        if group["status"] is None:
            group["status"], self._answered = status, cycle
            dead = status == Reason.PEER_DEAD
            assert dead or status == Reason.OK
            # It is not seen from outside when the group's answer was made: after its mark, before
            # the answer came.
            assert dead or not any(
                group["answered"] < at <= group["marked"] for at in self._sunk
            ), "sunk entries not told"
            assert not dead or any(group["before"] < at <= cycle for at in self._sunk), (
                "PEER_DEAD, but nothing was sunk"
            )
        assert status == group["status"], (
            f"{status!r}, the same mark's fence before {group['status']!r}"
        )


class Peers:
    """``pending``, claims only of credits that were shown, and the turns of the peers."""

    def __init__(self, world):
        self._world, self._claimable = world, 0
        self._listed, self._gap, self._wait = set(), {}, {}
        # A packet of each other peer may go first, and a close takes 3 cycles.
        self._most = (3 * min(NEWS_ENTRIES, 2 * world.cfg.dests) + 8) * world.cfg.ranks

    def may_claim(self, rank):
        """The credit was asked for and there in the cycle before."""
        return self._claimable >> rank & 1

    def answered(self, command):
        """The closes of an answered command are listed."""
        replicas = self._world.cfg.replicas
        self._listed |= {
            (dest, epoch)
            for due in self._world.model.due.values()
            for dest, _, epoch in due
            if dest // replicas in command["closed"] and epoch == command["epoch"]
        }

    def read(self, rank, dest, epoch):
        self._listed.discard((dest, epoch))
        self._wait[rank] = 0

    def look(self, cycle):
        w = self._world
        pending, wanted, may_send = map(w.get, ("pending", "wanted", "may_send"))
        draining = 0
        for n in range(w.cfg.slices):
            draining |= w.get(f"draining__{n}")
        quiet = int(w.o_news.port.ready.value)
        quiet = quiet and not (w.strobe("handle_read") or w.strobe("handle_write"))
        quiet = quiet and (w.running is None or w.running["tag"] not in w.open)
        may_go = pending & ~draining & (sum(1 << rank for rank in w.dead) | may_send)
        for rank in range(w.cfg.ranks):
            due = w.model.due.get(rank, ())
            assert due or not pending >> rank & 1, f"pending for rank {rank}, nothing is due"
            # It falls when the last close is on its way, two cycles before the read.
            lost = not pending >> rank & 1 and any(
                (dest, epoch) in self._listed for dest, _, epoch in due
            )
            self._gap[rank] = self._gap.get(rank, 0) + 1 if lost else 0
            assert self._gap[rank] <= 2, f"rank {rank} has closes, but is not pending"
            self._wait[rank] = self._wait.get(rank, 0) + 1 if quiet and may_go >> rank & 1 else 0
            assert self._wait[rank] <= self._most, f"rank {rank} may be served, but is not"
        self._claimable = wanted & may_send


class Software:
    """``handle_data``: the entry as it is two cycles after it was asked for, held; a write in that
    cycle wins."""

    def __init__(self, world):
        self._world, self._codec = world, world.codec("handle_data")
        self._asked, self._shown = deque([None] * 2), None

    def look(self):
        w = self._world
        ask = w.strobe("handle_read")
        lost = w.strobe("handle_write") or w.get("clearing")
        self._asked.append(ask["index"] if ask and not lost else None)
        asked = self._asked.popleft()
        if asked is not None:
            entry = self._codec.pack(w.model.entries.get(asked, 0))
            self._shown = self._codec.unpack(entry) if asked < w.cfg.handles else None
        if self._shown is not None:
            shown = w.get("handle_data")
            assert shown == self._shown, f"{shown}\n expected {self._shown}"
