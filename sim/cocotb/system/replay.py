# SPDX-License-Identifier: Apache-2.0
"""Plays the recorded pins of one hub of a native run into a hub under cocotb and compares every
output in every cycle.

Two independent ways to run the same Verilog, the harness' own C++ loop and the VPI, must give the
same pins. The events and the writes to memory are gathered on the way and handed back, so that they
can be compared with the harness' logs.

Parameters of the test: ``pins`` (file of the record), ``out`` (file to write: seconds, cycles,
events, memory writes).
"""

import json
import time

import cocotb
from cocotb.triggers import ReadOnly, Timer

from hub_rtl.contract.ports import hub_ports
from sim.bench.ports import reader
from sim.bench.runner import bench_params


def _fields(cfg):
    """(name, direction, first byte, bytes) of the record's fields, and its length."""
    fields, at = [], 0
    for name, direction, width in [
        ("rst", "in", 1),
        *((p.name, p.direction, p.width) for p in hub_ports(cfg)),
    ]:
        size = (width + 7) // 8
        fields.append((name, direction, at, size))
        at += size
    return fields, at


class Gather:
    """Events, and bytes written by the memory ports, as seen on the outputs."""

    def __init__(self, cfg):
        self.events, self.memory, self._bytes = [], {}, cfg.slice_bytes
        self._queues = [([], [], []) for _ in range(cfg.slices)]

    def cycle(self, number, pins):
        if pins["m_event_valid"] and pins["m_event_ready"]:
            names = ("kind", "plain", "region", "epoch", "group", "rows", "status", "refused")
            self.events.append([number, *(pins[f"m_event_{name}"] for name in names)])
        for n, (addresses, beats, waiting) in enumerate(self._queues):
            pin = {
                name: pins[f"m_axi_mem{n}_{name}"]
                for name in (
                    "awvalid",
                    "awready",
                    "awaddr",
                    "awlen",
                    "wvalid",
                    "wready",
                    "wdata",
                    "wstrb",
                    "bvalid",
                    "bready",
                    "bresp",
                )
            }
            if pin["awvalid"] and pin["awready"]:
                addresses.append((pin["awaddr"], pin["awlen"] + 1))
            if pin["wvalid"] and pin["wready"]:
                beats.append((pin["wdata"], pin["wstrb"]))
            if addresses and len(beats) >= addresses[0][1]:
                address, count = addresses.pop(0)
                waiting.append((address, beats[:count]))
                del beats[:count]
            if pin["bvalid"] and pin["bready"]:
                address, burst = waiting.pop(0)
                if pin["bresp"] == 0:
                    self._write(address, burst)

    def _write(self, address, burst):
        for at, (data, strobe) in enumerate(burst):
            for byte in range(self._bytes):
                if strobe >> byte & 1:
                    self.memory[address + self._bytes * at + byte] = data >> 8 * byte & 0xFF


@cocotb.test()
async def replay(dut):
    """Every output of every recorded cycle is the same."""
    cfg, params, _ = bench_params()
    fields, size = _fields(cfg)
    inputs = [(getattr(dut, name), at, length) for name, way, at, length in fields if way == "in"]
    outputs = [
        (name, reader(getattr(dut, name)), at, length)
        for name, way, at, length in fields
        if way == "out"
    ]
    with open(params["pins"], "rb") as file:
        record = file.read()
    gather, before, cycles = Gather(cfg), {}, len(record) // size
    begin = time.perf_counter()
    for cycle in range(cycles):
        row = record[cycle * size : (cycle + 1) * size]
        for signal, at, length in inputs:
            value = row[at : at + length]
            if before.get(at) != value:
                signal.value = int.from_bytes(value, "little")
                before[at] = value
        dut.clk.value = 0
        await Timer(5, unit="ns")
        await ReadOnly()
        resetting = row[0]
        for name, read, at, length in outputs:
            want = int.from_bytes(row[at : at + length], "little")
            assert resetting or read() == want, (
                f"cycle {cycle}: {name} = {read():#x}, native {want:#x}"
            )
        gather.cycle(
            cycle,
            {
                name: int.from_bytes(row[at : at + length], "little")
                for name, _, at, length in fields
            },
        )
        await Timer(5, unit="ns")
        dut.clk.value = 1
        await Timer(1, unit="ps")
    with open(params["out"], "w") as file:
        json.dump(
            {
                "seconds": time.perf_counter() - begin,
                "cycles": cycles,
                "events": gather.events,
                "memory": sorted(gather.memory.items()),
            },
            file,
        )
