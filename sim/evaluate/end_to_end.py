# SPDX-License-Identifier: Apache-2.0
"""Forward time of a whole model: its Mixture-of-Experts layers as simulated, the rest of it from
the GPU model.

Per layer and rank, for ``tokens / ranks`` tokens of one sequence, data parallel: norm, QKV
projection, rotary embedding, causal attention, output projection, residual; shared experts beside
the routed ones, one after the other; a norm and a residual around the experts. Dense layers have an
MLP as wide as what a token uses in the others. Every kernel pays the gap between kernels. Not
counted, alike for all systems: embedding, output head, sampling, anything of the host.
"""

from sim.evaluate.machine.dense import attention, has_attention, mlp

__all__ = ["forward_us", "has_attention", "rest_us"]


def _alone_us(gpu, kernels):
    """Kernels one after the other, their gaps included."""
    return sum(kernel.us(gpu) + gpu.kernel_gap_us for kernel in kernels)


def rest_us(gpu, shape, tokens):
    """One layer without its routed experts, microseconds, for a sequence of ``tokens`` tokens on
    one GPU.

    Raises ValueError for a shape without attention.
    """
    return _alone_us(gpu, attention(gpu, shape, tokens) + mlp(shape, shape.shared, tokens))


def forward_us(machine, shape, tokens, layer_us):
    """The whole model, microseconds: ``tokens`` over all ranks, ``layer_us`` of one simulated
    layer."""
    local = -(-tokens // machine.ranks)
    rest = rest_us(machine.gpu, shape, local)
    dense = (
        _alone_us(machine.gpu, mlp(shape, shape.top_k * shape.inter, local))
        if shape.dense_layers
        else 0.0
    )
    return shape.layers * rest + shape.moe_layers * layer_us + shape.dense_layers * dense
