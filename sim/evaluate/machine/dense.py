# SPDX-License-Identifier: Apache-2.0
"""Kernels of a layer beside its routed experts: attention, norms, and the MLP that every token goes
through.

Each is one of three kinds with ``us(gpu)``, its time alone on a GPU, and ``run(stream)``, which
runs it on a :class:`sim.evaluate.machine.engine.GpuSim`.
"""

from dataclasses import dataclass

from .compute import Gemm, grouped_gemm_us, pass_us

__all__ = ["Fixed", "Pass", "Product", "attention", "has_attention", "mlp"]


@dataclass(frozen=True)
class Product:
    """A GEMM of ``rows`` rows."""

    gemm: Gemm
    rows: int

    def us(self, gpu):
        return grouped_gemm_us(gpu, self.gemm, [self.rows])

    def run(self, stream):
        yield from stream.gemm(self.gemm, [self.rows], "dense")


@dataclass(frozen=True)
class Pass:
    """A pass over so many bytes of memory."""

    size: float

    def us(self, gpu):
        return pass_us(gpu, self.size)

    def run(self, stream):
        yield from stream.move(self.size, "dense")


@dataclass(frozen=True)
class Fixed:
    """A kernel whose time on all SMs is known, microseconds."""

    time: float

    def us(self, gpu):
        return self.time

    def run(self, stream):
        yield from stream.kernel(self.time, "dense")


def has_attention(shape):
    """Whether the shape says what :func:`attention` needs."""
    return shape.heads > 0


def mlp(shape, width, tokens, dtype="bf16", weight_bytes=2):
    """Gate and up projection, activation, down projection; nothing where ``width`` is 0."""
    if not width:
        return []
    return [
        Product(Gemm(2 * width, shape.hidden, dtype, weight_bytes), tokens),
        Pass(tokens * 6 * width),
        Product(Gemm(shape.hidden, width, dtype, weight_bytes), tokens),
    ]


def _projections(shape, tokens):
    """What makes queries, keys and values of ``tokens`` tokens: one GEMM, or with latent attention
    (DeepSeek-V3, arXiv 2412.19437, section 2.1.1) down and up, queries and keys apart."""
    wide = shape.head_dim + shape.rope_dim
    if not shape.key_rank:
        out = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
        return [Product(Gemm(out, shape.hidden), tokens)]
    down = shape.query_rank + shape.key_rank + shape.rope_dim
    return [
        Product(Gemm(down, shape.hidden), tokens),
        Product(Gemm(shape.heads * wide, shape.query_rank), tokens),
        Product(Gemm(2 * shape.heads * shape.head_dim, shape.key_rank), tokens),
    ]


def attention(gpu, shape, tokens, sequences=1):
    """Norm, projections, rotary embedding, causal attention, output projection, residual; a norm
    and a residual around the experts. ``tokens`` tokens in ``sequences`` equal sequences on one
    GPU, BF16. Raises ValueError for a shape without attention."""
    if not has_attention(shape):
        raise ValueError(f"model = {shape.name}: its attention is not in models.toml")
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    turned = query + shape.heads * shape.rope_dim  # what queries and keys are multiplied over
    token_bytes = 2 * shape.hidden
    # two products of tokens x tokens / 2 (causal), two operations each
    products = tokens**2 / sequences * (query + turned)
    attended = (
        max(
            products / (gpu.bf16_tflops * gpu.attention_efficiency * 1e6),
            tokens * 2 * (2 * query + 2 * key) / (gpu.stream_gbps * 1e3),
        )
        + gpu.tile_overhead_us
    )
    return [
        Pass(2 * tokens * token_bytes),  # norm
        *_projections(shape, tokens),
        Pass(2 * tokens * 2 * (query + key)),  # rotary embedding
        Fixed(attended),
        Product(Gemm(shape.hidden, query), tokens),
        Pass(3 * tokens * token_bytes),  # residual
        Pass(2 * tokens * token_bytes),  # norm before the experts
        Pass(3 * tokens * token_bytes),  # residual after them
    ]
