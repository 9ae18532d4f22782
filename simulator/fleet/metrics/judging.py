"""Thresholds held against a run: as a whole, by phase, or over every window of a length.

What was not measured never holds: a threshold about an operation that never ran, a window without an exchange, a run
shorter than the window, an audit that could not read everything back.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.sliding import Measure, measure_of
from simulator.fleet.metrics.stages import FAMILY
from simulator.fleet.metrics.subjects import Source, Unit
from simulator.fleet.metrics.thresholds import Threshold
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import AuditRecord, Operations, RunRecord, Second, Span, Tally, ThresholdResult

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
# What only grows when more is read back: what was found counts, that nothing was found does not.
_FOUND: Final = frozenset({"lost", "doubled", "reordered", "altered", "late", "unknown"})


@dataclass(frozen=True, slots=True)
class _Observed:
    """A value, or why there is none, and the end of its window."""

    value: float | None
    at_s: float | None = None
    reason: str = ""


def judge(thresholds: Sequence[Threshold], record: RunRecord, seconds: Iterable[Second]) -> tuple[ThresholdResult, ...]:
    """Hold every threshold against a run.

    Args:
        thresholds: as :func:`~simulator.fleet.metrics.thresholds.parse` gave them.
        record: the run; of it totals, phases, audit.
        seconds: its seconds in order; read once, none is kept beyond the longest window.
    """
    watches = [_Watch(threshold, record.phases) for threshold in thresholds]
    count = 0
    for second in seconds:
        count += 1
        for watch in watches:
            watch.feed(second)
    totals = _totals(record)
    return tuple(_result(watch.threshold, watch.observed(record, totals, count)) for watch in watches)


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
        return None if subject.source is Source.AUDIT else measure_of(subject, self.threshold.unit)

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
        """What the run comes to for this threshold."""
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
        if threshold.phase is None and threshold.unit is not Unit.RATE and subject.source is Source.OPERATIONS:
            # Of the run as a whole the totals tell, which also have what came too late for its second.
            self._measure = measure_of(subject, threshold.unit)
            self._measure.take(Second(0, totals, {}, record.health))
        value = self._measure.value()
        return _Observed(value, reason="" if value is not None else f"nothing was measured in {seconds} s")


def _audited(threshold: Threshold, audit: AuditRecord | None) -> _Observed:
    if audit is None:
        return _Observed(None, reason="nothing was audited")
    streams = {"readings": audit.readings, "commands": audit.commands}
    named = [stream for name, stream in streams.items() if name in threshold.subject.names and stream is not None]
    if not named:
        return _Observed(None, reason=f"no {' or '.join(sorted(threshold.subject.names))} were audited")
    value = float(sum(getattr(stream, threshold.subject.measure) for stream in named))
    is_safe = not _COMPARE[threshold.operator](value, threshold.limit)
    if not audit.complete and not (is_safe and threshold.subject.measure in _FOUND):
        return _Observed(None, reason="the audit is not complete: not everything could be read back")
    return _Observed(value)


def _result(threshold: Threshold, observed: _Observed) -> ThresholdResult:
    held = observed.value is not None and _COMPARE[threshold.operator](observed.value, threshold.limit)
    return ThresholdResult(
        threshold.expression, held, observed.value, threshold.unit.value, observed.at_s, observed.reason
    )


def _totals(record: RunRecord) -> Operations:
    """All operations, the stages of commands among them even where the record keeps them apart."""
    stages = {}
    for stage, text in record.command_stages.items():
        if f"{FAMILY}.{stage}" not in record.operations:
            count = Histogram.decode(text).count
            stages[f"{FAMILY}.{stage}"] = {OutcomeClass.OK: Tally(count, count, text, "")}
    return {**stages, **record.operations}
