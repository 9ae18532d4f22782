"""The journal: commands with their states, and settings.

Every method raises :class:`~agent.errors.StorageError` when nothing was written (or the disk did not answer), and those
that move a command :class:`~agent.core.commands.IllegalMove` when the table of moves has no such move.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from agent.core.commands import (
    HISTORY_LOST,
    OPEN_STATES,
    OVER_STATES,
    IllegalMove,
    move,
    start_entry,
    without_result,
)
from agent.core.values import (
    Command,
    CommandState,
    JournalEntry,
    Moment,
    Outcome,
    OutcomeStatus,
)
from agent.store.sqlite import Table, damage, read, to_json, write
from agent.wire.secret import mask, mask_json

UNDELIVERABLE_MAX: Final = 1000
"""So many results that the service does not take are kept; of older ones only the end stays."""
UNDELIVERABLE_BYTES_MAX: Final = 1024 * 1024

_CONTACTED: Final = "contacted"
# SQLite 3.32 and newer take 32,766 variables; this keeps statements small and cached.
_CHUNK: Final = 500


class Journal(Table):
    """The durable list of commands. What writes returns only after its commit is on the disk."""

    @read
    def known(self, command_ids: Sequence[str]) -> dict[str, JournalEntry]:
        """The entries with these ids."""
        found: dict[str, JournalEntry] = {}
        for begin in range(0, len(command_ids), _CHUNK):
            chunk = command_ids[begin : begin + _CHUNK]
            marks = ", ".join("?" * len(chunk))
            rows = self._db.execute(f"SELECT id, body FROM command WHERE id IN ({marks})", chunk)
            found.update((command_id, read_entry(body)) for command_id, body in rows)
        return found

    @write
    def admit(self, entries: Sequence[JournalEntry], settings: Mapping[str, str] | None = None) -> None:
        """Add new entries and store these settings, all or none; an id that is there already is left as it is.

        Admitting nothing is a write, too: it says that the first contact took place, and the journal knows its history
        again.
        """
        for entry in entries:
            kept = entry if entry.outcome is None else replace(entry, outcome=_masked(entry.outcome))
            self._db.execute(
                "INSERT OR IGNORE INTO command (id, state, body) VALUES (?, ?, ?)",
                (kept.command.id, str(kept.state), _body(kept)),
            )
        self._db.execute("INSERT OR IGNORE INTO counter VALUES (?, 1)", (_CONTACTED,))
        for name, value in {HISTORY_LOST: None, **(settings or {})}.items():
            self.put_setting(name, value)

    @write
    def start(self, command_id: str, at: Moment) -> None:
        """``received`` -> ``started``, and count the attempt."""
        self._put(start_entry(self._one(command_id, CommandState.STARTED), at))

    @write
    def cancel(self, command_id: str, why: str) -> None:
        """Remember who took a ``started`` command back; a command in another state is left as it is."""
        entry = self.known([command_id]).get(command_id)
        if entry is not None and entry.state is CommandState.STARTED:
            self._put(replace(entry, canceled_by=entry.canceled_by or why))

    @write
    def finish(self, command_id: str, outcome: Outcome, at: Moment) -> JournalEntry:
        """-> ``finished``: the outcome and the result to be reported; the entry as it is now."""
        return self._move(command_id, CommandState.FINISHED, outcome=_masked(outcome), finished=at)

    @write
    def reported(self, command_ids: Sequence[str]) -> None:
        """``finished`` -> ``reported``: the service has the result."""
        for each in dict.fromkeys(command_ids):
            self._move(each, CommandState.REPORTED)

    @write
    def undeliverable(self, command_id: str, reason: str) -> None:
        """``finished`` -> ``undeliverable``: the service will never take this result; it stays here, bounded.

        Args:
            command_id: whose.
            reason: one sentence.
        """
        self._move(command_id, CommandState.UNDELIVERABLE, undeliverable=reason)
        newest_first = self._db.execute(
            "SELECT id, length(body) FROM command WHERE state = 'undeliverable' ORDER BY seq DESC"
        ).fetchall()
        left_bytes = UNDELIVERABLE_BYTES_MAX
        for number, (each, size_bytes) in enumerate(newest_first):
            left_bytes -= size_bytes
            if number >= UNDELIVERABLE_MAX or left_bytes < 0:
                entry = self._one(each, CommandState.UNDELIVERABLE)
                if entry.outcome is None or entry.outcome.result is None:
                    break  # and all that are older, too
                self._put(without_result(entry))

    @read
    def in_state(self, *states: str, limit: int = 1000) -> list[JournalEntry]:
        """Entries in these states, oldest first."""
        # Written into the statement, since the planner takes a partial index only for values that it can see.
        names = ", ".join(f"'{CommandState(state)}'" for state in states)
        sql = f"SELECT body FROM command WHERE state IN ({names}) ORDER BY seq LIMIT ?"
        return [read_entry(body) for (body,) in self._db.execute(sql, (limit,))]

    @read
    def counts(self) -> dict[str, int]:
        """State -> how many commands."""
        rows = self._db.execute("SELECT state, count(*) FROM command GROUP BY state ORDER BY state")
        return {str(state): int(count) for state, count in rows}

    @write
    def forget(self, listed_ids: Sequence[str], older_than_wall_s: float) -> int:
        """Delete entries that are over, no longer listed by the service and older; how many.

        The latest :data:`UNDELIVERABLE_MAX` undeliverable results stay. Where it is not known when one was received,
        its age counts from now on: what was forgotten too early could run a second time.

        Args:
            listed_ids: what the service lists.
            older_than_wall_s: true time, epoch seconds.
        """
        boots = self._store.boots
        kept = self._db.execute(
            "SELECT id FROM command WHERE state = 'undeliverable' ORDER BY seq DESC LIMIT ?", (UNDELIVERABLE_MAX,)
        )
        listed = {*listed_ids, *(command_id for (command_id,) in kept)}
        now = self._store.clock.now()
        open_states = ", ".join(f"'{state}'" for state in OPEN_STATES)
        gone: list[str] = []
        rows = self._db.execute(f"SELECT id, body FROM command WHERE state NOT IN ({open_states})").fetchall()
        for command_id, body in rows:
            if command_id in listed:
                continue
            entry = read_entry(body)
            if boots.is_dated(entry.received.boot_id):
                if entry.state in OVER_STATES and boots.dated(entry.received).wall_s < older_than_wall_s:
                    gone.append(command_id)
            elif boots.is_dated(now.boot_id):
                self._put(replace(entry, received=now))
        self._db.executemany("DELETE FROM command WHERE id = ?", [(each,) for each in gone])
        return len(gone)

    @read
    def is_empty(self) -> bool:
        """True until the first :meth:`admit`, were it of nothing: this device has never seen a list of commands."""
        return not self._counter(_CONTACTED)

    @read
    def setting(self, name: str) -> str | None:
        """A value that must survive a restart, such as the interval that ``set_interval`` set."""
        row = self._db.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    @read
    def settings(self, *names: str) -> dict[str, str]:
        """Those of these settings that there are."""
        return {name: value for name in names if (value := self.setting(name)) is not None}

    @write
    def put_setting(self, name: str, value: str | None) -> None:
        """Store it, or delete it with None."""
        if value is None:
            self._db.execute("DELETE FROM setting WHERE name = ?", (name,))
        else:
            self._db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, value))

    def _one(self, command_id: str, after: CommandState) -> JournalEntry:
        row = self._db.execute("SELECT body FROM command WHERE id = ?", (command_id,)).fetchone()
        if row is None:
            raise IllegalMove(None, after)
        return read_entry(row[0])

    def _move(self, command_id: str, after: CommandState, **changes: Any) -> JournalEntry:
        return self._put(move(self._one(command_id, after), after, **changes))

    def _put(self, entry: JournalEntry) -> JournalEntry:
        row = (str(entry.state), _body(entry), entry.command.id)
        self._db.execute("UPDATE command SET state = ?, body = ? WHERE id = ?", row)
        return entry


def _masked(outcome: Outcome) -> Outcome:
    """The outcome without credentials: what handlers say, and what their exceptions quote, is sent to others."""
    error = None if outcome.error is None else mask(outcome.error)
    return replace(outcome, result=mask_json(outcome.result), error=error)


def _body(entry: JournalEntry) -> str:
    members = {name: value for name, value in asdict(entry).items() if value is not None}
    members["command"] = {name: value for name, value in members["command"].items() if value is not None}
    return to_json(members)


def read_entry(body: str) -> JournalEntry:
    """The entry out of its row.

    Raises:
        sqlite3.DatabaseError: it makes no sense: the file is damaged where SQLite does not look.
    """
    try:
        members: dict[str, Any] = json.loads(body)
        members["command"] = Command(**members["command"])
        members["state"] = CommandState(members["state"])
        for name in ("received", "started", "finished"):
            if name in members:
                members[name] = Moment(**members[name])
        if "outcome" in members:
            outcome = members["outcome"]
            members["outcome"] = Outcome(OutcomeStatus(outcome["status"]), outcome["result"], outcome["error"])
        return JournalEntry(**members)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise damage(f"a command cannot be read: {error}") from error
