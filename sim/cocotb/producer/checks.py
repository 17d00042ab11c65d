# SPDX-License-Identifier: Apache-2.0
"""What ProducerControl promises of each port in every cycle, beside the bytes and the messages."""

from collections import deque

from hub_rtl.contract.packets import NEWS_ENTRIES, CommandOp, Reason
from sim.quality.coverage import cover

FENCES = CommandOp.FENCE, CommandOp.FENCE_REMOTE


class Marks:
    """Flush, flush of the merges, then a mark of each close that came before the flush, in order,
    and one of everything for the fences that did: each step after what came before has ended, and
    never without a cause."""

    def __init__(self, world):
        self._world, self._stage, self._flushed = world, "none", -1
        self._closes, self._covered = [], []  # (handle, epoch, cycle), not marked; of this flush

    def close(self, handle, epoch, cycle):
        """A handle's entry is closed: its stores will be marked."""
        self._closes.append((handle, epoch, cycle))

    def _fences(self):
        return [
            one
            for one in self._world.open.values()
            if one["op"] in FENCES and "group" not in one and one["cycle"] < self._flushed
        ]

    def flush(self):
        assert self._stage in ("none", "merges flushed"), f"a flush after {self._stage}"
        assert not self._covered, f"closes without a mark: {self._covered}"
        self._flushed = self._world.cycle
        self._covered = [close for close in self._closes if close[2] < self._flushed]
        self._closes = self._closes[len(self._covered) :]
        assert self._covered or self._fences(), "a flush without a cause"
        cover("producer.flush_shared", len(self._covered) > 1)
        self._stage = "flushed"

    def flush_merge(self):
        assert self._stage == "flushed", f"a flush of the merges after {self._stage}"
        assert not any(pipe.older for pipe in self._world.lanes), "decoders still have older stores"
        self._stage = "merges flushed"

    def mark(self, mark):
        """Returns the fences that this mark is for, None when it is for a close."""
        assert self._stage == "merges flushed", f"a mark after {self._stage}"
        assert not any(pipe.older for pipe in self._world.merges), "merges still have older stores"
        if mark["all"]:
            assert not self._covered, "a fence's mark before those of the closes"
            return self._fences()
        assert self._covered, f"a mark without a close: {mark}"
        handle, epoch, _ = self._covered.pop(0)
        assert handle == mark["handle"], f"{mark} for a close of handle {handle}"
        self._world.peers.listed(handle, epoch)
        return None

    def finish(self):
        assert not self._closes and not self._covered, "closes without a mark"


class Fences:
    """Fences of one mark have one answer: PEER_DEAD exactly if entries were sunk since the answer
    before, or a dead peer has not answered; INCOMPLETE if a peer said so."""

    def __init__(self):
        self._marked, self._answered, self._sunk = -1, -1, []
        self.last = None  # group of the last mark

    def sunk(self, cycle):
        self._sunk.append(cycle)

    def group(self, fences, cycle):
        assert fences, "a mark for no fence"
        # The answer of the group before may still wait for its taker, its verdict was before.
        waits = self.last is not None and self.last["status"] is None
        answered = cycle if waits else self._answered
        one = {"before": self._marked, "answered": answered, "marked": cycle, "status": None}
        one |= {"fences": fences, "asked": None}
        one["remote"] = any(fence["op"] == CommandOp.FENCE_REMOTE for fence in fences)
        for fence in fences:
            fence["group"] = one
        self._marked, self.last = cycle, one
        cover("producer.fence_group", len(fences) > 1)
        cover("producer.remote.group", one["remote"] and len({f["op"] for f in fences}) > 1)

    def answer(self, fence, status, cycle, memories):
        assert "group" in fence, "a fence was answered without a mark"
        group = fence["group"]
        if group["status"] is None:
            group["status"], self._answered = status, cycle
            assert not group["remote"] or group["asked"], "answered before the peers were asked"
            dead = status == Reason.PEER_DEAD
            silent = group["remote"] and memories.judge(status, group["asked"])
            assert dead or group["remote"] or status == Reason.OK
            # It is not seen from outside when the group's answer was made: after its mark, before
            # the answer came.
            assert dead or not any(
                group["answered"] < at <= group["marked"] for at in self._sunk
            ), "sunk entries not told"
            assert not dead or silent or any(group["before"] < at <= cycle for at in self._sunk), (
                "PEER_DEAD, but nothing was sunk"
            )
        assert status == group["status"], (
            f"{status!r}, the same mark's fence before {group['status']!r}"
        )


class Memories:
    """The peers' memories, as the slices' questions show them: after a remote fence some ranks are
    unanswered for a while.

    ``mute``: ranks that never answer; ``spoils``: chance of an answer that says that not all came;
    ``asked``: the (slice, rank) of which there is something to ask, None: whichever.
    """

    def __init__(self, world):
        self._world, self.mute, self.spoils, self.asked = world, set(), 0.0, None
        self._waits = {}  # {(slice, rank): cycle of the answer}
        self._spoilt, self._maybe, self._told = False, False, False
        self._silent = False  # some rank was dead and had not answered
        self._shown = 0  # ranks that some slice shows as unanswered

    def drive(self):
        world = self._world
        due = [key for key, at in self._waits.items() if at <= world.cycle]
        # In the cycle after `unanswered` fell.
        world.set("incomplete", int(self._told))
        self._told = False
        for key in due:
            if key[1] not in self.mute:
                del self._waits[key]
                self._told |= world.rng.random() < self.spoils
        self._spoilt |= self._told
        # A dead rank is known a cycle before the answer that it gave then: the block has a register
        # where the slices' answers meet, the hub may have another on their way.
        dead, before, self._shown = sum(1 << rank for rank in world.dead), self._shown, 0
        for n in range(world.cfg.slices):
            ranks = {rank for at, rank in self._waits if at == n}
            shown = world.late(f"unanswered{n}", sum(1 << r for r in ranks))
            world.set(f"unanswered__{n}", shown)
            self._shown |= shown
        self._silent |= bool((before | self._shown) & dead)

    def ask(self):
        """The order to ask comes: everything before the fences has left."""
        world, group = self._world, self._world.fences.last
        assert group and group["remote"] and not group["asked"], "asked without a fence"
        left = [s for s in world.inside() if s.number < min(f["limit"] for f in group["fences"])]
        assert not left, f"asked, {len(left)} older stores inside"
        group["asked"] = world.cycle
        for n in range(world.cfg.slices):
            for rank in range(world.cfg.ranks):
                chance = world.rng.random() < 0.5 or rank in self.mute
                if chance if self.asked is None else (n, rank) in self.asked:
                    self._waits[n, rank] = world.cycle + world.rng.randint(1, 60)

    def judge(self, status, asked):
        """A remote fence, asked then, is answered. Returns whether a dead peer explains it."""
        waits, world = {rank for _, rank in self._waits}, self._world
        silent, self._silent = self._silent, False
        if status == Reason.PEER_DEAD:
            lately = {rank for rank, at in world.last_dead.items() if at >= asked}
            assert waits <= lately, f"answered, ranks {waits - lately} have not"
            # When it was decided is not seen; an answer may have come since.
            self._maybe |= self._spoilt
        else:
            assert not waits, f"answered, ranks {waits} have not"
            wanted = {Reason.INCOMPLETE if self._spoilt else Reason.OK}
            wanted |= {Reason.INCOMPLETE} if self._maybe else set()
            assert status in wanted, f"{status!r}, the peers say {wanted}"
            self._maybe = False
        self._spoilt = False
        return silent


class Peers:
    """``pending``, claims only of credits that were shown, and the turns of the peers."""

    def __init__(self, world):
        self._world, self._claimable = world, 0
        self._listed, self._gap, self._wait = set(), {}, {}
        # A packet of each other peer may go first, and a close takes 3 cycles.
        self._most = (3 * min(NEWS_ENTRIES, 2 * world.cfg.dests) + 8) * (world.cfg.ranks + 1)
        self._marked = -99

    def may_claim(self, rank):
        """The credit was asked for and there in the cycle before."""
        return self._claimable >> rank & 1

    def listed(self, handle, epoch):
        """A close is listed with its mark."""
        replicas, self._marked = self._world.cfg.replicas, self._world.cycle
        self._listed |= {
            (close["dest"], epoch)
            for due in self._world.model.due.values()
            for close in due
            if close["dest"] // replicas == handle and close["epoch"] == epoch
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
        quiet = w.o_news.port.is_ready()
        quiet = quiet and not (w.strobe("handle_read") or w.strobe("handle_write"))
        quiet = quiet and cycle - self._marked > 12 and not w.get("ledger_flushing")
        may_go = pending & ~draining & (sum(1 << rank for rank in w.dead) | may_send)
        for rank in range(w.cfg.ranks):
            due = w.model.due.get(rank, ())
            assert due or not pending >> rank & 1, f"pending for rank {rank}, nothing is due"
            # It falls when the last close is on its way, two cycles before the read.
            lost = not pending >> rank & 1 and any(
                (close["dest"], close["epoch"]) in self._listed for close in due
            )
            self._gap[rank] = self._gap.get(rank, 0) + 1 if lost else 0
            assert self._gap[rank] <= 3, f"rank {rank} has closes, but is not pending"
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
