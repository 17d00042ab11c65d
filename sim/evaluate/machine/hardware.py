# SPDX-License-Identifier: Apache-2.0
"""GPUs, fabrics and machines of the system model; every number with its source is in
``data/hardware.toml``."""

import tomllib
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files

__all__ = [
    "MACHINES",
    "Fabric",
    "Gpu",
    "HardwareError",
    "Machine",
    "load_data",
    "machine",
    "sources",
]


class HardwareError(ValueError):
    """A machine, GPU or fabric is not as it must be; one line with name, value and rule."""


def _positive(record, names):
    for name in names:
        if not getattr(record, name) > 0:
            raise HardwareError(f"{name} = {getattr(record, name)}: must be above 0")


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU.

    Rates: ``hbm_gbps``, ``l2_gbps`` in GB/s (1e9 bytes); ``bf16_tflops``, ``fp8_tflops``,
    ``tf32_tflops``: published dense peaks in TFLOP/s. Efficiencies, fractions of those:
    ``bf16_efficiency``, ``fp8_efficiency`` (main loop of a large GEMM), ``attention_efficiency``
    (of the BF16 peak), ``hbm_efficiency`` (streaming). ``l2_mbytes``: level-2 cache.
    ``tile_overhead_us``: fill and epilogue of one GEMM tile on one SM. ``sm_copy_gbps``: what one
    SM reads and stores to a peer. ``sm_hbm_gbps``: what one SM at most streams from HBM.
    ``nccl_channel_gbps``, ``nccl_ll128_channel_gbps``: of one of NCCL's channels by protocol Simple
    and LL128; ``nccl_ll_gbps``: of all of them by LL.

    Times, microseconds: ``launch_us``, host time of one asynchronous launch; ``launch_latency_us``,
    from the end of it to the first instruction; ``kernel_gap_us``, between two queued kernels of a
    stream; ``host_sync_us``, from the last instruction of a kernel until the host has read a few
    bytes of its result; ``poll_us``, from a flag's change in local memory until the polling thread
    block goes on; ``grid_sync_us``, barrier of all thread blocks of one kernel.
    """

    name: str
    sms: int
    clock_ghz: float
    bf16_tflops: float
    fp8_tflops: float
    tf32_tflops: float
    bf16_efficiency: float
    fp8_efficiency: float
    attention_efficiency: float
    hbm_gbps: float
    hbm_efficiency: float
    l2_mbytes: float
    l2_gbps: float
    sm_hbm_gbps: float
    sm_copy_gbps: float
    nccl_channel_gbps: float
    nccl_ll128_channel_gbps: float
    nccl_ll_gbps: float
    tile_overhead_us: float
    launch_us: float
    launch_latency_us: float
    kernel_gap_us: float
    host_sync_us: float
    poll_us: float
    grid_sync_us: float

    def __post_init__(self):
        _positive(self, [field.name for field in fields(self) if field.name != "name"])
        for name in ("bf16_efficiency", "fp8_efficiency", "attention_efficiency", "hbm_efficiency"):
            if getattr(self, name) > 1:
                raise HardwareError(f"{name} = {getattr(self, name)}: must not exceed 1")

    def peak_tflops(self, dtype):
        """Published dense peak of ``dtype`` ("bf16", "fp16", "fp8", "tf32", "fp32" through TF32),
        TFLOP/s."""
        return getattr(self, f"{_UNIT[_dtype(dtype)]}_tflops")

    def gemm_tflops(self, dtype):
        """What the main loop of a large GEMM reaches, TFLOP/s: the peak times its efficiency."""
        efficiency = self.fp8_efficiency if _dtype(dtype) == "fp8" else self.bf16_efficiency
        return self.peak_tflops(dtype) * efficiency

    @property
    def stream_gbps(self):
        """GB/s of a kernel that streams from HBM with all SMs."""
        return self.hbm_gbps * self.hbm_efficiency


_UNIT = {"bf16": "bf16", "fp16": "bf16", "fp8": "fp8", "tf32": "tf32", "fp32": "tf32"}


def _dtype(dtype):
    if dtype not in _UNIT:
        raise HardwareError(f"dtype = {dtype!r}: must be one of {', '.join(_UNIT)}")
    return dtype


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """What joins the GPUs.

    ``link_gbps``: GB/s (1e9 bytes) per GPU and direction, all planes together; ``nvlink_gbps``: of
    one of the links that make it up. ``planes``: switches, each with an equal share of every GPU's
    links. ``hop_ns``: GPU to switch or switch to GPU. ``flit_bytes``, ``header_flits``: of a
    packet; ``max_payload_bytes``: the largest one of a store.
    """

    name: str
    link_gbps: float
    nvlink_gbps: float
    planes: int
    hop_ns: float
    flit_bytes: int
    header_flits: int
    max_payload_bytes: int

    def __post_init__(self):
        _positive(self, [field.name for field in fields(self) if field.name != "name"])

    @property
    def one_way_us(self):
        """GPU to GPU without load, microseconds."""
        return 2 * self.hop_ns / 1000


@dataclass(frozen=True, kw_only=True)
class Machine:
    """``ranks`` GPUs of one kind on one fabric. Raises :class:`HardwareError` with fewer than two
    or more than it takes."""

    name: str
    gpu: Gpu
    fabric: Fabric
    ranks: int
    max_ranks: int = 72

    def __post_init__(self):
        if not 2 <= self.ranks <= self.max_ranks:
            raise HardwareError(
                f"ranks = {self.ranks}: {self.name} must have between 2 and {self.max_ranks}"
            )

    def changed(self, *, gpu=None, fabric=None, ranks=None):
        """The machine with other ``ranks`` and with fields of its GPU and fabric replaced
        (dictionaries). Raises :class:`HardwareError` for a field that there is not."""

        def part(name, changes):
            old = getattr(self, name)
            known = {field.name for field in fields(old)}
            for field in changes or {}:
                if field not in known:
                    raise HardwareError(f"{name}.{field}: {self.name} has no such field")
            return replace(old, **(changes or {}))

        return replace(
            self,
            gpu=part("gpu", gpu),
            fabric=part("fabric", fabric),
            ranks=self.ranks if ranks is None else ranks,
        )


def load_data(name):
    """Parsed ``data/<name>``, a TOML file of the package."""
    return tomllib.loads((files("sim.evaluate") / "data" / name).read_text(encoding="utf-8"))


@cache
def _hardware():
    return load_data("hardware.toml")


def _record(kind, name, extra=()):
    """Values of one entry, defaults of the kind below them, without the sources."""
    table = _hardware()[kind]
    merged = {**table.get("common", {}), **table[name]}
    return {key: entry["value"] for key, entry in merged.items()} | {"name": name} | dict(extra)


def sources(kind, name):
    """{field: source} of a ``gpu``, ``fabric`` or ``machine`` of the data file."""
    table = _hardware()[kind]
    return {
        key: entry["source"] for key, entry in {**table.get("common", {}), **table[name]}.items()
    }


MACHINES = tuple(_hardware()["machine"])


def machine(name, ranks=8):
    """The machine preset called ``name`` with ``ranks`` GPUs.

    ``h800``: 200 GB/s per GPU and direction; ``h800_400``: the same with 400 GB/s; ``h100``,
    ``b200``, ``gb200_nvl72``, ``gh200_nvl32``. Raises :class:`HardwareError` when there is no such
    preset, or it cannot have so many ranks.
    """
    if name not in MACHINES:
        raise HardwareError(f"machine = {name!r}: must be one of {', '.join(MACHINES)}")
    entry = _record("machine", name)
    return Machine(
        name=name,
        gpu=Gpu(**_record("gpu", entry["gpu"])),
        fabric=Fabric(**_record("fabric", entry["fabric"])),
        ranks=ranks,
        max_ranks=entry["max_ranks"],
    )
