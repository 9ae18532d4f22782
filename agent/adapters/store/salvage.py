"""A damaged file: it is moved aside, never deleted, and what can still be read goes into a new one.

Every table is read from both ends until the damage stops it, so one torn page costs what lies on it and not what lies
behind it. The file that was moved aside is opened read-only, and what was in it stays in it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from agent.adapters.store.failures import REPLACING
from agent.adapters.store.journal_rows import to_entry
from agent.adapters.store.outbox_rows import decode_values
from agent.adapters.store.schema import PAGE_BYTES
from agent.core.commands import HISTORY_LOST

_KEPT: Final = {
    # table: order. Readings without their origin could not be stamped, so it comes first.
    "origin": "id",
    "boot": "boot_id",
    "command": "seq",
    "setting": "name",
    "incident": "id",
    "gap": "reason",
    "open_gap": "reason",
    "set_aside": "key",
    "reading": "key",
}
_MAGIC: Final = b"SQLite format 3\0"
_HOLE_MAX_BYTES: Final = 32 * 1024**3


def begin_replacing(path: Path, wall_s: float) -> Path:
    """Note on the disk under which name the damaged file will lie, before it is moved; the name.

    A process that ends between the move and the end of the salvage would leave no file, and the next one would take
    that for a new device: it would run again what has run. Where such a note is found, its replacement is finished.

    Raises:
        OSError: the directory cannot be written.
    """
    note = path.with_name(path.name + REPLACING)
    with suppress(FileNotFoundError):
        if name := note.read_text("utf-8"):
            return path.with_name(name)
    aside = free_name(path, wall_s)
    draft = path.with_name(f"{note.name}.new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(aside.name)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(note)
    _sync_folder(path)
    return aside


def end_replacing(path: Path) -> None:
    """The new file holds all that can be had: forget the note.

    Raises:
        OSError: the directory cannot be written.
    """
    path.with_name(path.name + REPLACING).unlink(missing_ok=True)
    _sync_folder(path)


def move_aside(path: Path, aside: Path) -> None:
    """Give the damaged file, with its write-ahead log, another name beside it.

    Where it has that name already, what is in its place is the unfinished new one of an earlier attempt, and goes.

    Raises:
        OSError: the directory cannot be written.
    """
    is_moved = aside.exists()
    # The log first: SQLite finds it by the file's name, and a log left behind would be taken for the new file's.
    for ending in ("-wal", "-shm", ""):
        part = path.with_name(path.name + ending)
        with suppress(FileNotFoundError):
            if is_moved:
                part.unlink()
            else:
                part.rename(aside.with_name(aside.name + ending))
    _sync_folder(path)


def free_name(path: Path, wall_s: float) -> Path:
    """Where a file that is damaged at this moment may lie, beside it."""
    stamp = datetime.fromtimestamp(max(0.0, wall_s), UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    return aside


def _sync_folder(path: Path) -> None:
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def salvage(damaged: Path, target: sqlite3.Connection) -> dict[str, int]:
    """Copy what can be read into the new store, inside the caller's transaction; table -> rows.

    The setting :data:`~agent.core.commands.HISTORY_LOST` is put, since a row of the journal may be among the lost.
    """
    copied = dict.fromkeys(_KEPT, 0)
    with suppress(sqlite3.Error, OSError), closing(_open(damaged)) as source:
        for table, order in _KEPT.items():
            copied[table] = _copy(source, target, table, order)
    target.execute("INSERT OR REPLACE INTO setting VALUES (?, '1')", (HISTORY_LOST,))
    # A reading is named after its origin's store; without one it has no name.
    target.execute("DELETE FROM reading WHERE origin NOT IN (SELECT id FROM origin)")
    target.execute("DELETE FROM set_aside WHERE origin NOT IN (SELECT id FROM origin)")
    if copied["command"]:
        target.execute("INSERT OR IGNORE INTO meta VALUES ('contacted', 1)")
    # Keys below the highest that are not here were delivered or lost; as that is not known, they count as lost.
    target.execute("INSERT OR REPLACE INTO meta SELECT 'lost', coalesce(max(key), 0) - count(body) FROM reading")
    return copied


def _open(damaged: Path) -> sqlite3.Connection:
    _fill_up(damaged)
    source = sqlite3.connect(f"{damaged.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    # A flipped bit in a text must not end the reading of its table.
    source.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return source


def _fill_up(damaged: Path) -> None:
    """Give a file that was cut off the length that its header gives, as a hole: SQLite reads no shorter one.

    Source: sqlite.org/fileformat2.html, section 1.3: page size at offset 16, number of pages at offset 28.
    """
    with damaged.open("rb") as file:
        header = file.read(32)
    page_bytes = int.from_bytes(header[16:18])
    wanted = int.from_bytes(header[28:32]) * page_bytes
    is_ours = header.startswith(_MAGIC) and page_bytes == PAGE_BYTES
    if is_ours and damaged.stat().st_size < wanted <= _HOLE_MAX_BYTES:
        os.truncate(damaged, wanted)


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: str, order: str) -> int:
    before = target.total_changes
    columns = ", ".join(_columns(source, target, table))
    makes_sense = _CHECKS.get(table, lambda _row: None)
    for direction in ("ASC", "DESC"):
        for row in _readable(source, f"SELECT {columns} FROM {table} ORDER BY {order} {direction}"):  # noqa: S608
            marks = ", ".join("?" * len(row))
            with suppress(sqlite3.Error, ValueError, TypeError, AssertionError):
                makes_sense(row)
                target.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", row)  # noqa: S608
    return target.total_changes - before


def _columns(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> list[str]:
    """The table's columns, in this version's order; a file of an older version lacks the later ones."""
    wanted, found = (
        [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")] for connection in (target, source)
    )
    return [name for name in wanted if name in found]


def _check_command(row: Sequence[Any]) -> None:
    to_entry(row[1:])


def _check_reading(row: Sequence[Any]) -> None:
    if row[4] is not None:
        decode_values(row[4])


_CHECKS: Final = {"command": _check_command, "reading": _check_reading, "set_aside": _check_reading}


def _readable(source: sqlite3.Connection, sql: str) -> Iterator[tuple[Any, ...]]:
    """The rows up to the damage."""
    with suppress(sqlite3.Error):
        yield from source.execute(sql)
