# SPDX-License-Identifier: Apache-2.0
"""What operations say when they enter the scoreboard's pipeline."""

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec, one_of
from hub_rtl.scoreboard.records import OpKind
from hub_rtl.scoreboard.scoreboard import ReadinessScoreboard

__all__ = ["OperationsSayWhatTheyAre"]

OF_AN_EPOCH = [
    OpKind.REFUSE,
    OpKind.NEWS,
    OpKind.OPEN,
    OpKind.RELEASE,
    OpKind.ABORT,
    OpKind.FORGET,
]


class OperationsSayWhatTheyAre(Spec):
    """Of the operations that enter the pipeline only acknowledgements and CLEARs are plain, news
    are of ranks that there are, and what names an epoch is of its bank (but PASS, whose bank the
    books' answers decide). What the pipeline leads to is cut out."""

    def build(self, m):
        m.submodules.dut = dut = ReadinessScoreboard(self._cfg)
        inside = observe(dut)
        for part in (inside.tiles, inside.books, inside.scan, inside.flags):
            cut(self, part)
        self.free_inputs(dut)
        valid, op = inside.valid, inside.op
        self.always(
            "only acknowledgements and CLEAR are plain",
            one_of(op.kind, OpKind.ACK, OpKind.CLEAR),
            when=valid & op.plain,
        )
        self.always(
            "news come from ranks", op.src < self._cfg.ranks, valid & (op.kind == OpKind.NEWS)
        )
        self.always(
            "the bank is the epoch's lowest bit",
            op.bank == op.epoch[0],
            when=valid & ~op.plain & one_of(op.kind, *OF_AN_EPOCH),
        )
