"""The outcome of a run in the terminal: verdict, figures by operation, errors, thresholds, audit, gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.fleet.metrics.ages import AGE_OPERATIONS
from simulator.fleet.outcomes import HELD, OutcomeClass
from simulator.fleet.record import WRONGS, AuditRecord, RunRecord, StepWord, ThresholdResult, VerdictStatus
from simulator.fleet.report.figures import errors_of, gap_spans, run_figures, search_rows
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
_PERCENTILES: Final = ("p50", "p95", "p99", "p99.9", "max")
_FEWER_PERCENTILES: Final = ("p50", "p99", "p99.9")
_NARROW: Final = 110
"""Columns of a terminal in which not all percentiles have room: a figure that is cut off is worse than none."""
_ERRORS_SHOWN: Final = 10
NOTHING_WRONG: Final = "nothing lost, doubled or altered"


def print_summary(console: Console, record: RunRecord) -> None:
    """Print the outcome; values of the record are printed as they are, without markup."""
    verdict = record.verdict
    console.print()
    style = _STYLES.get(verdict.word, "bold red")
    console.print(Text.assemble((headline(record), style), (f"  exit code {verdict.exit_code}", "dim")))
    for sentence in verdict.sentences:
        console.print(Text(f"  {sentence}"), soft_wrap=True)
    console.print(figures_table(run_figures(record).as_dict(), "the whole run", console.width))
    if errors := errors_of(record):
        table = new_table()
        table.add_column("errors", justify="right", style="red", no_wrap=True)
        table.add_column("why", overflow="fold")
        for why, count in errors[:_ERRORS_SHOWN]:
            table.add_row(f"{count:,}", Text(why))
        if (more := len(errors) - _ERRORS_SHOWN) > 0:
            table.add_row("", f"and {more} others: see the report")
        console.print(table)
    for line in (*_steps(record), *map(_threshold, record.thresholds), *_audit(record.audit), *_gaps(record)):
        console.print(line, soft_wrap=True)


def new_table() -> Table:
    """A table as all of them are: without lines."""
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def figures_table(figures: Mapping[str, Mapping[str, Any]], of_what: str, width: int) -> Table:
    """Counts and percentiles of the response time, or of the age, a row for each operation.

    Args:
        figures: by operation, as :class:`~simulator.fleet.report.figures.FigureSet` has them.
        of_what: the time that they are about.
        width: of the terminal.
    """
    table, names = new_table(), _FEWER_PERCENTILES if width < _NARROW else _PERCENTILES
    table.add_column(of_what, overflow="fold")  # in a narrow terminal a name goes on below, and no figure is cut off
    for name in ("ok", "per s", "429", "errors", "again", *names):
        table.add_column(name, justify="right", no_wrap=True)
    for name, each in figures.items():
        good, limited = (each["outcomes"].get(outcome, 0) for outcome in (OutcomeClass.OK, OutcomeClass.LIMITED))
        errors, ambiguous = each["count"] - good - limited, each["resends_ambiguous"]
        # What readings and commands waited is where an outage shows; how long a poll is held on purpose says nothing.
        style = "bold" if name in AGE_OPERATIONS else "dim" if name in HELD else ""
        table.add_row(
            Text(name, style),
            f"{good:,}",
            count_text(each["ok_per_s"]),
            Text(f"{limited:,}", "yellow" if limited else "dim"),
            Text(f"{errors:,}", "bold red" if errors else "dim"),
            f"{each['resends']:,}" + (f" ({ambiguous:,} ambiguous)" if ambiguous else ""),
            *(Text(time_text(each["response_s"][at]), style) for at in names),
        )
    return table


def _steps(record: RunRecord) -> Iterator[Text]:
    """The steps of a search for the limit, a line each."""
    for name, word, why in search_rows(record):
        yield Text.assemble(_STEP_MARKS[word], f" {name} {word}", (f"  {why}" if why else "", "dim"))


def _gaps(record: RunRecord) -> Iterator[Text]:
    for gap in gap_spans(record):
        yield Text(f"gap: {gap.name}, {clock_text(gap.begin_s)} to {clock_text(gap.end_s)}: {gap.kind}", "yellow")


def observed_text(result: ThresholdResult) -> str:
    """What a threshold was held against, with its unit; a dash where nothing was measured."""
    if result.observed is None:
        return DASH
    if result.unit in {"s", "seconds"}:
        return time_text(result.observed)
    return f"{result.observed:,.6g}{f' {result.unit}' if result.unit else ''}"


def audit_text(audit: AuditRecord) -> str:
    """What is wrong by the audit, in a few words, and whether it is complete."""
    counts = {word: sum(getattr(stream, word) for _, stream in audit.streams) for word in WRONGS}
    parts = [f"{count:,} {word}" for word, count in counts.items() if count]
    return ", ".join([*parts, *([] if audit.complete else ["not complete"])]) or NOTHING_WRONG


def _audit(audit: AuditRecord | None) -> Iterator[Text]:
    if audit is not None:
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
