# SPDX-License-Identifier: Apache-2.0
"""Layers of all schemes: every byte is moved, nothing starts before what it needs, every message is
waited for.

Expected bytes are those that each scheme's module states of the published system, with its source.
"""

from collections import Counter

import numpy as np
import pytest

from sim.evaluate.machine.engine import FLAG_BYTES, Cluster
from sim.evaluate.machine.hardware import machine
from sim.evaluate.machine.network_settings import HUB_GHZ, hub_figures
from sim.evaluate.schemes import tutel
from sim.evaluate.schemes.flashdmoe import ELEMENT_BYTES
from sim.evaluate.schemes.in_switch import CHUNKS, Parts
from sim.evaluate.schemes.steps import RowExchange
from sim.evaluate.schemes.stored import COLUMN_BYTES
from sim.evaluate.systems import constants, override

from .evaluate_record import (
    IN_SWITCH,
    LATE,
    RANKS,
    SHAPE,
    SYSTEM,
    WORKLOAD,
    Record,
    recorded,
)

FLAGGED = "moe_hub_base", "moe_hub_packets"  # software says what is there: flags, a barrier
NOT_SENT = "comet", "ccfuser"  # own rows stay where they are
PARTS = Parts(WORKLOAD, CHUNKS)
MADE_AT = np.stack(  # [home, part, rank]: rows of a part that a rank computes
    [PARTS.rows[:, :, WORKLOAD.experts_of(rank)].sum(axis=2) for rank in range(RANKS)], axis=2
)


# -- bytes -----------------------------------------------------------------------------------------


def rows_of(name):
    """[src, dst]: rows that the experts of dst compute for src, padding included."""
    if not name.startswith("tutel"):
        return WORKLOAD.pair_rows
    capacity = tutel.capacity(WORKLOAD, 2 if "chunks" in name else 1)
    return np.full((RANKS, RANKS), capacity * SHAPE.experts // RANKS)


def bytes_of(name):
    """([src, dst] of rows, [src, dst] of answers): what the system puts into messages of rows."""
    w, row, answer = WORKLOAD, SHAPE.dispatch_bytes, SHAPE.combine_bytes
    there, back = rows_of(name) * row, rows_of(name).T * answer
    if name.startswith("deepep_v1_ll"):
        there = w.pair_rows * (row + 16)
    elif name.startswith(
        ("deepep", "mori")
    ):  # once to a rank, with what says whose it is and which experts want it
        about = {
            "deepep_v1_normal": row + 4 + 12 * SHAPE.top_k,
            "deepep_v2": -(-(row + 4 + 12 * SHAPE.top_k) // 32) * 32,
            "mori": row + 4 + 8 * SHAPE.top_k,
        }
        there, back = w.distinct * about[name], w.distinct.T * answer
    elif name == "comet":  # every token to every rank; one sum per token and rank back
        there, back = np.tile(w.tokens_of[:, None], RANKS) * row, w.distinct.T * answer
    elif "all-gathers" in name:  # every token to every rank, a part of the sums back
        there = np.tile(w.tokens_of[:, None], RANKS) * row
        back = np.tile(w.tokens_of, (RANKS, 1)) * answer
    elif name.startswith("flashdmoe"):  # a flag for each source and expert
        scale = ELEMENT_BYTES[name[-4:]]
        flags = np.array(
            [
                [8 * np.count_nonzero(w.rows[src, w.experts_of(dst)]) for dst in range(RANKS)]
                for src in range(RANKS)
            ]
        )
        there, back = (
            w.pair_rows * scale * SHAPE.row + flags,
            w.pair_rows.T * scale * SHAPE.row + flags.T,
        )
    elif name == "nvls":  # every token with its choices to every rank, and every rank's sum of it
        there = np.tile(w.tokens_of[:, None], RANKS) * (row + 8 * SHAPE.top_k)
        back = np.tile(w.tokens_of, (RANKS, 1)) * answer
    elif name in IN_SWITCH:  # once to each rank; the home's own sums do not leave it
        there = w.distinct * (row + COLUMN_BYTES * (name != "dysharp"))
        back = w.distinct.T * answer
    elif name == "moe_hub_once":  # values once to a rank, a column per row, a sum per token back
        there, back = w.distinct * row + w.pair_rows * COLUMN_BYTES, w.distinct.T * answer
    elif name.startswith(("moe_hub", "expert_flags")):
        there = w.pair_rows * (row + COLUMN_BYTES)
    elif name.startswith("row_flags"):  # eight of 128 bytes are a flag
        there = w.pair_rows * round((row + COLUMN_BYTES) * 128 / 120)
        back = w.pair_rows.T * round(answer * 128 / 120)
    there, back = there.astype(np.int64), back.astype(np.int64)
    if name in NOT_SENT or "all-gathers" in name:
        np.fill_diagonal(there, 0)
    if (name in IN_SWITCH and name != "moe_hub_fused") or "all-gathers" in name:
        np.fill_diagonal(back, 0)
    return there, back


@pytest.mark.parametrize("name", SYSTEM)
def test_every_pair_gets_its_bytes_both_ways(name):
    record, (there, back) = recorded(name), bytes_of(name)
    for numbers, expected in zip(record.split(there), (there, back), strict=True):
        found = np.zeros_like(there)
        for number in numbers:
            message = record.messages[number]
            found[message.pair] += message.size
        assert (found == expected).all()


@pytest.mark.parametrize("name", SYSTEM)
def test_both_gemms_compute_every_row_once(name):
    for rank in range(RANKS):
        for which in (1, 2):
            rows = sum(batch.rows for batch in recorded(name).work(rank, which))
            assert rows == pytest.approx(rows_of(name)[:, rank].sum())


def control_messages(name):
    """{bytes: messages} of flags and counts between two ranks, in one direction."""
    counts, flag = FLAG_BYTES + 4 * SHAPE.experts, FLAG_BYTES
    tokens, local = int(WORKLOAD.tokens_of[0]), SHAPE.experts // RANKS
    return (
        {
            "ccfuser": [FLAG_BYTES + 8 * SHAPE.experts, flag, flag],
            "deepep_v1_normal": [counts] + 4 * [flag],
            "comet": [FLAG_BYTES + 4 * tokens * SHAPE.top_k, flag],
            "deepep_v2": [flag, flag],
            "fastermoe": [FLAG_BYTES + 8 * local],
            "tutel": [FLAG_BYTES + 8],
            # weights by LL: a flag beside each word
            "megatron": [FLAG_BYTES + 8 * SHAPE.experts, int(WORKLOAD.pair_rows[0, 1]) * 4 * 2],
            # choices and weights
            "megatron in all-gathers": [
                FLAG_BYTES + 8 * tokens * SHAPE.top_k,
                FLAG_BYTES + 4 * tokens * SHAPE.top_k,
            ],
            "row_flags": [4 * local],
            # behind the rows for each of the peer's experts; behind the answers of each own one
            "expert_flags": [counts] + local * [flag] + local * [flag],
        }
        | dict.fromkeys(FLAGGED, [flag, flag])
        | dict.fromkeys(
            (one for one in IN_SWITCH if one != "moe_hub_fused"),
            [16 * int(rows) for rows in MADE_AT[1, :, 0] if rows],  # a flit for each answer
        )
    )


@pytest.mark.parametrize("name", SYSTEM)
def test_flags_and_counts_are_all_sent(name):
    found = Counter(
        message.size
        for message in recorded(name).messages
        if (message.pair, message.rows) == ((0, 1), False)
    )
    known = control_messages(name)
    assert found == Counter(known.get(name, known.get(name.partition(" in ")[0], [])))


def counted(name, messages, total, of):
    """[rows of each message], of one rank: by its part of the tokens, which is that of the pair's
    messages in their order, or by its share of the bytes. ``total[pair]``: (rows, bytes)."""
    if name not in IN_SWITCH:
        return [total(message)[0] * message.size / total(message)[1] for message in messages]
    left = {message.pair: [rows for rows in of(*message.pair) if rows] for message in messages}
    return [left[message.pair].pop(0) for message in messages]


# -- order -----------------------------------------------------------------------------------------


def never_ahead(causes, effects):
    """At any time effects do not exceed causes; both are (time, rows), rows right to a
    hundredth."""
    merged = sorted(
        [(time, 0, amount) for time, amount in causes]
        + [(time, 1, -amount) for time, amount in effects]
    )
    left = np.cumsum([amount for *_, amount in merged])
    assert left.min() > -0.01, (
        f"{-left.min():.2f} rows too early at {merged[int(left.argmin())][0]:.2f} us"
    )


@pytest.mark.parametrize("name", SYSTEM)
def test_no_row_leaves_before_its_ranks_gate(name):
    record = recorded(name)
    for rank in range(RANKS):
        first = min(
            message.sent for message in record.messages if message.rows and message.src == rank
        )
        assert first >= record.cluster.gate_us(rank)


@pytest.mark.parametrize("name", SYSTEM)
def test_no_tile_starts_before_its_rows_have_arrived(name):
    record, (there, _) = recorded(name), bytes_of(name)
    arrived = record.rows(there)
    later = (
        hub_us("answer_to_ready") if name in ("moe_hub_signal", "moe_hub") else 0.0
    )  # the hub says so, that late
    for rank in range(RANKS):
        causes = [(0.0, rows_of(name)[src, rank]) for src in range(RANKS) if not there[src, rank]]
        own = [message for message in arrived if message.dst == rank]
        rows = counted(
            name,
            own,
            lambda message: (rows_of(name)[message.pair], there[message.pair]),
            lambda src, dst: MADE_AT[src, :, dst],
        )
        causes += [
            (message.arrived + later, count) for message, count in zip(own, rows, strict=True)
        ]
        never_ahead(
            causes,
            [(batch.start, batch.rows) for batch in record.work(rank, 1)],
        )


def hub_us(latency):
    return hub_figures()["latency_cycles"][latency] / (HUB_GHZ * 1e3)


@pytest.mark.parametrize("rank", range(RANKS))
def test_the_hubs_last_tiles_wait_for_close(rank):
    """Without counts only the producers' CLOSE says that an expert has all of its rows: it follows
    them on the way."""
    record = recorded("moe_hub")
    last = max(
        message.arrived
        for message in record.messages
        if message.dst == rank and message.sent < record.done[rank] / 2
    )
    ready = last + hub_us("close_to_all") + record.cluster.machine.fabric.one_way_us
    assert max(batch.start for batch in record.work(rank, 1)) >= ready


def test_ccfusers_reads_ask_first():
    record = recorded("ccfuser")
    for rank in range(RANKS):
        begun = min(
            batch.start for batch in record.batches if batch.rank == rank
        )  # with the own rows
        first = min(
            message.sent for message in record.messages if message.rows and message.dst == rank
        )
        assert first >= begun + record.cluster.machine.fabric.one_way_us - 1e-6


def test_ccfuser_has_one_tile_in_flight_for_each_block():
    """The next tile's, beside the one that the block computes."""
    record = Record("ccfuser", sms=4)
    rows = record.rows(bytes_of("ccfuser")[0])
    for rank in range(RANKS):
        changes = sorted(
            [(message.arrived, -1) for message in rows if message.dst == rank]
            + [(message.sent, 1) for message in rows if message.dst == rank]
        )
        assert np.cumsum([change for _, change in changes]).max() == 4


def test_comet_sums_one_part_of_the_columns_after_the_other():
    with override("comet", combine_cta_gbps=1.0):  # slow enough to be overtaken
        record = Record("comet")
    answers = record.answers(bytes_of("comet")[0])
    for rank in range(RANKS):
        peers = [
            message.dst
            for message in sorted(answers, key=lambda message: message.sent)
            if message.src == rank
        ]
        assert (
            peers
            == [(rank + step) % RANKS for step in range(1, RANKS + 1)]
            * constants("comet").combine_splits
        )


@pytest.mark.parametrize("name", SYSTEM)
def test_the_second_gemm_starts_on_what_the_first_has_done(name):
    record = recorded(name)
    for rank in range(RANKS):
        never_ahead(
            [(batch.end, batch.rows) for batch in record.work(rank, 1)],
            [(batch.start, batch.rows) for batch in record.work(rank, 2)],
        )


@pytest.mark.parametrize("name", SYSTEM)
def test_no_answer_leaves_before_its_columns_are_done(name):
    """In parts, where the hub's epilogue stores them: a part of a batch's columns after that part
    of its time."""
    record, (there, back) = recorded(name), bytes_of(name)
    answers = record.answers(there)
    by_part = name.startswith(("moe_hub", "row_flags", "expert_flags")) and name not in IN_SWITCH
    parts = 4 if by_part else 1
    for rank in range(RANKS):
        causes = [
            (batch.start + (batch.end - batch.start) * (part + 1) / parts, batch.rows / parts)
            for batch in record.work(rank, 2)
            for part in range(parts)
        ]
        sent = [message for message in answers if message.src == rank]
        total = sum(rows for _, rows in causes)
        rows = counted(
            name,
            sent,
            lambda message, rank=rank, total=total: (total, back[rank].sum()),
            lambda src, dst: MADE_AT[dst, :, src],
        )
        never_ahead(
            [(time + 1e-9, count) for time, count in causes],
            [(message.sent + 1e-6, count) for message, count in zip(sent, rows, strict=True)],
        )


@pytest.mark.parametrize("name", SYSTEM)
def test_a_rank_is_done_after_its_last_answer_and_its_sum(name):
    record, (there, _) = recorded(name), bytes_of(name)
    answers = record.answers(there)
    for rank in range(RANKS):
        arrived = [message for message in answers if message.dst == rank]
        last = max(message.arrived for message in arrived)
        assert record.done[rank] > last or (name == "nvls" and record.done[rank] == last)  # loads
        if name.startswith("flashdmoe"):
            sums = record.work(rank, 3)
            assert record.done[rank] >= max(batch.end for batch in sums)
            scale = ELEMENT_BYTES[name[-4:]] * SHAPE.row
            never_ahead(
                [(message.arrived, message.size // scale) for message in arrived],
                [(batch.start, batch.rows) for batch in sums],
            )


def samples(record, there, name):
    """Messages from rank 0 to 1 and within rank 1: all flags and counts, first and last of rows and
    of answers."""
    for pair in ((0, 1), (1, 1)):
        ways = [
            [number for number in numbers if record.messages[number].pair == pair]
            for numbers in record.split(there)
        ]
        yield from (number for way in ways if way for number in sorted({way[0], way[-1]}))
    yield from (
        number
        for number, message in enumerate(record.messages)
        if (message.pair, message.rows) == ((0, 1), False)
    )


@pytest.mark.parametrize("name", SYSTEM)
def test_every_message_is_waited_for(name):
    """One that is late holds up who needs it: its receiver; for rows the sender, who gets answers
    for them."""
    before, (there, _) = recorded(name), bytes_of(name)
    rows = set(before.split(there)[0])
    for number in samples(before, there, name):
        message = before.messages[number]
        record = Record(name, late=number)
        who = message.src if number in rows else message.dst
        assert record.done[who] >= message.sent + LATE, (message, number in rows)


@pytest.mark.parametrize(
    "name", [name for name in SYSTEM if not name.startswith(("ccfuser", "flashdmoe"))]
)
def test_a_kernel_that_stores_rows_ends_when_they_have_left(name):
    """Rows and answers; COMET's tokens are copied by engines, a hub that adds answers up sends the
    sums, and sums are read from memory. CCFuser's are read and put, FlashDMoE's kernel goes on."""
    before, (there, _) = recorded(name), bytes_of(name)
    pulled = name in ("moe_hub_once", "nvls", *IN_SWITCH)
    for numbers in before.split(there)[name == "comet" : 1 if pulled else 2]:
        number = next(number for number in numbers if before.messages[number].pair == (0, 1))
        assert (
            Record(name, late=number, leaving=True).done[0] >= before.messages[number].sent + LATE
        )


def test_a_rank_is_busy_until_its_own_rows_have_left():
    """Also when nothing comes for it: an all-to-all, and a copy kernel that could go faster than
    the links."""
    bytes_to = np.zeros((RANKS, RANKS), dtype=np.int64)
    bytes_to[0, 1] = 4 << 20
    ends = []
    bytes_to[0, 1] += 100  # not a multiple of a row
    for fast in (False, True):
        cluster = Cluster(machine("h800", RANKS), WORKLOAD)
        exchange = RowExchange(cluster, bytes_to, 4096, efficiency=10.0)
        ranks = [
            cluster.env.process(
                exchange.run(rank) if fast else cluster.all_to_all(rank, bytes_to[rank], "rows")
            )
            for rank in range(RANKS)
        ]
        cluster.env.run(ranks[0])
        ends.append(cluster.env.now)
        assert cluster.network.payload_bytes == bytes_to[0, 1]
    assert min(ends) > bytes_to[0, 1] / (machine("h800", RANKS).fabric.link_gbps * 1e3)
