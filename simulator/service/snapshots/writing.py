"""Writes a snapshot: beside its place, flushed to the disk, then renamed. So a file of its name is a whole one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, select

from simulator.service.clock import ClockState
from simulator.service.snapshots.document import LINE_BYTES, TABLES, Header, Rows
from simulator.service.snapshots.loading import count_rows
from simulator.service.storage.lists import stream
from simulator.service.storage.migrate import SCHEMA

_PIECE: Final = 1024 * 1024
_MODE: Final = 0o600
"""It holds the hashes of secrets, and what products keep: nobody else's business."""


class SaveStopped(Exception):
    """The service ends, and a snapshot that is being written is not finished."""


def save(
    connection: Connection, target: Path, clock: ClockState, made_ms: int, stopping: threading.Event | None = None
) -> Header:
    """Write all that a connection sees, in one transaction of it, while others write on.

    Args:
        connection: for reading; it has not read before.
        target: the file; one that is there is replaced by the whole new one.
        clock: the service's.
        made_ms: this instant by the machine's clock.
        stopping: when it is set, the writing ends early.

    Raises:
        OSError: it cannot be written; what was there stays, and nothing else is left behind.
        SaveStopped: the service ends.
    """
    header = Header(str(SCHEMA), made_ms, clock, count_rows(connection))
    part = part_of(target)
    try:
        with contextlib.closing(_row_lines(connection, stopping or threading.Event())) as lines:
            _write(part, header, lines)
        part.replace(target)
        _flush_folder(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    return header


def part_of(target: Path) -> Path:
    """Where a snapshot is written before it is whole."""
    return target.with_name(f".{target.name}.part")


def _write(part: Path, header: Header, lines: Iterator[bytes]) -> None:
    digest, count = hashlib.sha256(), 0
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
    with os.fdopen(descriptor, "wb", buffering=_PIECE) as file:
        first = header.line()
        digest.update(first)
        file.write(first)
        for line in lines:
            digest.update(line)
            file.write(line)
            count += 1
        file.write(b'{"sha256":"%b","lines":%d}\n' % (digest.hexdigest().encode(), count + 1))
        file.flush()
        os.fsync(file.fileno())


def _row_lines(connection: Connection, stopping: threading.Event) -> Generator[bytes, None, None]:
    for table in TABLES:
        rows = Rows(table)
        with contextlib.closing(stream(connection, select(table).order_by(*table.primary_key.columns))) as found:
            for row in found:
                if stopping.is_set():
                    raise SaveStopped
                line = rows.line(row)
                if len(line) > LINE_BYTES:
                    raise OSError(f"a row of {table.name} is longer than a line may be")
                yield line


def _flush_folder(folder: Path) -> None:
    """The rename itself survives a power cut."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
