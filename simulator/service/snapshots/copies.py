"""Copies of everything that is stored: SQLite's own backup, with one more table that says when it was made."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, delete, func, select
from sqlalchemy.exc import SQLAlchemyError

from agent.errors import ConfigurationError
from simulator.service.clock import ClockMode, ClockState
from simulator.service.errors import Invalid
from simulator.service.storage.migrate import SCHEMA
from simulator.service.storage.tables import METADATA

_MODE: Final = 0o600
_ROWS: Final = 1_000
"""Rows that are stored at once."""


def unfit(field: str, issue: str) -> Invalid:
    """The error for a file that cannot be loaded."""
    return Invalid("invalid_snapshot", f"The snapshot cannot be loaded: {field} {issue}.", details=[(field, issue)])


@dataclass(frozen=True, slots=True)
class Header:
    """What a snapshot says of itself.

    Attributes:
        made_ms: when it was made, by the machine's clock, milliseconds since the epoch.
        clock: the service's clock.
    """

    made_ms: int
    clock: ClockState


def part_of(target: Path) -> Path:
    """Where a snapshot is written before it is whole."""
    return target.with_name(f".{target.name}.part")


def save(connection: Connection, target: Path, clock: ClockState, made_ms: int) -> None:
    """Copy all that is committed, while others write on.

    Args:
        connection: for reading.
        target: the file; one that is there is replaced by the whole new one.
        clock: the service's.
        made_ms: this instant by the machine's clock.

    Raises:
        OSError: it cannot be written; what was there stays, and nothing else is left behind.
    """
    part = part_of(target)
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE))
        with contextlib.closing(sqlite3.connect(part)) as copy:
            source = connection.connection.driver_connection
            assert isinstance(source, sqlite3.Connection)  # noqa: S101 - there is no other driver
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
            copy.execute("CREATE TABLE snapshot (made_ms INTEGER, mode TEXT, now_ms INTEGER, rate REAL)")
            row = (made_ms, clock.mode.value, clock.now_ms, clock.rate)
            copy.execute("INSERT INTO snapshot VALUES (?, ?, ?, ?)", row)
            copy.commit()
        part.replace(target)
    except BaseException as exc:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(exc, sqlite3.Error):
            raise OSError(str(exc)) from None
        raise


def look(path: Path) -> Header:
    """What a snapshot says of itself.

    Raises:
        Invalid: ``invalid_snapshot``: it is none, or of another release.
        OSError: it cannot be read.
    """
    path.stat()
    with _opened(path) as copy:
        try:
            schema = copy.execute("PRAGMA user_version").fetchone()[0]
            made_ms, mode, now_ms, rate = copy.execute("SELECT made_ms, mode, now_ms, rate FROM snapshot").fetchone()
            clock = ClockState(ClockMode(mode), int(now_ms), float(rate))
        except (sqlite3.Error, TypeError, ValueError):
            raise unfit("file", "is no snapshot of this service") from None
    if schema != SCHEMA:
        raise unfit("schema", f"is {schema}, of another release; this one has {SCHEMA}")
    return Header(int(made_ms), clock)


def check(path: Path) -> None:
    """Refuse a file that is no whole snapshot; as :func:`look`."""
    look(path)
    with _opened(path) as copy:
        try:
            is_whole = copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        except sqlite3.Error:
            is_whole = False
    if not is_whole:
        raise unfit("file", "is damaged")


def digest_of(path: Path) -> str:
    """SHA-256 of a snapshot's file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace_all(connection: Connection, path: Path) -> Header:
    """Delete every row and store those of the file. Nothing is to be committed when it raises.

    Raises:
        Invalid: ``invalid_snapshot``: the file is no snapshot, or its rows contradict each other.
    """
    check(path)
    with _opened(path) as copy:
        for table in reversed(METADATA.sorted_tables):
            connection.execute(delete(table))
        for table in METADATA.sorted_tables:
            names = ", ".join(column.name for column in table.columns)
            marks = ", ".join("?" * len(table.columns))
            try:
                rows = copy.execute(f"SELECT {names} FROM {table.name}")  # noqa: S608 - our own names
                while some := rows.fetchmany(_ROWS):
                    connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", some)  # noqa: S608
            except (sqlite3.Error, SQLAlchemyError) as exc:
                raise unfit(table.name, f"has rows that cannot be stored: {exc!s:.100}") from None
    if not connection.execute(select(func.count()).select_from(METADATA.tables["api_keys"])).scalar_one():
        raise unfit("api_keys", "is empty: without keys nobody could come in")
    return look(path)


def begin_with(connection: Connection, path: Path, where: str) -> Header:
    """Load a snapshot where nothing is stored yet: a start must not delete what is there.

    Args:
        connection: in a transaction.
        path: of the snapshot.
        where: everything is kept, for a person.

    Raises:
        ConfigurationError: the storage has a state, or the file cannot be loaded.
    """
    tables = METADATA.sorted_tables
    if any(connection.execute(select(func.count()).select_from(table)).scalar_one() for table in tables):
        issue = f"--snapshot {path}: there is a state already, {where}: leave --snapshot out to go on with that one"
        raise ConfigurationError([f"{issue}, or give an empty place"], "service")
    with faults_of_option(path):
        return replace_all(connection, path)


@contextlib.contextmanager
def faults_of_option(path: Path) -> Iterator[None]:
    """Within the block what is wrong with the snapshot is said of ``--snapshot``."""
    try:
        yield
    except Invalid as exc:
        raise ConfigurationError([f"--snapshot {path}: {exc.message}"], "service") from None
    except OSError as exc:
        raise ConfigurationError([f"--snapshot {path}: cannot be read: {exc.strerror}"], "service") from None


@contextlib.contextmanager
def rows_are_of_a_snapshot() -> Iterator[None]:
    """Within the block accounts that cannot be used are a fault of the snapshot."""
    try:
        yield
    except ConfigurationError as exc:
        raise unfit("api_keys", f"cannot be used: {exc.in_one_line}") from None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        copy = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error as exc:
        raise unfit("file", f"cannot be opened: {exc}") from None
    with contextlib.closing(copy):
        yield copy
