"""The folder of a run: its record and its seconds, written while it runs and read back, however it ended.

``run.json`` is one record, ``seconds.jsonl`` one second a line. Reading is strict: an unknown or missing member, or a
text where a number belongs, is an error that names file, line and member. A run that was killed leaves half a line at
the most, as the last one; it is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from agent.errors import ConfigurationError, StorageError
from simulator import whole_files
from simulator.file_lock import lock_file
from simulator.fleet.audit.ledger import DATABASE, LEDGERS
from simulator.fleet.record import RECORD_FORMAT, RunRecord, Second

RUN_FILE: Final = "run.json"
SECONDS_FILE: Final = "seconds.jsonl"
RUNNING: Final = "it still goes on"
_RUNNING: Final = ".running"
_RESERVED_BYTES: Final = 1024 * 1024
_FAULTS_SHOWN: Final = 5
_STRICT: Final = ConfigDict(extra="forbid", strict=True, ser_json_inf_nan="constants", defer_build=True)
# In a tuple, since a dataclass by itself takes no configuration from outside.
_RECORDS: Final[TypeAdapter[Any]] = TypeAdapter(tuple[RunRecord], config=_STRICT)
_SECONDS: Final[TypeAdapter[Any]] = TypeAdapter(tuple[Second], config=_STRICT)


class LineFile:
    """Each line reaches the operating system before the next one: a program that is killed leaves all of them.

    Args:
        descriptor: of the file, open for writing; closed by :meth:`close`.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        about = os.fstat(descriptor)
        self._is_regular = stat.S_ISREG(about.st_mode)
        self._whole = about.st_size

    def write(self, line: bytes) -> None:
        """Add a line: all of it, or of a regular file none of it.

        Raises:
            OSError: it could not be written, such as on a full disk; the next one may be.
        """
        written = 0
        try:
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError:
            if self._is_regular:
                os.ftruncate(self._descriptor, self._whole)
                os.lseek(self._descriptor, self._whole, os.SEEK_SET)
            raise
        self._whole += len(line)

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RunFolder:
    """The folder of a run that goes on; ``fleet-simulator report`` reads it, during the run and afterwards.

    While it goes on a file in it is locked, and keeps room on the disk, so that the record fits at the end although the
    disk is full by then.

    Raises:
        ConfigurationError: the folder holds a run already, or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if self._files():
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
        self._seconds.close()
        if self._running >= 0:
            forget_running(self.path)
            os.close(self._running)
            self._running = -1

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
                self.keep(_without_figures(record))
            raise

    def discard(self) -> None:
        """Remove the files of a run that never began, so that the same command can be given once more.

        The folder goes, too, unless it holds other files.
        """
        self.__exit__(None, None, None)
        with contextlib.suppress(OSError):
            for path in self._files():
                path.unlink()
            self.path.rmdir()

    def _files(self) -> list[Path]:
        names = (RUN_FILE, SECONDS_FILE, f"{DATABASE}*", f"{LEDGERS}*")
        return [path for name in names for path in self.path.glob(name)]


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
    """Remove the file that is locked, and keeps room on the disk, while a run goes on."""
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
        while left > 0:  # written: a sparse file would keep no room
            left -= os.write(descriptor, bytes(min(left, 65536)))
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)
        raise
    return descriptor


def _without_figures(record: RunRecord) -> RunRecord:
    """The record without what reports can compute from the seconds: small enough for a full disk."""
    return replace(
        record,
        operations={},
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


# --- as text ----------------------------------------------------------------------------------------------------------


def record_text(record: RunRecord) -> str:
    """The record as it stands in ``run.json``: indented JSON that ends with a line feed."""
    return _RECORDS.dump_json((record,), indent=1)[1:-1].decode().strip() + "\n"


def second_line(second: Second) -> str:
    """The second as a line of ``seconds.jsonl``, with its line feed."""
    return _SECONDS.dump_json((second,))[1:-1].decode() + "\n"


def read_record(folder: Path) -> RunRecord:
    """The record of the run in a folder.

    Raises:
        ConfigurationError: there is none, it is damaged, or it is one of another version of the format.
    """
    path = folder / RUN_FILE
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        fix = "name the folder that `fleet-simulator run --out` wrote"
        raise ConfigurationError([f"{path}: not there, or no JSON: {fix} ({error})"]) from None
    found = document.get("format") if isinstance(document, dict) else None
    if found != RECORD_FORMAT:
        fix = "use the version that wrote it"
        fault = f"{path}: format is {found!r}, and this version reads {RECORD_FORMAT!r}: {fix}"
        raise ConfigurationError([fault])
    return cast("RunRecord", _parsed(_RECORDS, text, str(path)))


def read_seconds(folder: Path) -> Iterator[Second]:
    """The seconds of the run in a folder, one after the other; hours of them fit into no memory.

    None when nothing was written, or no file at all. A last line without its end is what a killed run was writing.

    Raises:
        ConfigurationError: a line is damaged, or its second is not after the one before.
    """
    path = folder / SECONDS_FILE
    before = -1
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                second = cast("Second", _parsed(_SECONDS, line.decode("utf-8", "replace"), f"{path}:{number}"))
                if second.second <= before:
                    fault = f"second {second.second} comes after second {before}: a line was moved or doubled"
                    raise ConfigurationError([f"{path}:{number}: {fault}"])
                before = second.second
                yield second
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError([f"{path}: cannot be read: {error}"]) from None


def _parsed(adapter: TypeAdapter[Any], text: str, source: str) -> Any:
    try:
        return adapter.validate_json(f"[{text}]")[0]
    except ValidationError as error:
        faults = [
            f"{source}: {'.'.join(str(part) for part in fault['loc'][1:]) or 'the whole'}: "
            f"{fault['msg'][:1].lower()}{fault['msg'][1:]}"
            for fault in error.errors(include_url=False, include_input=False)
        ]
        if (more := len(faults) - _FAULTS_SHOWN) > 0:
            faults = [*faults[:_FAULTS_SHOWN], f"{source}: {more} more"]
        raise ConfigurationError(faults, source) from None
