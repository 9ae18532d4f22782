"""The outcome of a run in the terminal: verdict, figures by operation, thresholds, audit, gaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.fleet.metrics.ages import AGE_OPERATIONS
from simulator.fleet.record import AuditRecord, RunRecord, StepWord, ThresholdResult, VerdictStatus
from simulator.fleet.report.figures import (
    PERCENTILES,
    SHOWN_PERCENTILES,
    Figures,
    RunFigures,
    age_counts_text,
    errors_of,
    percentile_name,
    percentiles,
    run_figures,
    search_rows,
)
from simulator.fleet.report.formatting import DASH, clock_text, count_text, headline, time_text

_STYLES: Final = {
    VerdictStatus.PASSED: "bold green",
    VerdictStatus.INCONCLUSIVE: "bold yellow",
    VerdictStatus.INTERRUPTED: "bold yellow",
}
_STEP_MARKS: Final = {
    StepWord.HELD: ("✓", "green"),
    StepWord.BROKE: ("✕", "bold red"),
    StepWord.UNJUDGED: ("-", "yellow"),
}
_FEWER_PERCENTILES: Final = (50.0, 99.0, 99.9)
_NARROW: Final = 100
"""Columns of a terminal in which not all percentiles have room: a figure that is cut off is worse than none."""
_ERRORS_SHOWN: Final = 10
NOTHING_WRONG: Final = "nothing lost, doubled or altered"
WRONGS: Final = ("lost", "doubled", "altered", "unknown")
"""Members of :class:`StreamAudit` that ought to be 0, the gravest first."""


def print_summary(console: Console, record: RunRecord) -> None:
    """Print the outcome; values of the record are printed as they are, without markup."""
    verdict, figures = record.verdict, run_figures(record)
    style = _STYLES.get(verdict.word, "bold red")
    console.print()
    console.print(Text.assemble((headline(record), style), (f"  exit code {verdict.exit_code}", "dim")))
    lines = [Text(f"  {sentence}") for sentence in verdict.sentences]
    lines += _ages(figures)
    for line in lines:
        console.print(line, soft_wrap=True)
    percents = SHOWN_PERCENTILES if console.width >= _NARROW else _FEWER_PERCENTILES
    console.print(_operations_table(figures.operations.values(), percents))
    if errors := errors_of(record):
        console.print(_errors_table(errors))
    lines = [*_steps(record), *map(_threshold, record.thresholds), *(_audit(record.audit) if record.audit else ())]
    for gap in record.gaps:
        text = f"gap: worker {gap.worker}, {clock_text(gap.from_s)} to {clock_text(gap.to_s)}: {gap.reason}"
        lines.append(Text(text, "yellow"))
    for line in lines:
        console.print(line, soft_wrap=True)


def new_table() -> Table:
    """A table as all of them are: without lines."""
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def _steps(record: RunRecord) -> Iterator[Text]:
    """The steps of a search for the limit, a line each."""
    for name, word, why in search_rows(record):
        mark, style = _STEP_MARKS[word]
        yield Text.assemble((f"{mark} ", style), f"{name} {word}", (f"  {why}" if why else "", "dim"))


def _errors_table(errors: Sequence[tuple[str, int]]) -> Table:
    table = new_table()
    table.add_column("errors", justify="right", style="red", no_wrap=True)
    table.add_column("why", overflow="fold")
    for why, count in errors[:_ERRORS_SHOWN]:
        table.add_row(f"{count:,}", Text(why))
    if (more := len(errors) - _ERRORS_SHOWN) > 0:
        table.add_row("", f"and {more} others: see the report")
    return table


def _ages(figures: RunFigures) -> Iterator[Text]:
    """What readings and commands waited until they were accepted or ended: the figures that an outage shows in.

    Commands by end state, and by name, stand below them all.
    """
    for age in figures.ages:
        is_whole = age.name in AGE_OPERATIONS
        times = percentiles(age.response, (*SHOWN_PERCENTILES, PERCENTILES[-1]))
        text = Text.assemble((age.name, "bold")) if is_whole else Text(f"  {age.name}")
        text.append("  " + ", ".join(f"{name} {time_text(value)}" for name, value in times.items()))
        good, others = age_counts_text(age)
        text.append(f"  {good}, {count_text(age.per_s(age.good))} per s", "dim")
        if others:
            text.append(f", {others}", "bold red")
        yield text


def _operations_table(rows: Iterable[Figures], percents: Sequence[float]) -> Table:
    """Counts and percentiles of the response time, a row for each operation."""
    table = new_table()
    table.add_column("operation", no_wrap=True)
    first, *others = map(percentile_name, percents)
    for name in ("ok", "per s", "429", "errors", "again", f"response {first}", *others):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            Text(row.name),
            f"{row.good:,}",
            count_text(row.per_s(row.good)),
            Text(f"{row.limited:,}", "yellow" if row.limited else ""),
            Text(f"{row.errors:,}", "red" if row.errors else ""),
            f"{row.resends:,}" + (f" ({row.ambiguous:,} ambiguous)" if row.ambiguous else ""),
            *map(time_text, percentiles(row.response, percents).values()),
        )
    return table


def observed_text(result: ThresholdResult) -> str:
    """What a threshold was held against, with its unit; a dash where nothing was measured."""
    if result.observed is None:
        return DASH
    if result.unit in {"s", "seconds"}:
        return time_text(result.observed)
    return f"{result.observed:,.6g}{f' {result.unit}' if result.unit else ''}"


def audit_text(audit: AuditRecord) -> str:
    """What is wrong by the audit, in a few words; of what could not be read back nobody knows."""
    counts = {word: sum(getattr(stream, word) for _, stream in audit.streams) for word in WRONGS}
    parts = [f"{count:,} {word}" for word, count in counts.items() if count]
    return ", ".join([*parts, *([] if audit.complete else ["not complete"])]) or NOTHING_WRONG


def _audit(audit: AuditRecord) -> Iterator[Text]:
    text = audit_text(audit)
    style = "green" if text == NOTHING_WRONG else "bold red" if any(map(str.isdigit, text)) else "yellow"
    yield Text.assemble("audit: ", (text, style))
    yield from map(Text, audit.sentences)


def _threshold(result: ThresholdResult) -> Text:
    mark, style = ("✓", "green") if result.held else ("✕", "bold red") if result.judged else ("-", "yellow")
    observed = f"observed {observed_text(result)}" if result.judged else f"not judged: {result.reason}"
    text = Text.assemble((f"{mark} ", style), result.expression, (f"  {observed}", "dim"))
    if result.at_s is not None and not result.held:
        text.append(f", worst at {clock_text(result.at_s)}", "dim")
    return text
