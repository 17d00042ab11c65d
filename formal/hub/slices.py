# SPDX-License-Identifier: Apache-2.0
"""Promise of a slice's way to the wire and back (``hub_rtl/hub/link_slice.py``)."""

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec
from hub_rtl.contract.records import header_layout
from hub_rtl.hub.link_slice import LinkSlice

from .cut import joined_pairs, same_pairs

__all__ = ["SliceIsItsParts"]


class SliceIsItsParts(Spec):
    """Records of the slice go to a link each, what the links receive to its pool, the pool's
    records out; control flits over the first link. What the pool grants, what is given back, and
    the questions and answers of fences leave over the link of the rank that they are for; what
    comes of them over the link of the own rank reaches credits, pool and ports. Events of all parts
    are counted."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = LinkSlice(cfg)
        spread, serializers, links, pool, credits, messages, controls = observe(dut)
        for part in (spread, *serializers, *links, pool, credits, messages, controls):
            cut(self, part)
        self.free_inputs(dut)
        self.joined("records", dut.i_record, spread.i_record)
        self.joined("control flits", dut.i_control, links[0].i_control)
        self.joined("received control flits", controls.o, dut.o_control)
        self.joined("received records", pool.o_record, dut.o_record)
        self.joined("grants", pool.o_grant, messages.i_grant)
        self.joined("returns", credits.o_returned, messages.i_returned)
        self.joined("questions of fences", dut.i_ask, messages.i_ask)
        self.joined("answers of fences", dut.i_answer, messages.i_answer)
        same_pairs(
            self,
            "credits and settings",
            (dut.take, credits.take),
            (dut.dest_ready, credits.ready),
            (dut.ctl_ready, links[0].ctl_ready),
            (dut.rank, pool.rank),
            (dut.clearing, pool.clearing | credits.clearing),
        )
        message, to = messages.o_packet, header_layout()(messages.o_packet.p.data).dst
        exist = (to < cfg.ranks) & (dut.rank < cfg.ranks)
        for n, (link, serializer) in enumerate(zip(links, serializers, strict=True)):
            self.joined(f"records of link {n}", spread.o_record[n], serializer.i_record)
            self.joined(f"packets of link {n}", serializer.o_packet, link.i_packet)
            self.joined(f"control flits of link {n}", link.o_control, controls.i[n])
            self.joined(f"sources of link {n}", link.o_source, pool.i_source[n])
            self.joined(f"beats of link {n}", link.o_beat, pool.i_beat[n])
            for way, port, outer in (("tx", link.tx, dut.tx[n]), ("rx", link.rx, dut.rx[n])):
                pairs = (
                    (getattr(port, name), getattr(outer, name)) for name in port.signature.members
                )
                same_pairs(self, f"{way} of link {n}", *pairs)
            same_pairs(
                self,
                f"settings of link {n}",
                (dut.rank, link.rank),
                ((dut.first + n)[: len(link.lane)], link.lane),
                (dut.peer_dead, link.peer_dead),
                (dut.o_bad[n], link.o_bad),
            )
            goes = to % len(links) == n
            self.always(
                f"messages over link {n}",
                (link.i_message.valid == (message.valid & goes))
                & (link.i_message.payload.as_value() == message.payload.as_value())
                & (~goes | (link.i_message.ready == message.ready)),
                when=exist,
            )
            mine = dut.rank % len(links) == n
            for name, heard, said in (
                ("grants", credits.granted, link.granted),
                ("returns", pool.returned, link.returned),
                ("questions of fences", dut.asked, link.asked),
                ("answers of fences", dut.answered, link.answered),
            ):
                self.always(
                    f"{name} over link {n}",
                    heard.as_value() == said.as_value(),
                    when=exist & mine,
                )
            counted = {
                "credit_violations": link.counts.credit_violations | pool.violation,
                "bad_totals": link.counts.bad_totals | credits.bad_total | pool.impossible,
            }
            counts = (
                (dut.counts[n][name], (counted if n == 0 else {}).get(name, link.counts[name]))
                for name, _ in link.counts.shape()
            )
            same_pairs(self, f"counts of link {n}", *counts)

    def joined(self, name, source, target):
        same_pairs(self, name, *joined_pairs(source, target))
