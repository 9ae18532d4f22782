"""The live view of a run: a picture of the whole terminal, or plain lines where there is no terminal.

It is given seconds and does nothing but print: no clock, no thread, no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from simulator.fleet.metrics.ages import COMMAND_AGE, READING_AGE
from simulator.fleet.metrics.merging import is_cumulative
from simulator.fleet.outcomes import HELD, OutcomeClass
from simulator.fleet.record import RunRecord, Second
from simulator.fleet.report.figures import SHOWN_PERCENTILES, percentile_name
from simulator.fleet.report.formatting import (
    ERRORS,
    OUTCOME_WORDS,
    Tone,
    clock_text,
    count_text,
    gaps_text,
    percent_text,
    plural,
    short_count,
    time_text,
)
from simulator.fleet.report.summary import print_summary
from simulator.fleet.report.views import RunStatus, RunView, changes
from simulator.fleet.report.window import Window

_LINE_EVERY_S: Final = 5
_NOTES_SHOWN: Final = 10
_NOTES_KEPT: Final = 200
_LABEL: Final = 18
_LAG_WARN_S: Final = 0.01
_CPU_WARN_PERCENT: Final = 90.0
_SENT_WARN: Final = 0.995
_STYLES: Final = {Tone.GOOD: "green", Tone.BAD: "bold red", Tone.WARN: "yellow", Tone.ACCENT: "cyan", Tone.PLAIN: ""}
_DEAD: Final = "dead"

Part = tuple[str, str]
"""Words and their rich style."""


class ConsoleView(RunView):
    """A picture of the run that is drawn anew each second; without a terminal a line every few seconds.

    What happens in between is a line each, which stays on the ordinary screen afterwards.

    Args:
        console: where it is shown; a rich one knows whether it is a terminal.
        record: what is known of the run before it begins.
    """

    def __init__(self, console: Console, record: RunRecord) -> None:
        self._console = console
        self._record = record
        self._window = Window()
        self._status = RunStatus()
        self._stage: tuple[str, int, int] = ("", 0, 0)
        self._notes: list[Text] = []
        self._shown = -_LINE_EVERY_S
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(get_renderable=self.picture, console=console, screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start(refresh=True)
        else:
            self._print(Text(f"{self._record.name}: {', '.join((*_parts(self._record), self._record.target))}"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def stage(self, text: str, done: int = 0, whole: int = 0) -> None:
        """Show what goes on outside of the load; of lines there is one at its begin."""
        if self._live is None and text and text != self._stage[0]:
            self._note(self._window.second, text + (f" ({whole:,})" if whole else ""))
        self._stage = text, done, whole
        self._refresh()

    def note(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Show one event."""
        self._note(self._window.second, text, tone)
        self._refresh()

    def second(self, second: Second, status: RunStatus) -> None:
        """Show the latest second."""
        for change in changes(self._status, status):
            self._note(*change)
        self._status = status
        self._window.add(second)
        self._stage = "", 0, 0
        if self._live is None and second.second - self._shown >= _LINE_EVERY_S:
            self._shown = second.second
            self._print(Text(self._line()))
        self._refresh()

    def end(self, record: RunRecord) -> None:
        """Print the verdict and the figures of the run; the picture is gone then."""
        self._leave()
        print_summary(self._console, record)

    def picture(self) -> RenderableType:
        """The picture, the most important first: whoever prints it cuts it to the terminal's height."""
        facts = Table.grid(padding=(0, 1))
        facts.add_column(width=_LABEL, style="dim", no_wrap=True)
        facts.add_column()
        for label, parts in self._facts():
            if parts:
                facts.add_row(label, Text(" · ").join(Text(*part) for part in parts))
        end = Text("Ctrl-C ends the run and still makes the report", "dim")
        notes = reversed(self._notes[-_NOTES_SHOWN:])
        return Group(*self._progress(), self._operations(), facts, end, Rule(style="bright_black"), *notes)

    def _note(self, at_s: float, text: str, tone: Tone = Tone.PLAIN) -> None:
        line = Text(f"{clock_text(at_s):>7}  {text}", _STYLES[tone])
        if self._live is None:
            self._print(line)
        else:
            self._notes.append(line)
            del self._notes[:-_NOTES_KEPT]

    def _print(self, line: Text) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.refresh()

    def _leave(self) -> None:
        if self._live is not None and self._live.is_started:
            self._live.stop()
            for line in self._notes:
                self._print(line)

    def _line(self) -> str:
        """How the run stands, in one line."""
        window, status, record = self._window, self._status, self._record
        figures = window.whole()
        ages = [(name.partition(".")[0], window.age(name)) for name in (READING_AGE, COMMAND_AGE)]
        p50, _, p99, p999 = (time_text(value) for value in figures.response.percentiles(SHOWN_PERCENTILES))
        parts = [
            f"{clock_text(window.second):>7}  {status.phase.name if status.phase else 'no phase'}",
            f"{short_count(figures.per_s(figures.good))}/s ok",
            *(f"age of {what} p99 {time_text(age.response.percentile(99))}" for what, age in ages if age),
            f"response p50 {p50}, p99 {p99}, p99.9 {p999}",
            f"429 {short_count(figures.per_s(figures.limited))}/s",
            f"errors {window.errors:,}",
        ]
        if "online" in window.gauges:
            parts.append(f"online {count_text(window.gauges['online'])} of {record.devices:,}")
        lag = time_text(window.health.send_lag_p99_s)
        parts.append(f"generator lag p99 {lag}, sent {percent_text(_sent_share(window))}")
        parts += [f"fault {fault.kind}" for fault in status.faults]
        parts += [f"worker {number} {state}" for number, state in status.workers.items() if state == _DEAD]
        if status.gaps:
            parts.append(gaps_text(status.gaps))
        return " | ".join(parts)

    def _progress(self) -> Iterator[RenderableType]:
        record, status, second = self._record, self._status, self._window.second
        planned_s = record.phases[-1].end_s if record.phases else 0.0
        title = Table.grid(expand=True)
        title.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        title.add_column(justify="right", no_wrap=True, style="bold")
        words = " · ".join((*_parts(record), plural(record.workers, "worker"), record.target))
        clock = f"{clock_text(second)} of {clock_text(planned_s)}" if planned_s else clock_text(second)
        title.add_row(Text.assemble((record.name, "bold"), (f"  {words}", "dim")), clock)
        yield title
        stage, done, whole = self._stage
        if stage:
            yield _bar(stage, f"{done:,} of {whole:,}" if whole else "", done, whole)
        elif (phase := status.phase) is not None:
            length_s = phase.end_s - phase.begin_s
            waiting = f", until {status.waiting_for}" if status.waiting_for else ""
            far = f"{clock_text(second - phase.begin_s)} of {clock_text(length_s)}{waiting}"
            yield _bar(phase.name, far, second - phase.begin_s, length_s)
        for fault in status.faults:
            left = clock_text(max(0, fault.end_s - second))
            name = "" if fault.name == fault.kind else f" ({fault.name})"
            yield Text(f"fault {fault.kind}: {plural(fault.devices, 'device')}, {left} left{name}", "yellow")
        yield Rule(style="bright_black")

    def _operations(self) -> RenderableType:
        rows = self._window.operations()
        if not rows:
            return Text("nothing measured yet", "dim")
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        table.add_column("last 10 s, per second", no_wrap=True)
        for name in ("ok", "429", "errors", *map(percentile_name, SHOWN_PERCENTILES), "service p99"):
            table.add_column(name, justify="right", no_wrap=True)
        for figures in (*rows, *([self._window.whole()] if len(rows) > 1 else ())):
            # How long the service held a poll on purpose is no time that anybody has to mind.
            of_times = "dim" if figures.name in HELD else ""
            table.add_row(
                figures.name,
                Text(short_count(figures.per_s(figures.good)), "green"),
                Text(short_count(figures.per_s(figures.limited)), "yellow" if figures.limited else "dim"),
                Text(short_count(figures.per_s(figures.errors)), "bold red" if figures.errors else "dim"),
                *(Text(time_text(value), of_times) for value in figures.response.percentiles(SHOWN_PERCENTILES)),
                Text(time_text(figures.service.percentile(99)), "dim"),
            )
        return table

    def _facts(self) -> Iterator[tuple[str, Sequence[Part]]]:
        window, status = self._window, self._status
        yield "age of readings", self._age(READING_AGE, "accepted")
        yield "age of commands", self._age(COMMAND_AGE, "ended")
        yield "generator", _health(window)
        kinds = [kind for kind in (*ERRORS, OutcomeClass.LIMITED) if window.counts[kind]]
        styles = {OutcomeClass.LIMITED: "yellow"}
        errors = [(f"{window.counts[kind]:,} {OUTCOME_WORDS[kind]}", styles.get(kind, "bold red")) for kind in kinds]
        yield "so far", [(f"{window.counts[OutcomeClass.OK]:,} ok", ""), *errors]
        # By the devices' own ledgers: the service is read back only at the end.
        counted = {name: value for name, value in window.gauges.items() if is_cumulative(name)}
        now = {name: value for name, value in sorted(window.gauges.items()) if name not in counted}
        yield f"{_noun(self._record)}s", [(self._gauge(name, value), "") for name, value in now.items()]
        for family in dict.fromkeys(name.partition("_")[0] for name in counted):
            of_family = {name: value for name, value in counted.items() if name.startswith(f"{family}_")}
            yield family, [(f"{value:,.0f} {name.partition('_')[2]}", "") for name, value in of_family.items()]
        dead = [number for number, state in status.workers.items() if state == _DEAD]
        if status.workers:
            whole = len(status.workers)
            parts = [(f"{whole - len(dead)} of {whole} at work", "")]
            yield "workers", parts + [(f"{number} is dead", "bold red") for number in dead]
        if status.gaps:
            latest = status.gaps[-1]
            yield "gaps", [(f"{gaps_text(status.gaps)}; worker {latest.worker}: {latest.reason}", "red")]

    def _age(self, name: str, good: str) -> list[Part]:
        figures = self._window.age(name)
        if figures is None:
            return []
        times = zip(SHOWN_PERCENTILES, figures.response.percentiles(SHOWN_PERCENTILES), strict=True)
        parts = [(f"{percentile_name(percent)} {time_text(value)}", "bold") for percent, value in times]
        return [*parts, (f"{short_count(figures.per_s(figures.good))} {good} per s", ""), ("last 10 s", "dim")]

    def _gauge(self, name: str, value: float) -> str:
        of_all = f" of {self._record.devices:,}" if name == "online" else ""
        return f"{count_text(value)}{of_all} {name.replace('_', ' ')}"


def _bar(label: str, far: str, done: float, whole: float) -> Table:
    row = Table.grid(expand=True, padding=(0, 1))
    row.add_column(min_width=_LABEL, style="bold cyan", no_wrap=True)
    row.add_column(ratio=1, min_width=10)
    row.add_column(no_wrap=True, overflow="ellipsis")
    row.add_row(label, ProgressBar(total=whole or 1, completed=done), far)
    return row


def _health(window: Window) -> list[Part]:
    health, share = window.health, _sent_share(window)
    parts = [
        (f"lag p99 {time_text(health.send_lag_p99_s)}", health.send_lag_p99_s > _LAG_WARN_S),
        (f"max {time_text(health.send_lag_max_s)}", False),
        (f"sent {percent_text(share)}", share is not None and share < _SENT_WARN),
        (f"CPU {health.cpu_percent:.0f} %", health.cpu_percent > _CPU_WARN_PERCENT),
        (f"loop {time_text(health.loop_lag_max_s)}", health.loop_lag_max_s > 10 * _LAG_WARN_S),
        (f"steal {health.steal_percent:.0f} %", health.steal_percent >= 1),
    ]
    return [(part, "bold yellow" if is_bad else "") for part, is_bad in parts]


def _sent_share(window: Window) -> float | None:
    return window.sent / window.intended if window.intended else None


def _noun(record: RunRecord) -> str:
    return "label" if record.kind == "onboarding" else "device"


def _parts(record: RunRecord) -> tuple[str, ...]:
    """What the run is made of, in a few words each."""
    return plural(record.devices, _noun(record)), record.transport, record.kind
