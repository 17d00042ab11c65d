# SPDX-License-Identifier: Apache-2.0
"""The files in which a run is looked at: page, trace, pictures; the page in a real browser."""

import json
import re
import shutil
import struct
import subprocess
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from flow.pictures import SHARP, WIDTH
from moe_hub.command.cli import app
from sim.bench.runner import ROOT
from sim.system.fabric import cycle_ns
from sim.system.figures import layer_report
from sim.system.formats import LinkUse
from sim.system.four_hubs import CFG
from sim.system.history import BIN, USES, history, link_use
from sim.system.layer import MARK_START, plan_layer
from sim.system.page.page import FIGURES, page_text, value_at
from sim.system.trace import trace, trace_text
from sim.system.views import VIEWS, write_views
from sim.system.ways import WAYS
from sim.workload.models import model
from sim.workload.traces import generate

BROWSER = next(filter(shutil.which, ("chromium", "chromium-browser", "google-chrome")), None)
WAYS_SHOWN = ("hub", "address", "rowflag")


@pytest.fixture(scope="module")
def told(harness):
    """(histories, reports) of a layer, by name of the way."""
    shape = model("tiny")
    routing = generate(tokens=16, top_k=shape.top_k, experts=shape.experts, seed=2)
    plan = plan_layer(shape, routing, ranks=CFG.ranks, base=CFG, tile_rows=4)
    settings = {"latency": 31, "window": 31, "max_cycles": 60_000}
    histories, reports = {}, {}
    for name in WAYS_SHOWN:
        system = WAYS[name].programs(plan, bin=BIN, bin_from=MARK_START, **settings)
        result = system.run(harness)
        histories[name] = history(plan, result, name)
        reports[name] = layer_report(plan, result, WAYS[name].check(plan, result), name)
        reports[name] |= {"latency_cycles": 31, "link_use": link_use(histories[name])}
        result.remove()
    return histories, reports


@pytest.fixture(scope="module")
def folder(told, tmp_path_factory):
    """A folder with all views."""
    made = tmp_path_factory.mktemp("views")
    assert [path.name for path in write_views(*told, made)] == list(VIEWS)
    return made


# -- the page --------------------------------------------------------------------------------------


def test_page_needs_nothing_but_itself(folder):
    text = (folder / "page.html").read_text()
    assert not re.search(r"https?://|\ssrc=|\shref=|@import|url\(|fetch\(|XMLHttp", text)
    assert "<title>tiny: one MoE layer" in text and 'lang="en"' in text


def test_same_runs_same_bytes(told, folder, tmp_path):
    write_views(*told, tmp_path)
    for name in VIEWS:
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_text_of_others_does_not_end_the_script(told):
    """A model's name may be anything."""
    histories, reports = told
    odd = {name: {**report, "model": "</script><b>&"} for name, report in reports.items()}
    text = page_text(histories, odd, "<i>")
    assert "</script><b>" not in text and "<i>" not in text.split("<style>")[0]


class Cells(HTMLParser):
    """Cells of a page that say what they show, and attributes of its body."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.body, self._open = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "body":
            self.body = attrs
        if tag == "td" and "data-way" in attrs:
            self._open = attrs | {"text": ""}
            self.cells.append(self._open)

    def handle_endtag(self, tag):
        if tag == "td":
            self._open = None

    def handle_data(self, data):
        if self._open:
            self._open["text"] += data


#: Runs in the page: what a reader does with keys and buttons, and what is seen then.
READER = """
<script>
{
const seen = [], panel = document.querySelector("#charts");
const key = (key, shiftKey = false) =>
  panel.dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey, bubbles: true }));
const note = (name) => seen.push([name, document.querySelector("#span").textContent,
  [...document.querySelectorAll("#view td[data-way=hub]")].map((cell) => +cell.dataset.cycles),
  [...document.querySelectorAll("#view thead .number")].map((cell) => cell.textContent),
  document.querySelector("#told").textContent]);
note("whole");
key("ArrowRight", true), note("marked");
key("+"), key("+"), note("zoomed");
key("ArrowRight"), note("moved");
document.querySelector("button[data-do=all]").click(), note("again");
const below = document.querySelector("#below");
below.value = "address", below.dispatchEvent(new Event("change")), note("other");
const pen = document.querySelector("canvas").getContext("2d");
const pixels = pen.getImageData(0, 0, pen.canvas.width, pen.canvas.height).data;
document.body.dataset.colours = new Set(Array.from({ length: pixels.length / 4 },
  (_, n) => pixels.slice(4 * n, 4 * n + 3).join())).size;
document.body.dataset.seen = JSON.stringify(seen);
}
</script>
"""
ERRORS = (
    '<script>onerror = (text) => document.documentElement.setAttribute("data-error", text)</script>'
)


@pytest.fixture(scope="module")
def opened(folder, tmp_path_factory):
    """The page's document after a reader has been at it, in a real browser."""
    if not BROWSER:
        pytest.skip("not installed: chromium (Debian package: chromium)")
    text = (folder / "page.html").read_text()
    read = folder / "read.html"
    read.write_text(
        text.replace("<head>", f"<head>{ERRORS}").replace("</body>", f"{READER}</body>")
    )
    profile = tmp_path_factory.mktemp("profile")
    calm = ("background-networking", "component-update", "sync", "extensions", "default-apps")
    command = [
        *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *(f"--disable-{what}" for what in calm),
        *(f"--user-data-dir={profile}", "--window-size=1100,900", "--dump-dom", read.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "data-error" not in done.stdout.split("<script", 1)[0], done.stdout[:300]
    return Cells(done.stdout)


def test_figures_in_the_browser_are_those_of_the_report(told, opened):
    _, reports = told
    cells = [cell for cell in opened.cells if "data-path" in cell]
    assert len(cells) >= len(FIGURES) * len(reports)
    for cell in cells:
        value = value_at(reports[cell["data-way"]], cell["data-path"])
        assert json.loads(cell["data-value"]) == value, cell
        shown = f"{100 * value:.2f} %" if isinstance(value, float) else f"{value:,}"
        assert shown in cell["text"], cell


def test_links_in_the_browser_are_those_of_the_report(told, opened):
    """What the page adds up of all bins is the report's; zoomed in it is less."""
    _, reports = told
    cycles = reports["hub"]["link_use"]["cycles"]
    shown = {
        cell["data-use"]: int(cell["data-cycles"])
        for cell in opened.cells
        if "data-use" in cell and cell["data-way"] == "hub"
    }
    assert shown == cycles
    seen = {name: more for name, *more in json.loads(opened.body["data-seen"])}
    assert opened.body["data-drawn"] == "yes" and len(seen) == 6
    assert seen["whole"][:2] == ["the whole layer", list(cycles.values())]
    assert seen["whole"][2] == ["hub", "row-flag"], "the best software is below"
    assert sum(seen["zoomed"][1]) < sum(seen["whole"][1]) and "µs" in seen["zoomed"][0]
    assert seen["moved"][0] != seen["zoomed"][0]
    assert re.match(r"hub, all ranks: [\d.]+ µs \(cycle \d+\);", seen["marked"][3])
    assert seen["again"][:2] == seen["whole"][:2]
    assert seen["other"][2] == ["hub", "address-centric"]
    assert int(opened.body["data-colours"]) > 5, "nothing was drawn"


def test_documentation_names_every_use():
    text = (ROOT / "docs" / "running.md").read_text()
    text = text.split("| `link_use` |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([a-z ]+) \|", text, re.M)
    assert rows == [(kind.name.lower(), use.words) for kind, use in USES.items()]


# -- the trace -------------------------------------------------------------------------------------


def test_trace_has_a_process_per_rank_and_way(told):
    histories, _ = told
    events = trace(histories, "title")["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(names.values()) == sorted(
        f"{WAYS[way].title}, rank {rank}" for way in WAYS_SHOWN for rank in range(CFG.ranks)
    )
    assert {event["pid"] for event in events} == set(names)
    threads = [(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"]
    assert len({tid for _, tid in threads}) == len(threads), "a number for each thread"
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xi"}
    assert used == set(threads)


def test_trace_says_when(told):
    """Time stamps are microseconds of the cycle beside them; slices of a track do not overlap."""
    histories, _ = told
    events, ends = trace(histories, "title")["traceEvents"], {}
    for event in events:
        if event["ph"] in "Xi":
            cycle = event["args"]["cycle"]
            assert event["ts"] == pytest.approx(cycle * cycle_ns(CFG) / 1000, abs=1e-6)
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert event["ts"] >= ends.get(event["tid"], 0) - 1e-6, event
            ends[event["tid"]] = event["ts"] + event["dur"]
    last = max(told.layer for told in histories.values()) * cycle_ns(CFG) / 1000
    assert max(ends.values()) == pytest.approx(last, abs=1e-3)


def test_trace_has_tiles_answers_and_gaps(told):
    histories, _ = told
    hub, events = histories["hub"], trace(histories, "title")["traceEvents"]
    first = [event for event in events if event["pid"] == 1]  # rank 0 of the hub's way
    tiles = [e for e in first if e["ph"] == "X" and e["name"].startswith("region ")]
    assert sorted(e["args"]["READY, cycle"] for e in tiles) == hub.usable[0]
    assert sum(e["args"]["rows"] for e in tiles) == sum(tile.rows for tile in hub.tiles[0])
    assert [e["args"]["cycle"] for e in first if e["name"] == "READY"] == hub.usable[0]
    assert [e["args"]["cycle"] for e in first if e["name"] == "answers ready"] == hub.answers[0]
    busy = {}
    for event in first:
        if event["ph"] == "C":
            value = next(iter(event["args"].values()))
            assert 0 <= value <= (100 if event["name"].startswith("link") else 1000), event
            busy[event["name"]] = event["args"]
    assert {f"link {n} {way}" for n in range(CFG.links) for way in ("tx", "rx")} < busy.keys()
    assert all(set(value.values()) == {0} for value in busy.values()), "0 after the layer"
    gaps = [e for e in first if e["ph"] == "X" and "sending, link cycles" in e["args"]]
    assert {e["name"] for e in gaps} <= {USES[kind].words for kind in LinkUse if kind}
    assert gaps and json.loads(trace_text(histories, "title"))["displayTimeUnit"] == "ns"


# -- pictures, and what the command does -----------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in VIEWS if name.endswith(".png")])
def test_pictures_have_the_width_of_a_readme(folder, name):
    width, height = struct.unpack(">II", (folder / name).read_bytes()[16:24])
    assert width == round(WIDTH * SHARP) and height > 300


def test_without_software_nothing_is_compared(told, tmp_path):
    """And what an earlier run left goes away."""
    histories, reports = ({"hub": each["hub"]} for each in told)
    (tmp_path / "before_after.png").write_text("old")
    names = [path.name for path in write_views(histories, reports, tmp_path)]
    assert names == [name for name in VIEWS if name != "before_after.png"]
    assert not (tmp_path / "before_after.png").exists()
    text = (tmp_path / "page.html").read_text()
    assert "through the hub" in text and 'id="below"' not in text
    assert write_views({}, {}, tmp_path) == [] and not (tmp_path / "page.html").exists()


def test_command_writes_them(tmp_path):
    order = "run --model tiny --preset small --ranks 4 --lanes 2 --tokens 4 --latency 10 --output"
    result = CliRunner().invoke(app, [*order.split(), str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "page.html" in result.output and "trace.json" in result.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())["hub"]
    use = report["link_use"]
    links = CFG.ranks * CFG.links
    assert sum(use["cycles"].values()) == links * use["bins"] * use["bin_cycles"]
    assert use["cycles"]["sent"] == report["link_flits"]
