"""The folder of fleet runs: which there are, and what each says of itself.

Somebody else's files may be in it: they are read without following links, within bounds, and a run that cannot be read
is shown as that.
"""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import from_json
from typing_extensions import TypedDict

from agent.errors import ConfigurationError, StorageError
from simulator.console.plain_files import is_name, read_plain

RUN_FILE: Final = "run.json"
PROGRESS_FILE: Final = "progress.jsonl"
_SECONDS_FILE: Final = "seconds.jsonl"
_RECORD_BYTES: Final = 64 * 1024 * 1024
_PROGRESS_BYTES: Final = 1024 * 1024
_LINE_BYTES: Final = 256 * 1024
_FILE_BYTES: Final = 64 * 1024 * 1024
_LISTED: Final = frozenset({".csv", ".json", ".jsonl", ".xml", ".html"})
_CHARACTERS: Final = 500
_SENTENCES: Final = 20
_RUNS_SHOWN: Final = 500


def _cut(value: Any) -> Any:
    return f"{value[:_CHARACTERS]}…" if isinstance(value, str) and len(value) > _CHARACTERS else value


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Cut = Annotated[str, BeforeValidator(_cut)]
Finite = Annotated[float | None, BeforeValidator(_finite)]


class _Verdict(BaseModel):
    word: Cut
    sentences: list[Cut] = []


class Threshold(BaseModel):
    """A threshold of a run; ``observed`` is null when nothing was."""

    expression: Cut
    held: bool
    judged: bool = True
    observed: Finite = None
    unit: Cut = ""


class _Record(BaseModel):
    """What the console needs of ``run.json``."""

    name: Cut = ""
    target: Cut = ""
    devices: int | None = None
    began_at: Cut = ""
    ended_at: Cut = ""
    duration_s: Finite = None
    verdict: _Verdict | None = None
    thresholds: list[Threshold] = []


class RunShown(BaseModel):
    """A run as the console shows it. What is not known of it is null, or empty.

    Attributes:
        word: the verdict; or ``starting``, ``running``, ``stopping``; ``no end`` for one that goes on elsewhere or was
            killed; ``unreadable``.
        fault: why it cannot be read.
        last_words: what its program wrote to standard error, where it was started here.
    """

    id: str
    word: str
    started_here: bool = False
    scenario: str = ""
    target: str = ""
    devices: int | None = None
    began_at: str | None = None
    duration_s: float | None = None
    sentences: list[str] = []
    thresholds: list[Threshold] = []
    files: list[str] = []
    fault: str | None = None
    last_words: str = ""


class ProgressShown(TypedDict):
    """Lines of ``run --progress``; ``place`` is what ``after`` is next time."""

    place: int
    lines: list[dict[str, Any]]


class RunsFolder:
    """The folder; it need not be there yet.

    Args:
        path: its folders are runs.

    Raises:
        ConfigurationError: it is a run itself, or no folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._known: dict[str, tuple[tuple[int, ...], RunShown]] = {}
        if self.path.exists() and not self.path.is_dir():
            raise ConfigurationError([f"--runs: {path} is a file: name the folder that runs are in"], "--runs")
        if (self.path / RUN_FILE).exists():
            raise ConfigurationError([f"--runs: {path} is a run itself: name the folder that it is in"], "--runs")

    def all(self) -> list[RunShown]:
        """The latest runs, by when they began; what has no record counts as the oldest."""
        try:
            names = [entry.name for entry in os.scandir(self.path) if entry.is_dir(follow_symlinks=False)]
        except OSError:  # not there yet, or nobody's to read
            return []
        found = [run for run in map(self.find, names) if run is not None]
        self._known = {run.id: self._known[run.id] for run in found}
        return sorted(found, key=lambda run: (run.began_at or "", run.id), reverse=True)[:_RUNS_SHOWN]

    def find(self, run_id: str) -> RunShown | None:
        """The run with this id; None when there is none. Its record is read anew when it has changed."""
        path = self.path / run_id
        if not is_name(run_id) or not _is_folder(path):
            return None
        stamp = (*_stamp(path / RUN_FILE), *_stamp(path / _SECONDS_FILE)[:1])
        if not stamp:
            return None
        known = self._known.get(run_id)
        if known is None or known[0] != stamp:
            known = self._known[run_id] = stamp, _read(path)
        return known[1].model_copy(update={"files": _files(path)})

    def read_file(self, run_id: str, name: str) -> bytes | None:
        """A file of a run, as far as its first 64 MiB; None when it has none of this name.

        Raises:
            StorageError: it cannot be read.
        """
        run = self.find(run_id)
        if run is None or name not in run.files:
            return None
        return read_plain(self.path / run_id / name, bytes_max=_FILE_BYTES)

    def read_progress(self, run_id: str, after: int) -> ProgressShown:
        """The whole lines behind the byte ``after``, a megabyte at most; for 0 the first line and the newest ones.

        Raises:
            StorageError: it cannot be read.
        """
        path = self.path / run_id / PROGRESS_FILE
        size = _stamp(path)[1] if _stamp(path) else 0
        lines: list[dict[str, Any]] = []
        if after > size:
            after = 0  # it was begun anew
        if after == 0 and size > _PROGRESS_BYTES:
            lines += _lines((read_plain(path, bytes_max=_LINE_BYTES) or b"").partition(b"\n")[0])
            after = size - _PROGRESS_BYTES
        content = read_plain(path, first=after, bytes_max=_PROGRESS_BYTES) or b""
        whole = content.rfind(b"\n") + 1
        if not whole and len(content) == _PROGRESS_BYTES:
            whole = len(content)  # a line larger than any: passed over
        return ProgressShown(place=after + whole, lines=[*lines, *_lines(content[:whole])])


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes with a file; empty when there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _files(folder: Path) -> list[str]:
    """The files that may be fetched."""
    try:
        entries = [entry for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(entry.name for entry in entries if is_name(entry.name) and Path(entry.name).suffix in _LISTED)


def _read(path: Path) -> RunShown:
    try:
        content = read_plain(path / RUN_FILE, bytes_max=_RECORD_BYTES + 1)
        if content is None:
            return RunShown(id=path.name, word="no end", fault=f"{RUN_FILE} is not there: the run did not get so far.")
        if len(content) > _RECORD_BYTES:
            raise StorageError(f"{RUN_FILE} is larger than {_RECORD_BYTES // 1024**2} MB")
        record = _Record.model_validate(from_json(content))
    except ValidationError as error:
        return RunShown(id=path.name, word="unreadable", fault=f"{RUN_FILE} is no record of a run: {_first(error)}.")
    except (StorageError, ValueError, RecursionError) as error:
        return RunShown(id=path.name, word="unreadable", fault=f"It cannot be read: {error}"[:_CHARACTERS])
    verdict = record.verdict if record.ended_at else None
    return RunShown(
        id=path.name,
        word="no end" if verdict is None else verdict.word,
        scenario=record.name,
        target=record.target,
        devices=record.devices,
        began_at=record.began_at or None,
        duration_s=record.duration_s if record.ended_at else None,
        sentences=[] if verdict is None else verdict.sentences[:_SENTENCES],
        thresholds=record.thresholds[:_SENTENCES] if record.ended_at else [],
    )


def _first(error: ValidationError) -> str:
    one = error.errors()[0]
    return f"{'.'.join(map(str, one['loc'])) or 'the file'}: {one['msg']}"


def _lines(content: bytes) -> list[dict[str, Any]]:
    """The JSON objects of these lines; what is none is left out."""
    found = []
    for line in content.split(b"\n"):
        if 0 < len(line) <= _LINE_BYTES:
            try:
                value = from_json(line, allow_inf_nan=False)
            except ValueError:
                continue
            if isinstance(value, dict):
                found.append(value)
    return found
