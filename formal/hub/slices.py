# SPDX-License-Identifier: Apache-2.0
"""Promise of a slice's way to the wire and back (``hub_rtl/hub/link_slice.py``)."""

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec
from hub_rtl.hub.link_slice import LinkSlice

from .cut import joined_pairs, same_pairs

__all__ = ["SliceIsItsParts"]


class SliceIsItsParts(Spec):
    """Packets and control flits of the slice go to its link, what the link receives to its pool,
    the pool's records out; what the pool grants and what is given back leaves over the link, what
    comes of both reaches credits and pool. Events of all parts are counted."""

    def build(self, m):
        m.submodules.dut = dut = LinkSlice(self._cfg)
        link, pool, credits, messages = parts = observe(dut)
        for part in parts:
            cut(self, part)
        self.free_inputs(dut)
        for name, source, target in (
            ("packets", dut.i_packet, link.i_packet),
            ("control flits", dut.i_control, link.i_control),
            ("received control flits", link.o_control, dut.o_control),
            ("sources", link.o_source, pool.i_source[0]),
            ("beats", link.o_beat, pool.i_beat[0]),
            ("records", pool.o_record, dut.o_record),
            ("grants", pool.o_grant, messages.i_grant),
            ("returns", credits.o_returned, messages.i_returned),
            ("messages", messages.o_packet, link.i_message),
        ):
            same_pairs(self, name, *joined_pairs(source, target))
        for name in link.tx.signature.members:
            same_pairs(self, f"tx.{name}", (getattr(link.tx, name), getattr(dut.tx, name)))
        for name in link.rx.signature.members:
            same_pairs(self, f"rx.{name}", (getattr(link.rx, name), getattr(dut.rx, name)))
        same_pairs(
            self,
            "credits and settings",
            (link.granted, credits.granted),
            (link.returned, pool.returned),
            (dut.take, credits.take),
            (dut.dest_ready, credits.ready),
            (dut.ctl_ready, link.ctl_ready),
            (dut.rank, link.rank),
            (dut.rank, pool.rank),
            (dut.lane, link.lane),
            (dut.peer_dead, link.peer_dead),
            (dut.o_bad, link.o_bad),
            (dut.clearing, pool.clearing | credits.clearing),
        )
        joined = {
            "credit_violations": link.counts.credit_violations | pool.violation,
            "bad_totals": link.counts.bad_totals | credits.bad_total | pool.impossible,
        }
        same_pairs(
            self,
            "counts",
            *(
                (dut.counts[name], joined.get(name, link.counts[name]))
                for name, _ in dut.counts.shape()
            ),
        )
