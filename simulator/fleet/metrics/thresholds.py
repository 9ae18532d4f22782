"""Thresholds as a scenario writes them: ``http.sensor_data.p99 < 250ms over 1m``.

::

    WHAT[.OUTCOME][.response | .service].MEASURE OPERATOR VALUE [in PHASE] [over TIME]

    WHAT       an operation, such as http.sensor_data or readings.age; a family: http, mqtt, readings, commands;
               commands.age[NAME] for those of one name; audit or audit.readings; generator.send_lag, .loop_lag,
               .gc_pause, .steal or .cpu; generator (with the measures sent and delivered); gauges.NAME
    OUTCOME    a class of outcomes, "failed" (all but ok and limited) or "all"; of the age of commands an end state:
               succeeded, failed, rejected, expired, open, or "all"
    MEASURE    p50 to p100, min, max, mean, count, rate; of gauges also last; of the audit one of its counts
    OPERATOR   < <= > >= == !=
    VALUE      with its unit: us ms s m h for times, /s /m /h or % for rates, nothing for counts

Without an outcome, times are those of ``ok`` and ``timeout`` together (a request that was never answered has waited,
too; a refusal in a millisecond must not lower a percentile), and counts and rates are those of ``ok``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

from simulator.fleet.metrics.ages import AGE_OPERATIONS, COMMAND_AGE, READING_AGE, command_of
from simulator.fleet.metrics.stages import FAMILY, STAGE_OPERATIONS, EndState
from simulator.fleet.outcomes import FAILED, HELD, WAITED, OutcomeClass

OPERATIONS: Final = frozenset(
    {
        "http.poll",
        "http.sensor_data",
        "http.report",
        "http.send_command",
        "http.scan_qr",
        "http.register",
        "http.remove",
        "mqtt.connect",
        "mqtt.sensor_data",
        "mqtt.receipt",
        "mqtt.report",
        "mqtt.status",
        "mqtt.command",
        *HELD,
        *STAGE_OPERATIONS,
        *AGE_OPERATIONS,
    }
)
"""The names of what is measured: ``FAMILY.OPERATION``."""
AUDIT_COUNTS: Final = (
    "lost", "doubled", "reordered", "altered", "late", "unknown", "ambiguous", "resent", "resent_ambiguous", "sent",
    "accepted", "stored", "misdated",
)  # fmt: skip
AUDIT_STREAMS: Final = ("readings", "commands", "registrations")
TIMED: Final = frozenset({"percentile", "min", "max", "mean"})
"""Measures of an operation that are times."""


class ThresholdError(ValueError):
    """A threshold that nobody can hold a run against; the text says what to write instead."""


class Source(StrEnum):
    """What a threshold looks at."""

    OPERATIONS = "operations"
    AUDIT = "audit"
    GENERATOR = "generator"
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
        operator: one of ``< <= > >= == !=``.
        limit: in seconds, per second, percent or pieces, as ``unit`` says.
        percent: of a percentile.
        outcomes: of the operations.
        service: the time since the request was sent instead of since it was intended.
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
    service: bool = False
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
_OF_GENERATOR: Final[Mapping[str, tuple[tuple[str, ...], Unit]]] = {
    "send_lag": (("percentile", "mean", "max"), Unit.TIME),
    "loop_lag": (("max",), Unit.TIME),
    "gc_pause": (("max",), Unit.TIME),
    "steal": (("max", "mean"), Unit.SHARE),
    "cpu": (("max", "mean"), Unit.SHARE),
    "": (("sent", "delivered"), Unit.SHARE),
}
_MEASURES: Final = ("min", "max", "mean", "last", "count", "rate", "delivered", *AUDIT_COUNTS)
_NUMBER: Final = r"\d[\d_]*(?:\.\d+)?"
_FORM: Final = re.compile(
    rf"""\s*
    (?P<what>[a-z_]+ (?:\.[a-z_]+)*?)
    (?:\[ (?P<command>[^\]]*) \])?
    (?:\. (?P<outcome>{"|".join({**_OUTCOMES, **_STATES})}))?
    (?:\. (?P<time>response|service))?
    \. (?P<measure>p(?P<percent>100|\d{{1,2}}(?:\.\d+)?)|{"|".join(_MEASURES)})
    \s* (?P<operator><=|>=|==|!=|<|>)
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
    what, word, time = found["what"], found["outcome"], found["time"]
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
    if time is not None and (source is not Source.OPERATIONS or what.partition(".")[0] not in {"http", "mqtt"}):
        raise ThresholdError(f"{what} has one time only: leave out {time!r}")
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
        service=time == "service",
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
    if family == Source.GENERATOR and name in _OF_GENERATOR:
        measures, unit = _OF_GENERATOR[name]
        return Source.GENERATOR, frozenset({name or measure}), measures, (unit,)
    if family == Source.GAUGES and name:
        return Source.GAUGES, frozenset({name}), _OF_GAUGES, (Unit.COUNT,)
    units = (Unit.TIME,) if measure in TIMED else (Unit.RATE, Unit.SHARE) if measure == "rate" else (Unit.COUNT,)
    ages = {READING_AGE.partition(".")[0]: READING_AGE, FAMILY: COMMAND_AGE}
    if what in {"http", "mqtt"}:
        return Source.OPERATIONS, frozenset({f"{what}.*"}), _OF_OPERATIONS, units
    if (named := ages.get(what, what)) in OPERATIONS:
        return Source.OPERATIONS, frozenset({named}), _OF_OPERATIONS, units
    known = [*OPERATIONS, *(f"generator.{each}" for each in _OF_GENERATOR if each), "audit", "gauges.online"]
    near = get_close_matches(what, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else _choice(sorted(known))
    raise ThresholdError(f"nothing is measured as {what!r}: {hint}")


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
