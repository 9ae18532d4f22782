"""Thinning out in SQL: round after round over the older half of one priority, in small steps.

A round keeps a certain distance between the rows that stay, counted in keys, so that the whole time is left at one
resolution. Only when a round frees little is the distance doubled for the next one: what was thinned out before is not
thinned out again for nothing, and the beginning of a long outage does not vanish.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from agent.core.outbox import StoredItem, thin_out
from agent.core.values import Priority

Look = Callable[[str, tuple[int, ...]], Iterable[StoredItem]]
"""The rows that a condition and its arguments select, in the order of their keys."""

_STRETCH_SQL: Final = "key > ? AND key <= ? AND priority = ? ORDER BY key LIMIT ?"
_MIDDLE_SQL: Final = (
    "SELECT key FROM reading WHERE body IS NOT NULL AND key >= ? AND priority = ? ORDER BY key LIMIT 1 OFFSET ?"
)
_STRETCH: Final = 256
_FIRST_DISTANCE: Final = 2
# A round that frees less than this share of what it looked at is followed by one with twice the distance.
_WORTH_IT: Final = 1 / 8


class Thinner:
    """Rounds over one connection; where a round is, is forgotten with the process.

    Args:
        connection: the store's.
        look: reads rows.
    """

    def __init__(self, connection: sqlite3.Connection, look: Look) -> None:
        self._db = connection
        self._look = look
        self._rank: Priority | None = None
        self._distance = _FIRST_DISTANCE
        self._begin(0)

    def step(self, rank: Priority, rows: int, first: int, keep: frozenset[int]) -> Sequence[StoredItem]:
        """What goes next; nothing only where nothing can.

        Args:
            rank: the priority to thin out.
            rows: how many of it wait.
            first: no key of it is lower.
            keep: keys that stay.
        """
        if rank is not self._rank:
            self._rank, self._distance = rank, _FIRST_DISTANCE
            self._begin(0)
        # Twice the distance that the keys span leaves one row: there is an end.
        while True:
            stretch = list(self._look(_STRETCH_SQL, (self._at, self._until, rank, _STRETCH)))
            if stretch:
                gone = [held for held in thin_out(stretch, self._distance, self._kept) if held.key not in keep]
                self._pass(stretch, gone)
                if gone:
                    return gone
                continue
            if self._distance > 2 * max(self._until - first, 1) and self._seen and not self._freed:
                return ()
            if self._seen and self._freed < self._seen * _WORTH_IT:
                self._distance *= 2
            middle = self._db.execute(_MIDDLE_SQL, (first, rank, rows // 2)).fetchone()
            self._begin(0 if middle is None else int(middle[0]))
            if middle is None:
                return ()

    def _begin(self, until: int) -> None:
        self._at = self._kept = -1
        self._until = until
        self._seen = self._freed = 0

    def _pass(self, stretch: Sequence[StoredItem], gone: Sequence[StoredItem]) -> None:
        self._at = stretch[-1].key
        self._seen += len(stretch)
        self._freed += len(gone)
        dropped = {held.key for held in gone}
        self._kept = max((held.key for held in stretch if held.key not in dropped), default=self._kept)
