"""Thresholds as a scenario writes them: ``http.sensor_data.p99 < 250ms over 1m``.

::

    WHAT[.OUTCOME].MEASURE OPERATOR VALUE [in PHASE] [over TIME]

    WHAT       an operation, such as http.sensor_data or readings.age; a family: http, mqtt, readings, commands;
               commands.age[NAME] for those of one name; audit or audit.readings; gauges.NAME
    OUTCOME    a class of outcomes, "failed" (all but ok and limited) or "all"; of the age of commands an end state:
               succeeded, failed, rejected, expired, open, or "all"
    MEASURE    p50 to p100, min, max, mean, count, rate; of gauges also last; of the audit one of its counts
    OPERATOR   < <= > >= ==
    VALUE      with its unit: us ms s m h for times, /s /m /h or % for rates, nothing for counts

Without an outcome, times are those of ``ok`` and ``timeout`` together (a request that was never answered has waited,
too; a refusal in a millisecond must not lower a percentile), and counts and rates are those of ``ok``.

Judged are the phases, as a whole or over every window of a length. What devices do in the drain after them is the
audit's business, with one exception: what fell due in the phases and ended in the drain has waited in the phases, and
its times, counts and shares are theirs. Rates are what was done while the phases lasted.

What was not measured never holds: a threshold about an operation that never ran, a window without an exchange, a run
shorter than the window, an audit that could not read everything back. In a run that ended early it is not judged.
Neither is one about the age of commands that holds, or has nothing to look at, while some have no known end.
"""

from __future__ import annotations

import math
import operator
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from simulator.fleet.metrics.ages import (
    AGE_OPERATIONS,
    COMMAND_AGE,
    FAMILY,
    READING_AGE,
    STAGE_OPERATIONS,
    EndState,
    command_of,
    count_unended,
)
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import Totals, merge_operations
from simulator.fleet.outcomes import FAILED, HELD, WAITED, OutcomeClass
from simulator.fleet.record import AuditRecord, GeneratorHealth, Operations, RunRecord, Second, Span, ThresholdResult

OPERATIONS: Final = frozenset(
    {
        "http.poll",
        "http.sensor_data",
        "http.report",
        "http.send_command",
        "http.scan_qr",
        "http.register",
        "mqtt.connect",
        "mqtt.sensor_data",
        "mqtt.receipt",
        "mqtt.report",
        *HELD,
        *STAGE_OPERATIONS,
        *AGE_OPERATIONS,
    }
)
"""The names of what is measured: ``FAMILY.OPERATION``."""
AUDIT_COUNTS: Final = (
    "lost", "doubled", "altered", "unknown", "misdated", "ambiguous", "resent", "resent_ambiguous", "sent", "accepted",
    "stored",
)  # fmt: skip
AUDIT_STREAMS: Final = ("readings", "commands", "registrations")
TIMED: Final = frozenset({"percentile", "min", "max", "mean"})
"""Measures of an operation that are times."""


COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}


class ThresholdError(ValueError):
    """A threshold that nobody can hold a run against; the text says what to write instead."""


class Source(StrEnum):
    """What a threshold looks at."""

    OPERATIONS = "operations"
    AUDIT = "audit"
    GAUGES = "gauges"


class Unit(StrEnum):
    """What a measure is counted in."""

    TIME = "s"
    RATE = "/s"
    SHARE = "%"
    COUNT = ""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold of a scenario, parsed.

    Attributes:
        expression: as it was given.
        names: the operations, ``http.*`` for a whole family; of the audit its streams; else one name.
        measure: ``percentile``, ``min``, ``max``, ``mean``, ``last``, ``count``, ``rate``; the audit's count.
        operator: one of ``< <= > >= ==``.
        limit: in seconds, per second, percent or pieces, as ``unit`` says.
        percent: of a percentile.
        outcomes: of the operations.
        command: of the age of commands, the name of those that are meant; None for all.
        states: of the age of commands, the end states that are chosen; empty for all.
        over_s: length of the windows, each of which has to hold; None for the run, or phase, as a whole.
        phase: only what was measured in phases of this name; None for everything.
    """

    expression: str
    source: Source
    names: frozenset[str]
    measure: str
    operator: str
    limit: float
    unit: Unit
    percent: float = 0.0
    outcomes: frozenset[OutcomeClass] = frozenset()
    command: str | None = None
    states: frozenset[str] = frozenset()
    over_s: int | None = None
    phase: str | None = None

    def names_operation(self, name: str) -> bool:
        """Whether an operation is one of those; polls that are held have no part in the times of a family."""
        if (found := command_of(name)) is not None:
            return COMMAND_AGE in self.names and self.command in {None, found[0]}
        if name in HELD and self.measure in TIMED:
            return name in self.names
        return name in self.names or f"{name.partition('.')[0]}.*" in self.names

    def chooses(self, name: str, outcome: OutcomeClass) -> bool:
        """Whether what ended so is meant, of all that :meth:`names_operation` names."""
        found = command_of(name)
        is_state = not self.states or (found is not None and found[1] in self.states)
        return is_state and outcome in self.outcomes and self.names_operation(name)


_TIMES: Final = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_UNITS: Final[Mapping[Unit, Mapping[str, float]]] = {
    Unit.TIME: _TIMES,
    Unit.RATE: {"/s": 1.0, "/m": 1 / 60, "/min": 1 / 60, "/h": 1 / 3600},
    Unit.SHARE: {"%": 1.0},
    Unit.COUNT: {"": 1.0},
}
_OUTCOMES: Final = {
    **{outcome.value: frozenset({outcome}) for outcome in OutcomeClass},
    "failed": FAILED,
    "all": frozenset(OutcomeClass),
}
_STATES: Final = {**{state.value: frozenset({state.value}) for state in EndState}, "all": frozenset[str]()}
_OF_OPERATIONS: Final = ("percentile", "min", "max", "mean", "count", "rate")
_OF_GAUGES: Final = ("min", "max", "mean", "last")
_MEASURES: Final = ("min", "max", "mean", "last", "count", "rate", *AUDIT_COUNTS)
_NUMBER: Final = r"\d[\d_]*(?:\.\d+)?"
_FORM: Final = re.compile(
    rf"""\s*
    (?P<what>[a-z_]+ (?:\.[a-z_]+)*?)
    (?:\[ (?P<command>[^\]]*) \])?
    (?:\. (?P<outcome>{"|".join({**_OUTCOMES, **_STATES})}))?
    \. (?P<measure>p(?P<percent>100|\d{{1,2}}(?:\.\d+)?)|{"|".join(_MEASURES)})
    \s* (?P<operator><=|>=|==|<|>)
    \s* (?P<number>{_NUMBER}) \s* (?P<unit>%|/?[a-zµ]+)?
    (?:\s+ in \s+ (?P<phase>\S+))?
    (?:\s+ over \s+ (?P<over>{_NUMBER}) \s* (?P<over_unit>[a-zµ]+))?
    \s*""",
    re.VERBOSE,
)
_FORM_TEXT: Final = (
    "write WHAT.MEASURE OPERATOR VALUE [in PHASE] [over TIME], such as 'http.sensor_data.p99 < 250ms over 1m' or "
    "'http.poll.failed.rate < 1%'; measures are p99 and its like, min, max, mean, count and rate"
)


def parse(
    expression: str, *, phases: Collection[str] | None = None, commands: Collection[str] | None = None
) -> Threshold:
    """Parse the text of a threshold.

    Args:
        expression: such as ``http.sensor_data.p99 < 250ms over 1m``.
        phases: the names of the scenario's phases; None when they are not known, and any will do.
        commands: the names of the scenario's commands; None when they are not known, and any will do.

    Raises:
        ThresholdError: it makes no sense; the text names the fix.
    """
    try:
        return _parse(expression, phases, commands)
    except ThresholdError as error:
        raise ThresholdError(f'threshold "{expression}": {error}') from None


def _parse(expression: str, phases: Collection[str] | None, commands: Collection[str] | None) -> Threshold:
    found = _FORM.fullmatch(expression)
    if found is None:
        raise ThresholdError(_FORM_TEXT)
    what, word = found["what"], found["outcome"]
    measure = "percentile" if found["percent"] else found["measure"]
    source, names, measures, units = _named(what, measure)
    if measure not in measures:
        raise ThresholdError(f"{what} has no measure {found['measure']!r}: {_choice(measures, 'p99')}")
    outcomes, states = frozenset[OutcomeClass](), frozenset[str]()
    is_age = source is Source.OPERATIONS and COMMAND_AGE in names
    if found["command"] is not None:
        _check_command(found["command"], commands, is_age=is_age)
    if source is Source.OPERATIONS:
        outcomes = WAITED if measure in TIMED else frozenset({OutcomeClass.OK})
        known: Collection[str] = _STATES if is_age else _OUTCOMES
        if word is not None:
            if word not in known:
                raise ThresholdError(f"{what} has no outcome {word!r}: {_choice(known)}")
            states = _STATES[word] if is_age else states
            outcomes = frozenset(OutcomeClass) if is_age else _OUTCOMES[word]
    elif word is not None:
        raise ThresholdError(f"{what} has no outcomes: leave out {word!r}")
    limit, unit = _limit(found, units)
    if unit is Unit.SHARE and word == "all" and not is_age:
        raise ThresholdError("all of all is always 100 %: name an outcome, such as limited or failed")
    if source is Source.AUDIT and (found["phase"] or found["over"]):
        raise ThresholdError("the audit is of the whole run: leave out 'in' and 'over'")
    if found["phase"] is not None and phases is not None and found["phase"] not in phases:
        raise ThresholdError(f"no phase is called {found['phase']!r}: {_choice(phases)}")
    return Threshold(
        expression,
        source,
        names,
        measure,
        found["operator"],
        limit,
        unit,
        float(found["percent"] or 0.0),
        outcomes,
        command=found["command"],
        states=states,
        over_s=_window(found),
        phase=found["phase"],
    )


def _named(what: str, measure: str) -> tuple[Source, frozenset[str], Collection[str], tuple[Unit, ...]]:
    """What a text names: where it comes from, its names, the measures there are, and the units of this measure."""
    family, _, name = what.partition(".")
    if family == Source.AUDIT and (not name or name in AUDIT_STREAMS):
        return Source.AUDIT, frozenset({name} if name else AUDIT_STREAMS), AUDIT_COUNTS, (Unit.COUNT,)
    if family == Source.GAUGES and name:
        return Source.GAUGES, frozenset({name}), _OF_GAUGES, (Unit.COUNT,)
    units = (Unit.TIME,) if measure in TIMED else (Unit.RATE, Unit.SHARE) if measure == "rate" else (Unit.COUNT,)
    ages = {READING_AGE.partition(".")[0]: READING_AGE, FAMILY: COMMAND_AGE}
    if what in {"http", "mqtt"}:
        return Source.OPERATIONS, frozenset({f"{what}.*"}), _OF_OPERATIONS, units
    if (named := ages.get(what, what)) in OPERATIONS:
        return Source.OPERATIONS, frozenset({named}), _OF_OPERATIONS, units
    raise ThresholdError(f"nothing is measured as {what!r}: {_choice(sorted([*OPERATIONS, 'audit', 'gauges.online']))}")


def _check_command(command: str, commands: Collection[str] | None, *, is_age: bool) -> None:
    if not is_age:
        raise ThresholdError(f"a name in brackets belongs to the age of commands: commands.age[{command}]")
    if commands is not None and command not in commands:
        sent = f"it sends {', '.join(sorted(commands))}" if commands else "it has no 'commands:'"
        raise ThresholdError(f"the scenario sends no command {command!r}: {sent}")


def _limit(found: re.Match[str], units: tuple[Unit, ...]) -> tuple[float, Unit]:
    word, number = found["unit"] or "", found["number"]
    for unit in units:
        if word in _UNITS[unit]:
            return float(number.replace("_", "")) * _UNITS[unit][word], unit
    if units == (Unit.COUNT,):
        raise ThresholdError(f"what is counted in pieces has no unit: write {number} without {word!r}")
    raise ThresholdError(
        f"{number}{word} has not its unit: {_choice([name for unit in units for name in _UNITS[unit]])}"
    )


def _window(found: re.Match[str]) -> int | None:
    if found["over"] is None:
        return None
    length_s = float(found["over"].replace("_", "")) * _TIMES.get(found["over_unit"], 0.0)
    if length_s < 1 or length_s != int(length_s):
        raise ThresholdError("a window is a whole number of seconds, 1s at least, such as 'over 1m'")
    return int(length_s)


def _choice(known: Collection[str], percentile: str = "percentile") -> str:
    return (
        f"write one of {', '.join(percentile if each == 'percentile' else each for each in known)}"
        if known
        else ("there are none")
    )


# --- held against a run ----------------------------------------------------------------------------------------------

_CLOCKS_S: Final = 0.001
"""Sums of durations are not exact; no phase is this short."""
# What only grows when more is read back: what was found counts, that nothing was found does not.
_FOUND: Final = frozenset({"lost", "doubled", "altered", "unknown", "misdated"})


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
    found = replace(record, operations=totals.operations, health=totals.health)
    wanted = [parse(result.expression) for result in record.thresholds]
    return replace(found, thresholds=judge_thresholds(wanted, found, seconds))


def _of_phases(seconds: Iterable[Second], until_s: float | None) -> Iterator[tuple[Second, Second]]:
    """The seconds of the phases, each as it was and with what fell due in it and ended after the phases.

    Only the last one differs: nobody knows any more in which second something fell due that ended late.

    Args:
        seconds: of the run.
        until_s: where the drain began; None where there was none.
    """
    last: Second | None = None
    late: list[Operations] = []
    for second in seconds:
        if until_s is not None and second.second + 1 > until_s + _CLOCKS_S:
            late.append(second.late)
            continue
        if last is not None:
            yield last, last
        last = second
    if last is not None:
        yield last, replace(last, operations=merge_operations([last.operations, *late]))
    elif any(late):
        # Phases that are shorter than a second: all that is known of them.
        short = Second(0, merge_operations(late), {}, GeneratorHealth())
        yield short, short


class Alarm:
    """Thresholds over a time while the run goes on; a window in which nothing was measured breaks none.

    Args:
        expressions: as the scenario has them; each with ``over``, none about the audit.
    """

    def __init__(self, expressions: Sequence[str]) -> None:
        self._watches = [_Watch(parse(expression)) for expression in expressions]

    def take(self, second: Second) -> str:
        """How a threshold did not hold up to the end of this second; empty as long as all hold."""
        for watch in self._watches:
            watch.feed(second)
            threshold, found = watch.threshold, watch.latest
            if found is None or found.value is None:
                continue
            if not COMPARISONS[threshold.operator](found.value, threshold.limit):
                unit = threshold.unit.value
                return ThresholdResult(threshold.expression, False, found.value, unit, found.at_s).missed_text
        return ""


class _Watch:
    """What a threshold looks at, while the seconds go by.

    A second leaves a window by being subtracted, so that a window of an hour costs no more than one of ten seconds.

    Attributes:
        latest: of the windows; None before the first one is full.
    """

    def __init__(self, threshold: Threshold, phases: Sequence[Span] = ()) -> None:
        is_operation = threshold.source is Source.OPERATIONS
        (self._name, *_) = threshold.names
        self.threshold = threshold
        self._phases = [span for span in phases if span.name == threshold.phase]
        self._is_timed = is_operation and threshold.unit is Unit.TIME
        self._is_counted = is_operation and not self._is_timed
        self._begin()
        self._longest = 0
        self._last: int | None = None
        self._worst: _Observed | None = None
        self.latest: _Observed | None = None

    def _begin(self) -> None:
        """No second is in the window."""
        self._within = 0
        self._times = Histogram()
        self._chosen = self._all = 0
        self._levels: deque[float | None] = deque()
        self._entered: deque[Second] = deque()  # where they can leave again

    def feed(self, second: Second) -> None:
        """Take the next second of the run."""
        over_s = self.threshold.over_s
        if self.threshold.source is Source.AUDIT or not self._is_in_phase(second):
            return
        if over_s and self._last not in (None, second.second - 1):
            self._begin()  # the phase came again, or seconds are missing
        self._last = second.second
        self._count(second)
        self._longest = max(self._longest, self._within)
        if over_s is None:
            return
        self._entered.append(second)
        if self._within > over_s:
            self._count(self._entered.popleft(), leaves=True)
        if self._within == over_s:
            self._judge(second.second + 1, over_s)

    def _count(self, second: Second, *, leaves: bool = False) -> None:
        """A second enters the window, or leaves it."""
        sign = -1 if leaves else 1
        self._within += sign
        if self._is_timed:
            change = self._times.remove_encoded if leaves else self._times.add_encoded
            for text in self._texts(second):
                change(text)
        elif self._is_counted:
            chosen, everything = self._counts(second)
            self._chosen, self._all = self._chosen + sign * chosen, self._all + sign * everything
        elif leaves:
            self._levels.popleft()
        else:
            self._levels.append(second.gauges.get(self._name))

    def _texts(self, second: Second) -> Iterator[str]:
        """Encoded histograms of what is meant."""
        for name, tallies in second.operations.items():
            for outcome, tally in tallies.items():
                if self.threshold.chooses(name, outcome):
                    yield tally.response

    def _counts(self, second: Second) -> tuple[int, int]:
        """How many were chosen, and of how many."""
        threshold = self.threshold
        chosen = everything = 0
        for name, tallies in second.operations.items():
            if threshold.names_operation(name):
                everything += sum(tally.count for tally in tallies.values())
                chosen += sum(tally.count for outcome, tally in tallies.items() if threshold.chooses(name, outcome))
        return chosen, everything

    def _value(self) -> float | None:
        """The measure over the window; None when there was nothing to measure."""
        measure, unit, times = self.threshold.measure, self.threshold.unit, self._times
        if self._is_timed:
            if not times.count:
                return None
            if measure == "percentile":
                return times.percentile(self.threshold.percent)
            return {"min": times.min_s, "max": times.max_s, "mean": times.mean()}[measure]
        if self._is_counted:
            if unit is Unit.COUNT:
                return float(self._chosen)
            if unit is Unit.SHARE:
                return 100.0 * self._chosen / self._all if self._all else None
            return self._chosen / self._within if self._within else None
        levels = [level for level in self._levels if level is not None]
        if not levels:
            return None
        found = {"min": min(levels), "max": max(levels), "last": levels[-1], "mean": math.fsum(levels) / len(levels)}
        return found[measure]

    def _judge(self, end_s: int, over_s: int) -> None:
        value = self._value()
        reason = f"nothing was measured from {end_s - over_s} s to {end_s} s" if value is None else ""
        found = self.latest = _Observed(value, float(end_s), reason)
        if self._worst is None or self._badness(found.value) > self._badness(self._worst.value):
            self._worst = found

    def _badness(self, value: float | None) -> float:
        """How far on the wrong side of the limit a value is; nothing is worse than none."""
        if value is None:
            return math.inf
        distance = abs(value - self.threshold.limit)
        return {"<": value, "<=": value, ">": -value, ">=": -value, "==": distance}[self.threshold.operator]

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
        value = self._value()
        return _Observed(value, reason="" if value is not None else f"nothing was measured in {seconds} s")


def _audited(threshold: Threshold, audit: AuditRecord | None) -> _Observed:
    if audit is None:
        return _Observed(None, reason="nothing was audited")
    named = {name: stream for name, stream in audit.streams if name in threshold.names}
    if not named:
        reason = f"no {' or '.join(sorted(threshold.names))} were read back"
        return _Observed(None, reason=reason, unknown=not audit.complete)
    value = float(sum(getattr(stream, threshold.measure) for stream in named.values()))
    is_safe = not COMPARISONS[threshold.operator](value, threshold.limit)
    is_judged = all(audit.judges(name, threshold.measure) for name in named)
    if not is_judged and not (is_safe and threshold.measure in _FOUND):
        return _Observed(None, reason="the audit is not complete: not everything could be read back", unknown=True)
    return _Observed(value)


def _result(threshold: Threshold, observed: _Observed, record: RunRecord) -> ThresholdResult:
    held = observed.value is not None and COMPARISONS[threshold.operator](observed.value, threshold.limit)
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
