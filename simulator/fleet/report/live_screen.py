"""One picture of a run that goes on, the most important first: a terminal that is too low shows its beginning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from simulator.fleet.metrics.ages import COMMAND_AGE, READING_AGE
from simulator.fleet.outcomes import HELD, OutcomeClass
from simulator.fleet.report.figures import SHOWN_PERCENTILES
from simulator.fleet.report.formatting import (
    ERRORS,
    OUTCOME_WORDS,
    clock_text,
    count_text,
    gaps_text,
    percent_text,
    percentile_name,
    plural,
    short_count,
    time_text,
)
from simulator.fleet.report.run_status import RunHead, RunStatus, StreamSoFar, WorkerState
from simulator.fleet.report.window import Window

Part = tuple[str, str]
"""Words and their rich style."""

_LABEL: Final = 18
_NOTES_SHOWN: Final = 10
_GAPS_SHOWN: Final = 3
_LAG_WARN_S: Final = 0.01
_CPU_WARN_PERCENT: Final = 90.0
_SENT_WARN: Final = 0.995
_STREAM_WORDS: Final = {
    "readings": ("sent", "accepted", "unanswered", "yellow"),
    # A command takes its time: one that is under way is nothing to worry about.
    "commands": ("ordered", "reported", "under way", ""),
}


@dataclass(slots=True)
class ScreenState:
    """Everything that a picture is made of.

    Attributes:
        stage: what goes on where there are no seconds, such as ``making devices``; empty while the load runs.
        done, whole: how far the stage is; 0 of 0 where nobody knows.
        notes: what happened, the latest last, with a rich style.
    """

    head: RunHead
    window: Window = field(default_factory=Window)
    standing: RunStatus = field(default_factory=RunStatus)
    stage: str = ""
    done: int = 0
    whole: int = 0
    notes: list[tuple[str, str]] = field(default_factory=list)

    @property
    def second(self) -> int:
        """How many seconds the run has been going on."""
        return self.window.latest.second + 1 if self.window.latest else 0


def frame(state: ScreenState) -> RenderableType:
    """The picture; whoever prints it cuts it to the terminal's height."""
    facts = Table.grid(padding=(0, 1))
    facts.add_column(width=_LABEL, style="dim", no_wrap=True)
    facts.add_column()
    for label, parts in _facts(state):
        if parts:
            facts.add_row(label, Text(" · ").join(Text(*part) for part in parts))
    notes = [Text(text, style) for style, text in reversed(state.notes[-_NOTES_SHOWN:])]
    end = Text("Ctrl-C ends the run and still makes the report", "dim")
    return Group(*_progress(state), _operations(state.window), facts, end, Rule(style="bright_black"), *notes)


def _progress(state: ScreenState) -> Iterator[RenderableType]:
    head, phase, second = state.head, state.standing.phase, state.second
    title = Table.grid(expand=True)
    title.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    title.add_column(justify="right", no_wrap=True, style="bold")
    words = " · ".join((*head.parts, plural(head.workers, "worker"), head.target))
    clock = f"{clock_text(second)} of {clock_text(head.duration_s)}" if head.duration_s else clock_text(second)
    title.add_row(Text.assemble((head.name, "bold"), (f"  {words}", "dim")), clock)
    yield title
    if state.stage:
        far = f"{state.done:,} of {state.whole:,}" if state.whole else ""
        yield _bar(state.stage, far, state.done, state.whole)
    elif phase is not None:
        length_s = phase.end_s - phase.begin_s
        waiting = f", until {state.standing.waiting_for}" if state.standing.waiting_for else ""
        far = f"{clock_text(second - phase.begin_s)} of {clock_text(length_s)}{waiting}"
        yield _bar(phase.name, far, second - phase.begin_s, length_s)
    for fault in state.standing.faults:
        left = clock_text(max(0, fault.end_s - second))
        name = "" if fault.name == fault.kind else f" ({fault.name})"
        yield Text(f"fault {fault.kind}: {plural(fault.devices, 'device')}, {left} left{name}", "yellow")
    yield Rule(style="bright_black")


def _bar(label: str, far: str, done: float, whole: float) -> Table:
    row = Table.grid(expand=True, padding=(0, 1))
    row.add_column(min_width=_LABEL, style="bold cyan", no_wrap=True)
    row.add_column(ratio=1, min_width=10)
    row.add_column(no_wrap=True, overflow="ellipsis")
    row.add_row(label, ProgressBar(total=whole or 1, completed=done), far)
    return row


def _operations(window: Window) -> RenderableType:
    rows = window.rows()
    if not rows:
        return Text("nothing measured yet", "dim")
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("last 10 s, per second", no_wrap=True)
    for name in ("ok", "429", "errors", *map(percentile_name, SHOWN_PERCENTILES), "service p99"):
        table.add_column(name, justify="right", no_wrap=True)
    for figures in (*rows, *([window.whole()] if len(rows) > 1 else ())):
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


def _facts(state: ScreenState) -> Iterator[tuple[str, Sequence[Part]]]:
    window, standing = state.window, state.standing
    yield "age of readings", _age(window, READING_AGE, "accepted")
    yield "age of commands", _age(window, COMMAND_AGE, "ended")
    yield "generator", _health(window)
    yield "so far", [(f"{window.counts[OutcomeClass.OK]:,} ok", ""), *_errors(window)]
    gauges = {name: value for name, value in window.gauges.items() if name.partition("_")[0] not in standing.audit}
    yield f"{state.head.noun}s", [_gauge(name, value, state.head) for name, value in sorted(gauges.items())]
    for name, stream in standing.audit.items():
        yield name, _stream(name, stream)
    dead = [worker for worker in standing.workers if worker.state is WorkerState.DEAD]
    whole = len(standing.workers)
    if whole:
        parts = [(f"{whole - len(dead)} of {whole} at work", "")]
        yield "workers", parts + [(f"{worker.number} is {worker.state}", "bold red") for worker in dead]
    if len(standing.gaps) > _GAPS_SHOWN:
        yield "gaps", [(gaps_text(standing.gaps), "red")]
    for gap in standing.gaps[-_GAPS_SHOWN:]:
        span = f"{clock_text(gap.from_s)} to {clock_text(gap.to_s)}"
        yield "gap", [(f"worker {gap.worker}, {span}: {gap.reason}", "red")]


def _errors(window: Window) -> list[Part]:
    kinds = (kind for kind in (*ERRORS, OutcomeClass.LIMITED) if window.counts[kind])
    style = {OutcomeClass.LIMITED: "yellow"}
    return [(f"{window.counts[kind]:,} {OUTCOME_WORDS[kind]}", style.get(kind, "bold red")) for kind in kinds]


def _age(window: Window, name: str, good: str) -> list[Part]:
    figures = window.age(name)
    if figures is None:
        return []
    times = zip(SHOWN_PERCENTILES, figures.response.percentiles(SHOWN_PERCENTILES), strict=True)
    parts = [(f"{percentile_name(percent)} {time_text(value)}", "bold") for percent, value in times]
    return [*parts, (f"{short_count(figures.per_s(figures.good))} {good} per s", ""), ("last 10 s", "dim")]


def _gauge(name: str, value: float, head: RunHead) -> Part:
    of_all = f" of {head.devices:,}" if name == "online" else ""
    return f"{count_text(value)}{of_all} {name.replace('_', ' ')}", ""


def _health(window: Window) -> list[Part]:
    health = window.health
    share = window.sent / window.intended if window.intended else None
    parts = [
        (f"lag p99 {time_text(health.send_lag_p99_s)}", health.send_lag_p99_s > _LAG_WARN_S),
        (f"max {time_text(health.send_lag_max_s)}", False),
        (f"sent {percent_text(share)}", share is not None and share < _SENT_WARN),
        (f"CPU {health.cpu_percent:.0f} %", health.cpu_percent > _CPU_WARN_PERCENT),
        (f"loop {time_text(health.loop_lag_max_s)}", health.loop_lag_max_s > 10 * _LAG_WARN_S),
        (f"steal {health.steal_percent:.0f} %", health.steal_percent >= 1),
    ]
    return [(part, "bold yellow" if is_bad else "") for part, is_bad in parts]


def _stream(name: str, stream: StreamSoFar) -> list[Part]:
    sent, accepted, unanswered, style = _STREAM_WORDS.get(name, _STREAM_WORDS["readings"])
    parts = [(f"{stream.sent:,} {sent}", ""), (f"{stream.accepted:,} {accepted}", "")]
    return [*parts, (f"{stream.unanswered:,} {unanswered}", style)] if stream.unanswered > 0 else parts
