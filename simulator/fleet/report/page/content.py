"""The page's words, figures and tables. Values only; the template lays them out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.outcomes import HELD, OutcomeClass
from simulator.fleet.record import DeviceFinding, RunRecord, Span, StreamAudit, VerdictStatus
from simulator.fleet.report.figures import (
    OPERATION_COLUMNS,
    TABLE_PERCENTILES,
    AgeFigures,
    Resends,
    RunFigures,
    errors_of,
    figures_by_outcome,
    percentile_label,
    percentile_times,
    phase_figures,
)
from simulator.fleet.report.formatting import (
    DASH,
    OUTCOME_WORDS,
    VERDICT_WORDS,
    clock_text,
    count_text,
    percent_text,
    plural,
    short_count,
    state_word,
    time_text,
)
from simulator.fleet.report.page.plots import spans_with_drain
from simulator.fleet.report.summary import (
    NOTHING_WRONG,
    WRONGS,
    observed_text,
    streams_of,
)
from simulator.fleet.report.tables import devices_of
from simulator.fleet.report.timeline import PhaseFigures, Slice
from simulator.fleet.transports import TRANSPORTS
from simulator.report_parts.page import duration_text
from simulator.report_parts.values import Figure, Tone

_LEVELS: Final = {
    "core": "each running the agent's own core",
    "wire": "pure load: requests are made without a device behind them",
}
_TONES: Final = {
    VerdictStatus.PASSED: Tone.GOOD,
    VerdictStatus.INCONCLUSIVE: Tone.WARN,
    VerdictStatus.INTERRUPTED: Tone.WARN,
}
_COLUMNS: Final = tuple(column for column in OPERATION_COLUMNS if column.page)
_DEVICES_SHOWN: Final = 20
"""Of a fault, in a part that unfolds; ``run.json`` has all of them."""
_FINDINGS_SHOWN: Final = 50
"""Of the audit, the gravest; ``findings.csv`` has all that the record has."""
_NAMED: Final = frozenset({"devices", "devices_not_named"})
_SEALS: Final = {Tone.GOOD: "✓", Tone.WARN: "!", Tone.BAD: "✕"}
_STAGES: Final = {
    "sent": "accepted by the service",
    "delivered": "delivered to the device",
    "started": "started",
    "finished": "finished",
    "reported": "result at the service",
    "round_trip": "the whole way",
}


@dataclass(frozen=True, slots=True)
class OperationRow:
    """One time of an operation in the table of percentiles.

    Attributes:
        label: ``age``, ``response`` or ``service``.
        numbers: heading and text of the columns in front of the times.
        times: one for each of :data:`TABLE_PERCENTILES`.
    """

    name: str
    label: str
    numbers: tuple[tuple[str, str], ...]
    times: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """An operation's exchanges of one outcome."""

    operation: str
    outcome: str
    tone: Tone
    count: int
    share: str
    resends: Resends
    p50: str
    p99: str


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage of a command's way; the bars are shares of the slowest stage's 99th percentile, 0 to 1."""

    name: str
    count: int
    times: tuple[str, ...]
    bar_p50: float
    bar_p99: float


@dataclass(frozen=True, slots=True)
class SpanRow:
    """A phase or a fault.

    Attributes:
        what: ``phase`` or ``fault``.
        done: settings of a fault, name and value.
        names: of the devices that it concerned, the first of them.
        more: devices that are not among them.
    """

    what: str
    name: str
    kind: str
    when: str
    devices: str
    done: tuple[tuple[str, str], ...] = ()
    names: tuple[str, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A stream of the audit; ``wrongs`` are counts by :data:`WRONGS`."""

    name: str
    stream: StreamAudit
    wrongs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PageContent:
    """Everything on the page that is no plot."""

    tone: Tone
    seal: str
    headline: str
    pill: str
    lead: str
    figures: tuple[Figure, ...]
    percentile_names: tuple[str, ...]
    has_ages: bool
    headings: tuple[str, ...]
    rows: tuple[OperationRow, ...]
    outcomes: tuple[OutcomeRow, ...]
    stages: tuple[StageRow, ...]
    audit: tuple[AuditRow, ...]
    wrongs: tuple[str, ...]
    findings: tuple[DeviceFinding, ...]
    more_findings: int
    thresholds: tuple[tuple[str, str, str, str], ...]
    has_held: bool
    slowest: tuple[tuple[str, str, str, str], ...]
    spans: tuple[SpanRow, ...]
    gaps: tuple[tuple[str, str, str], ...]
    errors: tuple[tuple[str, int], ...]
    extras: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    began: str
    width: str
    width_s: int


def content_of(record: RunRecord, figures: RunFigures, slices: Sequence[Slice], width_s: int) -> PageContent:
    """The story of a run."""
    tone = _TONES.get(record.verdict.word, Tone.BAD)
    found = record.audit.findings if record.audit is not None else ()
    return PageContent(
        tone=tone,
        seal=_SEALS[tone],
        headline=VERDICT_WORDS[record.verdict.word],
        pill=_pill(record),
        lead=_lead(record, figures),
        figures=_figures(record, figures, slices),
        percentile_names=tuple(percentile_label(percent) for percent in TABLE_PERCENTILES),
        has_ages=bool(figures.ages),
        headings=tuple(column.page for column in _COLUMNS),
        rows=_rows(figures),
        outcomes=_outcomes(record, figures),
        stages=_stages(record),
        audit=tuple(
            AuditRow(name, stream, tuple(getattr(stream, word) for word in WRONGS))
            for name, stream in (streams_of(record.audit) if record.audit else ())
        ),
        wrongs=WRONGS,
        findings=found[:_FINDINGS_SHOWN],
        more_findings=max(0, len(found) - _FINDINGS_SHOWN),
        thresholds=tuple(
            (
                state_word(each),
                each.expression,
                observed_text(each),
                DASH if each.at_s is None else clock_text(each.at_s),
            )
            for each in sorted(record.thresholds, key=lambda each: each.held or 0.5 * (not each.judged))
        ),
        has_held=bool(HELD & set(record.operations)),
        slowest=tuple(
            (each.name, each.device_id, time_text(each.response_s), each.operation) for each in record.slowest
        ),
        spans=_spans(record),
        gaps=tuple(
            (f"worker {gap.worker}", f"{clock_text(gap.from_s)} to {clock_text(gap.to_s)}", gap.reason)
            for gap in record.gaps
        ),
        errors=tuple(errors_of(record)),
        extras=tuple(
            (name.replace("_", " "), json.dumps(value, indent=1, ensure_ascii=False, default=str))
            for name, value in record.extras.items()
            if name != "errors"
        ),
        facts=_facts(record),
        began=_instant(record.began_at),
        width=plural(width_s, "second"),
        width_s=width_s,
    )


def _pill(record: RunRecord) -> str:
    held = sum(each.held for each in record.thresholds)
    so_far = " so far" if record.partial else ""
    parts = [f"{held} of {len(record.thresholds)} thresholds held{so_far}"] if record.thresholds else []
    streams = streams_of(record.audit) if record.audit else []
    counts = {word: sum(getattr(stream, word) for _, stream in streams) for word in WRONGS}
    wrong = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)
    if record.audit is not None:
        whole = NOTHING_WRONG if record.audit.complete else "not complete"
        parts.append(
            f"audit: {wrong}{'' if record.audit.complete else ', not complete'}" if wrong else f"audit: {whole}"
        )
    return " · ".join(parts) or f"exit code {record.verdict.exit_code}"


def _lead(record: RunRecord, figures: RunFigures) -> str:
    transport = TRANSPORTS[record.transport].title if record.transport in TRANSPORTS else record.transport
    devices = plural(record.devices, "device")
    who = {
        "onboarding": f"{plural(record.devices, 'label')} through scan, register and, for some, remove",
        "backfill": f"The past of {devices} over {transport}, as fast as it is taken",
    }.get(record.kind, f"{devices} over {transport}, {_LEVELS.get(record.level, record.level)}")
    return (
        f"{who}, for {duration_text(record.duration_s)}, against {record.target}. "
        f"{figures.whole.total:,} exchanges came to an end."
    )


def _figures(record: RunRecord, figures: RunFigures, slices: Sequence[Slice]) -> tuple[Figure, ...]:
    whole = figures.whole
    held = ", without long polls" if HELD & set(record.operations) else ""
    p50, p99, p999 = (time_text(value) for value in whole.response.percentiles((50, 99, 99.9)))
    every, resends = whole.total, whole.resends
    health = record.health
    online = [high for each in slices for name, (_, high) in each.gauges.items() if name == "online"]
    rate = f"{short_count(whole.per_s(whole.good))} per second" if record.duration_s > 0 else ""
    shown = [
        *(_age(age) for age in figures.ages if age.is_whole),
        Figure(short_count(whole.good), "good answers", rate),
        Figure(p99, "response time, p99", f"p50 {p50}, p99.9 {p999}{held}"),
        Figure(short_count(whole.errors), "errors", f"{percent_text(whole.errors / every)} of all" if every else ""),
        Figure(short_count(whole.limited), "limited (429)", "the quota at work; counted apart"),
    ]
    if resends.total:
        kinds = f"{resends.after_refusal:,} after a refusal, {resends.ambiguous:,} ambiguous"
        shown.append(
            Figure(short_count(resends.total), "sent again", f"{percent_text(resends.total / every)}: {kinds}")
        )
    if online:
        shown.append(Figure(count_text(max(online)), "devices online at most", f"of {record.devices:,}"))
    share = percent_text(health.sent / health.intended) if health.intended else DASH
    lag = f"of the intended load; lag p99 {time_text(health.send_lag_p99_s)}"
    if health.undelivered:
        lag += f"; {health.undelivered:,} never ended"
    return (*shown, Figure(share, "sent by the generator", lag))


def _age(age: AgeFigures) -> Figure:
    """The figure of an age: the first of all, since an outage shows in it."""
    p50, p99, p999, longest = (
        time_text(value) for value in percentile_times(age.figures.response, (50, 99, 99.9, 100))
    )
    counts = ", ".join(filter(None, age.counts_text))
    note = f"p50 {p50}, p99.9 {p999}, max {longest}; {counts}"
    return Figure(p99, f"age of {age.name.partition('.')[0]}, p99", note)


def _rows(figures: RunFigures) -> tuple[OperationRow, ...]:
    """The table of percentiles: ages first, then both times of each operation."""
    rows = [(age.figures, "age", age.figures.response) for age in figures.ages]
    for each in figures.operations.values():
        rows += [(each, "response", each.response), (each, "service", each.service)]
    return tuple(
        OperationRow(each.name, label, tuple((column.page, column.text(each)) for column in _COLUMNS), _times(times))
        for each, label, times in rows
    )


def phase_rows(phases: Sequence[PhaseFigures]) -> tuple[tuple[str, str, int, tuple[str, ...]], ...]:
    """Phase, operation, count of what was good, and percentiles: of ages and response times, phase by phase."""
    return tuple(
        (phase.name, each.name, each.good, _times(each.response))
        for phase in phases
        for each in phase_figures(phase.operations)
    )


def _times(histogram: Histogram) -> tuple[str, ...]:
    return tuple(time_text(value) for value in percentile_times(histogram, TABLE_PERCENTILES))


def _outcomes(record: RunRecord, figures: RunFigures) -> tuple[OutcomeRow, ...]:
    rows = []
    order = list(OutcomeClass)
    for each in sorted(
        figures_by_outcome(record.operations), key=lambda each: (each.operation, order.index(each.outcome))
    ):
        whole = figures.operations[each.operation].total
        p50, p99 = each.response.percentiles((50, 99))
        rows.append(
            OutcomeRow(
                each.operation,
                OUTCOME_WORDS[each.outcome],
                {OutcomeClass.OK: Tone.GOOD, OutcomeClass.LIMITED: Tone.WARN}.get(each.outcome, Tone.BAD),
                each.count,
                percent_text(each.count / whole if whole else None),
                each.resends,
                time_text(p50),
                time_text(p99),
            )
        )
    return tuple(rows)


def _stages(record: RunRecord) -> tuple[StageRow, ...]:
    order = [name for name in _STAGES if name in record.command_stages]
    order += [name for name in record.command_stages if name not in _STAGES]
    found = {name: Histogram.decode(record.command_stages[name]) for name in order}
    top = max((times.percentile(99) for times in found.values() if times.count), default=1.0) or 1.0
    rows = []
    for name, times in found.items():
        values = percentile_times(times, (50, 95, 99, 100))
        p50, p99 = (values[0] / top, values[2] / top) if times.count else (0.0, 0.0)
        rows.append(
            StageRow(_STAGES.get(name, name), times.count, tuple(time_text(value) for value in values), p50, p99)
        )
    return tuple(rows)


def _spans(record: RunRecord) -> tuple[SpanRow, ...]:
    rows = [("phase", span) for span in spans_with_drain(record)] + [("fault", span) for span in record.faults]
    return tuple(_span(what, span) for what, span in sorted(rows, key=lambda row: row[1].begin_s))


def _span(what: str, span: Span) -> SpanRow:
    names = tuple(devices_of(span)[:_DEVICES_SHOWN])
    return SpanRow(
        what,
        span.name,
        span.kind,
        f"{clock_text(span.begin_s)} to {clock_text(span.end_s)}",
        f"{span.devices:,}" if span.devices else DASH,
        tuple(
            (name.replace("_", " "), _value(value))
            for name, value in span.truth.items()
            if name not in _NAMED and value is not None
        ),
        names,
        max(0, span.devices - len(names)) if names else 0,
    )


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _instant(text: str) -> str:
    """An instant of the record to the second, in words that may stand on two lines."""
    day, _, clock = text.partition("T")
    return f"{day} {clock[:8]} UTC" if clock.endswith("Z") else text


def _facts(record: RunRecord) -> tuple[tuple[str, str], ...]:
    health = record.health
    parts = {"lag": health.send_lag_max_s, "loop": health.loop_lag_max_s, "garbage collector": health.gc_pause_max_s}
    pauses = ", ".join(f"{name} up to {time_text(value)}" for name, value in parts.items())
    return (
        ("Began", _instant(record.began_at)),
        ("Ended", _instant(record.ended_at) if record.ended_at else "never"),
        *((("Audited again", _instant(record.audited_at)),) if record.audited_at else ()),
        ("Target", record.target),
        ("Machine", record.machine),
        ("Workers", f"{record.workers}"),
        (
            "Generator",
            f"CPU {health.cpu_percent:.0f} % of a core at the busiest worker, steal {health.steal_percent:.1f} %",
        ),
        ("Its pauses", pauses),
        ("Seed", f"{record.seed}"),
        ("Digest of the plan", record.digest),
        ("Version", record.version),
    )
