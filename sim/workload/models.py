# SPDX-License-Identifier: Apache-2.0
"""Shapes of real Mixture-of-Experts models: what one layer moves and computes, and how many there
are.

The one table is ``models.toml`` beside this file, for ``moe-hub run`` and ``moe-hub evaluate``
alike. Plain Python.
"""

import dataclasses
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hub_rtl.contract.config import ConfigError

__all__ = ["EVALUATED", "MODELS", "TABLE", "ModelShape", "bf16_row", "fp8_row", "model"]

TABLE = Path(__file__).with_name("models.toml")


def bf16_row(values):
    """Bytes of a row of so many BF16 values."""
    return 2 * values


def fp8_row(values):
    """Bytes of a row of so many FP8 values with one FP32 scale per 128 of them."""
    return values + 4 * -(-values // 128)


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """One MoE layer of a model, and how many there are.

    ``layers``: all layers of the model, of them ``dense_layers`` without experts and
    :attr:`moe_layers` with. ``hidden``: values of a token; ``row``: values of a routed row where it
    is shorter (latent experts; 0: as ``hidden``). ``experts``: routed experts per layer; ``top_k``:
    experts per token. ``inter``: width of an expert; ``shared``: width of what every token goes
    through beside them, all shared experts together. ``dtype``: of rows on the way to the experts
    and of their GEMMs, ``bf16`` or ``fp8`` (with one FP32 scale per 128 values); answers are BF16.
    ``weight_bytes``: of one expert weight (0: as ``dtype``). ``heads``, ``kv_heads``, ``head_dim``:
    attention, 0 where the end-to-end model does not need it; ``query_rank``, ``key_rank``,
    ``rope_dim``: of latent attention, 0 without. ``row_bytes``: bytes of a dispatched
    row where they are not those of ``row`` and ``dtype`` (0: they are). ``made_up``: no model, for
    tests and benchmarks; left out where all models are compared. ``source``: where it is published.

    Raises :class:`ConfigError` for a value that breaks a rule.
    """

    name: str
    layers: int
    dense_layers: int = 0
    hidden: int
    row: int = 0
    experts: int
    top_k: int
    inter: int
    shared: int = 0
    dtype: str = "bf16"
    weight_bytes: float = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    query_rank: int = 0
    key_rank: int = 0
    rope_dim: int = 0
    row_bytes: int = 0
    made_up: bool = False
    source: str

    def __post_init__(self):
        if self.dtype not in ("bf16", "fp8"):
            raise ConfigError(f"dtype = {self.dtype!r}: must be bf16 or fp8")
        if not self.row:
            object.__setattr__(self, "row", self.hidden)
        if not self.weight_bytes:
            object.__setattr__(self, "weight_bytes", 2 if self.dtype == "bf16" else 1)
        for field in ("layers", "hidden", "row", "experts", "top_k", "inter"):
            if getattr(self, field) < 1:
                raise ConfigError(f"{field} = {getattr(self, field)}: must be at least 1")
        if not self.weight_bytes > 0:
            raise ConfigError(f"weight_bytes = {self.weight_bytes}: must be above 0")
        if not 0 <= self.dense_layers < self.layers:
            raise ConfigError(
                f"dense_layers = {self.dense_layers}: must be between 0 and {self.layers - 1}"
            )
        if self.top_k > self.experts:
            raise ConfigError(f"top_k = {self.top_k}: must not exceed experts = {self.experts}")
        for field in ("dispatch_bytes", "combine_bytes"):
            value = getattr(self, field)
            if value % 16 or not 16 <= value <= 16384:
                raise ConfigError(
                    f"{field} = {value}: must be a multiple of 16 between 16 and 16384"
                )

    @property
    def moe_layers(self):
        """Layers with experts."""
        return self.layers - self.dense_layers

    @property
    def dispatch_bytes(self):
        """Bytes of a row on the way to an expert, scales included."""
        return self.row_bytes or (bf16_row if self.dtype == "bf16" else fp8_row)(self.row)

    @property
    def combine_bytes(self):
        """Bytes of an expert's answer."""
        return bf16_row(self.row)

    @property
    def matrices(self):
        """((n, k), (n, k)) of an expert's two GEMMs, outputs and inputs: gate and up projection
        together, then down projection."""
        return (2 * self.inter, self.row), (self.row, self.inter)

    def changed(self, **changes):
        """A copy with fields changed. Raises :class:`ConfigError`."""
        return dataclasses.replace(self, **changes)

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
            raise ConfigError(
                f"max_row_bytes = {cfg.max_row_bytes}: {self.name} needs rows of {longest} bytes"
            )
        if self.local_experts(cfg.ranks) > cfg.regions:
            raise ConfigError(
                f"regions = {cfg.regions}: {self.name} needs {self.local_experts(cfg.ranks)} "
                f"on each of {cfg.ranks} ranks"
            )
        if self.experts > cfg.handles:
            raise ConfigError(
                f"handles = {cfg.handles}: {self.name} needs {self.experts}, one per expert"
            )


@cache
def _table():
    """{name: shape}, in the order of the file. Raises :class:`ConfigError` that names model and
    field."""
    shapes = {}
    for name, entry in tomllib.loads(TABLE.read_text(encoding="utf-8")).items():
        try:
            shapes[name] = ModelShape(name=name, **entry)
        except (ConfigError, TypeError) as error:
            raise ConfigError(f"{TABLE.name}: {name}: {error}") from None
    return shapes


#: All names.
MODELS = tuple(_table())
#: Those that stand for a model.
EVALUATED = tuple(name for name, shape in _table().items() if not shape.made_up)


def model(name):
    """The shape called ``name``, or the one of the TOML file if ``name`` ends in ``.toml``: a table
    with the model's name and the fields of :class:`ModelShape`.

    Raises :class:`ConfigError` when there is no such model or file, or a field of it is wrong.
    """
    if name.endswith(".toml"):
        return _own(name)
    if name not in MODELS:
        raise ConfigError(f"model = {name!r}: must be one of {', '.join(MODELS)}")
    return _table()[name]


def _own(path):
    """The one model of a file."""
    try:
        entries = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    if len(entries) != 1 or not isinstance(entry := next(iter(entries.values())), dict):
        raise ConfigError(f"{path}: must have one table, [name], with the fields of a model")
    name = next(iter(entries))
    kinds = {field.name: field.type for field in dataclasses.fields(ModelShape)}
    for field, value in entry.items():
        kind = kinds.get(field)
        if kind is None or field == "name":
            raise ConfigError(f"{path}: {name}.{field}: a model has no such field")
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise ConfigError(
                f"{path}: {name}.{field} = {value!r}: must be of type {kind.__name__}"
            )
    missing = [
        field.name
        for field in dataclasses.fields(ModelShape)
        if field.default is dataclasses.MISSING and field.name not in {"name", "source", *entry}
    ]
    if missing:
        raise ConfigError(f"{path}: {name}: must say {', '.join(missing)}")
    try:
        return ModelShape(name=name, **({"source": str(path)} | entry))
    except ConfigError as error:
        raise ConfigError(f"{path}: {name}: {error}") from None
