# SPDX-License-Identifier: Apache-2.0
"""Forward time of a whole model: its Mixture-of-Experts layers as simulated, the rest of it from
the GPU model.

Per layer and rank, for ``tokens / ranks`` tokens of one sequence, data parallel: norm, QKV
projection, rotary embedding, causal attention, output projection, residual; shared experts beside
the routed ones, one after the other; a norm and a residual around the experts. Dense layers have an
MLP as wide as what a token uses in the others. Every kernel pays the gap between kernels, and is an
operation of PyTorch that its host launches ahead: a layer's rest takes no less than the host takes
for its operations, unless it is a CUDA graph. Not counted, alike for all systems: embedding, output
head, sampling.
"""

from sim.evaluate.machine.compute import Gemm, grouped_gemm_us, pass_us

from .systems import constants

__all__ = ["forward_us", "has_attention", "rest_us"]


def has_attention(shape):
    """Whether the shape says what :func:`rest_us` needs."""
    return shape.heads > 0


def _launched_us(gpu, parts):
    """Kernels one after the other, or their host, if that takes longer."""
    host = constants("host")
    of_host = 0.0 if host.graph else len(parts) * host.eager_op_us
    return max(sum(parts) + len(parts) * gpu.kernel_gap_us, of_host)


def _mlp(gpu, width, hidden, tokens):
    """Gate and up projection, activation, down projection of a BF16 MLP."""
    if not width:
        return []
    return [
        grouped_gemm_us(gpu, Gemm(2 * width, hidden), [tokens]),
        pass_us(gpu, tokens * 6 * width),
        grouped_gemm_us(gpu, Gemm(hidden, width), [tokens]),
    ]


def rest_us(gpu, shape, tokens):
    """One layer without its routed experts, microseconds, for a sequence of ``tokens`` tokens on
    one GPU.

    Raises ValueError for a shape without attention.
    """
    if not has_attention(shape):
        raise ValueError(f"model = {shape.name}: its attention is not in models.toml")
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    token_bytes = 2 * shape.hidden
    attention = (
        2 * tokens**2 * query
    )  # two products of tokens x tokens / 2 (causal), two operations each
    attention_us = (
        max(
            attention / (gpu.bf16_tflops * gpu.attention_efficiency * 1e6),
            tokens * 2 * (2 * query + 2 * key) / (gpu.stream_gbps * 1e3),
        )
        + gpu.tile_overhead_us
    )
    parts = [
        pass_us(gpu, 2 * tokens * token_bytes),  # norm
        grouped_gemm_us(gpu, Gemm(query + 2 * key, shape.hidden), [tokens]),
        pass_us(gpu, 2 * tokens * 2 * (query + key)),  # rotary embedding
        attention_us,
        grouped_gemm_us(gpu, Gemm(shape.hidden, query), [tokens]),
        pass_us(gpu, 3 * tokens * token_bytes),  # residual
        pass_us(gpu, 2 * tokens * token_bytes),  # norm before the experts
        pass_us(gpu, 3 * tokens * token_bytes),  # residual after them
    ]
    return _launched_us(gpu, parts + _mlp(gpu, shape.shared, shape.hidden, tokens))


def forward_us(machine, shape, tokens, layer_us):
    """The whole model, microseconds: ``tokens`` over all ranks, ``layer_us`` of one simulated
    layer."""
    local = -(-tokens // machine.ranks)
    rest = rest_us(machine.gpu, shape, local)
    width = shape.top_k * shape.inter if shape.dense_layers else 0
    dense = _launched_us(machine.gpu, _mlp(machine.gpu, width, shape.hidden, local))
    return shape.layers * rest + shape.moe_layers * layer_us + shape.dense_layers * dense
