"""Thresholds held against a run: as a whole, by phase, or over every window of a length.

Judged are the phases. What devices do in the drain after them is the audit's business, with one exception: what fell
due in the phases and ended in the drain has waited in the phases, and its times, counts and shares are theirs. Rates
are what was done while the phases lasted.

What was not measured never holds: a threshold about an operation that never ran, a window without an exchange, a run
shorter than the window, an audit that could not read everything back. In a run that ended early it is not judged.
Neither is one about the age of commands that holds, or has nothing to look at, while some have no known end.
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from simulator.fleet.metrics.ages import COMMAND_AGE, ages_of, count_unended
from simulator.fleet.metrics.histogram import BUCKETS, Histogram, unpacked
from simulator.fleet.metrics.merging import Totals, merge_operations
from simulator.fleet.metrics.stages import EndState, stages_of, without_stages
from simulator.fleet.metrics.thresholds import Source, Threshold, Unit, parse
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
_LEVELS: Final = {
    "loop_lag": "loop_lag_max_s",
    "gc_pause": "gc_pause_max_s",
    "steal": "steal_percent",
    "cpu": "cpu_percent",
}

_Unpacked = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], float, float]


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
        record: the run; of it all operations, phases, audit, where its drain began and whether it reached its end.
        seconds: its seconds in order; read once, none is kept beyond the longest window.
    """
    watches = [_Watch(threshold, record.phases) for threshold in thresholds]
    count = 0
    for second, whole in _of_phases(seconds, record.drained_from_s):
        count += 1
        for watch in watches:
            watch.feed(second if watch.threshold.unit is Unit.RATE else whole)
    return tuple(_result(watch.threshold, watch.observed(record, count), record) for watch in watches)


def measured(record: RunRecord, totals: Totals, seconds: Iterable[Second]) -> RunRecord:
    """The record with everything that was measured, and its thresholds judged.

    Args:
        record: of the run, with its audit and the ends of its commands as far as they are known.
        totals: of its seconds.
        seconds: the same once more, in order.
    """
    operations = totals.operations
    wanted = [parse(result.expression) for result in record.thresholds]
    results = judge_thresholds(wanted, replace(record, operations=operations), seconds)
    return replace(
        record,
        operations=without_stages(operations),
        command_stages=stages_of(operations),
        ages=ages_of(operations),
        health=totals.health,
        thresholds=results,
    )


def missed_text(result: ThresholdResult) -> str:
    """How a threshold did not hold, in a sentence."""
    if result.observed is None:
        return f"{result.expression}: {result.reason or 'nothing was measured'}"
    at = "" if result.at_s is None else f" at {result.at_s:.0f} s"
    return f"{result.expression}: it was {result.observed:.4g} {result.unit}".rstrip() + at


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


class Window:
    """What a threshold looks at, over some seconds.

    A second leaves by being subtracted, so that a window of an hour costs no more than one of ten seconds.

    Args:
        threshold: not about the audit.
        forgets: the oldest second can leave; without that, memory does not grow with the histograms.
    """

    def __init__(self, threshold: Threshold, *, forgets: bool) -> None:
        is_operation = threshold.source is Source.OPERATIONS
        (self._name, *_) = threshold.names
        self._threshold = threshold
        self._forgets = forgets
        self._is_timed = threshold.unit is Unit.TIME and (is_operation or self._name == "send_lag")
        self._is_counted = not self._is_timed and (is_operation or self._name in {"sent", "delivered"})
        self._counts = np.zeros(BUCKETS, np.int64)
        self._ends: deque[tuple[float, float]] = deque()
        self._times: deque[list[_Unpacked]] = deque()
        self._pieces: deque[tuple[int, int]] = deque()
        self._levels: deque[float | None] = deque()
        self._chosen = self._all = 0

    def take(self, second: Second) -> None:
        """The newest second enters the window."""
        if self._is_timed:
            found = [unpacked(text) for text in self._texts(second) if text]
            for buckets, counts, _, _ in found:
                self._counts[buckets] += counts
            ends = [(shortest, longest) for _, _, shortest, longest in found]
            if self._forgets:
                self._times.append(found)
            elif ends:
                ends += self._ends
                self._ends = deque([(min(low for low, _ in ends), max(high for _, high in ends))])
        elif self._is_counted:
            part = self._count(second)
            self._pieces.append(part)
            self._chosen, self._all = self._chosen + part[0], self._all + part[1]
        elif self._threshold.source is Source.GAUGES:
            self._levels.append(second.gauges.get(self._name))
        else:
            self._levels.append(getattr(second.health, _LEVELS[self._name]))

    def drop(self) -> None:
        """The oldest second leaves it."""
        if self._is_timed:
            for buckets, counts, _, _ in self._times.popleft():
                self._counts[buckets] -= counts
        elif self._is_counted:
            part = self._pieces.popleft()
            self._chosen, self._all = self._chosen - part[0], self._all - part[1]
        else:
            self._levels.popleft()

    def value(self) -> float | None:
        """The measure over the window; None when there was nothing to measure."""
        measure, unit = self._threshold.measure, self._threshold.unit
        if self._is_timed:
            times = self.histogram()
            if not times.count:
                return None
            if measure == "percentile":
                return times.percentile(self._threshold.percent)
            return {"min": times.min_s, "max": times.max_s, "mean": times.mean()}[measure]
        if self._is_counted:
            if unit is Unit.SHARE:
                return 100.0 * self._chosen / self._all if self._all else None
            if unit is Unit.RATE:
                return self._chosen / len(self._pieces) if self._pieces else None
            return float(self._chosen)
        levels = [level for level in self._levels if level is not None]
        if not levels:
            return None
        found = {"min": min(levels), "max": max(levels), "last": levels[-1], "mean": math.fsum(levels) / len(levels)}
        return found[measure]

    def histogram(self) -> Histogram:
        """All times of the window, to the last bit."""
        ends = [*self._ends, *((low, high) for parts in self._times for _, _, low, high in parts)]
        low, high = (min(each[0] for each in ends), max(each[1] for each in ends)) if ends else (math.nan, math.nan)
        return Histogram.of(self._counts, low, high)

    def _texts(self, second: Second) -> list[str]:
        if self._threshold.source is Source.GENERATOR:
            return [second.health.send_lag]
        tallies = self._tallies(second)
        return [tally.service if self._threshold.service else tally.response for tally in tallies]

    def _tallies(self, second: Second) -> list[Tally]:
        return [
            tally
            for name, tallies in second.operations.items()
            for outcome, tally in tallies.items()
            if self._threshold.chooses(name, outcome)
        ]

    def _count(self, second: Second) -> tuple[int, int]:
        """How many were chosen, and of how many."""
        health = second.health
        if self._threshold.source is Source.GENERATOR:
            done = health.sent if self._name == "sent" else health.intended - health.undelivered
            return done, health.intended
        everything = sum(
            tally.count
            for name, tallies in second.operations.items()
            if self._threshold.names_operation(name)
            for tally in tallies.values()
        )
        return sum(tally.count for tally in self._tallies(second)), everything


class Alarm:
    """Thresholds over a time while the run goes on; a window in which nothing was measured breaks none.

    Args:
        expressions: as the scenario has them; each with ``over``, none about the audit.
    """

    def __init__(self, expressions: Sequence[str]) -> None:
        self._watches = [_Watch(parse(expression), ()) for expression in expressions]

    def take(self, second: Second) -> str:
        """How a threshold did not hold up to the end of this second; empty as long as all hold."""
        for watch in self._watches:
            watch.feed(second)
            threshold, found = watch.threshold, watch.latest
            if found is None or found.value is None:
                continue
            if not _COMPARE[threshold.operator](found.value, threshold.limit):
                unit = threshold.unit.value
                return missed_text(ThresholdResult(threshold.expression, False, found.value, unit, found.at_s))
        return ""


class _Watch:
    """One threshold, while the seconds go by."""

    def __init__(self, threshold: Threshold, phases: Sequence[Span]) -> None:
        self.threshold = threshold
        self._phases = [span for span in phases if span.name == threshold.phase]
        self._window = self._new_window()
        self._within = 0
        """Seconds in the window."""
        self._longest = 0
        self._last: int | None = None
        self._worst: _Observed | None = None
        self.latest: _Observed | None = None

    def _new_window(self) -> Window:
        return Window(self.threshold, forgets=bool(self.threshold.over_s))

    def feed(self, second: Second) -> None:
        if self.threshold.source is Source.AUDIT or not self._is_in_phase(second):
            return
        over_s = self.threshold.over_s
        if over_s and self._last not in (None, second.second - 1):
            self._window, self._within = self._new_window(), 0  # the phase came again, or seconds are missing
        self._last = second.second
        self._window.take(second)
        self._within += 1
        self._longest = max(self._longest, self._within)
        if over_s is None:
            return
        if self._within > over_s:
            self._window.drop()
            self._within -= 1
        if self._within == over_s:
            self._judge(second.second + 1, over_s)

    def _judge(self, end_s: int, over_s: int) -> None:
        value = self._window.value()
        reason = f"nothing was measured from {end_s - over_s} s to {end_s} s" if value is None else ""
        found = self.latest = _Observed(value, float(end_s), reason)
        if self._worst is None or self._is_worse(found, self._worst):
            self._worst = found

    def _is_worse(self, found: _Observed, than: _Observed) -> bool:
        return self._badness(found.value) > self._badness(than.value)

    def _badness(self, value: float | None) -> float:
        """How far on the wrong side of the limit a value is; nothing is worse than none."""
        if value is None:
            return math.inf
        distance = abs(value - self.threshold.limit)
        return {"<": value, "<=": value, ">": -value, ">=": -value, "==": distance, "!=": -distance}[
            self.threshold.operator
        ]

    def _is_in_phase(self, second: Second) -> bool:
        """Whole seconds only: what fell into two phases belongs to none."""
        if self.threshold.phase is None:
            return True
        return any(span.begin_s <= second.second and second.second + 1 <= span.end_s for span in self._phases)

    def observed(self, record: RunRecord, seconds: int) -> _Observed:
        """The value of the run for this threshold."""
        threshold = self.threshold
        if threshold.source is Source.AUDIT:
            return _audited(threshold, record.audit)
        if threshold.phase is not None and not self._longest:
            there = ", ".join(dict.fromkeys(span.name for span in record.phases)) or "none"
            return _Observed(None, reason=f"no whole second of a phase {threshold.phase!r} (phases: {there})")
        if threshold.source is Source.OPERATIONS and not any(map(threshold.names_operation, record.operations)):
            families = {name.partition(".")[0] for name in threshold.names}
            near = [name for name in record.operations if name.partition(".")[0] in families]
            ran = ", ".join(sorted(near or record.operations)) or "nothing"
            return _Observed(None, reason=f"{' '.join(threshold.names)} never ran (what did: {ran})")
        if threshold.over_s:
            short = f"no {threshold.over_s} s in one piece, the longest is {self._longest} s"
            return self._worst or _Observed(None, reason=short)
        value = self._window.value()
        return _Observed(value, reason="" if value is not None else f"nothing was measured in {seconds} s")


def _audited(threshold: Threshold, audit: AuditRecord | None) -> _Observed:
    if audit is None:
        return _Observed(None, reason="nothing was audited")
    named = {name: stream for name, stream in audit.streams if name in threshold.names}
    if not named:
        reason = f"no {' or '.join(sorted(threshold.names))} were read back"
        return _Observed(None, reason=reason, unknown=not audit.complete)
    value = float(sum(getattr(stream, threshold.measure) for stream in named.values()))
    is_safe = not _COMPARE[threshold.operator](value, threshold.limit)
    is_judged = all(audit.judges(name, threshold.measure) for name in named)
    if not is_judged and not (is_safe and threshold.measure in _FOUND):
        return _Observed(None, reason="the audit is not complete: not everything could be read back", unknown=True)
    return _Observed(value)


def _result(threshold: Threshold, observed: _Observed, record: RunRecord) -> ThresholdResult:
    held = observed.value is not None and _COMPARE[threshold.operator](observed.value, threshold.limit)
    doubt = _why_unjudged(threshold, record) if held or observed.value is None else ""
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


def _why_unjudged(threshold: Threshold, record: RunRecord) -> str:
    """Why a threshold that holds for what is known of commands may not hold for all; empty where it does.

    A lower bound of a count or a rate holds whatever else there was. How many were open when the run was over is known
    of those that the service gave an id.
    """
    is_lower_bound = threshold.unit in {Unit.COUNT, Unit.RATE} and threshold.operator in {">", ">="}
    if COMMAND_AGE not in threshold.names or is_lower_bound:
        return ""
    missing = count_unended(record.commands, record.operations, threshold.command)
    if threshold.states == {EndState.OPEN}:
        missing -= sum(
            tally.count
            for operation, tallies in record.operations.items()
            for outcome, tally in tallies.items()
            if threshold.chooses(operation, outcome)
        )
    if missing <= 0:
        return ""
    whole = sum(each.sent - each.refused for each in record.commands if threshold.command in {None, each.name})
    return f"of {whole:,} commands {missing:,} have no known end, so nobody knows how old they became"
