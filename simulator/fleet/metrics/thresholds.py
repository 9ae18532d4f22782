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
from typing import Final, NamedTuple

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

_HTTP: Final = ("poll", "sensor_data", "report", "send_command", "scan_qr", "register")
_MQTT: Final = ("connect", "sensor_data", "receipt", "report")
OPERATIONS: Final = frozenset(
    (
        *(f"http.{name}" for name in _HTTP),
        *(f"mqtt.{name}" for name in _MQTT),
        *HELD,
        *STAGE_OPERATIONS,
        *AGE_OPERATIONS,
    )
)
"""The names of what is measured: ``FAMILY.OPERATION``."""
AUDIT_COUNTS: Final = (
    "lost", "doubled", "altered", "unknown", "misdated", "ambiguous", "resent", "resent_ambiguous", "sent", "accepted",
    "stored",
)  # fmt: skip

COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}


class ThresholdError(ValueError):
    """A threshold that makes no sense; the text says what to write instead."""


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
        name: of the operation, the family of operations, the gauge or the audit's stream; empty for all streams.
        measure: ``p99`` and its like, ``min``, ``max``, ``mean``, ``last``, ``count``, ``rate``; the audit's count.
        operator: one of ``< <= > >= ==``.
        limit: in seconds, per second, percent or pieces, as ``unit`` says.
        outcomes: of the operations.
        command: of the age of commands, the name of those that are meant; None for all.
        state: of the age of commands, the end state that is meant; None for all.
        over_s: length of the windows, each of which has to hold; None for the run, or phase, as a whole.
        phase: only what was measured in phases of this name; None for everything.
    """

    expression: str
    source: Source
    name: str
    measure: str
    operator: str
    limit: float
    unit: Unit
    outcomes: frozenset[OutcomeClass] = frozenset()
    command: str | None = None
    state: str | None = None
    over_s: int | None = None
    phase: str | None = None

    def names_operation(self, name: str) -> bool:
        """Whether an operation is one of those; polls that are held have no part in the times of a family."""
        if (found := command_of(name)) is not None:
            return self.name == COMMAND_AGE and self.command in {None, found[0]}
        is_of_family = name.startswith(f"{self.name}.") and not (name in HELD and self.unit is Unit.TIME)
        return name == self.name or is_of_family

    def chooses(self, name: str, outcome: OutcomeClass) -> bool:
        """Whether what ended so is meant, of all that :meth:`names_operation` names."""
        found = command_of(name)
        is_state = self.state is None or (found is not None and found[1] == self.state)
        return is_state and outcome in self.outcomes and self.names_operation(name)

    def holds(self, value: float) -> bool:
        """Whether a value is on the right side of the limit."""
        return COMPARISONS[self.operator](value, self.limit)

    def result(self, value: float | None, reason: str = "", at_s: float | None = None) -> ThresholdResult:
        """Its result with this value, or without one and why."""
        held = value is not None and self.holds(value)
        return ThresholdResult(self.expression, held, value, self.unit.value, at_s, reason)


_ALL: Final = "all"
_OUTCOMES: Final = {
    **{outcome.value: frozenset({outcome}) for outcome in OutcomeClass},
    "failed": FAILED,
    _ALL: frozenset(OutcomeClass),
}
_STATES: Final = (*map(str, EndState), _ALL)
_MEASURES: Final[Mapping[Source, tuple[str, ...]]] = {
    Source.OPERATIONS: ("p99", "min", "max", "mean", "count", "rate"),
    Source.GAUGES: ("min", "max", "mean", "last"),
    Source.AUDIT: AUDIT_COUNTS,
}
_WORDS: Final = [measure for measures in _MEASURES.values() for measure in measures]
_UNITS: Final[Mapping[str, tuple[Unit, float]]] = {
    "us": (Unit.TIME, 1e-6),
    "ms": (Unit.TIME, 1e-3),
    "s": (Unit.TIME, 1.0),
    "m": (Unit.TIME, 60.0),
    "h": (Unit.TIME, 3600.0),
    "/s": (Unit.RATE, 1.0),
    "/m": (Unit.RATE, 1 / 60),
    "/h": (Unit.RATE, 1 / 3600),
    "%": (Unit.SHARE, 1.0),
    "": (Unit.COUNT, 1.0),
}
_NUMBER: Final = r"\d[\d_]*(?:\.\d+)?"
_FORM: Final = re.compile(
    rf"""\s*
    (?P<what>[a-z_]+ (?:\.[a-z_]+)*?)
    (?:\[ (?P<command>[^\]]*) \])?
    (?:\. (?P<outcome>{"|".join({**_OUTCOMES, **dict.fromkeys(_STATES)})}))?
    \. (?P<measure>p(?P<percent>100|\d{{1,2}}(?:\.\d+)?)|{"|".join(_WORDS)})
    \s* (?P<operator><=|>=|==|<|>)
    \s* (?P<number>{_NUMBER}) \s* (?P<unit>%|/?[a-z]+)?
    (?:\s+ in \s+ (?P<phase>\S+))?
    (?:\s+ over \s+ (?P<over>{_NUMBER}) \s* (?P<over_unit>us|ms|s|m|h))?
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
    what, word, measure, phase = found["what"], found["outcome"], found["measure"], found["phase"]
    source, name = _subject(what)
    if ("p99" if found["percent"] else measure) not in _MEASURES[source]:
        raise ThresholdError(f"{what} has no measure {measure!r}: {_choice(_MEASURES[source])}")
    limit, unit = _limit(found, source)
    is_age = source is Source.OPERATIONS and name == COMMAND_AGE
    if found["command"] is not None:
        _check_command(found["command"], commands, is_age=is_age)
    known: Collection[str] = _STATES if is_age else _OUTCOMES if source is Source.OPERATIONS else ()
    if word is not None and word not in known:
        raise ThresholdError(f"{what} has no outcome {word!r}: {_choice(known)}")
    if unit is Unit.SHARE and word == _ALL and not is_age:
        raise ThresholdError("all of all is always 100 %: name an outcome, such as limited or failed")
    if source is Source.AUDIT and (phase or found["over"]):
        raise ThresholdError("the audit is of the whole run: leave out 'in' and 'over'")
    if phase is not None and phases is not None and phase not in phases:
        raise ThresholdError(f"no phase is called {phase!r}: {_choice(phases)}")
    usual = WAITED if unit is Unit.TIME else frozenset({OutcomeClass.OK})
    return Threshold(
        expression,
        source,
        name,
        measure,
        found["operator"],
        limit,
        unit,
        outcomes=usual if word is None else _OUTCOMES[_ALL if is_age else word],
        command=found["command"],
        state=word if is_age and word != _ALL else None,
        over_s=_window(found),
        phase=phase,
    )


def _subject(what: str) -> tuple[Source, str]:
    """The source of what a threshold is about, and its name there."""
    family, _, name = what.partition(".")
    if family == Source.AUDIT and name in {"", "readings", "commands", "registrations"}:
        return Source.AUDIT, name
    if family == Source.GAUGES and name:
        return Source.GAUGES, name
    named = {"readings": READING_AGE, FAMILY: COMMAND_AGE}.get(what, what)
    if named in OPERATIONS or named in {"http", "mqtt"}:
        return Source.OPERATIONS, named
    raise ThresholdError(f"nothing is measured as {what!r}: {_choice(sorted([*OPERATIONS, 'audit', 'gauges.online']))}")


def _check_command(command: str, commands: Collection[str] | None, *, is_age: bool) -> None:
    if not is_age:
        raise ThresholdError(f"a name in brackets belongs to the age of commands: commands.age[{command}]")
    if commands is not None and command not in commands:
        sent = f"it sends {', '.join(sorted(commands))}" if commands else "it has no 'commands:'"
        raise ThresholdError(f"the scenario sends no command {command!r}: {sent}")


def _limit(found: re.Match[str], source: Source) -> tuple[float, Unit]:
    units: tuple[Unit, ...] = (Unit.COUNT,)
    if source is Source.OPERATIONS and found["measure"] == "rate":
        units = (Unit.RATE, Unit.SHARE)
    elif source is Source.OPERATIONS and found["measure"] != "count":
        units = (Unit.TIME,)
    number, word = found["number"], found["unit"] or ""
    known = {text: (unit, factor) for text, (unit, factor) in _UNITS.items() if unit in units}
    if word not in known:
        fix = f"write {number} without {word!r}" if units == (Unit.COUNT,) else _choice(known)
        raise ThresholdError(f"{number}{word} has not its unit: {fix}")
    unit, factor = known[word]
    return float(number.replace("_", "")) * factor, unit


def _window(found: re.Match[str]) -> int | None:
    if found["over"] is None:
        return None
    length_s = float(found["over"].replace("_", "")) * _UNITS[found["over_unit"]][1]
    if length_s < 1 or length_s != int(length_s):
        raise ThresholdError("a window is a whole number of seconds, 1s at least, such as 'over 1m'")
    return int(length_s)


def _choice(known: Collection[str]) -> str:
    return f"write one of {', '.join(known)}" if known else "there are none"


# --- held against a run ----------------------------------------------------------------------------------------------

_CLOCKS_S: Final = 0.001
"""Sums of durations are not exact; no phase is this short."""
# Counts that only grow when more is read back: in an incomplete audit they can break a threshold, and never hold it.
_FOUND: Final = frozenset({"lost", "doubled", "altered", "unknown", "misdated"})


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
    return tuple(_judged(watch.threshold, watch.result(record, count), record) for watch in watches)


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

    Only the last one differs: the second in which a late exchange fell due is not recorded.

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
            found = watch.latest
            if found is not None and found.observed is not None and not found.held:
                return found.missed_text
        return ""


class _Sample(NamedTuple):
    """What a threshold looks at in one second.

    Attributes:
        times: encoded histograms of the exchanges that it is about.
        chosen, of: how many it is about, and of how many.
        level: of the gauge; None where it was not measured.
    """

    times: Sequence[str] = ()
    chosen: int = 0
    of: int = 0
    level: float | None = None


class _Watch:
    """A threshold that is judged while the seconds go by.

    A second's times leave a window by being subtracted, so that one of an hour costs no more than one of ten seconds.

    Attributes:
        latest: of the windows; None before the first one is full.
    """

    def __init__(self, threshold: Threshold, phases: Sequence[Span] = ()) -> None:
        self.threshold = threshold
        self.latest: ThresholdResult | None = None
        self._phases = [span for span in phases if span.name == threshold.phase]
        self._worst: ThresholdResult | None = None
        self._longest = 0
        self._last: int | None = None
        self._begin()

    def _begin(self) -> None:
        """No second is in the window."""
        self._times = Histogram()
        self._samples: deque[_Sample] = deque()

    def feed(self, second: Second) -> None:
        """Take the next second of the run."""
        over_s = self.threshold.over_s
        if self.threshold.source is Source.AUDIT or not self._is_in_phase(second):
            return
        if over_s and self._last not in (None, second.second - 1):
            self._begin()  # the phase came again, or seconds are missing
        self._last = second.second
        sample = self._sample(second)
        for text in sample.times:
            self._times.add_encoded(text)
        self._samples.append(sample if over_s else sample._replace(times=()))  # what never leaves need not be kept
        if over_s and len(self._samples) > over_s:
            for text in self._samples.popleft().times:
                self._times.remove_encoded(text)
        self._longest = max(self._longest, len(self._samples))
        if len(self._samples) == over_s:
            self._judge(second.second + 1, over_s)

    def _sample(self, second: Second) -> _Sample:
        threshold = self.threshold
        if threshold.source is Source.GAUGES:
            return _Sample(level=second.gauges.get(threshold.name))
        named = [
            (threshold.chooses(name, outcome), tally)
            for name, tallies in second.operations.items()
            if threshold.names_operation(name)
            for outcome, tally in tallies.items()
        ]
        chosen = [tally for is_chosen, tally in named if is_chosen]
        times = [tally.response for tally in chosen] if threshold.unit is Unit.TIME else ()
        return _Sample(times, sum(tally.count for tally in chosen), sum(tally.count for _, tally in named))

    def _value(self) -> float | None:
        """The measure over the window; None when there was nothing to measure."""
        measure, unit, times = self.threshold.measure, self.threshold.unit, self._times
        if unit is Unit.TIME:
            if not times.count:
                return None
            known = {"min": times.min_s, "max": times.max_s, "mean": times.mean()}
            return known[measure] if measure in known else times.percentile(float(measure.removeprefix("p")))
        if self.threshold.source is Source.GAUGES:
            levels = [sample.level for sample in self._samples if sample.level is not None]
            if not levels:
                return None
            mean = math.fsum(levels) / len(levels)
            return {"min": min(levels), "max": max(levels), "last": levels[-1], "mean": mean}[measure]
        chosen = float(sum(sample.chosen for sample in self._samples))
        if unit is Unit.COUNT:
            return chosen
        of = sum(sample.of for sample in self._samples) / 100 if unit is Unit.SHARE else len(self._samples)
        return chosen / of if of else None

    def _judge(self, end_s: int, over_s: int) -> None:
        value = self._value()
        reason = f"nothing was measured from {end_s - over_s} s to {end_s} s" if value is None else ""
        found = self.latest = self.threshold.result(value, reason, float(end_s))
        if self._worst is None or self._badness(found.observed) > self._badness(self._worst.observed):
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

    def result(self, record: RunRecord, seconds: int) -> ThresholdResult:
        """Whether the threshold held in the whole run."""
        threshold = self.threshold
        if threshold.source is Source.AUDIT:
            return _audited(threshold, record.audit)
        if threshold.phase is not None and not self._longest:
            there = ", ".join(dict.fromkeys(span.name for span in record.phases)) or "none"
            return threshold.result(None, f"no whole second of a phase {threshold.phase!r} (phases: {there})")
        if threshold.source is Source.OPERATIONS and not any(map(threshold.names_operation, record.operations)):
            family = threshold.name.partition(".")[0]
            near = [name for name in record.operations if name.startswith(f"{family}.")]
            ran = ", ".join(sorted(near or record.operations)) or "nothing"
            return threshold.result(None, f"{threshold.name} never ran (what did: {ran})")
        if threshold.over_s:
            short = f"no {threshold.over_s} s in one piece, the longest is {self._longest} s"
            return self._worst or threshold.result(None, short)
        value = self._value()
        return threshold.result(value, "" if value is not None else f"nothing was measured in {seconds} s")


def _audited(threshold: Threshold, audit: AuditRecord | None) -> ThresholdResult:
    if audit is None:
        return threshold.result(None, "nothing was audited")
    named = {name: stream for name, stream in audit.streams if threshold.name in {"", name}}
    if not named:
        return replace(
            threshold.result(None, f"no {threshold.name or 'ledgers'} were read back"), judged=audit.complete
        )
    found = threshold.result(float(sum(getattr(stream, threshold.measure) for stream in named.values())))
    is_broken = threshold.measure in _FOUND and not found.held
    if is_broken or all(audit.judges(name, threshold.measure) for name in named):
        return found
    reason = "the audit is not complete: not everything could be read back"
    return replace(threshold.result(None, reason), judged=False)


def _judged(threshold: Threshold, found: ThresholdResult, record: RunRecord) -> ThresholdResult:
    doubt = _why_unjudged(threshold, record) if found.held or found.observed is None else ""
    if doubt:
        return replace(found, held=False, reason=doubt, judged=False)
    # A run that ended early is not blamed for what it did not measure.
    return replace(found, judged=found.judged and (found.observed is not None or not record.partial))


def _why_unjudged(threshold: Threshold, record: RunRecord) -> str:
    """Why a threshold that holds for what is known of commands may not hold for all; empty where it does.

    A lower bound of a count or a rate holds whatever else there was. How many were open when the run was over is known
    of those that the service gave an id.
    """
    is_lower_bound = threshold.unit in {Unit.COUNT, Unit.RATE} and threshold.operator in {">", ">="}
    if threshold.name != COMMAND_AGE or is_lower_bound:
        return ""
    missing = count_unended(record.commands, record.operations, threshold.command)
    if threshold.state == EndState.OPEN:
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
