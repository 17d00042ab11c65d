# SPDX-License-Identifier: Apache-2.0
"""Who launches the kernels: kinds of calls and their ranges, C++, and the rest of a model."""

from dataclasses import replace

import pytest

from sim.evaluate import bench, end_to_end
from sim.evaluate.host import GRAPH, KINDS, cpp, extreme, slower
from sim.evaluate.machine.hardware import machine
from sim.evaluate.machine.workload import Workload
from sim.evaluate.runner import Point, Result
from sim.evaluate.study import forward
from sim.evaluate.systems import constants, override, ranges, replaced, values_of
from sim.workload.models import model as shape

GPU = machine("h800").gpu
MODEL = shape("mixtral-8x7b")


def test_every_kind_lies_in_its_range():
    for kind, (low, high) in ranges("host").items():
        assert 0 < low <= getattr(constants("host"), kind) <= high
    assert set(KINDS) == {name for name in values_of("host") if name.endswith("_us")}


def test_extremes_are_the_ranges():
    for high in (False, True):
        with replaced(extreme(high)):
            now = {kind: getattr(constants("host"), kind) for kind in KINDS}
        assert now == {kind: bounds[high] for kind, bounds in ranges("host").items()}


def test_a_slower_host_takes_longer_for_every_kind():
    before = {kind: getattr(constants("host"), kind) for kind in KINDS}
    with replaced(slower(3.0)):
        now = {kind: getattr(constants("host"), kind) for kind in KINDS}
    assert now == {kind: pytest.approx(3 * us) for kind, us in before.items()}
    with replaced((("host", "read_us", 10.0),)):
        assert ("host", "read_us", 20.0) in slower(2.0)


def test_cpp_pays_the_driver_and_nccl():
    """Every kind is replaced, none takes longer than in Python; what only Python has takes
    nothing."""
    host = constants("host")
    found = {kind: value for _, kind, value in cpp(GPU.launch_us)}
    assert set(found) == set(KINDS)
    assert all(value <= getattr(host, kind) for kind, value in found.items())
    assert set(found.values()) == {0.0, GPU.launch_us, host.nccl_us}
    assert found["collective_us"] == host.nccl_us and found["module_us"] == 0.0


def test_later_changes_replace_earlier_ones():
    before = constants("host").read_us
    with replaced((("host", "read_us", 1.0), ("host", "read_us", 2.0))):
        assert constants("host").read_us == 2.0
    assert constants("host").read_us == before
    with pytest.raises(ValueError, match="host: no constant reading_us"):
        with replaced((("host", "reading_us", 1.0),)):
            pass


def test_a_dispatch_call_begins_on_the_host():
    """Twelve tensors and two calls, of which nothing is done ahead."""
    made = Workload.make(shape("olmoe-1b-7b"), 4, 64)
    us = {}
    for kind in ("allocation_us", "extension_us"):
        for more in (0.0, 1000.0):
            with override("host", **{kind: 1000.0 + more}):
                us[kind, more] = bench.dispatch_call_us(machine("h800", 4), made)
        us[kind] = (us[kind, 1000.0] - us[kind, 0.0]) / 1000.0
    assert us["allocation_us"] == pytest.approx(3 + 2 + 7)
    assert us["extension_us"] == pytest.approx(2)


# -- the rest of a model ---------------------------------------------------------------------------


def rest(tokens, **host):
    with override("host", **host):
        return end_to_end.rest_us(GPU, MODEL, tokens)


def test_a_short_rest_takes_its_hosts_time():
    """Three modules and five operations, eight calls where nothing is a module; a graph, and a fast
    host, leave the kernels' own time."""
    kernels = rest(1, graph=1)
    assert rest(1, eager_op_us=100.0, module_us=1e3) == pytest.approx(3 * 1e3 + 5 * 100.0)
    assert rest(1, eager_op_us=100.0, module_us=0.0) == pytest.approx(8 * 100.0)
    assert rest(1, eager_op_us=0.1, module_us=0.1) == kernels < rest(1)


def test_a_long_rest_hides_its_host():
    assert rest(8192) == rest(8192, graph=1) == rest(8192, eager_op_us=0.1, module_us=0.1)


def test_a_rest_that_was_measured_is_the_least():
    """The GPU's time counts where it is longer."""
    assert end_to_end.rest_us(GPU, MODEL, 1, 2000.0) == 2000.0
    assert end_to_end.rest_us(GPU, MODEL, 8192, 1.0) == rest(8192)
    box = machine("h800")
    assert end_to_end.forward_us(box, MODEL, 8, 500.0, 2000.0) == 32 * 2500.0


def test_a_shared_expert_is_launched_too():
    with override("host", eager_op_us=100.0, module_us=1e3):
        more = end_to_end.rest_us(GPU, replace(MODEL, shared=1024), 1)
        assert more == pytest.approx((3 + 2) * 1e3 + (5 + 1) * 100.0)


def test_a_models_time_is_of_the_points_host():
    plain = Point("megatron", "mixtral-8x7b", 8)
    us = {}
    for name, point in (("python", plain), ("graph", replace(plain, constants=GRAPH))):
        results = {point: Result(point, 500.0, 1.0, 2.0, 100, 80, 0.5, 1.0, ())}
        us[name] = forward(results, point)
    assert us["graph"] < us["python"]
    kernels = end_to_end.forward_us(machine("h800"), MODEL, 8, 500.0)
    assert us["python"] == kernels
