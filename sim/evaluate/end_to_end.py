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

from sim.evaluate.machine.dense import attention, has_attention, mlp

from .systems import constants

__all__ = ["forward_us", "has_attention", "rest_us"]


def _launched_us(gpu, kernels):
    """Kernels one after the other, or their host, if that takes longer."""
    host = constants("host")
    of_host = 0.0 if host.graph else len(kernels) * host.eager_op_us
    return max(sum(kernel.us(gpu) + gpu.kernel_gap_us for kernel in kernels), of_host)


def rest_us(gpu, shape, tokens):
    """One layer without its routed experts, microseconds, for a sequence of ``tokens`` tokens on
    one GPU.

    Raises ValueError for a shape without attention.
    """
    return _launched_us(gpu, attention(gpu, shape, tokens) + mlp(shape, shape.shared, tokens))


def forward_us(machine, shape, tokens, layer_us):
    """The whole model, microseconds: ``tokens`` over all ranks, ``layer_us`` of one simulated
    layer."""
    local = -(-tokens // machine.ranks)
    rest = rest_us(machine.gpu, shape, local)
    width = shape.top_k * shape.inter if shape.dense_layers else 0
    dense = _launched_us(machine.gpu, mlp(shape, width, local))
    return shape.layers * rest + shape.moe_layers * layer_us + shape.dense_layers * dense
