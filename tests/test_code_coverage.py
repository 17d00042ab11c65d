"""Code coverage: points of a small program counted, merged, proven unreachable, excluded and judged."""

import pytest

from sim.bench import code_coverage, coverage_points
from sim.bench.code_coverage import judge
from sim.bench.coverage_points import Point, Source, keep, read
from sim.bench.coverage_report import markdown, table
from sim.bench.unreachable import expression, paths, unreachable

# As Yosys writes it: `count` counts 0, 1, 2, 0, ...; so 3 never comes, and bit 2 of `wide` is always 0.
TEXT = r"""module toy(clk, rst, go, wide);
  reg \$auto$verilog_backend.cc:2355:dump_module$1  = 0;
  wire \$1 ;
  reg [1:0] \$2 ;
  input clk;
  wire clk;
  reg [1:0] count = 2'h0;
  input go;
  wire go;
  input rst;
  wire rst;
  output [2:0] wide;
  wire [2:0] wide;
  assign \$1  = count == 2'h3;
  always @(posedge clk)
    count <= \$2 ;
  always @* begin
    if (\$auto$verilog_backend.cc:2355:dump_module$1 ) begin end
    \$2  = count;
    if (\$1 ) begin
      \$2  = 2'h1;
    end else if (go) begin
      casez (count)
        2'h0:
            \$2  = 2'h1;
        2'h1:
            \$2  = 2'h2;
        2'h?:
            \$2  = 2'h0;
      endcase
    end
    if (rst) begin
      \$2  = 2'h0;
    end
  end
  assign wide = { 1'h0, count };
endmodule
""".replace("2'h?", "default")
LINES = Source(TEXT).lines

IF, ELSE_IF, ZERO, GUARD = (next(n for n, line in enumerate(LINES) if text in line) for text in (
    r"if (\$1 )", "else if (go)", "2'h0:", "if (\\$auto"))
WIDE = next(n for n, line in enumerate(LINES) if "output [2:0] wide" in line)


def record(kind, line, what, count, name="wide"):
    field = {"f": "toy.v", "l": line, "n": 1, "t": kind, "page": f"v_{kind}/toy", "o": what, "h": "toy"}
    if kind == "toggle":
        field["o"] = name + what
    return "C '" + "".join(f"\x01{key}\x02{value}" for key, value in field.items()) + f"' {count}\n"


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(coverage_points, "FOLDER", tmp_path / "counts")
    monkeypatch.setattr(code_coverage, "PROOFS", tmp_path / "proofs")
    return tmp_path


def put(folder, *records):
    (folder / "coverage.dat").write_text("# SystemC::Coverage-3\n" + "".join(records))
    keep("toy", TEXT, folder / "coverage.dat")


def test_runs_are_merged(folder):
    put(folder, record("branch", IF, "if", 0), record("branch", IF, "else", 7))
    put(folder, record("branch", IF, "if", 2), record("branch", IF, "else", 1))
    source, counts = read("toy")
    assert counts == {Point("branch", "toy", IF, 1, "if"): 2, Point("branch", "toy", IF, 1, "else"): 8}
    assert source.module(IF) == "toy" and source.ports["toy"] == {"clk", "go", "rst", "wide"}
    assert source.registers["toy"] == {"count"}


def test_conditions_on_the_way():
    ways = paths(LINES)
    assert GUARD not in ways
    assert ways[ELSE_IF] == (["!(\\$1 )"], "go")
    assert ways[ZERO] == (["!(\\$1 )", "go"], "(count) == 2'h0")
    source = Source(TEXT)
    assert expression(Point("branch", "toy", ELSE_IF, 1, "else"), source, ways) == (
        "(!(\\$1 )) && (!(go))",)
    assert expression(Point("expr", "toy", IF, 1, "($1==1 && count[1]==0) => 1"), source, ways) == (
        "((((\\$1 ) >> 0) & 1) == 1) && ((((\\count ) >> 1) & 1) == 0)",)
    assert expression(Point("line", "toy", IF, 1, "block"), source, ways) == ()


def test_proofs():
    source = Source(TEXT)
    values = ["count == 3", "count == 2", "go && count == 2", "1'h0", "1'h1", "count == 2 && !wide[1]"]
    assert unreachable(TEXT, source, [(IF, value, True) for value in values]) == [True, False, False, True, False, True]
    assert unreachable(TEXT, source, [(WIDE, "wide [2]", False), (WIDE, "!wide [2]", False)]) == [True, False]


def test_proof_with_an_assumption():
    conditions = [(IF, "count == 1", True), (IF, "go", False)]
    assert unreachable(TEXT, Source(TEXT), conditions, {"go": ("!go", "0")}) == [True, True]


def test_judge(folder):
    rules = {"exclude": [{"kinds": ["line"], "line": "2'h0:", "reason": "far"},
                         {"kinds": ["line"], "line": "none", "reason": "x"}]}
    put(folder, record("branch", GUARD, "if", 0), record("branch", IF, "if", 0), record("branch", IF, "else", 3),
        record("branch", ELSE_IF, "if", 0), record("line", ZERO, "case", 0), record("toggle", WIDE, "[2]:0->1", 0),
        record("toggle", WIDE, "[0]:0->1", 0), record("toggle", WIDE, "[1]:0->1", 5),
        record("toggle", next(n for n, line in enumerate(LINES) if "wire \\$1" in line), ":0->1", 0, "__0241"))
    verdict = judge("toy", "", rules)
    assert verdict.hit == {"branch": 1, "toggle": 1} and verdict.proven == {"branch": 1, "toggle": 1}
    assert verdict.named == {("line", "far"): 1} and "used" in rules["exclude"][0] and "used" not in rules["exclude"][1]
    assert {(point.kind, point.line, point.what) for point in verdict.missed} == {
        ("branch", ELSE_IF, "if"), ("toggle", WIDE, "[0] 0->1")}
    assert verdict.figures("branch") == (1, 2) and not verdict.met("branch") and verdict.met("line")
    again = judge("toy", "", rules)
    assert again.missed == verdict.missed, "from the kept proofs"
    targets = code_coverage.TARGETS
    assert "MISSED  branch 100 %: missed by toy" in table({"toy": verdict}, (3, 3), targets)
    page = markdown({"toy": verdict}, (3, 3), targets, {"toy": rules})
    assert "| toy | line | 1 | far |" in page and "* branch `if` of `end else if (go) begin` in `toy`" in page
