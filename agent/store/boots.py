"""The time of each boot that something in the store is from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from agent.core.timekeeping import BootTime, with_true_wall
from agent.core.values import Moment
from agent.errors import StorageError
from agent.store.table import Table, read

if TYPE_CHECKING:
    from agent.store.store import Store

_KEPT_MAX: Final = 500


class BootTimes(Table):
    """What is known of the time of boots: the last :data:`_KEPT_MAX` of them.

    Args:
        store: whose.
        trusts_wall: the wall clock counts for a boot whose time is not known.
    """

    def __init__(self, store: Store, *, trusts_wall: bool) -> None:
        super().__init__(store)
        self._trusts_wall = trusts_wall
        self._known: dict[str, BootTime] = {}

    def load(self) -> None:
        """Read what is known; in the store's thread."""
        self._db.execute(
            "DELETE FROM boot WHERE rowid NOT IN (SELECT rowid FROM boot ORDER BY rowid DESC LIMIT ?)", (_KEPT_MAX,)
        )
        rows = self._db.execute("SELECT boot_id, offset_s, within_s, mono FROM boot")
        # What was learned in this process may not be on the disk yet.
        self._known = {str(boot_id): BootTime(*time) for boot_id, *time in rows} | self._known

    @read
    def known(self) -> Mapping[str, BootTime]:
        """Boot id -> its time."""
        return dict(self._known)

    def learn(self, boot_id: str, time: BootTime) -> None:
        """Keep this, in place of what was known before. Returns at once; a crash or a failing disk may undo it."""
        row = (boot_id, time.offset_s, time.within_s, time.at_s)
        self._known[boot_id] = time
        with suppress(StorageError):
            self._store.submit(lambda: self._db.execute("INSERT OR REPLACE INTO boot VALUES (?, ?, ?, ?)", row))

    def dated(self, moment: Moment) -> Moment:
        """The moment with the true time, 0 (1970) where that of its boot is unknown; in the store's thread."""
        is_true = self._trusts_wall and moment.boot_id not in self._known
        return moment if is_true else with_true_wall(moment, self._known)

    def is_dated(self, boot_id: str) -> bool:
        """When something of this boot was can be said; in the store's thread."""
        return self._trusts_wall or boot_id in self._known
