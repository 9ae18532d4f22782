"""A run that goes on as events, made here once: ``--progress`` writes them, the terminal and Prometheus show them.

An event is a dictionary with ``event``: ``run`` (the first one), ``stage``, ``note``, ``second`` and ``end`` (the last
one). Times are in seconds, NaN where there is no number. docs/fleet.md describes each member.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any, Final, Self

from pydantic_core import to_json

from agent.errors import ConfigurationError
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import RunRecord, Second, Span, WorkerGap
from simulator.fleet.report.figures import FigureSet, figures_over
from simulator.fleet.report.folder import LineFile
from simulator.fleet.report.formatting import Tone, plural

PROGRESS_FORMAT: Final = "fleet-progress/3"
STANDARD_OUTPUT: Final = "-"
WINDOW_S: Final = 10
_STAGE_EVERY_S: Final = 0.5

Event = Mapping[str, Any]


class RunView:
    """A view of a run, used as a context manager. This one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the view; an error goes on."""

    def show(self, event: Event, source: Second | RunRecord | None = None) -> None:
        """Show an event; returns at once.

        Args:
            event: what happened.
            source: what a ``second`` or an ``end`` was made of.

        Raises:
            ConfigurationError: the first event cannot be shown as it was asked for.
        """


def note(text: str, tone: Tone = Tone.PLAIN, at_s: float = 0) -> Event:
    """Something that a person should see; ``at_s`` is since the run's begin."""
    return {"event": "note", "at_s": at_s, "tone": tone, "text": text}


class Progress:
    """Makes the events of a run, and gives each to every view.

    Args:
        views: of the run; they are open.
        now: monotonic seconds.
    """

    def __init__(self, views: Sequence[RunView] = (), now: Callable[[], float] = time.monotonic) -> None:
        self._views = views
        self._now = now
        self._stage, self._stage_at_s = "", 0.0
        self._window: deque[Second] = deque(maxlen=WINDOW_S)
        self._so_far: Counter[OutcomeClass] = Counter()
        self._intended = self._sent = 0
        self._phase, self._faults, self._gaps = "", list[Span](), set[tuple[int, float]]()

    def begin(self, record: RunRecord) -> None:
        """Tell what is run."""
        about = ("kind", "transport", "target", "devices", "workers")
        self._show({
            "event": "run",
            "format": PROGRESS_FORMAT,
            "scenario": record.name,
            **{name: getattr(record, name) for name in about},
            "duration_s": record.phases[-1].end_s if record.phases else 0.0,
            "phases": [_span(span) for span in record.phases],
            "faults": [_span(span) for span in record.faults],
        })  # fmt: skip

    def stage(self, text: str, done: int = 0, whole: int = 0) -> None:
        """Tell what goes on outside of the load, twice a second at most; an empty text ends it."""
        now_s = self._now()
        if text != self._stage or (whole and done >= whole) or now_s - self._stage_at_s >= _STAGE_EVERY_S:
            self._stage, self._stage_at_s = text, now_s
            self._show({"event": "stage", "text": text, "done": done, "whole": whole})

    def note(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Tell one thing that happens now."""
        self._show(note(text, tone, self._window[-1].second + 1 if self._window else 0))

    def end(self, record: RunRecord) -> None:
        """Tell the verdict."""
        verdict = record.verdict
        found = {"word": verdict.word, "exit_code": verdict.exit_code, "sentences": verdict.sentences}
        self._show({"event": "end", "verdict": found, "duration_s": record.duration_s, "error": None}, record)

    def second(
        self,
        second: Second,
        *,
        phase: Span | None = None,
        waiting_for: str = "",
        faults: Sequence[Span] = (),
        workers: Mapping[int, str] | None = None,
        gaps: Sequence[WorkerGap] = (),
    ) -> None:
        """Tell the next second, after what has begun or ended by it.

        Args:
            second: that is complete.
            phase: the one under way, and where it began and will end (a barrier may move the end).
            waiting_for: the condition that the phase waits for, such as ``online >= 99%``; empty for none.
            faults: those that are under way.
            workers: number to ``starting``, ``running``, ``draining``, ``done`` or ``dead``.
            gaps: what workers did not report so far; one that still grows has its end so far.
        """
        self._tell_changes(phase, faults, gaps)
        self._window.append(second)
        found = figures_over(self._window)
        alone = FigureSet.of(second.operations, 1.0).whole
        self._so_far += alone.counts
        self._intended += second.health.intended
        self._sent += second.health.sent
        event = {
            "event": "second",
            "second": second.second,
            "phase": None if phase is None else _span(phase),
            "waiting_for": waiting_for,
            "faults": [_span(fault) for fault in faults],
            "alone": alone.as_dict(),
            "so_far": dict(self._so_far),
            **found,
            "generator": {**found["generator"], "intended": self._intended, "sent": self._sent},
            "gauges": dict(second.gauges),
            "workers": {str(number): state for number, state in (workers or {}).items()},
            "gaps": [asdict(gap) for gap in gaps],
        }
        self._stage = ""
        self._show(event, second)

    def _show(self, event: Event, source: Second | RunRecord | None = None) -> None:
        for view in self._views:
            view.show(event, source)

    def _tell_changes(self, phase: Span | None, faults: Sequence[Span], gaps: Iterable[WorkerGap]) -> None:
        if phase is not None and phase.name != self._phase:
            self._phase = phase.name
            self._show(note(f"phase {phase.name} begins", Tone.ACCENT, phase.begin_s))
        for fault in faults:
            if fault not in self._faults:
                text = f"fault {fault.kind} begins: {plural(fault.devices, 'device')}"
                self._show(note(text, Tone.WARN, fault.begin_s))
        for fault in self._faults:
            if fault not in faults:
                self._show(note(f"fault {fault.kind} ends", Tone.WARN, fault.end_s))
        self._faults = list(faults)
        for gap in gaps:
            if (gap.worker, gap.from_s) not in self._gaps:
                self._gaps.add((gap.worker, gap.from_s))
                text = f"gap: worker {gap.worker} reports no seconds: {gap.reason}"
                self._show(note(text, Tone.BAD, gap.from_s))


class ProgressFile(RunView):
    """Writes every event as a JSON line. What cannot be written is left out: the run goes on.

    Args:
        target: the file, begun anew; ``-`` for standard output.
        complain: shows a person a sentence; called once when lines are missing.
    """

    def __init__(self, target: str, complain: Callable[[str], object]) -> None:
        self._target = target
        self._complain = complain
        self._lines: LineFile | None = None
        self._has_complained = self._has_ended = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lines is not None:
            if not self._has_ended:
                self.show({"event": "end", "verdict": None, "duration_s": None, "error": str(error or "") or None})
            self._lines.close()

    def show(self, event: Event, source: Second | RunRecord | None = None) -> None:
        """Write the event down."""
        if self._lines is None:
            self._lines = self._open()
        self._has_ended = event["event"] == "end"
        try:
            self._lines.write(to_json(event, inf_nan_mode="null") + b"\n")
        except OSError as error:
            if not self._has_complained:
                self._has_complained = True
                missing = f"--progress {self._target}: lines are missing: {error.strerror}"
                self._complain(f"{missing}; the run goes on without them")

    def _open(self) -> LineFile:
        try:
            if self._target == STANDARD_OUTPUT:
                return LineFile(os.dup(1))
            return LineFile(os.open(self._target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
        except OSError as error:
            fix = "name a file in a folder that is there"
            fault = f"--progress {self._target}: cannot be written: {error.strerror}; {fix}"
            raise ConfigurationError([fault], "--progress") from None


def _span(span: Span) -> Mapping[str, Any]:
    return {name: getattr(span, name) for name in ("name", "kind", "begin_s", "end_s", "devices")}
