# SPDX-License-Identifier: Apache-2.0
"""What every scheme does in a layer: its messages, the batches of its GEMMs, the steps of its
processes."""

from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby
from types import SimpleNamespace

import pytest
import simpy

from sim.evaluate.machine import compute
from sim.evaluate.machine.engine import Cluster, GpuSim
from sim.evaluate.machine.hardware import machine
from sim.evaluate.machine.in_switch import InSwitchNetwork
from sim.evaluate.machine.network import Network
from sim.evaluate.machine.workload import Workload
from sim.evaluate.schemes import SCHEMES, fastermoe, flags, megatron, tutel
from sim.evaluate.schemes.flashdmoe import ELEMENT_BYTES
from sim.evaluate.schemes.nccl import SendRecv
from sim.evaluate.schemes.steps import RowExchange
from sim.evaluate.systems import constants
from sim.workload.models import model as shape

RANKS, TOKENS = 4, 1024
LATE = 1e5  # microseconds, far more than a layer takes
# Systems that choose their chunks, groups or order themselves would run trials in between: here
# they are told.
CHOSEN = {
    "fastermoe": partial(fastermoe.grouped, width=RANKS),
    "fastermoe in groups of 2": partial(fastermoe.grouped, width=2),
    "megatron in all-gathers": megatron.gathered,
    "tutel": partial(tutel.pipelined, degree=1),
    "tutel in 2 chunks": partial(tutel.pipelined, degree=2),
    "row_flags": partial(flags.ordered, by_expert=False),
    "row_flags in order of experts": partial(flags.ordered, by_expert=True),
}
#: Their rows are multicast, or their sums pulled, and neither waits for the other.
FUSED = "dysharp", "moe_hub_fused", "moe_hub_fused_in_switch"
IN_SWITCH = (*FUSED, "moe_hub_in_switch")
SYSTEM = {name: scheme for name, scheme in SCHEMES.items() if name != "ideal"} | CHOSEN

# Two experts a rank, each with some full tiles of rows; inputs, width and outputs of the GEMMs
# differ.
SHAPE = replace(shape("olmoe-1b-7b"), experts=8, top_k=2, inter=768)
WORKLOAD = Workload.make(SHAPE, RANKS, TOKENS)


@dataclass
class Message:
    """``answer``: whether it is one, where the order on its pair does not tell."""

    src: int
    dst: int
    size: int
    rows: bool  # rows or answers; else flags and counts
    sent: float
    arrived: float = None
    answer: bool = None

    @property
    def pair(self):
        return self.src, self.dst


@dataclass
class Batch:
    """Part of a GEMM, or of FlashDMoE's sum (``which`` 3); ``rows`` count by the fraction of their
    columns."""

    rank: int
    which: int
    rows: float
    start: float
    end: float


class Late(simpy.Event):
    """A transfer whose arrival, or with ``leaving`` its leaving, is seen :data:`LATE` microseconds
    later than it is."""

    def __init__(self, transfer, leaving):
        super().__init__(transfer.env)
        self.left = self.env.event()
        for event, seen, us in (
            (transfer, self, LATE * (not leaving)),
            (transfer.left, self.left, LATE * leaving),
        ):
            event.callbacks.append(
                lambda _, seen=seen, us=us: self.env.timeout(us).callbacks.append(
                    lambda _: seen.succeed()
                )
            )


class Record:
    """A layer that ran: ``messages``, ``batches``, ``steps[rank][process]``, ``done[rank]``."""

    def __init__(self, name, late=None, leaving=False, **gpu):
        """``late``: number of the message that is :class:`Late`. ``gpu``: its fields to replace."""
        self.messages, self.batches, self.late, self.leaving = [], [], late, leaving
        self.name = name
        self.dtype = "fp32" if name.endswith("fp32") else "fp16"
        self.steps = [{} for _ in range(RANKS)]
        scheme = SYSTEM[name]
        self.cluster = Cluster(
            machine("h800", RANKS).changed(gpu=gpu), WORKLOAD, hub=getattr(scheme, "hub", False)
        )
        self.rank_of = {id(gpu.times): gpu.rank for gpu in self.cluster.gpus}
        with pytest.MonkeyPatch.context() as patch:
            for owner, attribute, wrapper in (
                (Network, "send", self._send),
                (InSwitchNetwork, "multicast", self._multicast),
                (InSwitchNetwork, "pull", self._pull),
                (GpuSim, "compute", self._task),
                (compute, "run_batch", self._batch),
                (GpuSim, "release", self._release),
            ):
                patch.setattr(owner, attribute, _wrapped(wrapper, getattr(owner, attribute)))
            for owner, attribute, step in STEPS:
                patch.setattr(
                    owner, attribute, _wrapped(self._step, getattr(owner, attribute), step)
                )
            scheme(self.cluster)
            self.cluster.env.run()
        self.done = self.cluster.result().rank_us

    def _step(self, original, step, owner, *arguments, **options):
        """A step that is a generator: noted when the process comes to it."""
        rank = owner.rank if isinstance(owner, GpuSim) else arguments[0]
        name = step(*arguments, **options) if callable(step) else step
        self.steps[rank].setdefault(self.cluster.env.active_process, []).append(name)
        return (yield from original(owner, *arguments, **options))

    def _release(self, original, gpu, sms):
        self.steps[gpu.rank].setdefault(self.cluster.env.active_process, []).append("release")
        original(gpu, sms)

    def _send(self, original, network, src, dst, size, **options):
        transfer = original(network, src, dst, size, **options)
        if not size:
            return transfer
        told = options.get("packet_bytes") == constants("dysharp").notice_bytes
        rows = bool(options.keys() & {"row_bytes", "packet_bytes"}) and not told
        message = Message(src, dst, size, rows, network.env.now)
        if self.name in FUSED:
            answers = self.name == "moe_hub_fused" and "row_bytes" in options
            message.answer = answers and options["row_bytes"] == SHAPE.combine_bytes
        return self._noted(message, transfer)

    def _noted(self, message, transfer):
        self.messages.append(message)
        if len(self.messages) - 1 == self.late:
            transfer = Late(transfer, self.leaving)
        transfer.callbacks.append(lambda event: setattr(message, "arrived", self.cluster.env.now))
        return transfer

    def _multicast(self, original, network, src, bytes_to, size, **options):
        """A message for each receiver; who is late is one copy, or the leaving of all."""
        sent, now = original(network, src, bytes_to, size, **options), network.env.now
        copies = {
            dst: self._noted(Message(src, dst, copy.payload_bytes, True, now, answer=False), copy)
            for dst, copy in sent.copies.items()
        }
        late = any(isinstance(one, Late) for one in copies.values())
        return SimpleNamespace(
            copies=copies, left=Late(sent, self.leaving).left if late else sent.left
        )

    def _pull(self, original, network, dst, bytes_from, size, **options):
        """A message for each term; it has arrived when the sums have."""
        made, now = original(network, dst, bytes_from, size, **options), network.env.now
        for src, part in bytes_from.items():
            made = self._noted(Message(src, dst, part, True, now, answer=True), made)
        return made

    def _batch(self, original, times, at, gemm, expert, tiles):
        start, end = original(times, at, gemm, expert, tiles)
        if id(times) in self.rank_of:  # else it is the router, or a formula
            whole = compute.expert_gemms(SHAPE)[gemm.k == SHAPE.inter].n
            rank, which = self.rank_of[id(times)], 1 + (gemm.k == SHAPE.inter)
            self.batches.append(Batch(rank, which, sum(tiles) * gemm.n / whole, start, end))
        return start, end

    def _task(self, original, gpu, blocks, block_us, hbm_bytes):
        """FlashDMoE's: how long a block takes tells which task it is, what it moves beside weights
        tells the rows."""
        system, size = constants("flashdmoe"), ELEMENT_BYTES[self.dtype]
        rate = gpu.gpu.peak_tflops(self.dtype) * system.gemm_efficiency * 1e6 / gpu.gpu.sms
        which, rows = 3, hbm_bytes / (3 * size * SHAPE.row)
        for number, gemm in enumerate(compute.expert_gemms(SHAPE), 1):
            if block_us == pytest.approx(
                2 * system.tile_rows * system.tile_columns * gemm.k / rate
            ):
                which, rows = (
                    number,
                    hbm_bytes % (gemm.n * gemm.k * size) / ((gemm.k + gemm.n) * size),
                )
        done, batch = (
            original(gpu, blocks, block_us, hbm_bytes),
            Batch(gpu.rank, which, rows, self.cluster.env.now, None),
        )
        self.batches.append(batch)
        done.callbacks.append(lambda _: setattr(batch, "end", self.cluster.env.now))
        return done

    def split(self, there):
        """(rows, answers), numbers of their messages: on every pair ``there[src, dst]`` bytes of
        rows come first."""
        rest, found = there.copy(), ([], [])
        for number, message in enumerate(self.messages):
            if message.rows:
                answer = message.answer
                found[int(rest[message.pair] <= 0 if answer is None else answer)].append(number)
                rest[message.pair] -= message.size
        return found

    def rows(self, there):
        """Messages of rows; ``there`` as for :meth:`split`."""
        return [self.messages[number] for number in self.split(there)[0]]

    def answers(self, there):
        return [self.messages[number] for number in self.split(there)[1]]

    def work(self, rank, which):
        """Batches of a rank's GEMM (or sum, 3)."""
        return [each for each in self.batches if (each.rank, each.which) == (rank, which)]

    def streams(self, rank):
        """(the rank's processes, each as text: ``step*times`` in order; polls of those that do
        nothing else)"""
        texts = [
            " ".join(
                f"{step}*{count}" if (count := len(list(group))) > 1 else step
                for step, group in groupby(steps)
            )
            for steps in self.steps[rank].values()
            if set(steps) != {"poll"}
        ]
        return texts, sum(
            len(steps) for steps in self.steps[rank].values() if set(steps) == {"poll"}
        )


def _wrapped(wrapper, original, *more):
    return lambda *arguments, **options: wrapper(original, *more, *arguments, **options)


STEPS = (
    (Cluster, "device_barrier", "barrier"),
    (Cluster, "meet", "meet"),
    (Cluster, "all_to_all", "all-to-all"),
    (GpuSim, "host_sync", "sync"),
    (GpuSim, "hold", "hold"),
    (GpuSim, "poll", "poll"),
    (RowExchange, "run", "rows"),
    (SendRecv, "run", "rows"),
    (GpuSim, "kernel", lambda us, phase=None, *_, **__: phase or "kernel"),
    (GpuSim, "gemm", lambda gemm, *_, **__: "gemm2" if gemm.k == SHAPE.inter else "gemm1"),
)


@cache
def recorded(name):
    """The layer of a system, nothing late."""
    return Record(name)
