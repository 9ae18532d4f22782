"""One picture of a run that goes on, laid out for the size of the terminal. No clock, no input or output.

Every line has a rank. Where the terminal is too low, the lines of the highest rank go first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Final

from rich.text import Text

from simulator.fleet.metrics.ages import COMMAND_AGE, READING_AGE
from simulator.fleet.metrics.subjects import HELD
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import Span
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
from simulator.fleet.report.window import RecentFigures, Window

Line = tuple[int, Text]
"""A rank, 0 for what must be seen, and the line."""

_WIDE: Final = 132
_LABEL: Final = 18
_NUMBER: Final = 8
_SPARK: Final = "▁▂▃▄▅▆▇█"
_LAG_WARN_S: Final = 0.01
_CPU_WARN_PERCENT: Final = 90.0
_SENT_WARN: Final = 0.995
_RULE: Final = "─"
_ROWS_ALWAYS: Final = 6
_NOTE: Final = 7
_NOTE_INDENT: Final = 11
"""A note goes on below its own text, behind the clock."""
_CHART: Final = 10_000
_GAPS_SHOWN: Final = 3
_CHART_ROWS: Final = 7
_STREAM_WORDS: Final = {
    "readings": ("sent", "accepted", "unanswered", "yellow"),
    # A command takes its time: one that is under way is nothing to worry about.
    "commands": ("ordered", "reported", "under way", ""),
}
_GAUGES: Final = {
    "online": "online",
    "connections": "connections",
    "waiting_readings": "waiting readings",
    "open_commands": "open commands",
    "results_put_aside": "results put aside",
}


@dataclass(slots=True)
class ScreenState:
    """Everything that a frame is made of.

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


def frame(picture: ScreenState, width: int, height: int) -> Text:
    """The picture in at most ``height`` lines of at most ``width`` cells."""
    lines = [
        *_title(picture, width),
        *_progress(picture, width),
        *_operations(picture, width),
        *_counts(picture, width),
        *_workers(picture, width),
        *_charts(picture.window, width),
        *_notes(picture, width, height),
    ]
    kept = fit(lines, height)
    for line in kept:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(kept)


def fit(lines: Sequence[Line], height: int) -> list[Text]:
    """The lines without those of the highest ranks, of a rank the last first, until they fit."""
    if len(lines) > height:
        lines = [line for line in lines if line[0] != _CHART]
    over = max(0, len(lines) - height)
    order = sorted(range(len(lines)), key=lambda at: (lines[at][0], at), reverse=True)
    gone = set(order[:over])
    return [text for at, (_, text) in enumerate(lines) if at not in gone]


def sparkline(values: Sequence[float], cells: int) -> str:
    """The latest values as bars, one cell each, from 0 to the largest of them."""
    shown = list(values[-cells:])
    top = max(shown, default=0)
    if top <= 0:
        return (_SPARK[0] * len(shown)).rjust(cells)
    steps = len(_SPARK) - 1
    return "".join(_SPARK[min(steps, round(value / top * steps))] for value in shown).rjust(cells)


def columns(values: Sequence[float], cells: int, rows: int) -> list[str]:
    """The latest values as columns, a cell each, over several rows; the highest of them reaches the top."""
    shown = list(values[-cells:])
    top = max(shown, default=0) or 1
    heights = [round(value / top * rows * len(_SPARK)) for value in shown]
    return [
        "".join(_column(height - row * len(_SPARK)) for height in heights).rjust(cells)
        for row in range(rows - 1, -1, -1)
    ]


def _column(eighths: int) -> str:
    return " " if eighths <= 0 else _SPARK[min(eighths, len(_SPARK)) - 1]


def parts_in_rows(label: str, parts: Sequence[tuple[str, str]], width: int) -> list[Text]:
    """Words and their styles behind a label, in as many rows as they need."""
    rows = [Text(f"{label:<{_LABEL}}", "dim")]
    for at, (part, style) in enumerate(parts):
        if at and rows[-1].cell_len + len(part) + 3 > width:
            rows.append(Text(" " * _LABEL))
        elif at:
            rows[-1].append(" · ", "dim")
        rows[-1].append(part, style)
    return rows


def bar(share: float, cells: int) -> Text:
    """A bar that is full at 1."""
    full = round(min(max(share, 0.0), 1.0) * cells)
    return Text.assemble(("━" * full, "cyan"), ("━" * (cells - full), "bright_black"))


def _title(picture: ScreenState, width: int) -> list[Line]:
    head, latest = picture.head, picture.window.latest
    is_wide = width >= _WIDE
    parts = [*head.parts, plural(head.workers, "worker")]
    left = Text.assemble((head.name, "bold"), ("  " + " · ".join([*parts, head.target] if is_wide else parts), "dim"))
    clock = clock_text(latest.second + 1 if latest else 0)
    planned = clock_text(head.duration_s)
    over = latest is not None and latest.second + 1 > head.duration_s
    right = (f"{clock}, planned {planned}" if over else f"{clock} of {planned}") if head.duration_s else clock
    left.truncate(max(10, width - len(right) - 2), overflow="ellipsis", pad=True)
    lines: list[Line] = [(0, Text.assemble(left, "  ", (right, "bold")))]
    return lines if is_wide else [*lines, (4, Text(head.target, "dim"))]


def _progress(picture: ScreenState, width: int) -> list[Line]:
    lines: list[Line] = []
    second = picture.window.latest.second + 1 if picture.window.latest else 0
    cells = max(10, width - _LABEL - 42)
    if picture.stage:
        share = picture.done / picture.whole if picture.whole else 0.0
        far = f"  {picture.done:,} of {picture.whole:,}" if picture.whole else ""
        label = f"{picture.stage:<{_LABEL - 2}}  "
        cells = max(10, cells + _LABEL - len(label))
        lines.append((0, Text.assemble((label, "bold cyan"), bar(share, cells), far)))
    elif picture.standing.phase is not None:
        lines.append((0, _phase(picture.standing, second, cells)))
    if picture.head.phases and picture.head.duration_s > 0:
        lines.append((6, _phase_line(picture.head, picture.standing.phase, second, width)))
    for fault in picture.standing.faults:
        left_s = max(0, fault.end_s - second)
        text = f"{fault.kind}: {plural(fault.devices, 'device')}, {clock_text(left_s)} left"
        name = "" if fault.name == fault.kind else f" ({fault.name})"
        lines.append((1, Text.assemble((f"{'fault':<{_LABEL}}", "bold yellow"), (text + name, "yellow"))))
    return [*lines, (5, Text(_RULE * width, "bright_black"))]


def _phase(standing: RunStatus, second: int, cells: int) -> Text:
    phase = standing.phase
    if phase is None:
        return Text()
    length = phase.end_s - phase.begin_s
    share = (second - phase.begin_s) / length if length > 0 else 1.0
    text = f"  {clock_text(second - phase.begin_s)} of {clock_text(length)}"
    waiting = f", until {standing.waiting_for}" if standing.waiting_for else ""
    return Text.assemble((f"{phase.name:<{_LABEL}}"[:_LABEL], "bold cyan"), bar(share, cells), text, (waiting, "dim"))


def _phase_line(head: RunHead, now: Span | None, second: int, width: int) -> Text:
    """All phases on one line, each as long as planned; the one that is under way is marked."""
    cells = width - _LABEL
    # A barrier moves what comes after it: the plan's clock is only asked where nobody says what is under way.
    begins = [abs(phase.begin_s - now.begin_s) for phase in head.phases if now is not None and phase.name == now.name]
    row = Text.assemble((f"{'phases':<{_LABEL}}", "dim"))
    for number, phase in enumerate(head.phases):
        first, last = (round(at / head.duration_s * cells) for at in (phase.begin_s, phase.end_s))
        size = max(1, min(last, cells) - first)
        name = f" {phase.name}"[: size - 1].ljust(size)
        is_now = phase.begin_s <= second < phase.end_s
        if now is not None:
            is_now = phase.name == now.name and abs(phase.begin_s - now.begin_s) == min(begins)
        style = "black on cyan" if is_now else ("on grey23", "on grey30")[number % 2]
        row.append(name, style)
    return row


def _operations(picture: ScreenState, width: int) -> list[Line]:
    wide = width >= _WIDE
    rows = picture.window.rows()
    names = [percentile_name(percent) for percent in SHOWN_PERCENTILES]
    over = Text(f"{'':<{_LABEL}}{'per second':>{3 * _NUMBER - 1}}{'response, last 10 s':>{4 * _NUMBER}}", "dim")
    head = Text(f"{'operation':<{_LABEL}}", "bold")
    for name in ("ok", "429", "errors", *names, *(names if wide else ())):
        head.append(f"{name:>{_NUMBER}}" if name != "429" else f"{name:>{_NUMBER - 1}}", "bold")
    if wide:
        over.append(f"{'service, last 10 s':>{4 * _NUMBER}}", "dim")
        over.append("  ok per second", "dim")
    lines: list[Line] = [(3, over), (1, head)]
    for at, row in enumerate(rows):
        lines.append((1 if at < _ROWS_ALWAYS else 4, _operation(row, width, wide=wide)))
        if not wide:
            lines.append((5, _service(row)))
    if len(rows) > 1:
        lines.append((2, _operation(picture.window.whole(), width, wide=wide)))
    if not rows:
        lines.append((1, Text("nothing measured yet", "dim")))
    return [*lines, (5, Text(_RULE * width, "bright_black"))]


def _operation(row: RecentFigures, width: int, *, wide: bool) -> Text:
    figures = row.figures
    name, limited, errors = figures.name, figures.limited, figures.errors
    text = Text(f"{name:<{_LABEL - 1}}"[: _LABEL - 1] + " ", "bold" if name == "all" else "")
    text.append(f"{short_count(figures.per_s(figures.good)):>{_NUMBER}}", "green")
    text.append(f"{short_count(figures.per_s(limited)):>{_NUMBER - 1}}", "yellow" if limited else "dim")
    text.append(f"{short_count(figures.per_s(errors)):>{_NUMBER}}", "bold red" if errors else "dim")
    for value in figures.response.percentiles(SHOWN_PERCENTILES):
        # How long the service held a poll on purpose is no time that anybody has to mind.
        text.append(f"{_tight(value):>{_NUMBER}}", "dim" if name in HELD else "")
    if wide:
        for value in figures.service.percentiles(SHOWN_PERCENTILES):
            text.append(f"{_tight(value):>{_NUMBER}}", "dim")
        cells = width - _LABEL - 11 * _NUMBER - 1
        text.append(f"  {sparkline(row.history, cells)}", "cyan")
    return text


def _service(row: RecentFigures) -> Text:
    text = Text(f"{'  service':<{_LABEL + 3 * _NUMBER - 1}}", "dim")
    for value in row.figures.service.percentiles(SHOWN_PERCENTILES):
        text.append(f"{_tight(value):>{_NUMBER}}", "dim")
    return text


def _tight(seconds: float) -> str:
    return time_text(seconds).replace(" ", "")


def _counts(picture: ScreenState, width: int) -> list[Line]:
    window = picture.window
    kinds = [kind for kind in (*ERRORS, OutcomeClass.LIMITED) if window.counts[kind]]
    errors = [(f"{window.counts[OutcomeClass.OK]:,} ok", "")]
    errors += [
        (f"{window.counts[kind]:,} {OUTCOME_WORDS[kind]}", "yellow" if kind is OutcomeClass.LIMITED else "bold red")
        for kind in kinds
    ]
    shown = {
        name: value for name, value in window.gauges.items() if name.partition("_")[0] not in picture.standing.audit
    }
    gauges = [(_gauge(name, value, picture.head), "") for name, value in sorted(shown.items(), key=_order)]
    blocks = [
        ("age of readings", _age(window, READING_AGE, "accepted")),
        ("age of commands", _age(window, COMMAND_AGE, "ended")),
        ("so far", errors),
        (f"{picture.head.noun}s", gauges),
        ("generator", _health(window)),
    ]
    blocks += [(name, _stream(name, stream)) for name, stream in picture.standing.audit.items()]
    lines: list[Line] = []
    for label, parts in blocks:
        rows = parts_in_rows(label, parts, width) if parts else []
        lines += [(2 if at == 0 else 3, row) for at, row in enumerate(rows)]
    return lines


def _age(window: Window, name: str, good: str) -> list[tuple[str, str]]:
    figures = window.age(name)
    if figures is None:
        return []
    times = zip(SHOWN_PERCENTILES, figures.response.percentiles(SHOWN_PERCENTILES), strict=True)
    parts = [(f"{percentile_name(percent)} {time_text(value)}", "bold") for percent, value in times]
    return [*parts, (f"{short_count(figures.per_s(figures.good))} {good} per s", ""), ("last 10 s", "dim")]


def _order(gauge: tuple[str, float]) -> tuple[int, str]:
    names = list(_GAUGES)
    return names.index(gauge[0]) if gauge[0] in _GAUGES else len(names), gauge[0]


def _gauge(name: str, value: float, head: RunHead) -> str:
    label = _GAUGES.get(name, name.replace("_", " "))
    if name == "online":
        return f"{count_text(value)} of {head.devices:,} online"
    return f"{count_text(value)} {label}"


def _health(window: Window) -> list[tuple[str, str]]:
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


def _stream(name: str, stream: StreamSoFar) -> list[tuple[str, str]]:
    sent, accepted, unanswered, style = _STREAM_WORDS.get(name, _STREAM_WORDS["readings"])
    parts = [(f"{stream.sent:,} {sent}", ""), (f"{stream.accepted:,} {accepted}", "")]
    if stream.unanswered > 0:
        parts.append((f"{stream.unanswered:,} {unanswered}", style))
    return parts


def _workers(picture: ScreenState, width: int) -> list[Line]:
    workers = picture.standing.workers
    if not workers:
        return []
    at_work = sum(worker.state is not WorkerState.DEAD for worker in workers)
    parts = [(f"{at_work} of {len(workers)} at work", "")]
    parts += [
        (f"{worker.number} is {worker.state}", "bold red") for worker in workers if worker.state is WorkerState.DEAD
    ]
    if width >= _WIDE:
        parts += [
            (f"#{worker.number}: {plural(worker.devices, 'device')}, CPU {worker.cpu_percent:.0f} %", "dim")
            for worker in workers
            if worker.state is not WorkerState.DEAD
        ]
    rows = parts_in_rows("workers", parts, width)
    lines: list[Line] = [(2 if at == 0 else 6, row) for at, row in enumerate(rows)]
    gaps = picture.standing.gaps
    if len(gaps) > _GAPS_SHOWN:
        lines.append((2, Text.assemble((f"{'gaps':<{_LABEL}}", "bold red"), (gaps_text(gaps), "red"))))
    for gap in gaps[-_GAPS_SHOWN:]:
        text = f"worker {gap.worker}, {clock_text(gap.from_s)} to {clock_text(gap.to_s)}: {gap.reason}"
        for at, part in enumerate(wrap(text, max(width - _LABEL, _LABEL))):
            lines.append((2, Text.assemble((f"{'' if at else 'gap':<{_LABEL}}", "bold red"), (part, "red"))))
    return lines


def _notes(picture: ScreenState, width: int, height: int) -> list[Line]:
    shown = picture.notes[-max(3, height // 2) :]
    lines: list[Line] = [(5, Text(_RULE * width, "bright_black"))] if shown else []
    # The oldest go first, and nobody has to guess how to end it.
    lines += [
        (_NOTE + len(shown) - at, Text(row, style))
        for at, (style, text) in enumerate(shown)
        for row in wrap(f"  {text}", max(width, 2 * _NOTE_INDENT), subsequent_indent=" " * _NOTE_INDENT)
    ]
    return [*lines, (3, Text("Ctrl-C ends the run and still makes the report", "dim"))]


def _charts(window: Window, width: int) -> list[Line]:
    """Rate and 99th percentile over the last minutes, where there is room for it."""
    if width < _WIDE or window.latest is None:
        return []
    cells = (width - 4) // 2
    rate, p99 = window.whole().history[-cells:], window.p99_history()[-cells:]
    names = (
        f"ok per second, the last {clock_text(len(rate))}, up to {short_count(max(rate))}",
        f"p99 of the response time, up to {time_text(max(p99))}",
    )
    rows = [Text(f"{names[0]:<{cells}}    {names[1]:<{cells}}", "dim")]
    for left, right in zip(columns(rate, cells, _CHART_ROWS), columns(p99, cells, _CHART_ROWS), strict=True):
        rows.append(Text.assemble((left, "green"), "    ", (right, "cyan")))
    rows.insert(0, Text(_RULE * width, "bright_black"))
    # All of it or nothing: half a chart says something else.
    return [(_CHART, row) for row in rows]
