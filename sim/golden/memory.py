# SPDX-License-Identifier: Apache-2.0
"""Golden model of the memory writer: commands to bursts, answers to acknowledgements."""

from collections import deque

__all__ = ["MemoryWriterModel"]

OKAY = 0


class MemoryWriterModel:
    """Bursts that the writer must issue and acknowledgements it must give, in order, without
    cycles.

    ``memory`` is the image {address: byte} after all bursts answered OKAY.
    """

    def __init__(self, cfg):
        self.cfg = cfg
        self.memory = {}
        self.expected_acks = []  # in the order of the commands
        self.outstanding = 0  # commands accepted, acknowledgement not taken
        self.most_outstanding = 0
        self._marks = 0  # acknowledgements that end the current quiesce
        self._waiting = deque()  # (addr, [(data, strobe)], context)

    def command(self, addr, beats, context):
        """A command with its beats [(data, strobe)]; returns the address channel's fields."""
        assert 1 <= len(beats) <= 16 and addr % self.cfg.slice_bytes == 0
        self._waiting.append((addr, list(beats), context))
        return {
            "id": 0,
            "addr": addr,
            "len": len(beats) - 1,
            "size": self.cfg.slice_bytes.bit_length() - 1,
            "burst": 1,
            "cache": 0,
            "prot": 0,
        }

    def answer(self, resp):
        """Memory's answer to the oldest burst; returns the acknowledgement."""
        addr, beats, context = self._waiting.popleft()
        size = self.cfg.slice_bytes
        if resp == OKAY:
            for n, (data, strobe) in enumerate(beats):
                for byte in range(size):
                    if strobe >> byte & 1:
                        self.memory[addr + n * size + byte] = data >> 8 * byte & 0xFF
        ack = {"context": context, "ok": int(resp == OKAY)}
        self.expected_acks.append(ack)
        return ack

    def accepted(self):
        self.outstanding += 1
        self.most_outstanding = max(self.most_outstanding, self.outstanding)
        assert self.outstanding <= self.cfg.write_depth, (
            "more commands outstanding than write_depth"
        )

    def acked(self):
        self.outstanding -= 1
        self._marks = max(0, self._marks - 1)

    def quiesce(self):
        """Strobe; call after this cycle's ``accepted`` and before its ``acked``."""
        self._marks = self.outstanding

    @property
    def quiescing(self):
        return self._marks > 0
