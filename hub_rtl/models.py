"""Shapes of real Mixture-of-Experts models: how many rows a layer moves, and how long they are.

Plain Python. Numbers are those of the models' public ``config.json`` files, named in ``source``.
"""

from dataclasses import dataclass

from .config import ConfigError

__all__ = ["MODELS", "ModelShape", "bf16_row", "fp8_row", "model"]


def bf16_row(hidden):
    """Bytes of a row of ``hidden`` BF16 values."""
    return 2 * hidden


def fp8_row(hidden):
    """Bytes of a row of ``hidden`` FP8 values with one FP32 scale per 128 of them."""
    return hidden + 4 * -(-hidden // 128)


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """What one MoE layer of a model looks like to the hub.

    ``layers``: MoE layers, dense ones not counted. ``hidden``: values per activation row. ``experts``: routed experts per
    layer. ``top_k``: experts per token. ``dispatch_bytes``, ``combine_bytes``: bytes of a row on the way to the experts
    and back. ``source``: where the numbers are published.
    """

    name: str
    layers: int
    hidden: int
    experts: int
    top_k: int
    dispatch_bytes: int
    combine_bytes: int
    source: str

    def __post_init__(self):
        for field in ("layers", "hidden", "experts", "top_k"):
            if getattr(self, field) < 1:
                raise ConfigError(f"{field} = {getattr(self, field)}: must be at least 1")
        if self.top_k > self.experts:
            raise ConfigError(f"top_k = {self.top_k}: must not exceed experts = {self.experts}")
        for field in ("dispatch_bytes", "combine_bytes"):
            value = getattr(self, field)
            if value % 16 or not 16 <= value <= 16384:
                raise ConfigError(f"{field} = {value}: must be a multiple of 16 between 16 and 16384")

    def local_experts(self, ranks):
        """Experts of the fullest rank when they are spread over ``ranks``."""
        return -(-self.experts // ranks)

    def rank_of(self, expert, ranks):
        """Rank that holds ``expert`` when equal runs of experts are given out in order."""
        return expert // self.local_experts(ranks)

    def rows(self, tokens):
        """Rows that ``tokens`` tokens send per layer, before any are combined on the way."""
        return tokens * self.top_k

    def check(self, cfg):
        """Raises :class:`ConfigError` when hubs of this configuration cannot serve the model."""
        longest = max(self.dispatch_bytes, self.combine_bytes)
        if longest > cfg.max_row_bytes:
            raise ConfigError(f"max_row_bytes = {cfg.max_row_bytes}: {self.name} needs rows of {longest} bytes")
        if self.local_experts(cfg.ranks) > cfg.regions:
            raise ConfigError(f"regions = {cfg.regions}: {self.name} needs {self.local_experts(cfg.ranks)} "
                              f"on each of {cfg.ranks} ranks")
        if self.experts > cfg.handles:
            raise ConfigError(f"handles = {cfg.handles}: {self.name} needs {self.experts}, one per expert")


def _bf16(name, *, layers, hidden, experts, top_k, source):
    return ModelShape(name=name, layers=layers, hidden=hidden, experts=experts, top_k=top_k, dispatch_bytes=bf16_row(hidden),
                      combine_bytes=bf16_row(hidden), source=source)


def _fp8(name, *, layers, hidden, experts, top_k, source):
    return ModelShape(name=name, layers=layers, hidden=hidden, experts=experts, top_k=top_k, dispatch_bytes=fp8_row(hidden),
                      combine_bytes=bf16_row(hidden), source=source)


MODELS = {shape.name: shape for shape in (
    _bf16("tiny", layers=1, hidden=128, experts=4, top_k=2, source="made up, for tests"),
    _bf16("olmoe-1b-7b", layers=16, hidden=2048, experts=64, top_k=8, source="allenai/OLMoE-1B-7B-0924"),
    _bf16("qwen1.5-moe-a2.7b", layers=24, hidden=2048, experts=60, top_k=4, source="Qwen/Qwen1.5-MoE-A2.7B"),
    _bf16("mixtral-8x7b", layers=32, hidden=4096, experts=8, top_k=2, source="mistralai/Mixtral-8x7B-v0.1"),
    _bf16("phi-3.5-moe", layers=32, hidden=4096, experts=16, top_k=2, source="microsoft/Phi-3.5-MoE-instruct"),
    _bf16("qwen3-30b", layers=48, hidden=2048, experts=128, top_k=8, source="Qwen/Qwen3-30B-A3B"),
    _bf16("qwen3-235b", layers=94, hidden=4096, experts=128, top_k=8, source="Qwen/Qwen3-235B-A22B"),
    # 2880 is no power of two: 5,760-byte rows of 45 packets.
    _bf16("gpt-oss-120b", layers=36, hidden=2880, experts=128, top_k=4, source="openai/gpt-oss-120b"),
    # FP8 rows with 56 scales: 7,392 bytes, the last packet has 96 of them. Back in BF16.
    _fp8("deepseek-v3", layers=58, hidden=7168, experts=256, top_k=8, source="deepseek-ai/DeepSeek-V3"),
    _fp8("kimi-k2", layers=60, hidden=7168, experts=384, top_k=8, source="moonshotai/Kimi-K2-Instruct"),
)}


def model(name):
    """The shape called ``name``.

    Raises :class:`ConfigError` when there is no such model.
    """
    if name not in MODELS:
        raise ConfigError(f"model = {name!r}: must be one of {', '.join(MODELS)}")
    return MODELS[name]
