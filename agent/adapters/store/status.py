"""Store status: of the running agent by its own connection, of one that does not run by its file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.adapters.store.counts import read_stats
from agent.adapters.store.failures import explained
from agent.adapters.store.journal_rows import read_result_stats
from agent.adapters.store.schema import PAGE_BYTES, SCHEMA
from agent.core.values import OutboxStats, Priority, ResultStats
from agent.errors import StorageError


@dataclass(frozen=True, slots=True)
class CommandLine:
    """One command as a person wants to see it.

    Attributes:
        outcome: ``succeeded``, ``failed``, ``rejected``; None while it has none.
        error: why it did not succeed.
        received_wall_s: when it was received, epoch seconds as the device believed.
        finished_wall_s: when it ended, likewise.
    """

    id: str
    handler: str
    state: str
    outcome: str | None
    error: str | None
    attempts: int
    received_wall_s: float
    finished_wall_s: float | None


@dataclass(frozen=True, slots=True)
class DroppedReadings:
    """Readings that were dropped for one reason, and the time that they were from, epoch seconds."""

    reason: str
    rows: int
    from_wall_s: float
    to_wall_s: float


@dataclass(frozen=True, slots=True)
class SetAside:
    """A reading that the service refused for good.

    Attributes:
        key: names it in the store.
        reason: what the service said.
        read_wall_s: when it was read, epoch seconds as the device believed.
        values: its named numbers as JSON text.
    """

    key: int
    reason: str
    read_wall_s: float
    values: str


@dataclass(frozen=True, slots=True)
class PutAside:
    """A result that the service has no place for.

    Attributes:
        id: the command's.
        outcome: how it ended.
        reason: why its result was put aside.
        finished_wall_s: when it ended, epoch seconds as the device believed; None when that is not known.
    """

    id: str
    handler: str
    outcome: str
    reason: str
    finished_wall_s: float | None


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """What the store holds.

    Attributes:
        commands: state -> how many.
        last_commands: newest first.
        outbox: the waiting readings.
        set_aside: the latest readings that were refused for good, newest first.
        gaps: what was dropped ever, by reason.
        untold_gaps: what of it the service has no record of yet: still going on, or a record that waits.
        settings: what survives a restart.
        incidents: what happened to the file, newest first.
        file_bytes: the database as of its last commit.
        disk_bytes: what lies on the disk: file, write-ahead log and reserve.
        undated: how many waiting readings are of a boot whose time is not known (yet).
        put_aside: the latest results that the service has no place for, newest first.
        results: how many of them there are, and how many gave way at a bound.
    """

    commands: Mapping[str, int]
    last_commands: tuple[CommandLine, ...]
    outbox: OutboxStats
    set_aside: tuple[SetAside, ...]
    gaps: tuple[DroppedReadings, ...]
    untold_gaps: int
    settings: Mapping[str, str]
    incidents: tuple[str, ...]
    file_bytes: int
    disk_bytes: int
    undated: int = 0
    put_aside: tuple[PutAside, ...] = ()
    results: ResultStats = field(default_factory=lambda: ResultStats(0, 0))


def read_status(path: Path, *, last: int = 10) -> StoreStatus | None:
    """Counts of the store at ``path``, while no agent uses it; None when there is none yet.

    Raises:
        StorageError: it cannot be read now; the text names the fix.
    """
    if not path.exists():
        return None
    with explained(path), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        version = SCHEMA.read_version(connection, path)
        if version is None:
            return None
        if version != SCHEMA.version and not SCHEMA.can_use(connection):
            raise StorageError(f"{path}: another version of device-agent wrote it: use the status of that one")
        rows, size_bytes, last_key, oldest_wall_s = connection.execute(
            "SELECT count(body), coalesce(sum(length(body)), 0), coalesce(max(key), 0), "
            "(SELECT coalesce(reading.mono + (low + high) / 2, wall) FROM reading JOIN origin ON origin.id = origin "
            "LEFT JOIN boot USING (boot_id)"
            " WHERE body IS NOT NULL ORDER BY key LIMIT 1) FROM reading"
        ).fetchone()
        outbox = read_stats(connection, rows, size_bytes, last_key, oldest_wall_s)
        return status_of(connection, path, outbox, last)


def _disk_bytes(path: Path) -> int:
    total = 0
    for ending in ("", "-wal", ".reserve"):
        with suppress(OSError):
            total += path.with_name(path.name + ending).stat().st_size
    return total


def status_of(connection: sqlite3.Connection, path: Path, outbox: OutboxStats, last: int = 10) -> StoreStatus:
    """The same over a connection that is open.

    Args:
        connection: to the store.
        path: of its file.
        outbox: its readings, which are counted already.
        last: how many commands, reasons and incidents to list.
    """
    lines = connection.execute(
        "SELECT id, handler, state, outcome, error, attempts, received_wall, finished_wall FROM command "
        "WHERE state != 'skipped' ORDER BY seq DESC LIMIT ?",
        (last,),
    )
    refused = connection.execute("SELECT key, reason, wall, body FROM set_aside ORDER BY key DESC LIMIT ?", (last,))
    aside = connection.execute(
        "SELECT id, handler, coalesce(outcome, ''), coalesce(put_aside, ''), finished_wall FROM command "
        "WHERE state = 'put_aside' ORDER BY seq DESC LIMIT ?",
        (last,),
    )
    (untold_gaps,) = connection.execute(
        "SELECT (SELECT count(*) FROM open_gap) + (SELECT count(body) FROM reading WHERE priority = ?)", (Priority.GAP,)
    ).fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    return StoreStatus(
        commands=dict(_pairs(connection.execute("SELECT state, count(*) FROM command GROUP BY state ORDER BY state"))),
        last_commands=tuple(CommandLine(*row) for row in lines),
        outbox=outbox,
        set_aside=tuple(SetAside(*row) for row in refused),
        gaps=tuple(
            DroppedReadings(*row) for row in connection.execute("SELECT reason, rows, from_wall, to_wall FROM gap")
        ),
        untold_gaps=untold_gaps,
        settings=dict(_pairs(connection.execute("SELECT name, value FROM setting ORDER BY name"))),
        incidents=_texts(connection, "SELECT text FROM incident ORDER BY id DESC LIMIT ?", last),
        file_bytes=pages * PAGE_BYTES,
        disk_bytes=_disk_bytes(path),
        undated=_count_undated(connection),
        put_aside=tuple(PutAside(*row) for row in aside),
        results=read_result_stats(connection),
    )


def from_json(members: Mapping[str, Any]) -> StoreStatus:
    """Out of the members that :func:`dataclasses.asdict` made.

    Raises:
        ValueError, TypeError, KeyError: there are others.
    """
    found = dict(members)
    found["outbox"] = OutboxStats(**found["outbox"])
    found["results"] = ResultStats(**found["results"])
    for name, kind in _LISTED.items():
        found[name] = tuple(kind(**each) for each in found[name])
    found["incidents"] = tuple(found["incidents"])
    return StoreStatus(**found)


_LISTED: Final[Mapping[str, Callable[..., Any]]] = {
    "last_commands": CommandLine,
    "set_aside": SetAside,
    "gaps": DroppedReadings,
    "put_aside": PutAside,
}


def _count_undated(connection: sqlite3.Connection) -> int:
    (undated,) = connection.execute(
        "SELECT count(*) FROM reading JOIN origin ON origin.id = origin "
        "WHERE body IS NOT NULL AND boot_id NOT IN (SELECT boot_id FROM boot)"
    ).fetchone()
    return int(undated)


def _texts(connection: sqlite3.Connection, sql: str, last: int) -> tuple[str, ...]:
    return tuple(str(row[0]) for row in connection.execute(sql, (last,)))


def _pairs(rows: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for name, value in rows:
        yield str(name), value
