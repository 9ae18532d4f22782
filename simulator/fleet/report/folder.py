"""The folder of a run: what is written while it runs, so that a report can be made of it however it ended."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.errors import ConfigurationError, StorageError
from simulator import whole_files
from simulator.fleet.record import RunRecord, Second
from simulator.fleet.report.writing import RUN_FILE, SECONDS_FILE, SecondsFile, record_text


class RunFolder:
    """The folder of a run that goes on; ``fleet-simulator report`` reads it, during the run and afterwards.

    Raises:
        ConfigurationError: the folder holds a run already, or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if (path / RUN_FILE).exists() or (path / SECONDS_FILE).exists():
            raise ConfigurationError([f"{path} holds a run already: name another folder with --out, or remove it"])
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._seconds = SecondsFile(path / SECONDS_FILE)
        except (OSError, StorageError) as error:
            raise ConfigurationError([f"{path}: cannot be used for the run's files: {error}"]) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seconds.close()

    def keep(self, record: RunRecord) -> None:
        """Write what is known of the run so far, at its begin and whenever a phase begins or a fault is made.

        ``ended_at`` is empty in it: that is how a run that never ended is told from one that did.

        Raises:
            StorageError: it could not be written; the file still holds what it held.
        """
        write_whole(self.path / RUN_FILE, record_text(replace(record, ended_at="")))

    def append(self, second: Second) -> None:
        """Add a second.

        Raises:
            StorageError: it could not be written; the next one may be.
        """
        self._seconds.append(second)

    def finish(self, record: RunRecord) -> None:
        """Write the record of the run that ended; :func:`~simulator.fleet.report.making.finish_run` makes reports, too.

        Raises:
            StorageError: it could not be written.
        """
        self._seconds.close()
        write_whole(self.path / RUN_FILE, record_text(record))

    def discard(self) -> None:
        """Take away what there is of a run that never began, so that the same command can be given once more.

        The folder goes, too, unless somebody else has something in it.
        """
        self._seconds.close()
        with contextlib.suppress(OSError):
            for name in (RUN_FILE, SECONDS_FILE):
                (self.path / name).unlink(missing_ok=True)
            self.path.rmdir()


def write_whole(path: Path, text: str) -> None:
    """Write beside it and rename: a crash leaves the old file or the new one.

    Raises:
        StorageError: it could not be written.
    """
    try:
        whole_files.write_whole(path, text)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error}") from None
