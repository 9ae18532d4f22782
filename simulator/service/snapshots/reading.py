"""Reads a snapshot line by line, and checks each of them and the checksum. No more than a line is in memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from simulator.service.errors import Invalid
from simulator.service.snapshots.document import LINE_BYTES, TABLES, Header, Rows, read_header, read_object, unfit
from simulator.service.storage.migrate import SCHEMA

_END: Final = b'{"sha256":'
_END_BYTES: Final = 200


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A row, and where it stands.

    Attributes:
        size_bytes: of its line.
    """

    rows: Rows
    values: dict[str, Any]
    place: str
    size_bytes: int


def check(path: Path) -> Header:
    """Read the whole file.

    Raises:
        Invalid: ``invalid_snapshot``: what is wrong with it.
    """
    with _opened(path) as file:
        header = _header_of(file)
        for _ in _read_rows(file, header):
            pass
    return header


def read(path: Path) -> tuple[Header, Generator[SnapshotRow, None, None]]:
    """The header, and the rows; only once all of them have been taken the file is known to be whole. Close them.

    Raises:
        Invalid: ``invalid_snapshot``; while the rows are taken, too.
    """
    file = _opened(path)
    try:
        header = _header_of(file)
    except BaseException:
        file.close()
        raise
    return header, _closing(file, header)


def look(path: Path) -> tuple[Header, str, int]:
    """The header, the checksum that the file ends with, and its size, without reading what is between.

    Raises:
        Invalid: ``invalid_snapshot``.
    """
    with _opened(path) as file:
        header = _header_of(file)
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _END_BYTES))
        last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    end = read_object(last) if last.startswith(_END) else None
    if end is None or not isinstance(end.get("sha256"), str):
        raise _cut_off()
    return header, end["sha256"], size


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as exc:
        raise unfit("file", f"cannot be read: {exc.strerror}") from None


def _closing(file: BinaryIO, header: Header) -> Generator[SnapshotRow, None, None]:
    with file:
        yield from _read_rows(file, header)


def _header_of(file: BinaryIO) -> Header:
    header = read_header(_read_line(file, "format"), str(SCHEMA))
    file.seek(0)
    return header


def _read_line(file: BinaryIO, place: str) -> bytes:
    try:
        line = file.readline(LINE_BYTES + 1)
    except OSError as exc:
        raise unfit("file", f"cannot be read: {exc.strerror}") from None
    if len(line) > LINE_BYTES:
        raise unfit(place, f"has more than {LINE_BYTES} bytes in one line: the file is no snapshot")
    return line


def _read_rows(file: BinaryIO, header: Header) -> Iterator[SnapshotRow]:
    """The rows of a file that is at its beginning."""
    digest = hashlib.sha256(_read_line(file, "format"))
    kinds = {table.name: (number, Rows(table)) for number, table in enumerate(TABLES)}
    counts = dict.fromkeys(header.rows, 0)
    reached, number = 0, 1
    while True:
        number += 1
        place = f"line {number}"
        line = _read_line(file, place)
        if line.startswith(_END):
            break
        if not line.endswith(b"\n"):
            raise _cut_off(number)
        digest.update(line)
        found = read_object(line)
        kind = None if found is None or found.keys() != {"table", "row"} else kinds.get(str(found["table"]))
        if found is None or kind is None or kind[0] < reached:
            raise unfit(place, "is no row of a table that may come here")
        reached, rows = kind
        counts[rows.table.name] += 1
        yield SnapshotRow(rows, rows.read(found["row"], place), place, len(line))
    if read_object(line) != {"sha256": digest.hexdigest(), "lines": number - 1} or file.read(1):
        raise unfit("sha256", "does not fit the lines before it: the file was changed after it was saved")
    for table, count in counts.items():
        if count != header.rows[table]:
            raise unfit(f"rows.{table}", f"is {header.rows[table]}, and the file has {count}")


def _cut_off(number: int | None = None) -> Invalid:
    after = "" if number is None else f" in line {number}"
    return unfit("sha256", f"is missing: the file was cut off{after}")
