# SPDX-License-Identifier: Apache-2.0
"""Forward time of a whole model: its Mixture-of-Experts layers as simulated, the rest of it from
the GPU model.

Per layer and rank, for ``tokens / ranks`` tokens of one sequence, data parallel: norm, QKV
projection, rotary embedding, causal attention, output projection, residual; shared experts beside
the routed ones, one after the other; a norm and a residual around the experts. Dense layers have an
MLP as wide as what a token uses in the others. Every kernel pays the gap between kernels, and its
host launches it ahead: a layer's rest takes no less than the host takes for its calls, unless it is
a CUDA graph. GEMMs and attention are modules of TransformerEngine, as NVIDIA/Megatron-LM d98e8a6
``megatron/core/models/gpt/gpt_layer_specs.py`` has them, what lies between is an operation of
PyTorch each. Not counted, alike for all systems: embedding, output head, sampling.
"""

from sim.evaluate.machine.dense import Pass, attention, has_attention, mlp

from .systems import constants

__all__ = ["forward_us", "has_attention", "rest_us"]


def _launched_us(gpu, kernels):
    """Kernels one after the other, or their host, if that takes longer."""
    host = constants("host")
    of_gpu = sum(kernel.us(gpu) + gpu.kernel_gap_us for kernel in kernels)
    if host.graph:
        return of_gpu
    module = max(host.module_us, host.eager_op_us)  # a host of C++ has no modules
    calls = (host.eager_op_us if isinstance(kernel, Pass) else module for kernel in kernels)
    return max(of_gpu, sum(calls))


def rest_us(gpu, shape, tokens, host_us=0.0):
    """One layer without its routed experts, microseconds, for a sequence of ``tokens`` tokens on
    one GPU; ``host_us``: what its host takes at least, where that was measured.

    Raises ValueError for a shape without attention.
    """
    kernels = attention(gpu, shape, tokens) + mlp(shape, shape.shared, tokens)
    return max(_launched_us(gpu, kernels), host_us)


def forward_us(machine, shape, tokens, layer_us, host_us=0.0):
    """The whole model, microseconds: ``tokens`` over all ranks, ``layer_us`` of one simulated
    layer; ``host_us`` as in :func:`rest_us`."""
    local = -(-tokens // machine.ranks)
    rest = rest_us(machine.gpu, shape, local, host_us)
    width = shape.top_k * shape.inter if shape.dense_layers else 0
    dense = _launched_us(machine.gpu, mlp(shape, width, local))
    return shape.layers * rest + shape.moe_layers * layer_us + shape.dense_layers * dense
