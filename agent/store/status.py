"""What the store holds, for people: of the running agent over its own connection, of a stopped one out of its file."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from agent.core.commands import without_payload, without_result
from agent.core.values import JournalEntry, OutboxStats
from agent.store.journal import read_entry
from agent.store.outbox import count_waiting, outbox_stats
from agent.store.sqlite import check_version, explain


@dataclass(frozen=True, slots=True)
class DroppedReadings:
    """Readings that were dropped for one reason, and the time that they were from, epoch seconds."""

    reason: str
    rows: int
    from_wall_s: float
    to_wall_s: float


@dataclass(frozen=True, slots=True)
class RefusedReading:
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
class StoreStatus:
    """What the store holds.

    Attributes:
        commands: state -> how many.
        last_commands: newest first, without payloads and results.
        undeliverable: the latest results that the service does not take, newest first.
        outbox: the waiting readings.
        refused: the latest readings that were refused for good, newest first.
        gaps: what was dropped ever, by reason.
        settings: what survives a restart.
        incidents: what happened to the file, newest first.
        disk_bytes: what lies on the disk: file and write-ahead log.
    """

    commands: Mapping[str, int]
    last_commands: tuple[JournalEntry, ...]
    undeliverable: tuple[JournalEntry, ...]
    outbox: OutboxStats
    refused: tuple[RefusedReading, ...]
    gaps: tuple[DroppedReadings, ...]
    settings: Mapping[str, str]
    incidents: tuple[str, ...]
    disk_bytes: int


def read_store_status(path: Path, *, last: int = 10) -> StoreStatus | None:
    """What the store at ``path`` holds, while no agent uses it; None when there is none yet.

    Raises:
        StorageError: it cannot be read now; the text names the fix.
        ConfigurationError: it is another program's, or another version's.
    """
    if not path.exists():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            if not check_version(db, path):
                return None
            rows, _, size_bytes = count_waiting(db)
            return status_of(db, path, outbox_stats(db, rows, size_bytes), last)
    except sqlite3.Error as error:
        raise explain(error, path) from error


def status_of(db: sqlite3.Connection, path: Path, outbox: OutboxStats, last: int = 10) -> StoreStatus:
    """The same over a connection that is open.

    Args:
        db: to the store.
        path: of its file.
        outbox: its readings, which are counted already.
        last: how many commands, reasons and incidents to list.
    """
    states = db.execute("SELECT state, count(*) FROM command GROUP BY state ORDER BY state")
    gaps = db.execute("SELECT reason, rows, from_wall, to_wall FROM gap")
    refused = db.execute("SELECT key, reason, wall, body FROM refused ORDER BY key DESC LIMIT ?", (last,))
    incidents = db.execute("SELECT text FROM incident ORDER BY id DESC LIMIT ?", (last,))
    return StoreStatus(
        commands=dict(states.fetchall()),
        last_commands=_entries(db, "state != 'skipped'", last),
        undeliverable=_entries(db, "state = 'undeliverable'", last),
        outbox=outbox,
        refused=tuple(RefusedReading(*row) for row in refused),
        gaps=tuple(DroppedReadings(*row) for row in gaps),
        settings=dict(db.execute("SELECT name, value FROM setting ORDER BY name").fetchall()),
        incidents=tuple(text for (text,) in incidents),
        disk_bytes=_disk_bytes(path),
    )


def _entries(db: sqlite3.Connection, where: str, last: int) -> tuple[JournalEntry, ...]:
    bodies = db.execute(f"SELECT body FROM command WHERE {where} ORDER BY seq DESC LIMIT ?", (last,))
    entries = [read_entry(body) for (body,) in bodies]
    return tuple(without_result(replace(each, command=without_payload(each.command))) for each in entries)


def _disk_bytes(path: Path) -> int:
    total = 0
    for ending in ("", "-wal"):
        with suppress(OSError):
            total += path.with_name(path.name + ending).stat().st_size
    return total
