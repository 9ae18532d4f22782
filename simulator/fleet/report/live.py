"""The live view of a run: a picture of the whole terminal, plain lines without a terminal, or nothing.

It is fed with seconds and does nothing but print: no clock, no thread, no file.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from simulator.fleet.metrics.ages import COMMAND_AGE, READING_AGE
from simulator.fleet.record import RunRecord, Second
from simulator.fleet.report.figures import SHOWN_PERCENTILES
from simulator.fleet.report.formatting import (
    clock_text,
    count_text,
    gaps_text,
    percent_text,
    plural,
    short_count,
    time_text,
)
from simulator.fleet.report.live_screen import ScreenState, frame
from simulator.fleet.report.run_status import RunHead, RunStatus, WorkerState
from simulator.fleet.report.summary import print_summary
from simulator.fleet.report.window import Window
from simulator.report_parts.values import Tone

LINE_EVERY_S: Final = 5
_STYLES: Final = {Tone.GOOD: "green", Tone.BAD: "bold red", Tone.WARN: "yellow", Tone.ACCENT: "cyan", Tone.PLAIN: ""}
_NOTES_KEPT: Final = 200


class RunView:
    """A view of a run, used as a context manager; every method returns at once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the view; an error goes on."""

    def stage(self, text: str, done: int = 0, whole: int = 0) -> None:
        """Show what goes on outside of the load, such as ``making devices``; an empty text ends it."""

    def note(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Show one event in the live view."""

    def show(self, second: Second, standing: RunStatus) -> None:
        """Show the latest second and how the run stands; what begins or ends by it is noted by itself."""

    def end(self, record: RunRecord) -> None:
        """Print the verdict and the figures of the run; the picture is gone then."""


def run_view(console: Console, head: RunHead, *, quiet: bool = False, line_every_s: int = LINE_EVERY_S) -> RunView:
    """The view that fits.

    Args:
        console: where it is shown; a rich one knows whether it is a terminal.
        head: what is known of the run before it begins.
        quiet: show nothing at all.
        line_every_s: seconds of the run from one line to the next, where there is no terminal.
    """
    if quiet:
        return SilentView()
    if console.is_terminal and not console.is_dumb_terminal:
        return ScreenView(console, head)
    return LineView(console, head, line_every_s)


class SilentView(RunView):
    """Shows nothing, for scripts that read the exit code."""


class ScreenView(RunView):
    """The whole terminal, drawn anew each second; afterwards the notes and the summary stay on the ordinary screen."""

    def __init__(self, console: Console, head: RunHead) -> None:
        self._console = console
        self._picture = ScreenState(head)
        self._live = Live(get_renderable=self._frame, console=console, screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        self._live.refresh()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def stage(self, text: str, done: int = 0, whole: int = 0) -> None:
        """Show what goes on outside of the load, such as ``making devices``; an empty text ends it."""
        self._picture.stage, self._picture.done, self._picture.whole = text, done, whole
        self._live.refresh()

    def note(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Show one event. See :class:`RunView`."""
        latest = self._picture.window.latest
        self._keep(latest.second + 1 if latest else 0, text, tone)
        self._live.refresh()

    def _keep(self, at_s: float, text: str, tone: Tone) -> None:
        self._picture.notes.append((_STYLES[tone], f"{clock_text(at_s):>7}  {text}"))
        del self._picture.notes[:-_NOTES_KEPT]

    def show(self, second: Second, standing: RunStatus) -> None:
        """Show the latest second and how the run stands; what begins or ends by it is noted by itself."""
        for change in changes(self._picture.standing, standing):
            self._keep(*change)
        self._picture.window.take(second)
        self._picture.standing = standing
        self._picture.stage = ""
        self._live.refresh()

    def end(self, record: RunRecord) -> None:
        """Print the verdict and the figures of the run; the picture is gone then. See :class:`RunView`."""
        self._leave()
        print_summary(self._console, record)

    def _leave(self) -> None:
        if self._live.is_started:
            self._live.stop()
            for style, text in self._picture.notes:
                self._console.print(Text(text, style), highlight=False, soft_wrap=True)

    def _frame(self) -> RenderableType:
        return frame(self._picture)


class LineView(RunView):
    """One line every few seconds of the run, and one for each thing that happens."""

    def __init__(self, console: Console, head: RunHead, every_s: int) -> None:
        self._console = console
        self._head = head
        self._every_s = every_s
        self._window = Window()
        self._standing = RunStatus()
        self._stage = ""
        self._shown = -1

    def __enter__(self) -> Self:
        head = self._head
        self._print(f"{head.name}: {', '.join((*head.parts, head.target))}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def stage(self, text: str, done: int = 0, whole: int = 0) -> None:
        """Show what goes on outside of the load, such as ``making devices``; an empty text ends it.

        See :class:`RunView`. One line at its begin.
        """
        del done
        if text and text != self._stage:
            self._print(f"{self._clock()}  {text}" + (f" ({whole:,})" if whole else ""))
        self._stage = text

    def note(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Show one event. See :class:`RunView`."""
        self._print(f"{self._clock()}  {text}", _STYLES[tone])

    def show(self, second: Second, standing: RunStatus) -> None:
        """Show the latest second and how the run stands; what begins or ends by it is noted by itself."""
        for at_s, text, tone in changes(self._standing, standing):
            self._print(f"{clock_text(at_s):>7}  {text}", _STYLES[tone])
        self._standing = standing
        self._window.take(second)
        self._stage = ""
        if self._shown >= 0 and second.second - self._shown < self._every_s:
            return
        self._shown = second.second
        self._print(run_line(self._window, self._head, standing))

    def end(self, record: RunRecord) -> None:
        """Print the verdict and the figures of the run; the picture is gone then. See :class:`RunView`."""
        print_summary(self._console, record)

    def _clock(self) -> str:
        latest = self._window.latest
        return f"{clock_text(latest.second + 1 if latest else 0):>7}"

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style), highlight=False, soft_wrap=True)


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


def run_line(window: Window, head: RunHead, standing: RunStatus) -> str:
    """How the run stands, in one line."""
    figures, health = window.whole(), window.health
    ages = [(age.name.partition(".")[0], age) for name in (READING_AGE, COMMAND_AGE) if (age := window.age(name))]
    second = window.latest.second + 1 if window.latest else 0
    p50, _, p99, p999 = (time_text(value) for value in figures.response.percentiles(SHOWN_PERCENTILES))
    share = window.sent / window.intended if window.intended else None
    parts = [
        f"{clock_text(second):>7}  {standing.phase.name if standing.phase else 'no phase'}",
        f"{short_count(figures.per_s(figures.good))}/s ok",
        *(f"age of {what} p99 {time_text(age.response.percentile(99))}" for what, age in ages),
        f"response p50 {p50}, p99 {p99}, p99.9 {p999}",
        f"429 {short_count(figures.per_s(figures.limited))}/s",
        f"errors {window.errors:,}",
    ]
    if "online" in window.gauges:
        parts.append(f"online {count_text(window.gauges['online'])} of {head.devices:,}")
    parts.append(f"generator lag p99 {time_text(health.send_lag_p99_s)}, sent {percent_text(share)}")
    parts += [f"fault {fault.kind}" for fault in standing.faults]
    parts += [
        f"worker {worker.number} {worker.state}" for worker in standing.workers if worker.state is WorkerState.DEAD
    ]
    if standing.gaps:
        parts.append(gaps_text(standing.gaps))
    return " | ".join(parts)
