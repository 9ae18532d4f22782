"""The progress of a run as ``run --progress`` writes it: read from its beginning, and followed as it grows.

The file may be anybody's: each line is taken apart and put together anew, and what is no line of progress is left out.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic_core import from_json, to_json

from agent.errors import StorageError
from simulator.console.runs.folder import PROGRESS_FILE
from simulator.console.runs.plain_files import open_plain

EVENTS: Final = frozenset({"run", "stage", "note", "second", "end"})
NOTES_KEPT: Final = 200
SECONDS_KEPT: Final = 240
LINE_BYTES: Final = 256 * 1024
READ_BYTES: Final = 1024 * 1024
_FILE_BYTES: Final = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProgressLine:
    """A line.

    Attributes:
        end: where in the file the next one begins.
        event: what it is.
        data: the line as JSON, in one line.
    """

    end: int
    event: str
    data: bytes


class Progress:
    """A run's progress, to be read once.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / PROGRESS_FILE
        self._inode = 0
        self.place = 0
        """Up to here it was read."""

    def catch_up(self, since: int = 0) -> list[ProgressLine]:
        """What a watcher needs who comes now: how it began, the last notes and the last seconds, in order.

        Args:
            since: a place that the watcher has everything up to; 0 for none.

        Raises:
            StorageError: it cannot be read.
        """
        first: dict[str, ProgressLine] = {}
        notes: deque[ProgressLine] = deque(maxlen=NOTES_KEPT)
        seconds: deque[ProgressLine] = deque(maxlen=SECONDS_KEPT)
        self.place = since
        while lines := self.news():
            for line in lines:
                if line.event == "note":
                    notes.append(line)
                elif line.event == "second":
                    seconds.append(line)
                    first.pop("stage", None)
                else:
                    first[line.event] = line
        return sorted([*first.values(), *notes, *seconds], key=lambda line: line.end)

    def news(self) -> list[ProgressLine]:
        """The whole lines after :attr:`place`, a megabyte of them at most; they count as read.

        Raises:
            StorageError: it cannot be read.
        """
        while True:
            content = self._read()
            whole = content.rfind(b"\n") + 1
            if whole == 0:
                if len(content) < READ_BYTES:
                    return []
                self.place += len(content)  # a line without an end, larger than any
                continue
            lines, at = [], self.place
            for raw in content[: whole - 1].split(b"\n"):
                at += len(raw) + 1
                line = _line(raw, at)
                if line is not None:
                    lines.append(line)
            self.place += whole
            if lines:
                return lines

    def _read(self) -> bytes:
        descriptor = open_plain(self._path)
        if descriptor is None:
            return b""
        try:
            found = os.fstat(descriptor)
            if found.st_size > _FILE_BYTES:
                raise StorageError(f"{PROGRESS_FILE} is larger than {_FILE_BYTES // 1024**3} GB")
            if found.st_size < self.place or (self._inode and found.st_ino != self._inode):
                self.place = 0  # it was begun anew
            self._inode = found.st_ino
            return os.pread(descriptor, READ_BYTES, self.place)
        except OSError as error:
            raise StorageError(f"{PROGRESS_FILE} cannot be read: {error.strerror}") from None
        finally:
            os.close(descriptor)


def _line(raw: bytes, end: int) -> ProgressLine | None:
    """A line of progress; None for what is none."""
    if len(raw) > LINE_BYTES:
        return None
    try:
        found = from_json(raw)
        event = found.get("event") if isinstance(found, dict) else None
        if event not in EVENTS:
            return None
        return ProgressLine(end, str(event), to_json(found, inf_nan_mode="null"))
    except (ValueError, TypeError, RecursionError):
        return None
