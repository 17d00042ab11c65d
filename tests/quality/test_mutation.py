# SPDX-License-Identifier: Apache-2.0
"""Mutation testing on a toy: what a bench must notice, what nobody can, and what only another input
would show."""

from concurrent.futures import ThreadPoolExecutor

from amaranth import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.stream import StreamRegister
from sim.cocotb.parts.tests import ITEM
from sim.quality.mutation import meaning, page
from sim.quality.mutation import run as main
from sim.quality.mutation.blocks import BLOCKS, CREDITS, MEANT, Block
from sim.quality.mutation.equivalence import Prover
from sim.quality.mutation.names import catalogue
from sim.quality.mutation.netlist import Meant as Named
from sim.quality.mutation.netlist import Mutant, meant, mutated


class Toy(wiring.Component):
    """A counter 0..4; ``o`` tells 7, which never comes, and ``top`` tells 4."""

    def __init__(self):
        super().__init__({"go": In(1), "count": Out(3), "o": Out(1), "top": Out(1)})

    def elaborate(self, platform):
        m = Module()
        with m.If(self.go):
            m.d.sync += self.count.eq(self.count + 1)
            with m.If(self.top):
                m.d.sync += self.count.eq(0)
        m.d.comb += [
            self.o.eq(self.count == 7),
            self.top.eq(self.count == 4),
        ]
        return m


def test_mutants_and_proofs(tmp_path):
    netlist = mutated(Toy(), "toy", 40, 1, tmp_path)
    assert [mutant.number for mutant in netlist.mutants] == list(range(1, len(netlist.mutants) + 1))
    assert "module toy(" in netlist.verilog and all(
        "CLK" not in mutant.port for mutant in netlist.mutants
    )
    prover = Prover(netlist)
    verdicts = {}
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(prover.decide, [each.number for each in netlist.mutants]))
    for each, verdict in zip(netlist.mutants, said, strict=True):
        verdicts.setdefault(verdict, []).append(each)
    assert said[:9] == [Prover(netlist).decide(number) for number in range(1, 10)]
    assert prover.decide(0) == "equivalent"
    # `o` is 0 for ever, but only because of the states that are reached.
    assert any(mutant.wire == "count[1]" or mutant.port == "A" for mutant in verdicts["equivalent"])
    assert all(
        mutant.wire != "o[0]" or mutant.mode == "const0" for mutant in verdicts["equivalent"]
    )
    assert len(verdicts["different"]) > len(verdicts["equivalent"]) and "open" not in verdicts


def test_payload_without_valid_does_not_count(tmp_path):
    """Only a change that is seen while valid is 1 is a difference."""

    class Sender(wiring.Component):
        def __init__(self):
            super().__init__({"i": In(4), "send": In(1), "o__payload": Out(4), "o__valid": Out(1)})

        def elaborate(self, platform):
            m = Module()
            m.d.comb += self.o__valid.eq(self.send)
            with m.If(self.send):
                m.d.comb += self.o__payload.eq(self.i)
            return m

    netlist = mutated(Sender(), "sender", 60, 1, tmp_path)
    gates = [mutant for mutant in netlist.mutants if mutant.port == "S" and mutant.mode == "const1"]
    assert gates and all(Prover(netlist).decide(mutant.number) == "equivalent" for mutant in gates)


def test_table(tmp_path):
    netlist = mutated(Toy(), "toy", 4, 1, tmp_path)
    verdicts = {
        1: {"verdict": "killed"},
        2: {"verdict": "equivalent"},
        3: {"verdict": "different"},
        4: {"verdict": "timeout"},
    }
    blocks = {"toy": Block(Toy, None, "sim.cocotb.toy", target=60)}
    results = {"toy": {"mutants": netlist.mutants, "verdicts": verdicts}}
    rows, missed = page.table(results, blocks, CREDITS)
    assert rows[-1] == "| toy | 4 | 2 | - | 1 | 1 | 66.7 % | 60 % | met |" and not missed
    blocks = {"toy": Block(Toy, None, "sim.cocotb.toy", target=70)}
    assert page.table(results, blocks, CREDITS)[1] == ["toy"]
    verdicts[3] = {"verdict": "noticed", "asked": "toy.check"}
    rows, missed = page.table(results, blocks, CREDITS)
    assert rows[-1] == "| toy | 4 | 2 | 1 | 1 | 0 | 100.0 % | 70 % | met |" and not missed


class Meant(wiring.Component):
    """One gate with a bug, one with a bug that nobody can see."""

    def __init__(self):
        super().__init__({"a": In(2), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        both = mutant("toy.any_is_enough", self.a.all(), self.a.any())
        m.d.comb += self.o.eq(mutant("toy.said_otherwise", both, both & self.a[0]))
        m.d.sync += Signal(name="clocked").eq(1)
        return m


def test_mutants_of_meaning_in_one_netlist(tmp_path):
    netlist = meant(Meant(), "toy", tmp_path)
    assert [(each.number, each.name) for each in netlist.mutants] == [
        (1, "toy.any_is_enough"),
        (2, "toy.said_otherwise"),
    ]
    prover = Prover(netlist)
    assert [prover.decide(number) for number in range(3)] == [
        "equivalent",
        "different",
        "equivalent",
    ]


class Storing(wiring.Component):
    """A large memory written by a counter 0..4; 7 never comes."""

    def __init__(self):
        super().__init__({"go": In(1), "data": In(64), "at": In(6), "o": Out(64)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.kept = kept = memory.Memory(shape=64, depth=64, init=[])
        write, read, count = kept.write_port(granularity=32), kept.read_port(), Signal(3)
        low, high = write.en
        m.d.sync += count.eq(Mux(count == 4, 0, count + 1))
        m.d.comb += [
            low.eq(mutant("toy.low_never_at_seven", self.go, self.go & (count != 7))),
            high.eq(mutant("toy.high_not_at_four", self.go, self.go & (count != 4))),
            write.addr.eq(mutant("toy.anywhere_at_rest", count, Mux(self.go, count, 5))),
            write.data.eq(
                mutant("toy.data_of_no_word", self.data, Mux(count == 6, ~self.data, self.data))
            ),
            read.addr.eq(mutant("toy.neighbour_read", self.at, self.at ^ (count == 1))),
            read.en.eq(1),
            self.o.eq(read.data),
        ]
        return m


def test_large_memories_are_cut_out(tmp_path):
    """What never reaches a memory is equivalent without a look at what it holds; what does is
    not."""
    prover = Prover(meant(Storing(), "toy", tmp_path))
    assert (tmp_path / "cut.aag").exists()
    verdicts = [prover.decide(number) for number in range(6)]
    assert verdicts[:2] == ["equivalent"] * 2 and verdicts[3:5] == ["equivalent"] * 2
    assert verdicts[2] == verdicts[5] == "different"


def test_tiers_of_who_notices():
    """A block misses its target by what neither bench nor quick proofs notice, and some blocks by
    what nobody does; equivalent ones do not count."""
    names = [name for name in catalogue() if name.startswith("scoreboard.")][:3]
    noticed = {
        names[0]: {"bench": "bench"},
        names[1]: {"bench": "", "quick": "scoreboard.x"},
        names[2]: {"bench": "", "equivalent": True},
    }
    assert meaning.missed(noticed) == []
    text = meaning.lines(noticed)
    assert "| scoreboard | 3 | 1 | 1 | 2 | 2 | met |" in text
    noticed[names[2]] = {"bench": "", "quick": "", "all": "scoreboard.y"}
    assert meaning.missed(noticed) == ["scoreboard"]
    text = meaning.lines(noticed)
    assert any(names[2] in line and "scoreboard.y" in line for line in text)
    page = meaning.with_section("# Page\n\nGates.\n", text)
    assert meaning.with_section(page, text) == page and page.startswith("# Page\n\nGates.\n\n##")
    assert meaning.lines({}, page) == text
    memory = {name: {"bench": ""} for name in catalogue() if name.startswith("memory.")}
    both = "\n".join(meaning.lines(memory, page))
    assert "| scoreboard | 3 | 0 | 1 | 2 | 3 | missed |" in both and names[2] in both
    assert all(f"`{name}`" in both for name in memory)
    again = dict.fromkeys(memory, {"bench": "bench"})
    page = meaning.with_section(page, meaning.lines(again, both))
    assert meaning.lines(noticed | again) == meaning.lines({}, page)


def test_shared_parts_are_in_all_netlists(monkeypatch):
    asked = []

    def campaign(name, meaning, prove=True):
        asked.append(name)
        return {"mutants": [Named(1, "parts.x", "?")], "verdicts": {1: {"verdict": "different"}}}

    monkeypatch.setattr(meaning, "campaign", campaign)
    assert meaning.bench(["memory"]) == {"parts.x": "different"}
    assert asked == [name for name, block in BLOCKS.items() if block.word == "memory"]
    asked.clear()
    meaning.bench(["parts"])
    assert asked == [*MEANT]


def test_a_mutant_is_equivalent_only_if_it_is_in_all_benches(monkeypatch):
    said = {"scoreboard_of_three": "open"}  # is asked no proofs

    def campaign(name, meaning, prove=True):
        verdict = said.get(name, "equivalent")
        return {"mutants": [Named(1, "parts.x", "?")], "verdicts": {1: {"verdict": verdict}}}

    monkeypatch.setattr(meaning, "campaign", campaign)
    assert meaning.bench(["parts"]) == {"parts.x": "equivalent"}
    said["link"] = "open"
    assert meaning.bench(["parts"]) == {"parts.x": "open"}
    said["csr"] = "killed"
    assert meaning.bench(["parts"]) == {"parts.x": "killed"}


def test_a_tier_is_asked_what_those_before_it_miss(monkeypatch):
    names = [name for name in catalogue() if name.startswith("memory.")]
    benches = dict.fromkeys(names, "killed") | {names[0]: "equivalent"}
    benches |= dict.fromkeys(names[1:4], "different")
    monkeypatch.setattr(meaning, "bench", lambda chosen: benches)
    asked = []

    def ask(name, quick):
        asked.append((name, quick))
        return "memory.x" if (name, quick) in ((names[1], True), (names[2], False)) else ""

    noticed = meaning.found(["memory"], ask)
    assert asked == [(names[1], True)] + [
        (name, quick) for name in names[2:4] for quick in (True, False)
    ]
    assert noticed[names[0]] == {"bench": "", "equivalent": True}
    assert noticed[names[1]] == {"bench": "", "quick": "memory.x"}
    assert noticed[names[3]] == {"bench": "", "quick": "", "all": ""}
    text = "\n".join(meaning.lines(noticed))
    assert f"| memory | {len(names)} | 1 | {len(names) - 4} | {len(names) - 3} " in text
    assert "| memory.x |" in text and "| nobody |" in text
    few = meaning.found(["memory"], ask, quick=True)
    assert few[names[3]] == {"bench": "", "quick": ""} and set(few) == set(names)
    assert "| not asked |" in "\n".join(meaning.lines(few))


def test_page_of_some_blocks():
    """Blocks judged anew replace their row, their configuration and their survivors; all else
    stays, and what was missed is told anew; one that is new to the page gets its place."""
    mutants = [Mutant(n, "inv", "$1", "Y", 0, "", "a.py:1") for n in range(1, 41)]

    def judged(survivors, name):
        verdicts = {
            each.number: {"verdict": "open" if each.number <= survivors else "killed"}
            for each in mutants
        }
        return {name: {"mutants": mutants, "verdicts": verdicts}}

    def written(**survivors):
        results = {}
        for name in BLOCKS:
            results |= judged(survivors.get(name, 0), name)
        return page.page(results, BLOCKS, CREDITS, 1)

    before = written(decoder=4, csr=5)
    anew = judged(0, "decoder") | judged(6, "link") | judged(1, "receive_pool")
    after = page.with_blocks(before, anew, BLOCKS, CREDITS, 1)
    assert after == written(csr=5, link=6, receive_pool=1) != before
    assert "Missed: link, csr." in after
    assert page.with_blocks(after, judged(6, "link"), BLOCKS, CREDITS, 1) == after
    clean = judged(0, "link") | judged(0, "csr") | judged(0, "receive_pool")
    assert page.with_blocks(after, clean, BLOCKS, CREDITS, 1) == written()
    own = "| decoder ", "* decoder:"
    without = "\n".join(line for line in before.split("\n") if not line.startswith(own))
    assert page.with_blocks(without, judged(4, "decoder"), BLOCKS, CREDITS, 1) == before


def test_campaign(tmp_path, monkeypatch):
    """Its own bench kills nearly all mutants of the skid stage, whatever is skipped; a second
    campaign runs nothing."""
    monkeypatch.setattr(main, "FOLDER", tmp_path)
    monkeypatch.setitem(
        BLOCKS,
        "register",
        Block(
            lambda cfg: StreamRegister(ITEM),
            None,
            "sim.cocotb.parts.tests,tests.quality.skipping",
            ("keeps_order", "send_one_by_one", "reset_while_stalled", "for_none"),
            {"items": 60, "latency": 1},
        ),
    )
    result = main.campaign("register", count=40)
    verdicts = [verdict["verdict"] for verdict in result["verdicts"].values()]
    assert len(verdicts) == 40 and verdicts.count("killed") > 0.9 * (
        40 - verdicts.count("equivalent")
    )
    monkeypatch.setattr(main, "run_bench", None)
    assert main.campaign("register", count=40)["verdicts"] == result["verdicts"]
