# SPDX-License-Identifier: Apache-2.0
"""The bench itself: what fails must fail, what is no verdict must not pass for one, runs repeat."""

import functools
import itertools
import random
from types import SimpleNamespace

import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import preset
from hub_rtl.contract.ports import hub_interfaces, hub_ports
from hub_rtl.parts.stream import StreamQueue
from sim.bench.planted import SELECT
from sim.bench.runner import BUILD, BenchError, BenchFailure, run_bench, to_verilog, verilog_of
from sim.bench.streams import hub_port, pause_pattern
from sim.quality.caught import assert_caught
from sim.quality.coverage import FOLDER, hit_bins


class Wires(wiring.Component):
    """An output stream that plain inputs drive, without any manners; an input stream that is never
    ready."""

    def __init__(self):
        super().__init__(
            {
                "valid": In(1),
                "payload": In(8),
                "o": Out(stream.Signature(8)),
                "i": In(stream.Signature(8)),
                "ticks": Out(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.ticks.eq(self.ticks + 1)
        m.d.comb += [
            self.o.valid.eq(self.valid),
            self.o.payload.eq(self.payload),
        ]
        return m


def run(*tests, module="sim.cocotb.bench.bench_self", **given):
    run_bench(Wires(), name="bench_self", module=module, tests=list(tests), **given)


def test_plain_ports():
    run("plain_ports")


def test_order_in_a_cycle():
    run("order_in_a_cycle")


@pytest.mark.parametrize(
    "mistake, kind",
    [
        ("withdrawn", "valid was withdrawn"),
        ("changed", "payload changed"),
        ("unexpected", "unexpected item"),
        ("missing", "1 expected items did not come"),
        ("stuck", "watchdog: nothing moved for 50 cycles"),
    ],
)
def test_watchers(mistake, kind):
    with pytest.raises(BenchFailure, match=kind) as caught:
        run(mistake)
    assert caught.value.failed == {mistake: "AssertionError"}


def test_error_is_no_catch():
    with pytest.raises(BenchFailure, match="KeyError"):
        assert_caught(lambda: run("own_mistake"))
    with pytest.raises(BenchError, match="without results"):
        assert_caught(lambda: run("crash"))
    with pytest.raises(BenchError, match="no such cocotb test: nothing"):
        assert_caught(lambda: run("plain_ports", "nothing"))
    with pytest.raises(BenchError):
        assert_caught(lambda: run("plain_ports", module="sim.cocotb.no_such_module"))
    with pytest.raises(BenchError, match="build failed"):
        assert_caught(
            lambda: run_bench(
                "module broken(;", name="broken", module="sim.cocotb.bench.bench_self"
            )
        )
    with pytest.raises(AssertionError, match="^the bug was not caught: every test passed$"):
        assert_caught(lambda: run("plain_ports"))


def test_test_of_another_size_is_skipped():
    """Also when it is asked for by name; alone it is nothing done."""
    run("with_configuration", "plain_ports")
    with pytest.raises(BenchError, match="did nothing: every test needs another size"):
        run("with_configuration")
    with pytest.raises(BenchFailure, match="it was run"):
        run("with_configuration", cfg=preset("tiny"))


def test_seed(tmp_path):
    def numbers(seed):
        file = tmp_path / f"numbers{seed}"
        run("notes_numbers", params={"file": str(file), "word": "x"}, cfg=preset("tiny"), seed=seed)
        return file.read_text()

    first = numbers(5)
    assert first == numbers(5) != numbers(6)
    assert first.split()[1:] == ["2", "x"]
    assert "bench_self" in hit_bins()["bench.self"] and FOLDER.is_dir()


def test_build_is_reused():
    assert to_verilog(Wires(), "bench_self") == to_verilog(Wires(), "bench_self")
    run("plain_ports")
    programs = {
        path: path.stat().st_mtime_ns for path in (BUILD / "cocotb" / "bench_self").glob("*/done")
    }
    run("plain_ports")
    assert programs == {
        path: path.stat().st_mtime_ns for path in (BUILD / "cocotb" / "bench_self").glob("*/done")
    }


def test_recipes():
    """Recipes that differ in a keyword have different Verilog, and so has one with its bugs; the
    same recipe has the same."""

    def text(depth, name, bug=None):
        return verilog_of(functools.partial(StreamQueue, 8, depth=depth), name, bug)[1]

    bugs = text(3, "recipe", "parts.queue_loses_when_pushed")  # its top is recipe_mutants
    assert SELECT in bugs and SELECT not in text(3, "recipe_mutants")
    three, five = text(3, "recipe"), text(5, "recipe")
    assert three != five
    assert [three, five] == [to_verilog(StreamQueue(8, n), "recipe") for n in (3, 5)]
    assert three is text(3, "recipe")  # converted once


def test_hub_port():
    """Ports of the hub's top are found by the list in hub_ports."""
    interfaces = {interface.name: interface for interface in hub_interfaces(preset("tiny"))}
    dut = SimpleNamespace(**{port.name: port.name for port in hub_ports(preset("tiny"))})
    store, link = hub_port(dut, interfaces["s_store0"]), hub_port(dut, interfaces["m_axis_link0"])
    assert (store.valid, store.ready) == ("s_store0_valid", "s_store0_ready")
    assert store.fields["operand"] == "s_store0_operand" and list(link.fields) == [
        "data",
        "last",
        "dest",
    ]
    assert link.pack({"last": 1}) == (0, 1, 0) and link.unpack((7, 1, 2)) == {
        "data": 7,
        "last": 1,
        "dest": 2,
    }
    with pytest.raises(
        ValueError, match="^m_axis_link0: no such field keep; the fields are data, last, dest$"
    ):
        link.pack({"keep": 1})


def test_pause_patterns():
    """``none`` never pauses, ``stop`` always, the others do both; equal seeds pause alike."""

    def first(kind, rng=None):
        return list(itertools.islice(pause_pattern(kind, rng), 200))

    assert first(None) == first("none") == [False] * 200 and first("stop") == [True] * 200
    assert set(first("cyclic")) == set(first("random", random.Random(1))) == {False, True}
    assert (
        first("random", random.Random(1))
        == first("random", random.Random(1))
        != first("random", random.Random(2))
    )
    assert list(pause_pattern([True, False])) == [True, False]
    with pytest.raises(
        ValueError,
        match="^pause pattern 'often': must be none, cyclic, random, stop or an iterable$",
    ):
        pause_pattern("often")
    with pytest.raises(ValueError, match="^pause pattern 'random' needs an rng$"):
        pause_pattern("random")
