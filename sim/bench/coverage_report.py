"""The closure figures as a table for the terminal and as a page."""

from collections import Counter

from .coverage_points import KINDS

__all__ = ["markdown", "table"]

WORDS = {"line": "line", "branch": "branch", "expr": "expression", "toggle": "toggle"}


def _percent(reached, points):
    return "-" if not points else f"{100 * reached / points:.1f}" if reached < points else "100"


def _targets(verdicts, bins, targets):
    """[(target, worst figure, is it met)]"""
    rows = [("functional bins 100 %", f"{bins[0]} of {bins[1]}", bins[0] == bins[1])]
    for kind in KINDS:
        short = [name for name, verdict in verdicts.items() if not verdict.met(kind)]
        rows.append((f"{WORDS[kind]} {targets[kind]} %" + (" of bits, each way" if kind == "toggle" else ""),
                     f"missed by {', '.join(short)}" if short else "every block", not short))
    return rows


def table(verdicts, bins, targets):
    """Plain text: a line per block, then the targets."""
    width = max(map(len, verdicts))
    lines = [f"{'block':<{width}}  " + "  ".join(f"{WORDS[kind]:>20}" for kind in KINDS)]
    for name, verdict in verdicts.items():
        cells = []
        for kind in KINDS:
            reached, points = verdict.figures(kind)
            cells.append(f"{f'{reached}/{points}':>13} {_percent(reached, points):>6}")
        lines.append(f"{name:<{width}}  " + "  ".join(cells))
    lines += [f"{'met   ' if met else 'MISSED'}  {target}: {figure}"
              for target, figure, met in _targets(verdicts, bins, targets)]
    return "\n".join(lines)


def markdown(verdicts, bins, targets, rules):
    """The page ``docs/results/coverage.md``."""
    lines = ["# Coverage", "", "Written by `make coverage`; how to read it: [running.md](../running.md#coverage).", "",
             "| Target | | |", "|---|---|---|"]
    lines += [f"| {target} | {figure} | {'met' if met else '**missed**'} |"
              for target, figure, met in _targets(verdicts, bins, targets)]
    lines += ["", "## Blocks", "", "Points reached of those that count, in percent.", "",
              "| Block | " + " | ".join(f"{WORDS[kind]} | %" for kind in KINDS) + " |", "|---" + "|--:" * 8 + "|"]
    for name, verdict in verdicts.items():
        cells = []
        for kind in KINDS:
            reached, points = verdict.figures(kind)
            cells.append(f"{reached:,} of {points:,} | {_percent(reached, points)}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "## Not counted", "", "Proven: cannot be reached whatever the inputs do. Named: with the reasons below.", "",
              "| Block | " + " | ".join(f"{WORDS[kind]} proven | named" for kind in KINDS) + " |", "|---" + "|--:" * 8 + "|"]
    for name, verdict in verdicts.items():
        named = Counter()
        for (kind, _), count in verdict.named.items():
            named[kind] += count
        lines.append(f"| {name} | " + " | ".join(f"{verdict.proven[kind]} | {named[kind]}" for kind in KINDS) + " |")
    lines += ["", "## Named exclusions", "", "| Block | Kind | Points | Reason |", "|---|---|--:|---|"]
    lines += [f"| {name} | {WORDS[kind]} | {count} | {reason} |" for name, verdict in verdicts.items()
              for (kind, reason), count in sorted(verdict.named.items())]
    lines += ["", "## Assumptions of the proofs", "",
              "| Bench | Input | Assumed in every cycle | Reason |", "|---|---|---|---|"]
    lines += [f"| {bench} | `{each['input']}` | `{each['holds'].replace('|', chr(92) + '|')}` | {each['reason']} |"
              for bench, parts in rules.items() for each in parts.get("assume", ())]
    lines += ["", "## Missed", ""]
    for name, verdict in verdicts.items():
        lines += _missed(name, verdict)
    return "\n".join(lines).rstrip() + "\n"


def _missed(name, verdict):
    """A list of the missed points, toggles by signal."""
    if not verdict.missed:
        return []
    lines, toggles = [f"### {name}", ""], Counter()
    for point in sorted(verdict.missed, key=lambda point: point.line):
        if point.kind == "toggle":
            toggles[verdict.source.module(point.line), verdict.source.declared(point.line)[0].lstrip("\\")] += 1
        else:
            lines.append(f"* {WORDS[point.kind]} `{point.what}` of `{verdict.source.text(point.line)}` in `{point.module}`")
    if toggles:
        lines.append("* toggles: " + ", ".join(f"`{module}.{signal}` {count}" for (module, signal), count in toggles.items()))
    return [*lines, ""]
