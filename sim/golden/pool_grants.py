# SPDX-License-Identifier: Apache-2.0
"""Golden model of who gets the places of receive pools: the policy of
``docs/blocks/receive_pool.md``, Grants, by rounds of visits in place of cycles.

Several pools that take equal shares of what comes, a GPU's slices, are one here, with so many times
the places.
"""

from hub_rtl.contract.config import RESERVE, first_share

__all__ = ["VISIT", "Grants"]

VISIT = 5  # cycles of the hub: a source is visited, one after the other
BATCH = 16  # grants that are told at once at the latest, of a slice
QUIET = 3  # periods without a packet after which a source may lose its first share


class _Source:
    """What the pool knows of a source, in packets: ``own``, places it holds or may use;
    ``gained``, that are free since its last visit; ``news``, granted and not told; ``came``, in
    this period, ``recent``, in the one before; ``quiet``, periods since any did, QUIET at most;
    ``lacks``, it should have more than it could get."""

    __slots__ = ("own", "gained", "news", "came", "recent", "quiet", "lacks")

    def __init__(self, first):
        self.own, self.gained, self.news = first, 0, 0
        self.came = self.recent = self.quiet = 0
        self.lacks = False


class Grants:
    """Places of one GPU's pools, and who has them.

    Parameters: ``sources``, GPUs that send; ``places`` of all pools together; ``slices``, pools.
    ``first``: places of each source at the start. What all have and ``free`` are the places,
    always; a source keeps two places of each pool.
    """

    def __init__(self, sources, places, slices=1):
        peers = len(sources)
        self.first = slices * first_share(peers + 1, places // slices)
        self.reserve, self.batch = slices * RESERVE, slices * BATCH
        self.most = self.level = places - self.reserve * (peers - 1)
        self._much = max(1, self.most // 4)  # packets of a period that need most
        self.free = places - self.first * peers
        self.sources = {source: _Source(self.first) for source in sources}
        self._short = self._unmet = self._denied = self._hungry = self._asks = False
        self._touched, self._lacking = set(), set()

    def arrived(self, source, packets):
        """Packets came from there, into the pool."""
        self.sources[source].came += packets

    def freed(self, source, packets):
        """Packets that came from there have left the pool."""
        self.sources[source].gained += packets
        self._touched.add(source)

    def returned(self, source, packets):
        """A source gives back places that it may use."""
        self.sources[source].gained += packets
        self._touched.add(source)

    @property
    def pending(self):
        """The next round may change something."""
        return bool(self._touched or self._asks or (self.free and self._lacking))

    @property
    def settled(self):
        """Nothing changes any more, periods or not, until a packet comes."""
        return (
            not (self.pending or self._unmet or self._short)
            and self.level == self.most
            and all(
                known.quiet == QUIET and not known.recent and not known.news
                for known in self.sources.values()
            )
        )

    def round(self, measures):
        """A visit of each source, the first of a period with ``measures``. Returns (source, packets
        granted, is it asked to give back) of those that are told."""
        asks, self._asks = self._asks, measures
        if measures:
            self._short, unmet = self._unmet, self._unmet
            if self._hungry:
                self.level = self.first
            elif not unmet:
                self.level = min(self.most, self.level + self.level // 2)
            self._unmet = self._denied = self._hungry = False
        touched, self._touched = self._touched, set()
        # A visit of another one could change nothing; nobody is asked to give back what all have.
        everyone = measures or (asks and (self._short or self._denied))
        lacking, told = self._lacking, []
        for source in self.sources if everyone else sorted(touched | lacking):
            if everyone or source in touched or self.free:
                known = self.sources[source]
                granted, back = self._visit(known, measures, asks)
                if known.lacks:
                    lacking.add(source)
                else:
                    lacking.discard(source)
                if granted or back:
                    told.append((source, granted, back))
        return told

    def _visit(self, known, measures, asks):
        first = self.first
        free = self.free + known.gained
        own = known.own - known.gained
        known.gained = 0
        if measures:
            known.quiet = 0 if known.came else min(QUIET, known.quiet + 1)
            known.recent, known.came = known.came, 0
        recent, active = known.recent, known.quiet != QUIET
        if recent >= self._much:
            need = self.most
        else:
            need = 4 * recent + self.reserve
            if active and need < first:
                need = first
        fair = need if need < self.level else self.level
        should = fair if self._short or need > first else first
        if fair - own > free:
            self._short = self._unmet = True
        want = should - own
        known.lacks = want > free
        if known.lacks:
            self._denied = True
        if active and first - own > free:
            self._hungry = True
        given = 0 if want < 0 else free if known.lacks else want
        self.free = free - given
        known.own = own = own + given
        known.news = news = known.news + given
        back = asks and own > should and (self._short or self._denied)
        worth = news >= own // 8 or news >= self.batch or measures
        if not back and not (news and worth):
            return 0, False
        known.news = 0
        return news, back

    def gives(self, left):
        """Of so many places that it may use, what a source gives back that is asked to."""
        slices = self.reserve // RESERVE
        return max(0, min((left + slices) // 4, left - self.reserve))
