"""A consistent copy of the database in memory, taken by a process that neither locks nor writes anything.

The agent's connection is exclusive: its index of the write-ahead log lives in memory and not in a ``-shm`` file, which
halves what an idle agent writes to the flash. So SQLite cannot read along, and this module puts file and log together
itself: it reads both until neither the file nor the log's head changed meanwhile, and lays every page of a committed
transaction over the file's.

Source: sqlite.org/fileformat2.html, sections 1.3 (header) and 4 (the write-ahead log).
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from agent.errors import StorageError

_TRIES: Final = 50
_WAL_HEAD: Final = struct.Struct(">8I")
_FRAME_HEAD: Final = struct.Struct(">6I")
_MAGIC: Final = 0x377F0682
_WORD: Final = 0xFFFFFFFF
# Offsets 18 and 19 of the file say "write-ahead log"; the copy has none.
_VERSIONS: Final = slice(18, 20)
_ROLLBACK_JOURNAL: Final = b"\x01\x01"


def read_snapshot(path: Path) -> bytes | None:
    """The database as of its last commit; None when there is none yet.

    Raises:
        StorageError: it cannot be read, or it changes too fast; the text names the fix.
    """
    wal_path = path.with_name(f"{path.name}-wal")
    try:
        for _ in range(_TRIES):
            before = _mark(path, wal_path)
            content, wal = _read(path), _read(wal_path)
            if _mark(path, wal_path) == before:
                return apply_wal(content, wal) or None
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}: run this as the agent's user or as root") from error
    raise StorageError(f"{path}: it changes faster than it can be read: try again")


def apply_wal(content: bytes, wal: bytes) -> bytes:
    """The file's bytes with all committed pages of the log laid over them, marked as a database without a log."""
    pages, page_count, page_bytes = _committed_pages(wal)
    result = bytearray(content)
    if pages:
        size_bytes = page_count * page_bytes
        result[size_bytes:] = b""
        result.extend(bytes(size_bytes - len(result)))
        for number, page in pages.items():
            if number <= page_count:
                result[(number - 1) * page_bytes : number * page_bytes] = page
    if result:
        result[_VERSIONS] = _ROLLBACK_JOURNAL
    return bytes(result)


def _committed_pages(wal: bytes) -> tuple[dict[int, bytes], int, int]:
    """Page number -> newest committed content, the number of pages after the last commit, and the page size."""
    if len(wal) < _WAL_HEAD.size:
        return {}, 0, 0
    magic, _, page_bytes, _, salt_1, salt_2, sum_1, sum_2 = _WAL_HEAD.unpack_from(wal)
    byte_order = ">" if magic & 1 else "<"
    sums = _checksum(wal[:24], byte_order, (0, 0))
    if magic & ~1 != _MAGIC or sums != (sum_1, sum_2):
        return {}, 0, 0
    committed: dict[int, bytes] = {}
    pending: dict[int, bytes] = {}
    page_count = 0
    frame_bytes = _FRAME_HEAD.size + page_bytes
    for start in range(_WAL_HEAD.size, len(wal) - frame_bytes + 1, frame_bytes):
        number, size_after, *salts, sum_1, sum_2 = _FRAME_HEAD.unpack_from(wal, start)
        page = wal[start + _FRAME_HEAD.size : start + frame_bytes]
        sums = _checksum(wal[start : start + 8] + page, byte_order, sums)
        # What follows is of an older round of the log, or of a commit that is under way or was torn.
        if salts != [salt_1, salt_2] or sums != (sum_1, sum_2):
            break
        pending[number] = page
        if size_after:
            committed |= pending
            pending.clear()
            page_count = size_after
    return committed, page_count, page_bytes


def _checksum(data: bytes, byte_order: str, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    for one, two in struct.iter_unpack(f"{byte_order}2I", data):
        first = (first + one + second) & _WORD
        second = (second + two + first) & _WORD
    return first, second


def _mark(path: Path, wal_path: Path) -> tuple[object, ...]:
    """What changes when the log is written back into the file or begun anew; the log's growth does no harm."""
    try:
        state = path.stat()
        file_mark = (state.st_ino, state.st_size, state.st_mtime_ns)
    except FileNotFoundError:
        file_mark = (0, 0, 0)
    return (*file_mark, _read(wal_path, _WAL_HEAD.size))


def _read(path: Path, most: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most)
    except FileNotFoundError:
        return b""
