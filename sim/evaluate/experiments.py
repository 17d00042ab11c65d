# SPDX-License-Identifier: Apache-2.0
"""The experiments of ``moe-hub evaluate`` by name; points that several of them share are simulated
once."""

from sim.evaluate.page.paper_figures import (
    ablation_points,
    ablation_report,
    end_report,
    layer_report,
    main_points,
    tokens_report,
)

from .alltoall import alltoall_report
from .assumptions import (
    gemm_report,
    published_points,
    published_report,
    sensitivity_points,
    sensitivity_report,
)
from .questions.balance import balance_points, balance_report
from .questions.baselines import baseline_points, baseline_report
from .questions.decode import decode_points, decode_report
from .questions.energy import energy_points, energy_report
from .questions.in_switch import in_switch_points, in_switch_report
from .questions.late import late_points, late_report
from .questions.overlap import overlap_points, overlap_report
from .questions.seeds import over_seeds
from .questions.training import training_points, training_report
from .study import Experiment
from .sweeps import (
    gpu_points,
    link_points,
    pangu_points,
    pangu_report,
    shape_points,
    shape_report,
    skew_points,
    trace_points,
    trace_report,
    varied_report,
)

__all__ = ["EXPERIMENTS", "STANDARD"]

_ASKED = (
    Experiment(
        "layer", "MoE layer by system, beside the paper's averages", main_points, layer_report
    ),
    Experiment(
        "end-to-end",
        "Forward pass of the whole model, beside the paper's averages",
        main_points,
        end_report,
    ),
    Experiment("tokens", "MoE layer over tokens", main_points, tokens_report),
    Experiment(
        "skew",
        "Skew of the routing",
        skew_points,
        varied_report(skew_points, lambda p: p.skew, "skew", "Skew of the routing, 8,192 tokens"),
    ),
    Experiment(
        "gpus",
        "2 to 72 GPUs",
        gpu_points,
        varied_report(
            gpu_points, lambda p: p.ranks, "GPUs", "Number of GPUs", log_x=True, group="model"
        ),
    ),
    Experiment("ablation", "Parts of the hub", ablation_points, ablation_report),
    Experiment(
        "links",
        "Bandwidth of the links",
        link_points,
        varied_report(
            link_points,
            lambda p: dict(p.fabric)["link_gbps"],
            "GB/s per GPU and direction",
            "Bandwidth of the links, H800",
        ),
    ),
    Experiment(
        "shapes",
        "Shapes of models; one row per expert against one per rank",
        shape_points,
        shape_report,
    ),
    Experiment("pangu", "Pangu Ultra MoE, 718B", pangu_points, pangu_report),
    Experiment(
        "baselines",
        "The best that software could do, and hubs that are not built",
        baseline_points,
        baseline_report,
    ),
    Experiment("decode", "What a token waits for in decode", decode_points, decode_report),
    Experiment("late", "A GPU late or gone", late_points, late_report),
    Experiment("balance", "Experts placed by their loads", balance_points, balance_report),
    Experiment("energy", "What a token's bytes cost on the links", energy_points, energy_report),
    Experiment(
        "overlap",
        "What two micro-batches or a shared expert hide",
        overlap_points,
        overlap_report,
    ),
    Experiment("training", "The expert part of a training step", training_points, training_report),
    Experiment(
        "in-switch",
        "What switches that copy rows and add answers up would be worth",
        in_switch_points,
        in_switch_report,
    ),
    Experiment("traces", "Routing logs of real models (--trace)", trace_points, trace_report),
    Experiment("sensitivity", "What the speed-ups hang on", sensitivity_points, sensitivity_report),
    Experiment(
        "published", "Every published figure beside ours", published_points, published_report
    ),
    Experiment("alltoall", "NCCL's all-to-all by size", lambda options: [], alltoall_report),
    Experiment(
        "gemm", "GEMM model against published measurements", lambda options: [], gemm_report
    ),
)
EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        *_ASKED,
        Experiment("seeds", "How far another routing moves the figures", *over_seeds(_ASKED)),
    )
}

STANDARD = tuple(name for name in EXPERIMENTS if name != "traces")
