# SPDX-License-Identifier: Apache-2.0
"""Golden model of a link: what must come out of a stream of flits, what may be on the wire,
what credits exist.

Packet-level, no cycles: the benches decide when things happen, the model decides what must happen.
"""

from collections import Counter, deque

from hub_rtl.contract.fields import FLIT, FLIT_BYTES, SEQ
from hub_rtl.contract.packets import (
    BODIES,
    CONTROL_TYPES,
    DATA_TYPES,
    HEADER,
    NEWS_ENTRIES,
    PacketType,
    Reason,
    pack,
    unpack,
)

__all__ = [
    "DATA",
    "CONTROL",
    "LinkRxModel",
    "LinkTxModel",
    "SendBook",
    "arrived",
    "beats_of",
    "credit_class",
    "header",
    "header_fault",
    "is_message",
    "packet_of",
    "with_fields",
]

DATA, CONTROL = 0, 1


def header(packet_type, body=None, **fields):
    """A header flit as an integer."""
    return pack(HEADER, type=packet_type, **fields) | pack(
        BODIES.get(packet_type, {}), **(body or {})
    )


def with_fields(flit, **fields):
    """The header flit with some fields replaced."""
    for name, value in fields.items():
        low, width = HEADER[name]
        flit = flit & ~((1 << width) - 1 << low) | value << low
    return flit


def is_message(body):
    """Whether a CREDIT with this body says something to a slice; else it is the link's own."""
    return any(body[name] for name in ("grants", "returns", "asks", "answers"))


def packet_of(cfg, slice_bytes, beats):
    """The packet that carries a record, given as its beats, as flits; the link has filled nothing
    yet."""
    head, mask = beats[0]["header"], beats[0]["mask"]
    block = sum(beat["data"] << 8 * slice_bytes * beat["part"] for beat in beats)
    there = [n for n in range(cfg.packet_bytes) if mask >> n & 1]
    first, last = there[0] // FLIT_BYTES, there[-1] // FLIT_BYTES
    masked = len(there) < (last - first + 1) * FLIT_BYTES and not head["news"]
    place = head["block"] * cfg.packet_flits + first
    if head["news"]:
        kind, body = PacketType.NEWS, {"count": len(there) // 8}
    elif head["plain"]:
        kind, body = PacketType.PLAIN, {"addr16": place, "phase": head["phase"]}
    else:
        kind = PacketType.ROW
        body = {name: head[name] for name in ("region", "epoch", "rowid")} | {"row_off": place}
    common = {"cls": head["cls"], "dst": head["rank"], "masked": masked}
    payload = sum(0xFF << 8 * n for n in there) & block
    whole = [payload >> FLIT * n & (1 << FLIT) - 1 for n in range(first, last + 1)]
    masks = [mask >> FLIT * n & (1 << FLIT) - 1 for n in range(masked * cfg.mask_flits)]
    return [header(kind, body, len=last - first + 1, **common), *masks, *whole]


def beats_of(cfg, slice_bytes, flits):
    """The record of a received packet, flits as :class:`LinkRxModel` gives them: a list of beats.

    Bytes of ``data`` that mean nothing are 0: those that the mask does not name, and those of a
    ``lost`` beat. The record of a packet that came in part ends with that beat, of the part in
    which its last flit lies.
    """
    fields = unpack(HEADER, flits[0]["data"])
    kind, size = PacketType(fields["type"]), cfg.packet_bytes
    body = unpack(BODIES[kind], flits[0]["data"])
    head = {"rank": fields["src"], "news": int(kind == PacketType.NEWS)}
    unit = 0
    if not head["news"]:
        head |= {name: body.get(name, 0) for name in ("region", "epoch", "rowid", "phase")}
        head |= {name: fields[name] for name in ("cls", "poison")}
        place = body["addr16"] if kind == PacketType.PLAIN else body["row_off"]
        unit = place % cfg.packet_flits
        head |= {"plain": int(kind == PacketType.PLAIN), "block": place // cfg.packet_flits}
    masks = flits[1 : 1 + fields["masked"] * cfg.mask_flits]
    data = flits[1 + len(masks) :]
    span = ((1 << FLIT_BYTES * fields["len"]) - 1) << FLIT_BYTES * unit
    mask = span & sum(each["data"] << FLIT * n for n, each in enumerate(masks)) if masks else span
    if head["news"]:
        mask = (1 << 8 * body["count"]) - 1
    per_part = slice_bytes // FLIT_BYTES
    came = sum(not each["err"] for each in data)
    cut = came < len(data)
    last = (unit + max(1, came) - 1) // per_part
    beats = []
    for part in range(size // slice_bytes):
        named = mask >> part * slice_bytes & (1 << slice_bytes) - 1
        if not unit // per_part <= part <= last or not (named or part == last):
            continue
        lost = cut and part == last
        bits = 0 if lost else sum(0xFF << 8 * n for n in range(slice_bytes) if named >> n & 1)
        word = sum(
            each["data"] << FLIT * (n % per_part)
            for n, each in enumerate(data, unit)
            if n // per_part == part
        )
        beats.append(
            {
                "header": head,
                "mask": mask,
                "part": part,
                "last": int(part == last),
                "lost": int(lost),
                "data": word & bits,
            }
        )
    return beats


def credit_class(packet_type):
    """What a packet needs at its receiver: a place of the slice's pool (DATA), a buffer of the link
    (CONTROL), or None."""
    if packet_type in DATA_TYPES:
        return DATA
    return CONTROL if packet_type in CONTROL_TYPES else None


def header_fault(cfg, rank, lane, flit, last=True):
    """Why a header is refused on arrival at (rank, lane), or Reason.OK. ``last``: its flit ends the
    frame."""
    fields = unpack(HEADER, flit)
    if fields["type"] not in {int(each) for each in PacketType} or (
        fields["type"] == PacketType.IDLE and not last
    ):
        return Reason.BAD_HEADER
    kind = PacketType(fields["type"])
    if (
        fields["fan"]
        or fields["dst"] != rank
        or fields["src"] == rank
        or fields["src"] >= cfg.ranks
    ):
        return Reason.BAD_HEADER
    if kind == PacketType.NEWS:
        count = unpack(BODIES[kind], flit)["count"]
        if not 1 <= count <= NEWS_ENTRIES or fields["len"] != -(-count // 2) or fields["masked"]:
            return Reason.BAD_HEADER
    elif kind in DATA_TYPES:
        body = unpack(BODIES[kind], flit)
        unit = (body["row_off"] if kind == PacketType.ROW else body["addr16"]) % cfg.packet_flits
        if fields["len"] == 0 or unit + fields["len"] > cfg.packet_flits:
            return Reason.BAD_HEADER
    elif fields["len"] or fields["masked"]:
        return Reason.BAD_HEADER
    return Reason.OK if fields["lane"] == lane else Reason.BAD_LANE


class SendBook:
    """Credits for one peer, from free-running totals."""

    def __init__(self, limit):
        self.limit, self.left, self.total = limit, limit, 0

    def take(self):
        assert self.left, "a credit was taken that is not there"
        self.left -= 1

    def announce(self, total):
        """Applies a total mod 256; False when the peer cannot have freed so many."""
        gain = (total - self.total) % 256
        if self.left + gain > self.limit:
            return False
        self.left += gain
        self.total = total
        return True


def arrived(cfg, slice_bytes, beats, src):
    """A record of rank ``src`` as the other rank receives it, as :func:`beats_of`."""
    head, *rest = packet_of(cfg, slice_bytes, beats)
    flits = [with_fields(head, src=src), *rest]
    return beats_of(cfg, slice_bytes, [{"data": data, "err": 0} for data in flits])


class LinkRxModel:
    """What a link's receiving end makes of the flits it gets.

    ``packets``: [(source, [flit dictionaries])], those that did not come with ``err``;
    ``controls``: header flits, ``bad``: [(header, reason)], ``totals``: [(source, total)] in the
    order of arrival; ``messages``: [(kind, what)] that a slice told this one; ``counts``:
    seq_errors, credit_violations, truncated. ``limit``: control credits, other than the
    configuration's.
    """

    def __init__(self, cfg, rank, lane, limit=None):
        self.cfg, self.rank, self.lane = cfg, rank, lane
        self.packets, self.controls, self.bad, self.totals = [], [], [], []
        self.messages = []
        self.counts = Counter()
        self._expected = 0
        self._frame = (
            None  # flits after the header that are still wanted, None when the frame is dropped
        )
        self._inside = False
        self._accepted = [0] * cfg.ranks
        self._allowed = [limit or cfg.ctl_credits] * cfg.ranks

    def reported(self, dst, total):
        """The transmitter has told ``dst`` the total of buffers freed: it may send that many
        more."""
        known = self._allowed[dst] - self.cfg.ctl_credits
        self._allowed[dst] += (total - known) % 256

    def flit(self, data, last):
        """Takes one flit of the wire."""
        if self._inside:
            self._rest(data, last)
        else:
            self._begin(data, last)
        self._inside = not last

    def _begin(self, data, last):
        fields = unpack(HEADER, data)
        self._frame = None
        if fields["type"] == PacketType.IDLE and last:
            return
        ahead = (fields["seq"] - self._expected) % (1 << SEQ)
        self.counts["seq_errors"] += ahead != 0
        self._expected = (fields["seq"] + 1) % (1 << SEQ)
        if ahead >= 512:
            return
        reason = header_fault(self.cfg, self.rank, self.lane, data, last)
        if reason != Reason.OK:
            self.bad.append((data, reason))
            return
        kind, src = PacketType(fields["type"]), fields["src"]
        cls = credit_class(kind)
        if kind == PacketType.CREDIT:
            body = unpack(BODIES[kind], data)
            self.counts["truncated"] += not last
            if body["grants"]:
                what = {"rank": src, "total": body["granted"], "back": body["back"]}
                self.messages.append(("granted", what))
            if body["returns"]:
                self.messages.append(("returned", {"rank": src, "total": body["returned"]}))
            if body["asks"]:
                what = {"rank": src, "total": body["plains"], "phase": body["phase"]}
                self.messages.append(("asked", what))
            if body["answers"]:
                self.messages.append(("answered", {"rank": src, "bad": body["bad"]}))
        if cls is not None or kind == PacketType.CREDIT:
            self.totals.append((src, fields["credit"]))
        if cls == CONTROL:
            if self._accepted[src] == self._allowed[src]:
                self.counts["credit_violations"] += 1
                return
            self._accepted[src] += 1
            self.controls.append(data)
            self.counts["truncated"] += not last
        if cls != DATA:
            return
        self.packets.append((src, [{"data": data, "first": 1, "last": 0, "err": 0}]))
        self._frame = fields["len"] + fields["masked"] * self.cfg.mask_flits
        if last:
            self._pad()

    def _rest(self, data, last):
        if self._frame is None:
            return
        if self._frame == 0:  # more flits than the header says: only the first is an event
            self.counts["truncated"] += 1
            self._frame = None
            return
        self._frame -= 1
        self.packets[-1][1].append(
            {"data": data, "first": 0, "last": int(self._frame == 0), "err": 0}
        )
        if last and self._frame:
            self._pad()

    def _pad(self):
        self.counts["truncated"] += 1
        flits = self.packets[-1][1]
        flits += [
            {"data": 0, "first": 0, "last": int(n == self._frame - 1), "err": 1}
            for n in range(self._frame)
        ]
        self._frame = None


class LinkTxModel:
    """What LinkTx may put on the wire, given what it was handed.

    ``packet``, ``control`` and ``message`` queue what the port was given; ``freed`` says that a
    buffer of a source became free. ``flit`` takes each flit of the wire and raises AssertionError
    when it is not possible. ``sent``: frames by type.
    """

    def __init__(self, cfg, rank, lane):
        self.cfg, self.rank, self.lane = cfg, rank, lane
        self.sent = Counter()
        self.reported = {}  # dst: total last told
        self._packets, self._controls, self._messages = deque(), deque(), deque()
        self._freed = Counter()
        self._seq = 0
        self._rest = deque()
        self._dest = None

    def packet(self, flits):
        self._packets.append(list(flits))

    def control(self, flit):
        self._controls.append(flit)

    def message(self, flit):
        self._messages.append(flit)

    def freed(self, src):
        self._freed[src] += 1

    @property
    def waiting(self):
        """Packets, flits of the current one, control flits and messages that have not come."""
        queues = self._packets, self._rest, self._controls, self._messages
        return sum(map(len, queues))

    def _total(self, dst, total):
        before = self.reported.get(dst, 0)
        known = before + (total - before) % 256
        assert known <= self._freed[dst], (
            f"rank {dst}: total {total} told, only {self._freed[dst]} freed"
        )
        self.reported[dst] = known

    def flit(self, data, last, dest):
        """Takes one flit of the wire; returns (dst, total told) with a header, else None."""
        if self._rest:
            wanted = self._rest.popleft()
            assert data == wanted, f"payload flit {data:#x}, expected {wanted:#x}"
            assert bool(last) == (not self._rest) and dest == self._dest, (
                "tlast or tdest wrong inside a packet"
            )
            return None
        fields = unpack(HEADER, data)
        kind, dst = PacketType(fields["type"]), fields["dst"]
        given = {
            "src": self.rank,
            "lane": self.lane,
            "seq": self._seq,
            "credit": fields["credit"],
        }
        self._seq = (self._seq + 1) % (1 << SEQ)
        self.sent[kind] += 1
        assert dest == dst, f"tdest {dest}, header for {dst}"
        if credit_class(kind) == DATA:
            assert self._packets, f"packet {data:#x} that nobody sent"
            first, *rest = self._packets.popleft()
            self._rest.extend(rest)
        elif credit_class(kind) == CONTROL:
            assert self._controls, f"control flit {data:#x} that nobody sent"
            first = self._controls.popleft()
        else:
            assert kind == PacketType.CREDIT, f"header type {kind.name} on the wire"
            body = unpack(BODIES[kind], data)
            said = is_message(body)
            assert self._messages or not said, f"message {data:#x} that nobody sent"
            first = self._messages.popleft() if said else header(kind, dst=dst)
        assert data == with_fields(first, **given), (
            f"header {data:#x}, expected {with_fields(first, **given):#x}"
        )
        assert bool(last) == (not self._rest), "tlast wrong on a header"
        self._total(dst, fields["credit"])
        self._dest = dest
        return dst, fields["credit"]
