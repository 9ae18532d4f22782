"""A view of a run that goes on: it is given the seconds and what happens, and shows them in its own way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from simulator.fleet.record import RunRecord, Second, Span, WorkerGap
from simulator.fleet.report.formatting import Tone, plural


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run at the end of a second.

    Attributes:
        phase: the one under way, and where it began and will end (a barrier may move the end); None before the first.
        waiting_for: the condition that the phase waits for, such as ``online >= 99%``; empty when it waits for none.
        faults: those that are under way.
        workers: number to what the worker is doing: ``starting``, ``running``, ``draining``, ``done`` or ``dead``.
        gaps: seconds that workers did not report so far; one that still grows is in here with its end so far.
    """

    phase: Span | None = None
    waiting_for: str = ""
    faults: tuple[Span, ...] = ()
    workers: Mapping[int, str] = field(default_factory=dict)
    gaps: tuple[WorkerGap, ...] = ()


class RunView:
    """A view of a run, used as a context manager; every method returns at once. This one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the view; an error goes on."""

    def stage(self, text: str, done: int = 0, whole: int = 0) -> None:
        """Show what goes on outside of the load, such as ``preparing devices``; an empty text ends it."""

    def note(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Show one event."""

    def second(self, second: Second, status: RunStatus) -> None:
        """Show the latest second; what begins or ends by it is noted by the view itself."""

    def end(self, record: RunRecord) -> None:
        """Show the verdict and the figures of the run."""


class Views(RunView):
    """Several views as one."""

    def __init__(self, views: Sequence[RunView]) -> None:
        self._views = views
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            for view in self._views:
                opened.enter_context(view)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def stage(self, text: str, done: int = 0, whole: int = 0) -> None:
        """Show it in each."""
        for view in self._views:
            view.stage(text, done, whole)

    def note(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Show it in each."""
        for view in self._views:
            view.note(text, tone)

    def second(self, second: Second, status: RunStatus) -> None:
        """Show it in each."""
        for view in self._views:
            view.second(second, status)

    def end(self, record: RunRecord) -> None:
        """Show it in each."""
        for view in self._views:
            view.end(record)


def changes(before: RunStatus, after: RunStatus) -> list[tuple[float, str, Tone]]:
    """What begins and what ends between two moments: when, seconds since the run's begin, and in words."""
    found = []
    phase = after.phase
    if phase is not None and (before.phase is None or before.phase.name != phase.name):
        found.append((phase.begin_s, f"phase {phase.name} begins", Tone.ACCENT))
    begun = [fault for fault in after.faults if fault not in before.faults]
    ended = [fault for fault in before.faults if fault not in after.faults]
    found += [(f.begin_s, f"fault {f.kind} begins: {plural(f.devices, 'device')}", Tone.WARN) for f in begun]
    found += [(f.end_s, f"fault {f.kind} ends", Tone.WARN) for f in ended]
    known = {(gap.worker, gap.from_s) for gap in before.gaps}
    found += [
        (gap.from_s, f"gap: worker {gap.worker} reports no seconds: {gap.reason}", Tone.BAD)
        for gap in after.gaps
        if (gap.worker, gap.from_s) not in known
    ]
    return found


def phase_under_way(phases: Sequence[Span], second: int) -> Span | None:
    """The phase that a second ended in: where two share it, the later one; None before the first.

    Args:
        phases: in order.
        second: since the run's begin.
    """
    begun = [phase for phase in phases if phase.begin_s < second + 1]
    return begun[-1] if begun else None


def spans_under_way(spans: Sequence[Span], second: int) -> tuple[Span, ...]:
    """The faults that had begun and not ended when a second began."""
    return tuple(span for span in spans if span.begin_s <= second < span.end_s)
