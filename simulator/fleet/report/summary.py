"""The outcome of a run in the terminal: verdict, figures by operation, thresholds, audit, gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.fleet.metrics.ages import COMMAND_AGE
from simulator.fleet.record import (
    AuditRecord,
    Operations,
    RunRecord,
    StreamAudit,
    ThresholdResult,
    VerdictStatus,
)
from simulator.fleet.report.figures import (
    OPERATION_COLUMNS,
    SHOWN_PERCENTILES,
    errors_of,
    figures_by_operation,
    percentile_label,
    percentile_times,
    run_figures,
)
from simulator.fleet.report.formatting import (
    DASH,
    VERDICT_WORDS,
    clock_text,
    count_text,
    percentile_name,
    time_text,
)
from simulator.report_parts.values import Tone

_STYLES: Final = {
    VerdictStatus.PASSED: "bold green",
    VerdictStatus.INCONCLUSIVE: "bold yellow",
    VerdictStatus.INTERRUPTED: "bold yellow",
}
_COUNT_STYLES: Final = {Tone.WARN: "yellow", Tone.BAD: "red", Tone.PLAIN: ""}
_FEWER_PERCENTILES: Final = (50.0, 99.0, 99.9)
_WIDE: Final = 1000
_ERRORS_SHOWN: Final = 10
NOTHING_WRONG: Final = "nothing lost, doubled or altered"
WRONGS: Final = ("lost", "doubled", "reordered", "altered", "late", "unknown")
"""Members of :class:`StreamAudit` that ought to be 0, the gravest first."""


def print_summary(console: Console, record: RunRecord) -> None:
    """Print the outcome; values of the record are printed as they are, without markup."""
    verdict = record.verdict
    style = _STYLES.get(verdict.word, "bold red")
    console.print()
    console.print(Text.assemble((VERDICT_WORDS[verdict.word], style), (f"  exit code {verdict.exit_code}", "dim")))
    for sentence in verdict.sentences:
        console.print(Text(f"  {sentence}"), soft_wrap=True)
    for line in age_lines(record):
        console.print(line, soft_wrap=True)
    console.print(_fitting_table(console, record))
    if (again := resends_line(record.operations)) is not None:
        console.print(again, soft_wrap=True)
    if errors := errors_of(record):
        console.print(_errors_table(errors))
    for result in record.thresholds:
        console.print(_threshold(result), soft_wrap=True)
    for line in audit_lines(record.audit):
        console.print(line, soft_wrap=True)
    for gap in record.gaps:
        text = f"gap: worker {gap.worker}, {clock_text(gap.from_s)} to {clock_text(gap.to_s)}: {gap.reason}"
        console.print(Text(text, "yellow"), soft_wrap=True)


def _errors_table(errors: Sequence[tuple[str, int]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("errors", justify="right", style="red", no_wrap=True)
    table.add_column("why", overflow="fold")
    for why, count in errors[:_ERRORS_SHOWN]:
        table.add_row(f"{count:,}", Text(why))
    if (more := len(errors) - _ERRORS_SHOWN) > 0:
        table.add_row("", f"and {more} others: see the report")
    return table


def age_lines(record: RunRecord) -> list[Text]:
    """What readings and commands waited until they were accepted or ended: the figures that an outage shows in.

    Commands by end state, and by name, stand below them all where there is more than one.
    """
    lines, ages = [], run_figures(record).ages
    kinds = [sum(age.name.startswith(f"{COMMAND_AGE}{mark}") for age in ages) for mark in ".["]
    for age in ages:
        if not age.is_whole and kinds["[" in age.name] == 1:
            continue
        times = zip(
            (*SHOWN_PERCENTILES, 100.0),
            percentile_times(age.figures.response, (*SHOWN_PERCENTILES, 100.0)),
            strict=True,
        )
        text = Text.assemble((age.name, "bold")) if age.is_whole else Text(f"  {age.name}")
        text.append("  " + ", ".join(f"{percentile_label(percent)} {time_text(value)}" for percent, value in times))
        good, others = age.counts_text
        is_rate = record.duration_s > 0 and age.is_whole
        rate = f", {count_text(age.figures.per_s(age.figures.good))} per s" if is_rate else ""
        text.append(f"  {good}{rate}", "dim")
        if others:
            text.append(f", {others}", "bold red")
        lines.append(text)
    return lines


def _fitting_table(console: Console, record: RunRecord) -> Table:
    """With as many percentiles as the terminal is wide: a figure that is cut off is worse than none."""
    for percentiles in (SHOWN_PERCENTILES, _FEWER_PERCENTILES):
        table = operations_table(record.operations, record.duration_s, percentiles)
        if console.measure(table, options=console.options.update(width=_WIDE)).maximum <= console.width:
            break
    return table


def operations_table(operations: Operations, duration_s: float, percentiles: Sequence[float]) -> Table:
    """The columns of :data:`OPERATION_COLUMNS` and percentiles of the response time, a row for each operation."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("operation", no_wrap=True)
    figures = figures_by_operation(operations, duration_s).values()
    shown = [each for each in OPERATION_COLUMNS if not each.is_rare or any(map(each.count, figures))]
    first, *others = map(percentile_name, percentiles)
    for name in (*(each.terminal for each in shown), f"response {first}", *others):
        table.add_column(name, justify="right", no_wrap=True)
    for row in figures:
        table.add_row(
            Text(row.name),
            *(Text(each.text(row), _COUNT_STYLES[each.tone] if each.count(row) else "") for each in shown),
            *(time_text(value) for value in row.response.percentiles(percentiles)),
        )
    return table


def resends_line(operations: Operations) -> Text | None:
    """What was sent again, by whether the service may have had it already; None where nothing was."""
    resends = {name: each.resends for name, each in figures_by_operation(operations, 0.0).items()}
    after_refusal, ambiguous = (
        ", ".join(f"{name} {count:,}" for name, each in resends.items() if (count := getattr(each, kind)))
        for kind in ("after_refusal", "ambiguous")
    )
    parts = []
    if after_refusal:
        parts.append(f"after a refusal ({after_refusal})")
    if ambiguous:
        parts.append(f"while an earlier attempt may have been stored: ambiguous ({ambiguous})")
    return Text(f"sent again {'; '.join(parts)}") if parts else None


def observed_text(result: ThresholdResult) -> str:
    """What a threshold was held against, with its unit; a dash where nothing was measured."""
    if result.observed is None:
        return DASH
    if result.unit in {"s", "seconds"}:
        return time_text(result.observed)
    return f"{result.observed:,.6g}{f' {result.unit}' if result.unit else ''}"


def audit_lines(audit: AuditRecord | None) -> list[Text]:
    """The audit, a line for each stream and each sentence."""
    if audit is None:
        return []
    lines = [
        _stream(name, stream, complete=all(audit.judges(name, word) for word in WRONGS))
        for name, stream in streams_of(audit)
    ]
    if not audit.complete:
        lines.append(Text("audit: not everything was read back", "yellow"))
    # What the audit says first of a stream is its counts once more.
    begins = tuple(f"{name}: " for name, _ in streams_of(audit))
    return lines + [Text(f"audit: {sentence}") for sentence in audit.sentences if not sentence.startswith(begins)]


def streams_of(audit: AuditRecord) -> list[tuple[str, StreamAudit]]:
    """``readings``, ``commands`` and ``registrations``, those that there are."""
    pairs = (("readings", audit.readings), ("commands", audit.commands), ("registrations", audit.registrations))
    return [(name, stream) for name, stream in pairs if stream is not None]


def _stream(name: str, stream: StreamAudit, *, complete: bool) -> Text:
    text = Text(f"{name}: {stream.sent:,} sent, {stream.accepted:,} accepted, {stream.stored:,} stored")
    wrong = [(word, getattr(stream, word)) for word in WRONGS]
    for word, count in wrong:
        if count:
            text.append(f", {count:,} {word}", "bold red")
    if not any(count for _, count in wrong):
        # Of what could not be read back nobody knows.
        judged = (NOTHING_WRONG, "green") if complete else ("nothing found wrong so far", "yellow")
        text.append(f", {judged[0]}", judged[1])
    if stream.resent:
        twice = f", {stream.doubled_by_resend:,} of them stored more than once" if stream.doubled_by_resend else ""
        unsure = f" ({stream.resent_ambiguous:,} may have been stored before)" if stream.resent_ambiguous else ""
        text.append(f"; {stream.resent:,} sent again{unsure}{twice}")
    if stream.ambiguous:
        text.append(f", {stream.ambiguous:,} unanswered and counted as neither", "yellow")
    return text


def _threshold(result: ThresholdResult) -> Text:
    mark, style = ("✓", "green") if result.held else ("✕", "bold red") if result.judged else ("-", "yellow")
    observed = f"observed {observed_text(result)}" if result.judged else f"not judged: {result.reason}"
    text = Text.assemble((f"{mark} ", style), result.expression, (f"  {observed}", "dim"))
    if result.at_s is not None and not result.held:
        text.append(f", worst at {clock_text(result.at_s)}", "dim")
    return text
