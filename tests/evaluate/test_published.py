# SPDX-License-Identifier: Apache-2.0
"""Published figures: the file is sound, nothing is fitted on what it is judged by, targets of
DeepEP are met."""

from dataclasses import replace
from statistics import median

import pytest

from sim.evaluate import fit, published, systems
from sim.evaluate import published_machines as machines
from sim.evaluate.kept import Kept
from sim.evaluate.machine.hardware import load_data
from sim.evaluate.published import Figure, Row, figure, figures, points_of
from sim.evaluate.published_layers import own_workloads
from sim.evaluate.runner import Result, run_point, run_points
from sim.workload.models import ModelShape

QUICK = (
    "deepep_v1_normal.",
    "deepep_v1_ll.h800.ep8",
    "deepep_v2.b200",
    "mori.mi",
    "comet.h800.tp4ep2.e8.layer0",
    "flashdmoe.h100.tokens4096",
)


def made(**fields):
    return Figure(
        **{
            "id": "x",
            "system": "comet",
            "metric": "layer_ms",
            "value": 2.0,
            "source": "s",
            "role": "test",
        }
        | fields
    )


def test_every_figure_is_well_formed():
    data = load_data("published.toml")
    assert len({one.id for one in figures()}) == len(figures()) > 140
    for one in figures():
        assert one.value > 0 and one.source
        assert one.role == "out of scope" or one.metric in published.METRICS or one.role == "input"
        for name, table in (("hardware", "hardware"), ("workload", "workload"), ("set", "set")):
            assert getattr(one, name) is None or getattr(one, name) in data[table], one.id
        assert one.role not in ("input", "out of scope") or one.reason


def test_what_can_be_asked_has_a_machine_and_rows():
    data = load_data("published.toml")
    for one in figures():
        if one.role in ("fit", "test"):
            ranks = one.ranks or max(data["set"][one.set]["ranks"])
            machine, _ = published.machine_of(one, ranks)
            assert machine.ranks == ranks
            assert one.workload or one.set or one.metric in ("flag_us", "alltoall_us"), one.id


def test_nothing_is_fitted_on_what_it_is_judged_by():
    """Constants name figures of role fit, each such figure is named, and the paper's averages are
    never among them."""
    named = {
        id
        for system in systems.SYSTEMS
        for *_, ids in systems.parameters(system).values()
        for id in ids
    }
    named |= {id for free in machines.free().values() for *_, ids in free.values() for id in ids}
    assert {figure(id).role for id in named} == {"fit"}
    assert named == {one.id for one in figures() if one.role == "fit"}
    paper = [one for one in figures() if one.group == "paper"]
    assert len(paper) == 10 and all(one.role == "test" for one in paper)
    assert not any(one.target == 0.10 and one.role == "fit" for one in figures())


def test_no_system_has_more_free_constants_than_figures():
    for system in systems.SYSTEMS:
        free = systems.parameters(system)
        assert len(free) <= len({id for *_, ids in free.values() for id in ids}), system
        judged = [
            one
            for one in figures()
            if one.role == "test" and one.id.startswith(system.removesuffix("_fp32"))
        ]
        assert not free or len(judged) >= len(free), system


def test_a_figure_that_is_not_to_be_fitted_on_is_refused():
    with pytest.raises(
        ValueError, match=r"comet: .*layer1 has role 'test': only figures of role 'fit'"
    ):
        fit.check_roles("comet", [figure("comet.h800.tp8.e8.layer1")])


def test_the_search_finds_a_minimum():
    assert fit.golden_search(lambda x: (x - 3.3) ** 2, 0.0, 10.0) == pytest.approx(3.3, abs=0.02)
    assert fit.golden_search(lambda x: x, 2.0, 4.0) == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize("system", ["comet", "deepep_v1_normal"])
def test_fitted_constants_are_what_the_search_finds(system):
    for name, (value, _) in fit.fit_system(system).items():
        assert value == pytest.approx(getattr(systems.constants(system), name), rel=2e-3), name


@pytest.mark.parametrize("name", ["h20", "b200", "h800_comet"])
def test_what_is_fitted_of_machines_is_what_the_search_finds(name):
    [(constant, (value, left))] = fit.fit_hardware(name).items()
    known = load_data("fitted_hardware.toml")[name][constant]
    assert value == pytest.approx(known["value"], abs=0.02)
    assert list(left) == known["figures"] and max(map(abs, left.values())) < 0.01


def test_a_shared_way_is_divided_among_the_gpus():
    """Each has an equal part, of a layer too; the system that a figure is of has its own links."""
    with machines.override("h100_host", shared_gbps=80.0):
        for ranks in (2, 8):
            made, _ = machines.hardware("h100_host", ranks)
            assert made.fabric.link_gbps == 80.0 / ranks and made.ranks == ranks
        points = points_of(figure("flashdmoe.h100.latency"))
    assert {system: one[0].fabric for system, one in points.items()} == {
        "flashdmoe_fp32": (),
        "megatron": (("link_gbps", 10.0),),
        "fastermoe": (("link_gbps", 10.0),),
    }
    known = load_data("fitted_hardware.toml")
    for name, free in machines.free().items():
        for constant, (low, high, ids) in free.items():
            assert known[name][constant]["figures"] == ids
            assert low < known[name][constant]["value"] < high


def test_a_machines_host_is_slower_by_its_factor():
    """For the layers of every system timed there, and for nothing else."""
    one, plain = figure("comet_bench.tutel.h800.e8.top2"), systems.constants("host").eager_op_us
    with machines.override("h800_comet", host_factor=2.0):
        ((point,),) = points_of(one).values()
        assert ("host", "eager_op_us", 2 * plain) in point.constants
        assert ("tutel", "bias_adds", 1) in point.constants
    ((point,),) = points_of(replace(one, hardware="h800")).values()
    assert all(part != "host" for part, *_ in point.constants)


def test_a_sets_constants_are_its_layers():
    points = points_of(figure("dysharp.layer.ccfuser"))
    assert all(("comet", "gather_all", 0) in one.constants for one in points["comet"])


def test_a_model_of_a_machine_has_the_rest_that_was_measured_there():
    """Of layers three times as long as COMET's a longer rest leaves less."""
    one = figure("comet.paper.end_to_end")
    results = {
        point: Result(point, 1000.0 if system == "comet" else 3000.0, 1, 1, 1, 1, 0.5, 1.0, ())
        for system, points in points_of(one).items()
        for point in points
    }
    ratio = {}
    for us in (1.0, 1e6):
        with machines.override("h800_comet", rest_us=us):
            ratio[us] = published.ask(one, published.Layers(results))
    assert 1.4 < ratio[1.0] < 3.0 and ratio[1e6] == pytest.approx(1.002, abs=1e-4)


def test_communication_is_the_most_of_a_whole_model():
    """Of the model and length where it is the largest part, the model's rest counted, waiting
    not."""
    one = figure("comet.mixtral.all_to_all_share")
    (points,) = points_of(one).values()
    parts = [("dispatch", 300.0), ("combine", 100.0), ("waiting", 500.0)]
    results = {
        point: Result(point, us, 1, 1, 1, 1, 0.5, 1.0, tuple(parts))
        for point, us in zip(points, (1000.0, *[2000.0] * (len(points) - 1)), strict=True)
    }
    with machines.override("h800_comet", rest_us=1e5):
        share = published.ask(one, published.Layers(results))
    assert share == pytest.approx(400 / (1e5 + 1000))


def test_ranks_draw_their_rows_apart():
    """Same seed, same rows; the busier half of the experts is another one for each rank."""
    one = figure("comet.h800.tp4ep2.e8.layer0")
    drawn = own_workloads(one, 1)
    assert drawn == own_workloads(one, 1)
    assert all(made.loads.sum() == 8192 * 2 for made in drawn)
    halves = [made.loads[:4].sum() / made.loads.sum() for made in drawn]
    assert min(halves) < 0.5 < max(halves) and len(set(halves)) == 8
    assert (drawn[0].loads != own_workloads(one, 2)[0].loads).any()


def test_fitted_file_says_what_it_was_fitted_on(tmp_path):
    path = tmp_path / "fitted.toml"
    fit.write({"comet": {"combine_cta_gbps": (12.5, {"a": 0.01, "b": -0.02})}}, path)
    assert path.read_text().endswith(
        '[comet.combine_cta_gbps]\nvalue = 12.5\nfigures = ["a", "b"]\nleft = [0.0100, -0.0200]\n'
    )
    fitted = load_data("fitted.toml")
    for system in systems.SYSTEMS:
        for name, (*_, ids) in systems.parameters(system).items():
            assert tuple(fitted[system][name]["figures"]) == ids


def test_errors_are_relative_and_bounds_are_one_sided():
    assert Row(made(), 2.5).error == pytest.approx(0.25) and not Row(made(), 2.5).met
    assert Row(made(bound="lower"), 2.5).error == 0 and Row(
        made(bound="lower"), 1.0
    ).error == pytest.approx(-0.5)
    assert published.median_error(
        [Row(made(), 2.2), Row(made(), 1.0), Row(made(role="fit"), 9.0)]
    ) == pytest.approx(0.3)


def test_an_unknown_figure_is_refused():
    with pytest.raises(ValueError, match="figure = 'deepep': there is none"):
        figure("deepep")


@pytest.mark.parametrize(
    "id",
    [
        "deepep_v1_ll.h800.ep8.dispatch",
        "deepep_v1_ll.h800.ep8.combine",
        "deepep_v1_normal.h800.dispatch",
        "deepep_v1_normal.h800.combine",
    ],
)
def test_deepep_within_a_node_of_h800_is_within_ten_percent(id):
    one = figure(id)
    assert one.role == "test" and abs(published.ask(one) / one.value - 1) <= 0.10


def test_other_figures_are_near():
    found = published.rows(
        lambda one: one.role == "test" and one.id.startswith(QUICK) and "call" not in one.id
    )
    assert len(found) > 15 and median(abs(row.error) for row in found) <= 0.15


def test_several_nodes_have_network_cards():
    one = figure("deepep_v1_ll.h800.ep16.dispatch")
    machine, nodes = published.machine_of(one)
    assert machine.ranks == 16 and nodes == {"nodes_of": 8, "nic_gbps": 50.0}
    within = published.ask(figure("deepep_v1_ll.h800.ep8.dispatch"))
    assert published.ask(one) > 1.3 * within


def test_layers_that_were_run_are_not_run_again(monkeypatch):
    """All that a figure of layers needs are its points; a kernel's needs none."""
    one = figure("flashdmoe.h100.tokens4096")
    (point,) = points_of(one)[one.system]
    results = {point: run_point(point)}
    alone = published.ask(one)

    def never(point):
        raise AssertionError(f"run again: {point}")

    monkeypatch.setattr(published, "run_point", never)
    (row,) = published.rows(lambda other: other.id == one.id, results=results)
    assert row.ours == alone == results[point].us / 1e3
    assert points_of(figure("deepep_v1_ll.h800.ep8.dispatch")) == {}


def test_points_of_a_figure_are_the_same_layers_for_each_system():
    """Of the other systems on another machine, if the figure says so."""
    for one in figures():
        if one.role in ("fit", "test"):
            there = replace(one, hardware=one.over_hardware or one.hardware, over_hardware=None)
            points = points_of(one)
            for system, layers in points.items():
                own = points_of(one if system == one.system else there).get(one.system)
                assert [replace(layer, system=one.system) for layer in layers] == own, one.id


def test_a_layer_of_a_shape_is_kept(tmp_path):
    one = figure("flashdmoe.h100.tokens4096")
    (point,) = points_of(one)[one.system]
    assert isinstance(point.model, ModelShape)
    kept, results = Kept(tmp_path), run_points([point], jobs=1, kept=Kept(tmp_path))
    assert kept.get(point)[0]["us"] == results[point].us
    assert kept.get(replace(point, model=replace(point.model, top_k=1))) is None
