"""Replaces everything that is stored by what a snapshot holds, within one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, select
from sqlalchemy.exc import DataError, IntegrityError

from agent.errors import ConfigurationError
from simulator.service.errors import Invalid
from simulator.service.snapshots.document import TABLES, Header, Rows, unfit
from simulator.service.snapshots.reading import SnapshotRow, read

_ROWS: Final = 1_000
_BYTES: Final = 1024 * 1024
"""Rows that are handed to the database at once: so many, or so many bytes of lines."""


def replace_all(connection: Connection, path: Path) -> Header:
    """Delete every row and store those of the file. Nothing is to be committed when it raises.

    Raises:
        Invalid: ``invalid_snapshot``: the file is no whole snapshot, or its rows contradict each other.
    """
    header, rows = read(path)
    with contextlib.closing(rows):
        _replace_rows(connection, header, rows)
    return header


def _replace_rows(connection: Connection, header: Header, rows: Iterator[SnapshotRow]) -> None:
    if not header.rows["api_keys"]:
        raise unfit("rows.api_keys", "is 0: without keys nobody could come in")
    for table in reversed(TABLES):
        connection.execute(delete(table))
    batch: list[dict[str, Any]] = []
    kind, size, place = None, 0, ""
    for row in rows:
        if kind is not None and (row.rows is not kind or len(batch) >= _ROWS or size >= _BYTES):
            _store(connection, kind, batch, place)
            batch, size = [], 0
        kind, place = row.rows, row.place
        batch.append(row.values)
        size += row.size_bytes
    if kind is not None:
        _store(connection, kind, batch, place)


def begin_with(connection: Connection, path: Path, where: str) -> Header:
    """Load a snapshot where nothing is stored yet: a start must not delete what is there.

    Args:
        connection: in a transaction.
        path: of the snapshot.
        where: everything is kept, for a person.

    Raises:
        ConfigurationError: the storage has a state, or the file cannot be loaded.
    """
    if any(count_rows(connection).values()):
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


@contextlib.contextmanager
def rows_are_of_a_snapshot() -> Iterator[None]:
    """Within the block accounts that cannot be used are a fault of the snapshot."""
    try:
        yield
    except ConfigurationError as exc:
        raise unfit("rows.api_keys", f"cannot be used: {exc.in_one_line}") from None


def count_rows(connection: Connection) -> dict[str, int]:
    """Table -> its rows, of all tables."""
    return {table.name: connection.execute(select(func.count()).select_from(table)).scalar_one() for table in TABLES}


def _store(connection: Connection, rows: Rows, batch: list[dict[str, Any]], place: str) -> None:
    try:
        connection.execute(insert(rows.table), batch)
    except (IntegrityError, DataError):
        issue = f"the last of {len(batch)} rows of {rows.table.name} that contradict each other or the rows before"
        raise unfit(place, f"is {issue}") from None
