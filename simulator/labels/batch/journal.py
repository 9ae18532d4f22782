"""The journal of a batch that is being made: one line for each proven label, in the batch's order.

The journal lives in the batch's folder until the manifest is written. A process that was killed leaves it behind; the
same batch then goes on at the first label that it lacks. Whoever holds it open holds the folder: it is locked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from simulator.file_lock import lock_file
from simulator.labels.errors import LabelError, LabelsExist
from simulator.whole_files import cannot_write


class BatchJournal:
    """The open journal of one folder. Made by :meth:`open`.

    Attributes:
        done: labels in it, counted from the batch's first.
    """

    def __init__(self, path: Path, file: BinaryIO, first: int, done: int) -> None:
        self._path = path
        self._file = file
        self._first = first  # where the labels begin in the file
        self.done = done

    @classmethod
    def open(cls, path: Path, header: dict[str, Any], *, replace: bool) -> BatchJournal:
        """Open and lock the journal, and keep what it says when it belongs to the same batch.

        Args:
            path: the file; made when missing.
            header: what the batch is made from (``batch``) and proven with.
            replace: begin anew when another batch was left unfinished here.

        Raises:
            LabelsExist: another batch was left unfinished here and ``replace`` is false.
            LabelError: another process holds it, or it cannot be written.
        """
        with _refused(path):
            file = _open_locked(path)
        try:
            with _refused(path):
                return cls._begin(path, file, header, replace=replace)
        except BaseException:
            _close(file)
            raise

    @classmethod
    def _begin(cls, path: Path, file: BinaryIO, header: dict[str, Any], *, replace: bool) -> BatchJournal:
        known = _parse(file.readline())
        if known.get("batch", header["batch"]) != header["batch"] and not replace:
            raise LabelsExist(
                f"{path.parent} holds an unfinished batch of product {known['batch'].get('product_id')!r}: finish it "
                "with its own command, choose another --out, or pass --replace to overwrite it"
            )
        if {name: known.get(name) for name in header} == header:
            first = file.tell()
            done = 0
            whole = first
            for line in file:
                if not line.endswith(b"\n") or not _parse(line):
                    break  # torn by a power cut: that label is made again
                done += 1
                whole += len(line)
            file.truncate(whole)
            file.seek(whole)
            return cls(path, file, first, done)
        file.seek(0)
        left = sorted({(kind, name) for line in file for kind, name in _files_of(_parse(line))})
        file.seek(0)
        file.truncate()
        # The names are kept: this batch removes what the one before left and it lacks.
        file.write(_line({**header, "left": [list(pair) for pair in left]}))
        file.flush()
        return cls(path, file, file.tell(), 0)

    def append(self, line: bytes) -> None:
        """Add the next label; see :func:`label_line`.

        Raises:
            LabelError: it cannot be written; so for :meth:`flush` and all that reads.
        """
        with _refused(self._path):
            self._file.write(line)
        self.done += 1

    def flush(self) -> None:
        """Hand what was appended to the operating system."""
        with _refused(self._path):
            self._file.flush()

    def records(self) -> Iterator[dict[str, Any]]:
        """What was said of each label, in order; never all of it in memory."""
        self.flush()
        with self._path.open("rb") as file:
            file.seek(self._first)
            for line in file:
                yield json.loads(line)

    def file_names(self) -> Iterator[tuple[str, str]]:
        """Format and name of each file that the batch, or an unfinished one before it, wrote."""
        self.flush()
        with self._path.open("rb") as file:
            for line in file:
                yield from _files_of(_parse(line))

    def whole(self, record: dict[str, Any]) -> bool:
        """Whether a label's files are on the disk with the bytes that were written."""
        try:
            return all(
                hashlib.sha256((self._path.parent / name).read_bytes()).hexdigest() == digest
                for name, digest in record["files"].values()
            )
        except OSError:
            return False

    def remove(self) -> None:
        """The batch is finished: the manifest says it all."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give the folder free; a journal without a single label goes."""
        if self._file.closed:
            return
        if not self.done:
            self.remove()
        _close(self._file)


@contextlib.contextmanager
def _refused(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise LabelError(cannot_write(path, problem, "another --out")) from None


def _close(file: BinaryIO) -> None:
    """Close it; lines that the disk refused are lost, and their labels are made again."""
    with contextlib.suppress(OSError):
        file.close()


def label_line(record: dict[str, Any]) -> bytes:
    """The journal's line of one label.

    Args:
        record: JSON members; ``files`` is format -> [name, SHA-256 of the bytes].
    """
    return _line(record)


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _parse(line: bytes) -> dict[str, Any]:
    """The line's members; none when it is no whole line of ours."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _files_of(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    files = record.get("files", {})
    yield from ((kind, name) for kind, (name, _) in files.items())
    yield from ((kind, name) for kind, name in record.get("left", []))


def _open_locked(path: Path) -> BinaryIO:
    while True:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            lock_file(file.fileno())
        except BlockingIOError:
            file.close()
            raise LabelError(
                f"another process makes labels in {path.parent}: wait for it, or choose another --out"
            ) from None
        try:
            if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                return file
        except FileNotFoundError:
            pass
        file.close()  # the batch before was finished in this moment, and its journal removed
