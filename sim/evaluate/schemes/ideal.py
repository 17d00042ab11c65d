# SPDX-License-Identifier: Apache-2.0
"""The layer that nothing holds up: kernels back to back, communication hidden as far as the links'
rate allows."""

from sim.evaluate.machine.compute import expert_gemms, grouped_gemm_us, pass_us

from .scheme import Scheme

__all__ = ["SCHEMES", "ideal", "link_us"]


def link_us(machine, workload):
    """Time of the busiest link direction for one row per token and expert there and one answer
    back, headers included."""
    off = workload.pair_rows.copy()
    for rank in range(machine.ranks):
        off[rank, rank] = 0
    there, back = workload.shape.dispatch_bytes * off, workload.shape.combine_bytes * off.T
    egress, ingress = (there + back).sum(axis=1), (there + back).sum(axis=0)
    fabric = machine.fabric
    header = fabric.header_flits * fabric.flit_bytes
    efficiency = fabric.max_payload_bytes / (fabric.max_payload_bytes + header)
    return max(egress.max(), ingress.max()) / (fabric.link_gbps * 1e3 * efficiency)


def ideal(cluster):
    """Gate, GEMM1, activation, GEMM2 and the sum without gaps; or the links' time, where that is
    longer."""
    links = link_us(cluster.machine, cluster.workload)
    for gpu in cluster.gpus:
        cluster.env.process(_rank(cluster, gpu, links))


def _rank(cluster, gpu, links):
    shape, rows = cluster.workload.shape, cluster.workload.rows_at(gpu.rank)
    tokens = int(cluster.workload.tokens_of[gpu.rank])
    yield from gpu.begin()
    yield cluster.env.timeout(cluster.gate_us(gpu.rank))
    cluster.first_ready(gpu.rank)
    cluster.all_ready(gpu.rank)
    first, second = expert_gemms(shape)
    work = (
        grouped_gemm_us(gpu.gpu, first, rows)
        + pass_us(gpu.gpu, int(rows.sum()) * 6 * shape.inter)
        + grouped_gemm_us(gpu.gpu, second, rows)
        + pass_us(gpu.gpu, tokens * (shape.top_k + 1) * shape.combine_bytes)
    )
    yield cluster.env.timeout(max(work, links))
    cluster.done(gpu.rank)


SCHEMES = {
    "ideal": Scheme(ideal, "ideal", "#1b1b1b", place=19),
}
