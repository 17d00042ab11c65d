# SPDX-License-Identifier: Apache-2.0
"""The results of the proofs as a page."""

from flow.kept import write
from flow.tables import markdown

from .run import COLUMNS, results

__all__ = ["write_report"]

HEAD = """# Proofs

`make formal ARGS="--report {name}"` wrote this page. What the words mean, and what is
assumed, stands in [verification.md](../verification.md).

"""


def write_report(path, checks, outcomes, goals):
    """Writes the Markdown page: targets, a row per check, the reason of each bound, and all
    properties by name."""
    text = [HEAD.format(name=path)]
    text += [f"- {'met' if met else '**missed**'}: {goal}\n" for goal, met in goals]
    table = markdown(COLUMNS, results(checks, outcomes), " --- ")
    text += ["\n", *(f"{line}\n" for line in table)]
    bounded = [check for check in checks if check.because]
    if bounded:
        text.append("\n## Why some are bounded\n\n")
        text += [f"- `{check.name}`, {check.depth} cycles: {check.because}\n" for check in bounded]
    text.append("\n## Properties\n\n")
    for check in checks:
        outcome = next(each for (name, _), each in outcomes.items() if name == check.name)
        text.append(
            f"- `{check.name}`: {'; '.join(outcome.properties)}"
            + (f". Assumes: {'; '.join(outcome.assumptions)}" if outcome.assumptions else "")
            + "\n"
        )
    write(path, "".join(text))
