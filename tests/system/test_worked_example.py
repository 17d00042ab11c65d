# SPDX-License-Identifier: Apache-2.0
"""The worked example of docs/programming.md: the page's own set-up, on hubs of its preset."""

import re

from hub_rtl.contract.packets import EventKind
from sim.bench.runner import ROOT
from sim.system.four_hubs import CFG, FourHubs


def example():
    """What the page's code defines."""
    text = (ROOT / "docs" / "programming.md").read_text()
    [code] = re.findall(
        r"<!-- run by: tests/system/test_worked_example.py -->\n```python\n(.*?)```", text, re.S
    )
    names = {}
    exec(compile(code, "docs/programming.md", "exec"), names)
    return names


def test_worked_example(harness):
    page = example()
    ranks, tokens, row, size = (page[name] for name in ("RANKS", "TOKENS", "ROW", "RESULT"))
    assert CFG.name == "small"  # as the page says
    s = FourHubs()
    data = {token: s.rng.randbytes(row) for token in range(ranks * tokens)}
    for rank in range(ranks):
        s.region(rank, 0, page["region"])
        for expert, handle in enumerate(page["handles"]):
            s.handle(rank, expert, handle)
        for source in range(ranks):
            s.window(rank, source, *page["window"])
        s.dep_range(rank, 0, page["range_0"])
    s.barrier()
    for rank in range(ranks):
        for expert in range(ranks):
            s.announce(rank, expert, tokens // ranks * row, more=expert + 1 < ranks)
        for token in range(rank * tokens, (rank + 1) * tokens):
            s.row(rank, token % ranks, token, data[token])
        s.announce_all(rank)
    for rank in range(ranks):  # its expert
        s.wait_all(rank, 1)
        for token in range(rank, ranks * tokens, ranks):
            address = page["results"] + token % tokens * size
            s.plain(rank, token // tokens, address, data[token][:size][::-1])
    s.barrier()
    result = s.run(harness)
    differences = s.differences(result)
    events = [
        [
            tuple(int(event[name]) for name in ("kind", "plain"))
            for event in result.log("events", rank)
        ]
        for rank in range(ranks)
    ]
    result.remove()
    assert not differences, "\n".join(differences)
    for seen in events:
        assert seen.count((EventKind.ALL, 0)) == 1
        assert seen.count((EventKind.READY, 0)) == ranks * tokens // ranks // 4
        assert seen.count((EventKind.READY, 1)) == tokens // 4
