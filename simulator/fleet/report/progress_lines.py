"""A run that goes on as JSON lines, for programs that watch it: one line a second, and one for each event.

Every line is an object with ``event``: ``run`` (the first one), ``stage``, ``note``, ``second`` and ``end`` (the last
one). Times are in seconds, null where there is no number. docs/fleet.md describes each member.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from pydantic_core import to_json

from agent.errors import ConfigurationError
from simulator.fleet.metrics.ages import COMMAND_AGE, READING_AGE
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.record import RunRecord, Second, Span
from simulator.fleet.report.figures import SHOWN_PERCENTILES, OperationFigures
from simulator.fleet.report.formatting import percentile_name
from simulator.fleet.report.live import RunView, changes
from simulator.fleet.report.run_status import RunHead, RunStatus, StreamSoFar
from simulator.fleet.report.window import Window
from simulator.report_parts.values import Tone

PROGRESS_FORMAT: Final = "fleet-progress/1"
STANDARD_OUTPUT: Final = "-"
_STAGE_EVERY_S: Final = 0.5
_STREAMS: Final = {
    "readings": ("sent", "accepted", "unanswered"),
    "commands": ("ordered", "reported", "under_way"),
}


class ProgressView(RunView):
    """A view that passes everything on, and writes it down as JSON lines.

    What cannot be written is left out, and a note says so once: the run goes on.

    Args:
        view: gets everything.
        target: the file, begun anew; ``-`` for standard output.
        head: what is known of the run before it begins.
        now: monotonic seconds.
    """

    def __init__(self, view: RunView, target: str, head: RunHead, now: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._target = target
        self._head = head
        self._now = now
        self._window = Window()
        self._standing = RunStatus()
        self._stage = ""
        self._stage_at_s = 0.0
        self._lines: _Lines | None = None
        self._complained = False
        self._ended = False

    def __enter__(self) -> Self:
        self._lines = _Lines(self._target)
        self._view.__enter__()
        self._write({"event": "run", "format": PROGRESS_FORMAT, **_head(self._head)})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._ended:
            self._write({"event": "end", "verdict": None, "duration_s": None, "error": str(error or "") or None})
        if self._lines is not None:
            self._lines.close()
        self._view.__exit__(kind, error, trace)

    def stage(self, text: str, done: int = 0, whole: int = 0) -> None:
        """Show what goes on outside of the load, and write it down: twice a second at most."""
        now_s = self._now()
        if text != self._stage or (whole and done >= whole) or now_s - self._stage_at_s >= _STAGE_EVERY_S:
            self._stage, self._stage_at_s = text, now_s
            self._write({"event": "stage", "text": text, "done": done, "whole": whole})
        self._view.stage(text, done, whole)

    def note(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Show one event, and write it down."""
        latest = self._window.latest
        self._note(latest.second + 1 if latest else 0, text, tone)
        self._view.note(text, tone)

    def show(self, second: Second, standing: RunStatus) -> None:
        """Show the latest second and how the run stands, and write both down."""
        for at_s, text, tone in changes(self._standing, standing):
            self._note(at_s, text, tone)
        self._standing, self._stage = standing, ""
        self._window.take(second)
        self._write({"event": "second", **_second(self._window, second, standing)})
        self._view.show(second, standing)

    def end(self, record: RunRecord) -> None:
        """Show the verdict, and write it down as the last line."""
        self._ended = True
        verdict = {"word": record.verdict.word, "exit_code": record.verdict.exit_code}
        sentences = record.verdict.sentences
        self._write(
            {"event": "end", "verdict": {**verdict, "sentences": sentences}, "duration_s": record.duration_s}
            | {"error": None}
        )
        self._view.end(record)

    def _note(self, at_s: float, text: str, tone: Tone) -> None:
        self._write({"event": "note", "at_s": at_s, "tone": tone, "text": text})

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._lines is None:
            return
        try:
            self._lines.write(to_json(line, inf_nan_mode="null") + b"\n")
        except OSError as error:
            if not self._complained:
                self._complained = True
                text = f"--progress {self._target}: lines are missing: {error.strerror}; the run goes on without them"
                self._view.note(text, Tone.WARN)


class _Lines:
    """A file that grows by whole lines.

    Raises:
        ConfigurationError: it cannot be opened.
    """

    def __init__(self, target: str) -> None:
        try:
            if target == STANDARD_OUTPUT:
                self._descriptor = os.dup(1)
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                self._descriptor = os.open(Path(target), flags, 0o644)
        except OSError as error:
            fault = f"--progress {target}: cannot be written: {error.strerror}; name a file in a folder that is there"
            raise ConfigurationError([fault], "--progress") from None
        self._is_file = target != STANDARD_OUTPUT and stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        self._whole = 0

    def write(self, line: bytes) -> None:
        """Add a line: all of it, or in a file none of it.

        Raises:
            OSError: it could not be written; the next one may be.
        """
        written = 0
        try:
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError:
            if self._is_file:
                os.ftruncate(self._descriptor, self._whole)
                os.lseek(self._descriptor, self._whole, os.SEEK_SET)
            raise
        self._whole += len(line)

    def close(self) -> None:
        os.close(self._descriptor)


def _head(head: RunHead) -> dict[str, Any]:
    return {
        "scenario": head.name,
        "level": head.level,
        "transport": head.transport,
        "target": head.target,
        "devices": head.devices,
        "workers": head.workers,
        "duration_s": head.duration_s,
        "phases": [_span(span) for span in head.phases],
        "faults": [_span(span) for span in head.faults],
    }


def _second(window: Window, second: Second, standing: RunStatus) -> dict[str, Any]:
    """How the run stands at the end of a second: the figures of the live view, with units in their names."""
    health = window.health
    ages = {name: window.age(name) for name in (READING_AGE, COMMAND_AGE)}
    alone = Window()
    alone.take(second)
    return {
        "second": second.second,
        "phase": None if standing.phase is None else _span(standing.phase),
        "waiting_for": standing.waiting_for,
        "faults": [_span(fault) for fault in standing.faults],
        "alone": _figures(alone.whole()),
        "window_s": window.span_s(),
        "all": _figures(window.whole()),
        "operations": {row.name: _figures(row) for row in window.rows()},
        "ages": {
            name: {"per_s": age.per_s(age.good), **_percentiles(age.response)} for name, age in ages.items() if age
        },
        "so_far": {outcome.value: count for outcome, count in window.counts.items() if count},
        "fleet": {name: value for name, value in window.gauges.items() if name.partition("_")[0] not in standing.audit},
        "generator": {
            "send_lag_p99_s": health.send_lag_p99_s,
            "send_lag_max_s": health.send_lag_max_s,
            "loop_lag_max_s": health.loop_lag_max_s,
            "steal_percent": health.steal_percent,
            "cpu_percent": health.cpu_percent,
            "intended": window.intended,
            "sent": window.sent,
        },
        "workers": [asdict(worker) for worker in standing.workers],
        "audit": {name: _stream(name, stream) for name, stream in standing.audit.items()},
        "gaps": [asdict(gap) for gap in standing.gaps],
    }


def _span(span: Span) -> dict[str, Any]:
    return {
        "name": span.name, "kind": span.kind, "begin_s": span.begin_s, "end_s": span.end_s, "devices": span.devices
    }  # fmt: skip


def _figures(figures: OperationFigures) -> dict[str, Any]:
    return {
        "ok_per_s": figures.per_s(figures.good),
        "limited_per_s": figures.per_s(figures.limited),
        "errors_per_s": figures.per_s(figures.errors),
        "response_s": _percentiles(figures.response),
        "service_s": _percentiles(figures.service),
    }


def _percentiles(times: Histogram) -> dict[str, float]:
    return dict(zip(map(percentile_name, SHOWN_PERCENTILES), times.percentiles(SHOWN_PERCENTILES), strict=True))


def _stream(name: str, stream: StreamSoFar) -> dict[str, int]:
    words = _STREAMS.get(name, _STREAMS["readings"])
    return dict(zip(words, (stream.sent, stream.accepted, stream.unanswered), strict=True))
