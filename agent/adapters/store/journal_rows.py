"""The journal's rows: commands and settings in SQL."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final

from agent.adapters.store.boot_rows import BootRows
from agent.adapters.store.failures import Transaction, damage
from agent.core.commands import (
    HISTORY_LOST,
    OPEN_STATES,
    OVER_STATES,
    CommandEvent,
    IllegalMove,
    finish_entry,
    report_entry,
    start_entry,
)
from agent.core.unreported import give_up_entry, giving_way, put_aside_entry
from agent.core.values import (
    Admission,
    Command,
    CommandState,
    JournalEntry,
    JournalLookup,
    Moment,
    Outcome,
    OutcomeStatus,
    ResultStats,
)
from agent.wire.secret import mask, mask_json

_COLUMNS: Final = (
    "id, state, handler, payload, created_at, expires_at, status, size_bytes, attempts, "
    "received_mono, received_wall, received_boot, started_mono, started_wall, started_boot, "
    "finished_mono, finished_wall, finished_boot, outcome, result, error, put_aside"
)
_VALUES: Final = ", ".join("?" * (_COLUMNS.count(",") + 1))
_CONTACTED: Final = "contacted"
_GIVEN_UP: Final = "results_given_up"
# The state stands in the statements, since the planner takes a partial index only for values that it can see.
_IS_ASIDE: Final = f"state = '{CommandState.PUT_ASIDE}'"
_RESULT_BYTES: Final = "coalesce(length(result), 0) + coalesce(length(error), 0)"
# SQLite 3.32 and newer take 32,766 variables; this keeps statements small and cached.
_CHUNK: Final = 500
# ASCII, so that a lone surrogate, which SQLite cannot store, stays an escape.
_to_json: Final = partial(json.dumps, separators=(",", ":"), ensure_ascii=True)


class JournalRows:
    """The :class:`~agent.ports.Journal` over one connection.

    Args:
        connection: the store's.
        boots: what is known of the time that entries are from.
        transaction: the store's.
    """

    def __init__(self, connection: sqlite3.Connection, boots: BootRows, transaction: Transaction) -> None:
        self._db = connection
        self._boots = boots
        self._transaction = transaction

    def known(self, command_ids: Sequence[str]) -> dict[str, JournalEntry]:
        """The entries with these ids. See :class:`agent.ports.Journal`."""
        found: dict[str, JournalEntry] = {}
        for begin in range(0, len(command_ids), _CHUNK):
            chunk = command_ids[begin : begin + _CHUNK]
            marks = ", ".join("?" * len(chunk))
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM command WHERE id IN ({marks})", chunk)  # noqa: S608
            found.update((row[0], to_entry(row)) for row in rows)
        return found

    def look_up(self, command_ids: Sequence[str], settings: Sequence[str] = ()) -> JournalLookup:
        """What is known of these commands and settings, and of the journal itself."""
        found = {name: value for name in settings if (value := self.setting(name)) is not None}
        return JournalLookup(self.known(command_ids), self.is_empty(), self.setting(HISTORY_LOST) is not None, found)

    def decide(
        self,
        command_ids: Sequence[str],
        choose: Callable[[JournalLookup], Admission | None],
        settings: Sequence[str] = (),
    ) -> None:
        """Look at what is known and :meth:`admit` what ``choose`` makes of it, with no other use of it in between."""
        admission = choose(self.look_up(command_ids, settings))
        if admission is not None:
            self.admit(admission.entries, admission.settings)

    def admit(self, entries: Sequence[JournalEntry], settings: Mapping[str, str] | None = None) -> None:
        """Add new entries and store these settings, all or none; an id that is there already is left as it is.

        See :class:`agent.ports.Journal`. From now on the journal knows its history again.
        """
        with self._transaction():
            rows = [
                to_row(entry if entry.outcome is None else replace(entry, outcome=_masked(entry.outcome)))
                for entry in entries
            ]
            self._db.executemany(f"INSERT OR IGNORE INTO command ({_COLUMNS}) VALUES ({_VALUES})", rows)  # noqa: S608
            self._db.execute("INSERT OR IGNORE INTO meta VALUES (?, 1)", (_CONTACTED,))
            self.put_setting(HISTORY_LOST, None)
            for name, value in (settings or {}).items():
                self.put_setting(name, value)

    def start(self, command_id: str, at: Moment) -> None:
        """``received`` -> ``started``, and count the attempt. See :class:`agent.ports.Journal`."""
        with self._transaction():
            self._replace(start_entry(self._one(command_id, CommandEvent.START), at))

    def finish(self, command_id: str, outcome: Outcome, at: Moment) -> JournalEntry:
        """-> ``finished``: the outcome and the result to be reported, in one transaction; the entry as it is now."""
        with self._transaction():
            entry = finish_entry(self._one(command_id, CommandEvent.FINISH), _masked(outcome), at)
            self._replace(entry)
            return entry

    def reported(self, command_ids: Sequence[str]) -> None:
        """``finished`` -> ``reported``: the service has the result.

        See :class:`agent.ports.Journal`. All are legal before anything is written, or none is.
        """
        with self._transaction():
            entries = [report_entry(self._one(each, CommandEvent.REPORT)) for each in dict.fromkeys(command_ids)]
            for entry in entries:
                self._replace(entry)

    def put_aside(self, reasons: Mapping[str, str]) -> int:
        """``finished`` -> ``put_aside``: the service has no place for these results; they stay in the journal."""
        with self._transaction():
            entries = [put_aside_entry(self._one(each, CommandEvent.PUT_ASIDE), why) for each, why in reasons.items()]
            for entry in entries:
                self._replace(entry)
            totals = f"SELECT count(*), coalesce(sum({_RESULT_BYTES}), 0) FROM command WHERE {_IS_ASIDE}"  # noqa: S608
            rows, size_bytes = self._db.execute(totals).fetchone()
            sizes = f"SELECT id, {_RESULT_BYTES} FROM command WHERE {_IS_ASIDE} ORDER BY seq"  # noqa: S608
            gone = giving_way(self._db.execute(sizes), rows, size_bytes)
            for command_id in gone:
                self._replace(give_up_entry(self._one(command_id, CommandEvent.GIVE_UP)))
            if gone:
                self._db.execute(
                    "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
                    (_GIVEN_UP, len(gone)),
                )
            return len(gone)

    def result_stats(self) -> ResultStats:
        """What is held of results that the service has no place for. See :class:`agent.ports.Journal`."""
        return read_result_stats(self._db)

    def in_state(self, *states: str, limit: int = 1000) -> list[JournalEntry]:
        """Entries in these states, oldest first. See :class:`agent.ports.Journal`."""
        if not states:
            return []
        wanted = [CommandState(state) for state in states]
        if all(state in OPEN_STATES for state in wanted):
            # Written into the statement, since the planner takes a partial index only for values that it can see.
            names = ", ".join(f"'{state}'" for state in wanted)
        else:
            names = "SELECT value FROM json_each(?)"
        sql = f"SELECT {_COLUMNS} FROM command WHERE state IN ({names}) ORDER BY seq LIMIT ?"  # noqa: S608
        arguments = (limit,) if "?" not in names else (json.dumps(wanted), limit)
        return [to_entry(row) for row in self._db.execute(sql, arguments)]

    def forget(self, listed_ids: Sequence[str], older_than_wall_s: float) -> int:
        """Delete entries that are over, no longer listed by the service and older; how many.

        Where it is not known when one was received, its age counts from now on: what was forgotten too early could run
        a second time.
        """
        with self._transaction():
            now = self._boots.clock.now()
            listed = set(listed_ids)
            over = tuple(str(state) for state in OVER_STATES)
            marks = ", ".join("?" * len(over))
            sql = f"SELECT id, received_mono, received_wall, received_boot FROM command WHERE state IN ({marks})"  # noqa: S608
            gone: list[str] = []
            ageless: list[str] = []
            for command_id, *received in self._db.execute(sql, over):
                if command_id in listed:
                    continue
                if not self._boots.is_dated(received[2]):
                    ageless.append(command_id)
                elif self._boots.dated(Moment(*received)).wall_s < older_than_wall_s:
                    gone.append(command_id)
            if self._boots.is_dated(now.boot_id):
                self._db.executemany(
                    "UPDATE command SET received_mono = ?, received_wall = ?, received_boot = ? WHERE id = ?",
                    [(now.monotonic_s, now.wall_s, now.boot_id, each) for each in ageless],
                )
            self._db.executemany("DELETE FROM command WHERE id = ?", [(each,) for each in gone])
            return len(gone)

    def is_empty(self) -> bool:
        """True until the first :meth:`admit`, were it of nothing: this device has never seen a list of commands."""
        return self._db.execute("SELECT 1 FROM meta WHERE name = ?", (_CONTACTED,)).fetchone() is None

    def setting(self, name: str) -> str | None:
        """A value that must survive a restart, such as the interval that ``set_interval`` set."""
        return read_setting(self._db, name)

    def put_setting(self, name: str, value: str | None) -> None:
        """Store it, or delete it with None. See :class:`agent.ports.Journal`."""
        with self._transaction():
            if value is None:
                self._db.execute("DELETE FROM setting WHERE name = ?", (name,))
            else:
                self._db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, value))

    def _one(self, command_id: str, event: CommandEvent) -> JournalEntry:
        row = self._db.execute(f"SELECT {_COLUMNS} FROM command WHERE id = ?", (command_id,)).fetchone()  # noqa: S608
        if row is None:
            raise IllegalMove(None, event)
        return to_entry(row)

    def _replace(self, entry: JournalEntry) -> None:
        row = to_row(entry)
        marks = ", ".join(f"{name.strip()} = ?" for name in _COLUMNS.split(",")[1:])
        self._db.execute(f"UPDATE command SET {marks} WHERE id = ?", (*row[1:], row[0]))  # noqa: S608


def read_setting(connection: sqlite3.Connection, name: str) -> str | None:
    """A setting's value; None when there is none of this name."""
    row = connection.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def read_result_stats(connection: sqlite3.Connection) -> ResultStats:
    """What this store holds of results that the service has no place for."""
    (put_aside,) = connection.execute(f"SELECT count(*) FROM command WHERE {_IS_ASIDE}").fetchone()  # noqa: S608
    given_up = connection.execute("SELECT value FROM meta WHERE name = ?", (_GIVEN_UP,)).fetchone()
    return ResultStats(put_aside, 0 if given_up is None else int(given_up[0]))


def _masked(outcome: Outcome) -> Outcome:
    """The outcome without credentials: what handlers say, and what their exceptions quote, is sent to others."""
    error = None if outcome.error is None else mask(outcome.error)
    result = mask_json(outcome.result)
    if error == outcome.error and result is outcome.result:
        return outcome
    return replace(outcome, result=result, error=error)


def to_row(entry: JournalEntry) -> tuple[Any, ...]:
    """The entry as the values of a row."""
    command, outcome = entry.command, entry.outcome
    moments = (
        (None, None, None) if moment is None else (moment.monotonic_s, moment.wall_s, moment.boot_id)
        for moment in (entry.received, entry.started, entry.finished)
    )
    return (
        command.id,
        str(entry.state),
        entry.handler,
        _to_json(command.payload),
        command.created_at,
        command.expires_at,
        command.status,
        command.size_bytes,
        entry.attempts,
        *chain.from_iterable(moments),
        None if outcome is None else str(outcome.status),
        None if outcome is None or outcome.result is None else _to_json(outcome.result),
        None if outcome is None else outcome.error,
        entry.put_aside,
    )


def to_entry(row: Sequence[Any]) -> JournalEntry:
    """A row's values as the entry.

    Raises:
        sqlite3.DatabaseError: they make no sense: the file is damaged where SQLite does not look.
    """
    try:
        outcome = None
        if row[18] is not None:
            result = None if row[19] is None else json.loads(row[19])
            outcome = Outcome(OutcomeStatus(row[18]), result, row[20])
        received, started, finished = (
            None if boot_id is None else Moment(monotonic_s, wall_s, boot_id)
            for monotonic_s, wall_s, boot_id in (row[9:12], row[12:15], row[15:18])
        )
        if received is None:
            raise ValueError("it has no time")
        return JournalEntry(
            command=Command(row[0], json.loads(row[3]), row[4], row[5], row[6], row[7]),
            state=CommandState(row[1]),
            handler=row[2],
            received=received,
            attempts=row[8],
            started=started,
            finished=finished,
            outcome=outcome,
            put_aside=row[21] if len(row) > 21 else None,
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise damage(f"command {str(row[0])[:64]!r} cannot be read: {error}") from error
