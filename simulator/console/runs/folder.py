"""The folder of fleet runs: which there are, and what each says of itself.

Somebody else's files may be in it: a run is read without following links, within bounds, and one that cannot be read
is shown as that.
"""

from __future__ import annotations

import math
import os
import stat
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.errors import ConfigurationError, InvalidMessage, StorageError
from simulator.console.runs.plain_files import open_plain, read_plain
from simulator.console.runs.records import FigureShown, RunShown, RunState, ThresholdShown, VerdictShown

if TYPE_CHECKING:
    from simulator.fleet.record import RunRecord

PROGRESS_FILE: Final = "progress.jsonl"
REPORT_FILE: Final = "report.html"
_RUN_FILE: Final = "run.json"
_SECONDS_FILE: Final = "seconds.jsonl"
_RECORD_BYTES: Final = 64 * 1024 * 1024
_KEPT: Final = 2_000
_NAME_BYTES: Final = 255
_SENTENCES: Final = 20
_CHARACTERS: Final = 500
_LISTED: Final = frozenset({".csv", ".json", ".jsonl", ".xml", ".html"})
_STATES: Final = {"it still goes on": RunState.RUNNING, "it was killed": RunState.KILLED}


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A folder that holds a run, or what was to become one."""

    id: str
    path: Path
    changed_ns: int


class RunsFolder:
    """The folder; it need not be there.

    Args:
        path: its folders are runs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._read: OrderedDict[str, tuple[tuple[int, ...], RunShown]] = OrderedDict()

    def check(self) -> None:
        """Refuse a folder that somebody named and that holds no runs.

        Raises:
            ConfigurationError: it is a run itself, or no folder.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ConfigurationError([f"--runs: {self.path} is a file: name the folder that runs are in"], "--runs")
        if (self.path / _RUN_FILE).exists():
            raise ConfigurationError([f"--runs: {self.path} is a run itself: name the folder that it is in"], "--runs")

    def find(self, run_id: str) -> FoundRun | None:
        """The run with this id; None when there is none."""
        if not is_name(run_id):
            return None
        return _look(self.path / run_id)

    def all(self) -> list[FoundRun]:
        """All runs, the latest change first."""
        try:
            with os.scandir(self.path) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:  # not there yet, or nobody's to read
            return []
        found = (_look(self.path / name) for name in names if is_name(name))
        return sorted(filter(None, found), key=lambda run: (-run.changed_ns, run.id))

    def show(self, run: FoundRun) -> RunShown:
        """What a run says of itself; read anew when its record has changed."""
        stamp = _stamp(run.path / _RUN_FILE)
        kept = self._read.get(run.id)
        if kept is not None and kept[0] == stamp and kept[1]["state"] in {RunState.ENDED, RunState.UNREADABLE}:
            shown = kept[1].copy()
            self._read.move_to_end(run.id)
        else:
            shown = _read(run)
            self._read[run.id] = stamp, shown.copy()
            while len(self._read) > _KEPT:
                self._read.popitem(last=False)
        files = _files(run.path)
        shown["files"], shown["size_bytes"] = sorted(files), sum(files.values())
        shown["live"] = PROGRESS_FILE in files
        return shown

    def read(self, run: FoundRun, name: str, bytes_max: int) -> bytes | None:
        """A file of a run; None when there is none.

        Raises:
            StorageError: it is a link or no regular file, or larger.
        """
        return read_plain(run.path / name, bytes_max)


def is_name(text: str) -> bool:
    """Whether a text can be the name of a run's folder, or of a file: one part of a path, and not hidden."""
    return (
        0 < len(text.encode("utf-8", "replace")) <= _NAME_BYTES
        and not text.startswith(".")
        and "/" not in text
        and "\\" not in text
        and text.isprintable()
    )


def empty_run(run_id: str, state: RunState, fault: str | None = None) -> RunShown:
    """A run of which nothing else is known."""
    return RunShown(
        id=run_id, state=state, started_here=False, live=False, scenario="", kind="", level="", transport="", target="",
        devices=None, workers=None, began_at=None, ended_at=None, duration_s=None, verdict=None, figures=[],
        thresholds=[], lost=None, files=[], size_bytes=0, fault=fault, last_words=[],
    )  # fmt: skip


def _look(path: Path) -> FoundRun | None:
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            return None
    except (OSError, ValueError):
        return None
    stamps = [_stamp(path / name) for name in (_RUN_FILE, _SECONDS_FILE)]
    if not any(stamps):
        return None
    return FoundRun(path.name, path, stamps[0][0] if stamps[0] else stamps[1][0])


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes with a file; empty when there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _files(folder: Path) -> dict[str, int]:
    """The files that may be fetched, and their sizes."""
    try:
        with os.scandir(folder) as entries:
            return {
                entry.name: entry.stat(follow_symlinks=False).st_size
                for entry in entries
                if entry.is_file(follow_symlinks=False) and Path(entry.name).suffix in _LISTED and is_name(entry.name)
            }
    except OSError:
        return {}


def _read(run: FoundRun) -> RunShown:
    from simulator.fleet.report.folder import state_of
    from simulator.fleet.report.writing import parse_record

    try:
        content = read_plain(run.path / _RUN_FILE, _RECORD_BYTES)
        if content is None:
            return empty_run(run.id, RunState.UNREADABLE, f"{_RUN_FILE} is not there: the run did not get so far")
        record = parse_record(content.decode("utf-8", "replace"))
        state = RunState.ENDED if record.ended_at else RunState.UNKNOWN
        running = open_plain(run.path / ".running") if state is RunState.UNKNOWN else None
        if running is not None:
            os.close(running)
            state = _STATES.get(state_of(run.path), RunState.UNKNOWN)
        return _show(run.id, state, record)
    except ConfigurationError as error:
        return empty_run(run.id, RunState.UNREADABLE, "; ".join(error.faults)[:_CHARACTERS])
    except (StorageError, InvalidMessage, ValueError, OverflowError) as error:
        return empty_run(run.id, RunState.UNREADABLE, str(error)[:_CHARACTERS])


def _show(run_id: str, state: RunState, record: RunRecord) -> RunShown:
    audits = record.audit and [each for each in (record.audit.readings, record.audit.commands) if each]
    ended = state is RunState.ENDED
    return RunShown(
        id=run_id,
        state=state,
        started_here=False,
        live=False,
        scenario=_cut(record.name),
        kind=_cut(record.kind),
        level=_cut(record.level),
        transport=_cut(record.transport),
        target=_cut(record.target),
        devices=record.devices,
        workers=record.workers,
        began_at=_cut(record.began_at),
        ended_at=_cut(record.ended_at) if ended else None,
        duration_s=finite(record.duration_s) if ended else None,
        verdict=_verdict(record) if ended else None,
        figures=_figures(record) if ended else [],
        thresholds=_thresholds(record),
        lost=sum(each.lost for each in audits) if audits else None,
        files=[],
        size_bytes=0,
        fault=None,
        last_words=[],
    )


def _verdict(record: RunRecord) -> VerdictShown:
    verdict = record.verdict
    sentences = [_cut(sentence) for sentence in verdict.sentences[:_SENTENCES]]
    return VerdictShown(word=verdict.word.value, exit_code=verdict.exit_code, sentences=sentences)


def _figures(record: RunRecord) -> list[FigureShown]:
    from simulator.fleet.report.figures import headline_values  # numpy: 20 MB that a service without runs need not have

    return [
        FigureShown(name=name, value=value, unit=unit)
        for name, (unit, value) in headline_values(record).items()
        if math.isfinite(value)
    ]


def _thresholds(record: RunRecord) -> list[ThresholdShown]:
    return [
        ThresholdShown(
            expression=_cut(each.expression),
            held=each.held,
            judged=each.judged,
            observed=finite(each.observed),
            unit=_cut(each.unit),
        )
        for each in record.thresholds[:_SENTENCES]
    ]


def finite(value: float | None) -> float | None:
    """The number; None for what JSON has no word for."""
    return value if value is not None and math.isfinite(value) else None


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 1] + "…"
