"""Thresholds held against a run: as a whole, by phase, or over every window of a length.

Judged are the phases. What devices do in the drain after them is the audit's business, with one exception: what fell
due in the phases and ended in the drain has waited in the phases, and its times, counts and shares are theirs. Rates
are what was done while the phases lasted.

What was not measured never holds: a threshold about an operation that never ran, a window without an exchange, a run
shorter than the window, an audit that could not read everything back. In a run that ended early it is not judged.
Neither is one about the age of commands that holds, or has nothing to look at, while some have no known end.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.merging import merge_operations
from simulator.fleet.metrics.sliding import Measure, measure_of
from simulator.fleet.metrics.stages import FAMILY
from simulator.fleet.metrics.subjects import Source, Unit
from simulator.fleet.metrics.thresholds import Threshold
from simulator.fleet.metrics.unended_commands import why_unjudged
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import (
    AuditRecord,
    GeneratorHealth,
    Operations,
    RunRecord,
    Second,
    Span,
    Tally,
    ThresholdResult,
)

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_CLOCKS_S: Final = 0.001
"""Sums of durations are not exact; no phase is this short."""
# What only grows when more is read back: what was found counts, that nothing was found does not.
_FOUND: Final = frozenset({"lost", "doubled", "reordered", "altered", "late", "unknown", "misdated"})


@dataclass(frozen=True, slots=True)
class _Observed:
    """A value, or why there is none, and the end of its window.

    Attributes:
        unknown: nobody can know the value; otherwise one that is missing is a fault of what was run.
    """

    value: float | None
    at_s: float | None = None
    reason: str = ""
    unknown: bool = False


def judge_thresholds(
    thresholds: Sequence[Threshold], record: RunRecord, seconds: Iterable[Second]
) -> tuple[ThresholdResult, ...]:
    """Hold every threshold against a run.

    Args:
        thresholds: as :func:`~simulator.fleet.metrics.thresholds.parse` gave them.
        record: the run; of it totals, phases, audit, where its drain began and whether it reached its end.
        seconds: its seconds in order; read once, none is kept beyond the longest window.
    """
    watches = [_Watch(threshold, record.phases) for threshold in thresholds]
    count = 0
    for second, whole in _of_phases(seconds, record.drained_from_s):
        count += 1
        for watch in watches:
            watch.feed(second if watch.threshold.unit is Unit.RATE else whole)
    totals = _totals(record)
    return tuple(_result(watch.threshold, watch.observed(record, totals, count), record, totals) for watch in watches)


def _of_phases(seconds: Iterable[Second], until_s: float | None) -> Iterator[tuple[Second, Second]]:
    """The seconds of the phases, each as it was and with what fell due in it and ended after the phases.

    Only the last one differs: nobody knows any more in which second something fell due that ended late.

    Args:
        seconds: of the run.
        until_s: where the drain began; None where there was none.
    """
    last: Second | None = None
    late: list[Operations] = []
    drain: list[GeneratorHealth] = []
    for second in seconds:
        if until_s is not None and second.second + 1 > until_s + _CLOCKS_S:
            late.append(second.late)
            drain.append(second.health)
            continue
        if last is not None:
            yield last, last
        last = second
    if last is not None:
        health = _with_requests(last.health, drain)
        yield last, replace(last, operations=merge_operations([last.operations, *late]), health=health)
    elif any(late):
        # Phases that are shorter than a second: all that is known of them.
        short = Second(0, merge_operations(late), {}, _with_requests(GeneratorHealth(), drain))
        yield short, short


def _with_requests(health: GeneratorHealth, drain: Sequence[GeneratorHealth]) -> GeneratorHealth:
    """The same with the requests that ended in the drain: before it, it is not known which never do."""
    return replace(
        health,
        intended=health.intended + sum(each.intended for each in drain),
        sent=health.sent + sum(each.sent for each in drain),
        undelivered=health.undelivered + sum(each.undelivered for each in drain),
    )


class _Watch:
    """One threshold, while the seconds go by."""

    def __init__(self, threshold: Threshold, phases: Sequence[Span]) -> None:
        self.threshold = threshold
        self._phases = [span for span in phases if span.name == threshold.phase]
        self._measure = self._new_measure()
        self._within = 0
        """Seconds in the window."""
        self._longest = 0
        self._last: int | None = None
        self._worst: _Observed | None = None

    def _new_measure(self) -> Measure | None:
        subject = self.threshold.subject
        is_window = bool(self.threshold.over_s)
        return None if subject.source is Source.AUDIT else measure_of(subject, self.threshold.unit, forgets=is_window)

    def feed(self, second: Second) -> None:
        if self._measure is None or (self.threshold.phase is not None and not self._is_in_phase(second)):
            return
        if self.threshold.over_s and self._last not in (None, second.second - 1):
            self._measure, self._within = self._new_measure(), 0  # the phase came again, or seconds are missing
            assert self._measure is not None  # noqa: S101 - the audit has left above
        self._last = second.second
        self._measure.take(second)
        self._within += 1
        self._longest = max(self._longest, self._within)
        if self.threshold.over_s:
            self._look(self._measure, self.threshold.over_s)

    def _look(self, measure: Measure, over_s: int) -> None:
        """The window that ends with the newest second."""
        if self._within > over_s:
            measure.drop()
            self._within -= 1
        if self._within < over_s or self._last is None:
            return
        end_s = self._last + 1
        value = measure.value()
        reason = f"nothing was measured from {end_s - over_s} s to {end_s} s" if value is None else ""
        found = _Observed(value, float(end_s), reason)
        if self._worst is None or self._is_worse(found, self._worst):
            self._worst = found

    def _is_worse(self, found: _Observed, than: _Observed) -> bool:
        if found.value is None or than.value is None:
            return found.value is None and than.value is not None
        limit = self.threshold.limit
        return {
            "<": found.value > than.value,
            "<=": found.value > than.value,
            ">": found.value < than.value,
            ">=": found.value < than.value,
            "==": abs(found.value - limit) > abs(than.value - limit),
            "!=": abs(found.value - limit) < abs(than.value - limit),
        }[self.threshold.operator]

    def _is_in_phase(self, second: Second) -> bool:
        """Whole seconds only: what fell into two phases belongs to none."""
        return any(span.begin_s <= second.second and second.second + 1 <= span.end_s for span in self._phases)

    def observed(self, record: RunRecord, totals: Operations, seconds: int) -> _Observed:
        """The value of the run for this threshold."""
        threshold = self.threshold
        if self._measure is None:
            return _audited(threshold, record.audit)
        if threshold.phase is not None and not self._longest:
            there = ", ".join(dict.fromkeys(span.name for span in record.phases)) or "none"
            return _Observed(None, reason=f"no whole second of a phase {threshold.phase!r} (phases: {there})")
        subject = threshold.subject
        if subject.source is Source.OPERATIONS and not any(map(subject.names_operation, totals)):
            families = {name.partition(".")[0] for name in subject.names}
            near = [name for name in totals if name.partition(".")[0] in families]
            ran = ", ".join(sorted(near or totals)) or "nothing"
            return _Observed(None, reason=f"{' '.join(subject.names)} never ran (what did: {ran})")
        if threshold.over_s:
            short = f"no {threshold.over_s} s in one piece, the longest is {self._longest} s"
            return self._worst or _Observed(None, reason=short)
        value = self._measure.value()
        return _Observed(value, reason="" if value is not None else f"nothing was measured in {seconds} s")


def missed_text(result: ThresholdResult) -> str:
    """How a threshold did not hold, in a sentence."""
    if result.observed is None:
        return f"{result.expression}: {result.reason or 'nothing was measured'}"
    at = "" if result.at_s is None else f" at {result.at_s:.0f} s"
    return f"{result.expression}: it was {result.observed:.4g} {result.unit}".rstrip() + at


def _audited(threshold: Threshold, audit: AuditRecord | None) -> _Observed:
    if audit is None:
        return _Observed(None, reason="nothing was audited")
    streams = {"readings": audit.readings, "commands": audit.commands, "registrations": audit.registrations}
    measure = threshold.subject.measure
    named = {name: each for name, each in streams.items() if name in threshold.subject.names and each is not None}
    if not named:
        reason = f"no {' or '.join(sorted(threshold.subject.names))} were read back"
        return _Observed(None, reason=reason, unknown=not audit.complete)
    value = float(sum(getattr(stream, measure) for stream in named.values()))
    is_safe = not _COMPARE[threshold.operator](value, threshold.limit)
    is_judged = all(audit.judges(name, measure) for name in named)
    if not is_judged and not (is_safe and measure in _FOUND):
        return _Observed(None, reason="the audit is not complete: not everything could be read back", unknown=True)
    return _Observed(value)


def _result(threshold: Threshold, observed: _Observed, record: RunRecord, totals: Operations) -> ThresholdResult:
    held = observed.value is not None and _COMPARE[threshold.operator](observed.value, threshold.limit)
    is_open = held or observed.value is None
    doubt = why_unjudged(threshold, record.commands, totals) if is_open else ""
    return ThresholdResult(
        threshold.expression,
        held and not doubt,
        observed.value,
        threshold.unit.value,
        observed.at_s,
        doubt or observed.reason,
        # Nobody can blame a run for what it had no time to measure.
        judged=not doubt and not observed.unknown and (observed.value is not None or not record.partial),
    )


def _totals(record: RunRecord) -> Operations:
    """All operations, the stages of commands among them even where the record keeps them apart."""
    stages = {}
    for stage, text in record.command_stages.items():
        if f"{FAMILY}.{stage}" not in record.operations:
            count = Histogram.decode(text).count
            stages[f"{FAMILY}.{stage}"] = {OutcomeClass.OK: Tally(count, count, text, "")}
    return {**stages, **record.ages, **record.operations}
