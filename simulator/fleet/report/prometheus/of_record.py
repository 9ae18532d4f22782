"""``metrics.prom``: the figures of a run that ended, or was cut short, for the textfile collector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from simulator.fleet.metrics.stages import FAMILY
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import RunRecord, Second, Span, Tally
from simulator.fleet.report.prometheus.counting import Counting, Period, period_of
from simulator.fleet.report.prometheus.families import gauge, health_metrics, info, measured, text_of
from simulator.fleet.report.run_status import phase_under_way, spans_under_way
from simulator.fleet.report.summary import WRONGS, streams_of

_AUDITED: Final = ("sent", "accepted", "stored", *WRONGS, "ambiguous", "resent", "resent_ambiguous")
UNKNOWN: Final = Period("unknown", "unknown")
"""What the run's totals have and its seconds do not: it came too late for them, or could not be written."""


class RecordCounting:
    """Adds the seconds of a run up by phase and fault while they are read.

    Args:
        faults: of the run.
        spans: its phases, and the drain behind them.
    """

    def __init__(self, faults: Sequence[Span], spans: Sequence[Span]) -> None:
        self._faults = faults
        self._spans = spans
        self._counting = Counting()

    def passed_on(self, seconds: Iterable[Second]) -> Iterator[Second]:
        """The same seconds again, each added on the way."""
        for second in seconds:
            phase = phase_under_way(self._spans, second.second)
            self._counting.take(second, period_of(phase, spans_under_way(self._faults, second.second)))
            yield second

    def text(self, record: RunRecord) -> str:
        """The file, once all seconds went by. Its counts add up to those of the record."""
        scenario = record.name
        _add_missing(self._counting, record)
        health, verdict = record.health, record.verdict
        requests = (health.intended, health.sent, health.undelivered)
        about = {
            "scenario": scenario,
            "level": record.level,
            "transport": record.transport,
            "target": record.target,
            "version": record.version,
            "seed": str(record.seed),
            "digest": record.digest,
            "verdict": verdict.word.value,
        }
        thresholds = ((result.expression, result.held) for result in record.thresholds if result.judged)
        audited = (
            ((scenario, name, what), float(getattr(stream, what)))
            for name, stream in (streams_of(record.audit) if record.audit else ())
            for what in _AUDITED
        )
        return text_of(
            [
                *measured(self._counting, scenario),
                *health_metrics(health, requests, scenario, "over the whole run"),
                info("fleet_run_info", "What was run, and how it ended", about),
                gauge(
                    "fleet_run_exit_code",
                    "Exit code of the run: 0 for one that passed",
                    ["scenario"],
                    [([scenario], verdict.exit_code)],
                ),
                gauge("fleet_run_seconds", "How long the run was", ["scenario"], [([scenario], record.duration_s)]),
                gauge(
                    "fleet_threshold_held",
                    "1 where the threshold held, 0 where not; one without an answer is missing",
                    ["scenario", "threshold"],
                    (([scenario, expression], float(held)) for expression, held in dict(thresholds).items()),
                ),
                gauge(
                    "fleet_audit_complete",
                    "1 where everything was read back; missing without an audit",
                    ["scenario"],
                    [([scenario], float(record.audit.complete))] if record.audit else [],
                ),
                gauge("fleet_audit", "What the audit counted", ["scenario", "stream", "what"], audited),
            ]
        )


def _add_missing(counting: Counting, record: RunRecord) -> None:
    whole = Counting()
    stages = {
        f"{FAMILY}.{name}": {OutcomeClass.OK: Tally(0, 0, text, "")} for name, text in record.command_stages.items()
    }
    whole.add({**record.operations, **record.ages, **stages}, UNKNOWN)
    _add_missing_counts(counting, whole)
    for key, times in whole.times.items():
        for other, known in counting.times.items():
            if other[:-1] == key[:-1]:
                times.take_away(known)
        if times.counts.any():
            counting.times[key] = times


def _add_missing_counts(counting: Counting, whole: Counting) -> None:
    for key, each in whole.exchanges.items():
        for other, known in counting.exchanges.items():
            if other[:-1] == key[:-1]:
                each.take_away(known)
        if each.count:
            counting.exchanges[key] = each
    for reading, count in whole.readings.items():
        if rest := max(0, count - sum(known for each, known in counting.readings.items() if each[:-1] == reading[:-1])):
            counting.readings[reading] = rest
    for command, count in whole.commands.items():
        if rest := max(0, count - sum(known for each, known in counting.commands.items() if each[:-1] == command[:-1])):
            counting.commands[command] = rest
