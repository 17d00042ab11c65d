# SPDX-License-Identifier: Apache-2.0
"""Judges the fences of one rank, by docs/interfaces.md (3) and docs/programming.md (4)."""

from collections import Counter

from hub_rtl.contract.packets import CommandOp, PacketType, Reason

from .evidence import packets

__all__ = ["FENCES", "judge_fences"]

FENCES = CommandOp.FENCE, CommandOp.FENCE_REMOTE
LINK_PACKETS = 4  # that a lane holds: two whole in its serializer, the ends of two in its link


def judge_fences(judge, rank, fences):
    """All of a rank, when its stores have been judged."""
    for fence in fences:
        _all_has_left(judge, rank, fence)
    told = -1
    for fence in sorted(fences, key=lambda one: one["answered"]):
        if fence["op"] == CommandOp.FENCE_REMOTE:
            told = _memory_has_answered(judge, rank, fence, told)


def _all_has_left(judge, rank, fence):
    """When it is answered all bytes for other ranks that were accepted before it began have been
    given to the links, of which each holds four packets at most, two of them whole."""
    waiting, behind = Counter(), Counter()
    for accepted, key, size in judge.left:
        waiting[key] += size * (accepted < fence["begun"] and key[0] != rank)
    for p, _, dest, body in packets(judge.result, "sent", rank, PacketType.ROW, PacketType.PLAIN):
        row = body["type"] == PacketType.ROW
        key = (
            (body["region"], body["epoch"], body["rowid"])
            if row
            else (body["addr16"] * 16 // judge.cfg.packet_bytes,)
        )
        behind[p["link"]] += p["last"] > fence["answered"]
        waiting[dest, *key] -= int(p["bytes"]) * (behind[p["link"]] <= LINK_PACKETS)
    late = waiting.most_common(1)
    good = not late or late[0][1] <= 0
    judge.must(good, "a fence answers when all has left", "at", fence["answered"], late)


def _memory_has_answered(judge, rank, fence, told):
    """When it is answered memory has acknowledged every plain byte accepted before it began; it
    says if one was refused since the remote fence before, answered at ``told``, and only then.
    Returns when it was answered."""
    begun, answered = int(fence["begun"]), int(fence["answered"])
    judge.at = "rank", rank, "remote fence of cycle", begun
    before = [each for each in judge.flat if each[0] < begun]
    late = [
        place
        for _, inside, places in before
        for place in places
        if inside and judge.landed.get(place, answered + 1) > answered
    ]
    judge.must(not late, "a remote fence answers when memory has", answered, late[:1])
    surely = any(not inside and accepted > told for accepted, inside, _ in before)
    perhaps = any(not inside and accepted < answered for accepted, inside, _ in judge.flat)
    good = perhaps if fence["status"] == Reason.INCOMPLETE else not surely
    judge.must(good, "a remote fence tells of refused bytes", fence["status"])
    judge.figures["remote fences"] += 1
    return answered
