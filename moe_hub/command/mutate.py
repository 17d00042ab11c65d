# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub mutate``."""

from typing import Annotated

import typer

from sim.quality.mutation import meaning
from sim.quality.mutation.blocks import BLOCKS
from sim.quality.mutation.names import catalogue

from .console import fail
from .options import flag, number, one_of, option

__all__ = ["mutate"]


def _meaning(chosen, jobs, kept, prove, proofs):
    """The section of the results page about mutants of meaning; the exit code."""
    from formal.kit.notice import Notice
    from formal.kit.table import load_table
    from sim.bench.runner import ROOT

    ask = Notice(load_table().values(), chosen) if proofs != "none" else None
    noticed = meaning.found(chosen, ask, quick=proofs == "quick", jobs=jobs, kept=kept, prove=prove)
    page = ROOT / "docs" / "results" / "mutation.md"
    text = meaning.lines(noticed, page.read_text())
    print("\n".join(meaning.lines(noticed)))
    if prove and proofs != "none":  # without proofs, a look only
        page.write_text(meaning.with_section(page.read_text(), text))
    return 1 if meaning.missed(noticed) else 0


def _short_set(word):
    """Whom to ask about the netlist of a block: its checks of the short set, and those of parts
    that it shares with others."""
    from formal.kit.notice import GateNotice
    from formal.kit.table import load_table

    return GateNotice(
        check for check in load_table().values() if check.quick and check.block in (word, "parts")
    )


def mutate(
    blocks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[BLOCK]...",
            parser=one_of((*BLOCKS, *meaning.words())),
            show_default=False,
            help=f"Of {', '.join(BLOCKS)}; with --meaning of "
            f"{', '.join(meaning.words())}; all by default.",
        ),
    ] = None,
    jobs: number(1, 1024, "Mutants at a time.", "--jobs", "-j") = 1,
    kept: flag("--kept", "Tables of the last runs, even if a bench has changed since.") = False,
    no_proofs: flag("--no-proofs", "Count survivors as open.") = False,
    by_meaning: flag(
        "--meaning", "Mutants by name in the source, against bench and proofs."
    ) = False,
    proofs: option(
        str, "With --meaning: the promises that are asked.", parser=one_of(("none", "quick", "all"))
    ) = "all",
    names: flag("--list", "Print the mutants by name and end.") = False,
):
    """Mutants of every block against its bench, proofs for those nobody noticed; exit code 1 when a
    target is missed."""
    from sim.quality.mutation.run import main

    if names:
        print("\n".join(f"{each.name}  {each.file}:{each.line}" for each in catalogue().values()))
        return
    known = meaning.words() if by_meaning else BLOCKS
    if wrong := [each for each in blocks or [] if each not in known]:
        fail(f"{wrong[0]}: must be one of {', '.join(known)}")
    if by_meaning:
        chosen = sorted(set(blocks)) if blocks else list(known)
        raise typer.Exit(_meaning(chosen, jobs, kept, not no_proofs, proofs))
    raise typer.Exit(main(blocks or [], jobs, kept, not no_proofs, _short_set))
