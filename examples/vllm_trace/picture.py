# SPDX-License-Identifier: Apache-2.0
"""A routing log of vLLM to a picture: who sends how much to whom, and when the experts could begin,
on hubs and as the best software does it."""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run from anywhere

import moe_hub
from flow.pictures import BLUE, RED, picture
from moe_hub.command.console import Progress
from sim.system.ways import WAYS
from sim.workload.traces import read_trace

COLOURS = {"hub": BLUE, "rowflag": RED}


def matrix(routing, ranks):
    """Rows from rank to rank, [from, to]: tokens in equal runs, experts in equal runs."""
    source = np.arange(routing.tokens) * ranks // routing.tokens
    target = routing.experts * ranks // routing.num_experts
    out = np.zeros((ranks, ranks), int)
    np.add.at(out, (source[:, None], target), 1)
    return out


def draw(path, routing, done):
    """The picture: rows by expert, rows from rank to rank, tiles usable over time."""
    ranks = done.config.ranks
    with picture(path, 5.6) as figure:
        top, below = figure.subfigures(2, 1)
        loads, pairs = top.subplots(1, 2, width_ratios=(1.5, 1))
        order = np.arange(routing.num_experts)
        loads.bar(order, routing.loads, color=BLUE, width=0.9)
        loads.axhline(routing.loads.mean(), color="#59636e", lw=1, ls="--")
        loads.set(
            title=f"Busiest expert: {routing.busiest_over_mean:.2f} times the mean",
            xlabel="expert",
            ylabel="rows",
        )
        rows = matrix(routing, ranks)
        shown = pairs.imshow(rows, cmap="Blues", vmin=0)
        pairs.set(title="Rows", xlabel="to rank", ylabel="from rank")
        pairs.set(xticks=range(ranks), yticks=range(ranks))
        pairs.grid(visible=False)
        top.colorbar(shown, ax=pairs)
        axes = below.subplots()
        usable = done.usable()
        for way, times in usable.groupby("way", sort=False):
            at = np.sort(times.us.to_numpy())
            share = 100 * np.arange(1, len(at) + 1) / len(at)
            axes.plot(at, share, drawstyle="steps-post", color=COLOURS[way], label=WAYS[way].title)
        axes.set(
            title=f"{routing.source}: {routing.tokens} tokens on {ranks} GPUs",
            xlabel="µs since the layer's start",
            ylabel="usable, % of all",
            xlim=(0, None),
            ylim=(0, 101),
        )
        axes.legend(loc="lower right")


def main(arguments=None):
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path, help="routing log, JSON lines")
    parser.add_argument("--model", default="olmoe-1b-7b", help="whose rows these are")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=16, help="per rank")
    parser.add_argument("--preset", help="hubs of this preset")
    parser.add_argument("--lanes", type=int, help="lanes of each hub, in place of the preset's")
    parser.add_argument("--output", "-o", type=Path, default=Path("build/vllm_trace/layer.png"))
    asked = parser.parse_args(arguments)
    try:
        with Progress() as progress:
            done = moe_hub.run(
                asked.model,
                ranks=asked.ranks,
                tokens=asked.tokens,
                trace=asked.log,
                preset=asked.preset,
                lanes=asked.lanes,
                baselines=["rowflag"],
                progress=progress,
            )
        routing = read_trace(asked.log).window(0, asked.ranks * asked.tokens)
        draw(asked.output, routing, done)
    except (ValueError, OSError) as error:
        print(f"picture: {error}", file=sys.stderr)
        return 2
    print(done.frame()[["first_usable_us", "median_usable_us", "layer_us"]].round(2).to_string())
    print(asked.output)
    return 0 if done.good else 1


if __name__ == "__main__":
    sys.exit(main())
