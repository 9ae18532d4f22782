"""The folder of a run: what is written while it runs, so that a report can be made of it however it ended."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from agent.errors import ConfigurationError, StorageError
from simulator import whole_files
from simulator.file_lock import lock_file
from simulator.fleet.record import RunRecord, Second
from simulator.fleet.report.line_file import LineFile
from simulator.fleet.report.writing import RUN_FILE, SECONDS_FILE, record_text, second_line

RUNNING: Final = "it still goes on"
_RUNNING: Final = ".running"
_RESERVED_BYTES: Final = 1024 * 1024


class RunFolder:
    """The folder of a run that goes on; ``fleet-simulator report`` reads it, during the run and afterwards.

    While it goes on a file in it is locked, and keeps room on the disk, so that the record fits at the end although the
    disk is full by then.

    Raises:
        ConfigurationError: the folder holds a run already, or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if (path / RUN_FILE).exists() or (path / SECONDS_FILE).exists():
            raise ConfigurationError([f"{path} holds a run already: name another folder with --out, or remove it"])
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._running = _reserve(path / _RUNNING)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._seconds = LineFile(os.open(path / SECONDS_FILE, flags, 0o644))
        except OSError as error:
            raise ConfigurationError([f"{path}: cannot be used for the run's files: {error}"]) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def keep(self, record: RunRecord) -> None:
        """Write what is known of the run so far, at its begin and whenever a phase begins or a fault is made.

        ``ended_at`` is empty in it: that marks a run that never ended.

        Raises:
            StorageError: it could not be written; the file still holds what it held.
        """
        write_whole(self.path / RUN_FILE, record_text(replace(record, ended_at="")))

    def append(self, second: Second) -> None:
        """Append a second to the file.

        Raises:
            StorageError: it could not be written; the next one may be.
        """
        try:
            self._seconds.write(second_line(second).encode())
        except OSError as error:
            path = self.path / SECONDS_FILE
            raise StorageError(f"{path}: second {second.second} could not be written: {error}") from None

    def finish(self, record: RunRecord) -> None:
        """Write the record of the run that ended; :func:`~simulator.fleet.report.making.finish_run` makes reports, too.

        Raises:
            StorageError: it could not be written. Its verdict and audit are, where there is room for so much.
        """
        self._seconds.close()
        if self._running >= 0:
            os.ftruncate(self._running, 0)
        try:
            write_whole(self.path / RUN_FILE, record_text(record))
        except StorageError:
            with contextlib.suppress(StorageError):
                self.keep(_bare(record))
            raise

    def discard(self) -> None:
        """Take away what there is of a run that never began, so that the same command can be given once more.

        The folder goes, too, unless somebody else has something in it.
        """
        self._end()
        with contextlib.suppress(OSError):
            for name in (RUN_FILE, SECONDS_FILE):
                (self.path / name).unlink(missing_ok=True)
            self.path.rmdir()

    def _end(self) -> None:
        self._seconds.close()
        if self._running >= 0:
            with contextlib.suppress(OSError):
                (self.path / _RUNNING).unlink(missing_ok=True)
            os.close(self._running)
            self._running = -1


def state_of(folder: Path) -> str:
    """The state of a run whose record has no end: ``it still goes on``, ``it was killed``, or either."""
    try:
        descriptor = os.open(folder / _RUNNING, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return "it was killed, or it still goes on"
    try:
        lock_file(descriptor)
    except OSError:
        return RUNNING
    else:
        return "it was killed"
    finally:
        os.close(descriptor)


def forget_running(folder: Path) -> None:
    """Take away what a run that was killed kept room with."""
    with contextlib.suppress(OSError):
        (folder / _RUNNING).unlink(missing_ok=True)


def _reserve(path: Path) -> int:
    """A locked file that keeps room on the disk, as its descriptor.

    Raises:
        OSError: there is no room, or another run has it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        lock_file(descriptor)
        left = _RESERVED_BYTES
        while left > 0:  # written, not allocated: what is sparse or not allowed to be allocated keeps no room
            left -= os.write(descriptor, bytes(min(left, 65536)))
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)
        raise
    return descriptor


def _bare(record: RunRecord) -> RunRecord:
    """What of a record a report cannot find in the seconds: small, for a disk without room."""
    return replace(
        record,
        operations={},
        ages={},
        command_stages={},
        slowest=(),
        faults=tuple(replace(fault, truth={}) for fault in record.faults),
        audit=None if record.audit is None else replace(record.audit, findings=()),
    )


def write_whole(path: Path, text: str) -> None:
    """Write beside it and rename: a crash leaves the old file or the new one.

    Raises:
        StorageError: it could not be written.
    """
    try:
        whole_files.write_whole(path, text)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error}") from None
