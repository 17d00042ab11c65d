# SPDX-License-Identifier: Apache-2.0
"""Load balancing: what is left of a skew's cost when experts are placed by their loads, those of
now or of a while ago, with replicas or without."""

from dataclasses import dataclass

from sim.evaluate.machine.hardware import load_data
from sim.evaluate.machine.placement import as_numbered, balance, imbalance, shares_at
from sim.evaluate.machine.workload import TYPICAL_SKEW
from sim.evaluate.page.charts import Panel, Plot
from sim.evaluate.study import Report, grid, mean, systems_of, tokens_of
from sim.workload.models import model as shape

from .shared import HOSTS, cases

__all__ = ["DAY", "Placement", "balance_points", "balance_report", "placements"]

MODELS, TOKENS = ("deepseek-v3",), (4096,)
SYSTEMS = ("deepep_v2", "expert_flags")  # the best that is public, and the best that could be
LOG_SKEW = 0.09  # OLMoE's log, see the experiment `traces`; training's is TYPICAL_SKEW
REPLICAS = (0, 8, 16, 32, 64)
OLD_REPLICAS, OLD = (0, 32), 24  # placements that are a day old
DAY = range(24, 48)  # hours
HOUR = 30  # that is simulated
COUNTED = (8, 16, 32)  # GPUs whose rows are counted over the day without simulating them
LEAST = 0.02  # of a layer's time: a skew that costs less is within the spread of its routings


@dataclass(frozen=True)
class Placement:
    """``replicas`` more experts, all placed for the loads of ``age`` hours ago; None: experts lie
    as they are numbered."""

    replicas: int | None = None
    age: int = 0

    def __str__(self):
        if self.replicas is None:
            return "as numbered"
        more = f"{self.replicas} replicas" if self.replicas else "balanced"
        return f"{more}, {f'{self.age} h old' if self.age else 'now'}"

    def arguments(self, hour):
        """Of :func:`sim.evaluate.machine.placement.drifted`."""
        kept = load_data("questions.toml")["drift"]["kept"]["value"]
        chosen = () if self.replicas is None else (("replicas", self.replicas), ("age", self.age))
        return (("hour", hour), ("kept", kept), *chosen)

    def busiest(self, shape, ranks, seed, skew, hour):
        """Load of the busiest rank over the mean; None where replicas do not fit the ranks."""
        kept = dict(self.arguments(hour))["kept"]
        experts = shape.experts + (self.replicas or 0)
        if experts % ranks:
            return None
        where = as_numbered(shape.experts, ranks)
        if self.replicas is not None:
            known = shares_at(shape, seed, skew, hour - self.age, kept)
            where = balance(known, ranks, self.replicas)
        return imbalance(shares_at(shape, seed, skew, hour, kept), *where)


#: For a skew that costs little.
FEW = (Placement(), Placement(0, 1), Placement(32, 1))


def placements(experts, ranks, few=False):
    """Those that are simulated, of them a ``few`` for a skew that costs little: replicas that fit
    the ranks."""
    fitting = [more for more in REPLICAS if not (experts + more) % ranks]
    young = [Placement(more, age) for more in fitting for age in (0, 1)]
    old = [Placement(more, OLD) for more in OLD_REPLICAS if more in fitting]
    every = [Placement(), *young, *old]
    return [one for one in every if one in FEW] if few else every


def _cases(options):
    """[(model, tokens, skew, placement, points)]; the placement is None where there is no skew."""
    found, ranks = [], options.ranks or 8
    for model in options.models or MODELS:
        for count in tokens_of(options, TOKENS):
            for skew in (TYPICAL_SKEW, LOG_SKEW) if options.skew is None else (options.skew,):
                few = options.skew is None and skew == TYPICAL_SKEW
                every = placements(shape(model).experts, ranks, few)
                for placement in (None, *every):
                    points = grid(
                        options,
                        systems_of(options, SYSTEMS),
                        (model,),
                        (count,),
                        constants=HOSTS["graph"],
                        skew=0.0 if placement is None else skew,
                        balance=(placement or Placement()).arguments(HOUR),
                    )
                    found.append((model, count, skew, placement, points))
    return found


def balance_points(options):
    return [point for *_, points in _cases(options) for point in points]


def _day(placement, model, ranks, options, skew):
    return [placement.busiest(shape(model), ranks, options.seed, skew, hour) for hour in DAY]


def _day_mean(*of):
    every = _day(*of)
    return None if None in every else mean(every)


def balance_report(options, results):
    summary, flat, numbered = [], {}, {}
    for model, tokens, skew, placement, points in _cases(options):
        times = {point.system: results[point].us for point in points}
        if placement is None:
            flat = times
            continue
        numbered = times if placement == Placement() else numbered
        day = {
            f"busiest over the day, {ranks} GPUs": _day_mean(placement, model, ranks, options, skew)
            for ranks in COUNTED
        }
        for point in points:
            us, best = times[point.system], flat[point.system]
            cost = numbered[point.system] - best
            summary.append(
                {
                    "model": model,
                    "tokens": tokens,
                    "GPUs": point.ranks,
                    "skew": skew,
                    "placement": str(placement),
                    "system": point.system,
                    "layer, us": us,
                    "over no skew": us / best,
                    "of the skew's cost left, %": 100 * (us - best) / cost
                    if cost > LEAST * best
                    else None,
                    "busiest": results[point].imbalance,
                }
                | day
            )
    points = balance_points(options)
    return Report(
        rows=[results[point].row() for point in points],
        summary=summary,
        plot=Plot(title="Experts placed by their loads", panels=_panels(options, summary)),
        notes=[
            f"layers of hour {HOUR - DAY[0]} of a made-up day; without skew: every expert has as "
            "many rows",
            "busiest: rows of the fullest GPU over the mean",
        ],
    )


def _panels(options, summary):
    last = summary[-1]
    own = [row for row in summary if all(row[of] == last[of] for of in ("model", "tokens", "skew"))]
    ranks, skew = COUNTED[-1], last["skew"]
    lines = (Placement(), Placement(0, OLD), Placement(0, 1), Placement(32, 1), Placement(32, 0))
    busiest = {
        str(placement): tuple(_day(placement, last["model"], ranks, options, skew))
        for placement in lines
    }
    return [
        Panel(
            title=f"rows over the day, {last['model']}, skew {skew:g}, {ranks} GPUs",
            kind="lines",
            x=tuple(hour - DAY[0] for hour in DAY),
            xlabel="hour",
            series=busiest,
            ylabel="busiest GPU over the mean",
            line=1.0,
        ),
        Panel(
            title=f"layers, {last['model']}, skew {skew:g}, {last['GPUs']} GPUs",
            kind="bars",
            x=tuple(dict.fromkeys(row["placement"] for row in own)),
            series={
                system: tuple(row["over no skew"] for row in rows)
                for system, rows in cases(own, lambda row: row["system"]).items()
            },
            ylabel="time over that without skew",
            line=1.0,
        ),
    ]
