# SPDX-License-Identifier: Apache-2.0
"""Producer half of the hub: decoders, packet managers, ledgers and ProducerControl, wired
together."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hub_rtl.contract.records import (
    CLOSE_COUNTS,
    POOL_COUNTS,
    STORE_COUNTS,
    STORE_REFUSAL,
    record_of,
    types_of,
)
from hub_rtl.decoder.decoder import LogicalDestinationDecoder
from hub_rtl.decoder.steer import StoreMerge
from hub_rtl.packet_manager.packet_manager import PacketManager
from hub_rtl.parts.mutants import mutant, variant
from hub_rtl.parts.placing import placer
from hub_rtl.producer.ledger import SendLedger
from hub_rtl.producer.news import NewsLanes
from hub_rtl.producer.producer import ProducerControl
from hub_rtl.remote_fence.remote_fence import FenceAsks

__all__ = ["HubProducer", "command_config"]


def command_config(cfg):
    """Configuration of the commands inside the hub: one more tag bit tells CSR commands from the
    port's."""
    return cfg.replace(tag_width=cfg.tag_width + 1)


class HubProducerObserve(NamedTuple):
    """What a proof may see of a :class:`HubProducer`: its parts."""

    control: ProducerControl
    decoders: list  #: LogicalDestinationDecoder per lane
    pools: list  #: PacketManager per slice
    ledger: SendLedger
    merges: list  #: StoreMerge per loop lane
    news: NewsLanes
    asks: list  #: FenceAsks per slice


class HubProducer(wiring.Component):
    """Everything from stores and commands to packets, those with news included.

    Contract: as of its parts; own-rank stores of lane i go through a merge to packet manager lanes
    + (i mod loop_lanes). Latency: as of its parts, one cycle more for own-rank stores. One register
    stands between ProducerControl and the lanes on ``o_handle_write``, ``o_flush``,
    ``o_flush_merge``, ``o_mark`` and ``o_remote``. Stalls: as of its parts; ``can_accept`` of the
    own rank comes from the loop lane's packet manager.

    Parameters: ``cfg``; ``library``, where lane-level parts are shared, or None. Ports: per lane
    ``i_store``, ``o_store_response``, ``can_accept``, ``o_refused``; per slice ``o_record``,
    ``dest_ready``, ``take``, ``oldest``, ``o_ask``, ``answered``; commands ``i_command``,
    ``o_response`` (tags of :func:`command_config`); from CSR ``rank``, ``peer_dead``, ``policy``,
    ``handle_write``, ``handle_read``, ``handle_data``; ``clearing``, ``in_flight`` Out; strobes for
    the counters ``store_counts`` per lane, ``pool_counts`` per slice, ``close_counts``. Source:
    architecture section 3.
    """

    observe: HubProducerObserve  # once elaborated

    def __init__(self, cfg, library=None):
        t = types_of(cfg)
        self._cfg, self._commands, self._place = cfg, command_config(cfg), placer(library)
        c = types_of(self._commands)
        super().__init__(
            {
                "i_store": In(stream.Signature(t.store)).array(cfg.lanes),
                "o_store_response": Out(stream.Signature(t.store_response)).array(cfg.lanes),
                "can_accept": Out(cfg.ranks).array(cfg.lanes),
                "o_refused": Out(STORE_REFUSAL).array(cfg.lanes),
                "o_record": Out(stream.Signature(record_of(cfg, cfg.slice_bytes))).array(
                    cfg.slices
                ),
                "dest_ready": In(cfg.ranks).array(cfg.slices),
                "take": Out(t.rank_strobe).array(cfg.slices),
                "oldest": Out(t.oldest).array(cfg.slices),
                "o_ask": Out(stream.Signature(t.ask)).array(cfg.slices),
                "answered": In(t.messages["answered"]).array(cfg.slices),
                "i_command": In(stream.Signature(c.command)),
                "o_response": Out(stream.Signature(c.command_response)),
                "rank": In(cfg.rank_width),
                "peer_dead": In(cfg.ranks),
                "policy": In(t.policy),
                "handle_write": In(t.handle_write),
                "handle_read": In(t.handle_read),
                "handle_data": Out(t.handle),
                "clearing": Out(1, init=1),
                "in_flight": Out(1),
                "store_counts": Out(STORE_COUNTS).array(cfg.lanes),
                "pool_counts": Out(POOL_COUNTS).array(cfg.slices),
                "close_counts": Out(CLOSE_COUNTS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.control = control = ProducerControl(self._commands)
        m.submodules.news = news = NewsLanes(cfg)
        decoders = [
            self._place("moehub_decoder", lambda: LogicalDestinationDecoder(cfg))
            for _ in range(cfg.lanes)
        ]
        pools = [
            self._place("moehub_packet_manager", lambda: PacketManager(cfg))
            for _ in range(cfg.slices)
        ]
        m.submodules.ledger = ledger = SendLedger(cfg)
        merges = [
            StoreMerge(cfg, len(range(loop, cfg.lanes, cfg.loop_lanes)))
            for loop in range(cfg.loop_lanes)
        ]
        asks = [self._place("moehub_fence_asks", lambda: FenceAsks(cfg)) for _ in pools]
        self.observe = HubProducerObserve(control, decoders, pools, ledger, merges, news, asks)
        for name, parts in (
            ("decoder", decoders),
            ("pool", pools),
            ("asks", asks),
            ("merge", merges),
        ):
            for n, part in enumerate(parts):
                m.submodules[f"{name}{n}"] = part

        self._decoders(m, control, decoders, pools, merges)
        self._merges(m, control, merges, pools)
        self._pools(m, control, pools, ledger, news, asks)
        self._fences(m, control, asks, news)
        self._news(m, control, ledger, news)
        self._control(m, control, pools)
        m.d.sync += [
            self.clearing.eq(
                mutant(
                    "hub.cleared_without_control",
                    control.clearing
                    | Cat(part.clearing for part in (*decoders, ledger, *asks)).any(),
                    Cat(part.clearing for part in (*decoders, ledger, *asks)).any(),
                )
            ),
            self.in_flight.eq(Cat(decoder.in_flight for decoder in decoders).any()),
        ]
        return m

    def _decoders(self, m, control, decoders, pools, merges):
        """Every decoder to its packet manager, and to a merge for own-rank stores; what
        ProducerControl broadcasts comes through one register for all."""
        cfg = self._cfg
        handle_write = Signal.like(control.o_handle_write)
        flush = Signal()
        m.d.sync += [handle_write.eq(control.o_handle_write), flush.eq(control.o_flush)]
        for n, decoder in enumerate(decoders):
            connect(m, flipped(self.i_store[n]), decoder.i_store)
            connect(m, decoder.o_response, flipped(self.o_store_response[n]))
            connect(m, decoder.o_link, pools[n].i_store)
            turn, loop = divmod(n, cfg.loop_lanes)
            connect(m, decoder.o_loop, merges[loop].i_store[turn])
            m.d.comb += [
                decoder.rank.eq(self.rank),
                decoder.lane.eq(mutant("hub.decoder_takes_next_lane", n, n + 1)),
                decoder.peer_dead.eq(self.peer_dead),
                decoder.handle_write.eq(handle_write),
                decoder.flush.eq(flush),
                control.flushing[n].eq(decoder.flushing),
                self.o_refused[n].eq(decoder.o_refused),
                self.store_counts[n].eq(decoder.counts),
            ]
            own = pools[cfg.lanes + loop].can_accept.bit_select(self.rank, 1)
            for rank in range(cfg.ranks):
                m.d.sync += self.can_accept[n][rank].eq(
                    Mux(self.rank == rank, own, pools[n].can_accept[rank])
                )

    def _merges(self, m, control, merges, pools):
        """Own-rank stores to the packet managers of the loop lanes."""
        flush = Signal()
        m.d.sync += flush.eq(control.o_flush_merge)
        for n, merge in enumerate(merges):
            loop = variant("hub.loop_store_takes_next_lane", n, (n + 1) % len(merges))
            connect(m, merge.o_store, pools[self._cfg.lanes + loop].i_store)
            m.d.comb += [
                merge.flush.eq(flush),
                control.merging[n].eq(merge.flushing),
            ]

    def _fences(self, m, control, asks, news):
        """What leaves the packet managers is counted for remote fences; the news between it are
        not. Their order goes to all slices through one register."""
        fence = Signal()
        m.d.sync += [
            fence.eq(control.o_remote),
            control.incomplete.eq(
                mutant(
                    "hub.incomplete_of_first_slice",
                    Cat(each.incomplete for each in asks).any(),
                    asks[0].incomplete,
                )
            ),
        ]
        for n, each in enumerate(asks):
            connect(m, each.o_record, news.i_record[n])
            connect(m, news.o_record[n], flipped(self.o_record[n]))
            connect(m, each.o_ask, flipped(self.o_ask[n]))
            m.d.comb += [
                each.fence.eq(fence),
                each.answered.eq(self.answered[n]),
                control.unanswered[n].eq(
                    mutant(
                        "hub.fence_asks_one_slice", each.unanswered, each.unanswered if not n else 0
                    )
                ),
            ]

    def _pools(self, m, control, pools, ledger, news, asks):
        """Every packet manager with the ledger; its packets on their way."""
        mark = Signal.like(control.o_mark)
        m.d.sync += mark.eq(control.o_mark)
        for n, pool in enumerate(pools):
            connect(m, pool.o_record, asks[n].i_record)
            m.d.comb += [
                news.dest_ready[n].eq(self.dest_ready[n]),
                pool.dest_ready.eq(news.pool_ready[n]),
                news.pool_take[n].eq(pool.o_take),
                self.take[n].eq(news.take[n]),
                pool.peer_dead.eq(self.peer_dead),
                pool.mark.eq(mark),
                control.draining[n].eq(pool.draining),
                pool.policy.eq(self.policy),
                self.oldest[n].eq(pool.oldest),
                self.pool_counts[n].eq(pool.counts),
                ledger.sent[n].eq(pool.o_sent),
            ]

    def _news(self, m, control, ledger, news):
        """News to a lane that has a credit for them, with the bytes of the ledger."""
        connect(m, control.o_news, news.i_news)
        connect(m, control.o_announce, ledger.i_announce)
        connect(m, ledger.o_spent, control.i_spent)
        m.d.comb += [
            news.rank.eq(self.rank),
            news.wanted.eq(control.wanted),
            control.may_send.eq(news.may_send),
            news.claim.eq(control.claim),
            news.hold.eq(ledger.hold),
            ledger.flush.eq(control.ledger_flush),
            control.ledger_flushing.eq(ledger.flushing),
            ledger.read.eq(control.ledger_read),
            control.ledger_word.eq(ledger.word),
        ]

    def _control(self, m, control, pools):
        """Commands and handles."""
        connect(m, flipped(self.i_command), control.i_command)
        connect(m, control.o_response, flipped(self.o_response))
        m.d.comb += [
            control.handle_write.eq(self.handle_write),
            control.handle_read.eq(self.handle_read),
            self.handle_data.eq(control.handle_data),
            control.peer_dead.eq(self.peer_dead),
            control.sunk.eq(Cat(pool.counts.sunk for pool in pools).any()),
            self.close_counts.eq(control.counts),
        ]
