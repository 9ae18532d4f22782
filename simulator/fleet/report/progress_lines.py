"""A run that goes on as JSON lines, for programs that watch it: one line a second, and one for each event.

Every line is an object with ``event``: ``run`` (the first one), ``stage``, ``note``, ``second`` and ``end`` (the last
one). Times are in seconds, null where there is no number. docs/fleet.md describes each member.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Any, Final, Self

from pydantic_core import to_json

from agent.errors import ConfigurationError
from simulator.fleet.metrics.ages import COMMAND_AGE, READING_AGE
from simulator.fleet.record import RunRecord, Second, Span
from simulator.fleet.report.figures import SHOWN_PERCENTILES, Figures
from simulator.fleet.report.formatting import Tone
from simulator.fleet.report.line_file import LineFile
from simulator.fleet.report.views import RunStatus, RunView, changes
from simulator.fleet.report.window import Window

PROGRESS_FORMAT: Final = "fleet-progress/2"
STANDARD_OUTPUT: Final = "-"
_STAGE_EVERY_S: Final = 0.5


class ProgressView(RunView):
    """Writes everything down as JSON lines. What cannot be written is left out: the run goes on.

    Args:
        target: the file, begun anew; ``-`` for standard output.
        record: what is known of the run before it begins.
        complain: shows a person a sentence; called once when lines are missing.
        now: monotonic seconds.
    """

    def __init__(
        self,
        target: str,
        record: RunRecord,
        complain: Callable[[str], object],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._record = record
        self._complain = complain
        self._now = now
        self._window = Window()
        self._status = RunStatus()
        self._stage, self._stage_at_s = "", 0.0
        self._lines: LineFile | None = None
        self._has_complained = self._has_ended = False

    def __enter__(self) -> Self:
        self._lines = _open(self._target)
        record = self._record
        self._write(
            "run",
            format=PROGRESS_FORMAT,
            scenario=record.name,
            kind=record.kind,
            transport=record.transport,
            target=record.target,
            devices=record.devices,
            workers=record.workers,
            duration_s=record.phases[-1].end_s if record.phases else 0.0,
            phases=[_span(span) for span in record.phases],
            faults=[_span(span) for span in record.faults],
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._has_ended:
            self._write("end", verdict=None, duration_s=None, error=str(error or "") or None)
        if self._lines is not None:
            self._lines.close()

    def stage(self, text: str, done: int = 0, whole: int = 0) -> None:
        """Write down what goes on outside of the load: twice a second at most."""
        now_s = self._now()
        if text != self._stage or (whole and done >= whole) or now_s - self._stage_at_s >= _STAGE_EVERY_S:
            self._stage, self._stage_at_s = text, now_s
            self._write("stage", text=text, done=done, whole=whole)

    def note(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Write down one event."""
        self._write("note", at_s=self._window.second, tone=tone, text=text)

    def second(self, second: Second, status: RunStatus) -> None:
        """Write down the latest second and how the run stands."""
        for at_s, text, tone in changes(self._status, status):
            self._write("note", at_s=at_s, tone=tone, text=text)
        self._status, self._stage = status, ""
        self._window.add(second)
        window, alone = self._window, Window()
        alone.add(second)
        health = window.health
        ages = {name: window.age(name) for name in (READING_AGE, COMMAND_AGE)}
        self._write(
            "second",
            second=second.second,
            phase=None if status.phase is None else _span(status.phase),
            waiting_for=status.waiting_for,
            faults=[_span(fault) for fault in status.faults],
            alone=_figures(alone.whole()),
            window_s=window.span_s,
            all=_figures(window.whole()),
            operations={row.name: _figures(row) for row in window.operations()},
            ages={name: _figures(age) for name, age in ages.items() if age},
            so_far={outcome.value: count for outcome, count in window.counts.items() if count},
            gauges=window.gauges,
            generator={
                "send_lag_p99_s": health.send_lag_p99_s,
                "send_lag_max_s": health.send_lag_max_s,
                "loop_lag_max_s": health.loop_lag_max_s,
                "steal_percent": health.steal_percent,
                "cpu_percent": health.cpu_percent,
                "intended": window.intended,
                "sent": window.sent,
            },
            workers={str(number): state for number, state in status.workers.items()},
            gaps=[asdict(gap) for gap in status.gaps],
        )

    def end(self, record: RunRecord) -> None:
        """Write down the verdict as the last line."""
        self._has_ended = True
        verdict = record.verdict
        found = {"word": verdict.word, "exit_code": verdict.exit_code, "sentences": verdict.sentences}
        self._write("end", verdict=found, duration_s=record.duration_s, error=None)

    def _write(self, event: str, **members: Any) -> None:
        if self._lines is None:
            return
        try:
            self._lines.write(to_json({"event": event, **members}, inf_nan_mode="null") + b"\n")
        except OSError as error:
            if not self._has_complained:
                self._has_complained = True
                self._complain(
                    f"--progress {self._target}: lines are missing: {error.strerror}; the run goes on without them"
                )


def _open(target: str) -> LineFile:
    try:
        if target == STANDARD_OUTPUT:
            return LineFile(os.dup(1))
        return LineFile(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
    except OSError as error:
        fault = f"--progress {target}: cannot be written: {error.strerror}; name a file in a folder that is there"
        raise ConfigurationError([fault], "--progress") from None


def _span(span: Span) -> Mapping[str, Any]:
    return {
        "name": span.name, "kind": span.kind, "begin_s": span.begin_s, "end_s": span.end_s, "devices": span.devices
    }  # fmt: skip


def _figures(figures: Figures) -> Mapping[str, Any]:
    return figures.as_dict(SHOWN_PERCENTILES)
