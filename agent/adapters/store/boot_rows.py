"""The time of each boot in SQL, and in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import TYPE_CHECKING

from agent.adapters.store.failures import Transaction
from agent.core.timekeeping import BootTime, with_true_wall
from agent.core.values import Moment

if TYPE_CHECKING:
    from agent.ports import Clock


class BootRows:
    """The :class:`~agent.ports.BootTimes` over one connection.

    What is learned is written with the next commit, whatever that is for, and again after one that failed.

    Args:
        connection: the store's.
        clock: of this boot.
        transaction: the store's.
        trusts_wall: the wall clock counts for a boot whose time is not known.

    Attributes:
        clock: as given.
        learned: how often something was learned: readings have another age then.
    """

    def __init__(
        self, connection: sqlite3.Connection, clock: Clock, transaction: Transaction, *, trusts_wall: bool
    ) -> None:
        self._db = connection
        self.clock = clock
        self._transaction = transaction
        self._trusts_wall = trusts_wall
        self.learned = 0
        self._known = {
            str(boot_id): BootTime(low_s, high_s, at_s)
            for boot_id, low_s, high_s, at_s in connection.execute("SELECT boot_id, low, high, mono FROM boot")
        }
        # What the next commit takes along.
        self._unwritten: dict[str, BootTime] = {}

    def known(self) -> Mapping[str, BootTime]:
        """Boot id -> its time. See :class:`agent.ports.BootTimes`."""
        return dict(self._known)

    def learn(self, boot_id: str, time: BootTime, *, rides: bool = False) -> None:
        """Keep this, in place of what was known before. Returns at once; it may be lost, but no reading with it.

        See :class:`agent.ports.BootTimes`. It counts at once, also where the commit fails, since it is true.
        """
        self._known[boot_id] = self._unwritten[boot_id] = time
        self.learned += 1
        if not rides:
            with self._transaction():
                pass  # every commit takes along what was learned

    def write(self) -> None:
        """Take what was learned since the last commit along in this one."""
        self._db.executemany(
            "INSERT OR REPLACE INTO boot (boot_id, low, high, mono) VALUES (?, ?, ?, ?)",
            [(boot_id, time.low_s, time.high_s, time.at_s) for boot_id, time in self._unwritten.items()],
        )

    def committed(self) -> None:
        """The transaction is on the disk."""
        self._unwritten.clear()

    def now(self) -> Moment:
        """This instant, dated as :meth:`dated` does."""
        return self.dated(self.clock.now())

    def dated(self, moment: Moment) -> Moment:
        """The moment with the true time, 0 (1970) where that of its boot is unknown."""
        is_true = self._trusts_wall and moment.boot_id not in self._known
        return moment if is_true else with_true_wall(moment, self._known)

    def is_dated(self, boot_id: str) -> bool:
        """When something of this boot was can be said."""
        return self._trusts_wall or boot_id in self._known

    def forget_unused(self, boot_id: str) -> None:
        """Delete the boots that nothing here is from any more, but for the one that runs."""
        self._db.execute(
            "DELETE FROM boot WHERE boot_id != ? AND boot_id NOT IN (SELECT boot_id FROM origin"
            " UNION SELECT received_boot FROM command"
            " UNION SELECT started_boot FROM command WHERE started_boot IS NOT NULL"
            " UNION SELECT finished_boot FROM command WHERE finished_boot IS NOT NULL)",
            (boot_id,),
        )
        self._known = {each: time for each, time in self._known.items() if each == boot_id or self._has(each)}

    def _has(self, boot_id: str) -> bool:
        return self._db.execute("SELECT 1 FROM boot WHERE boot_id = ?", (boot_id,)).fetchone() is not None
