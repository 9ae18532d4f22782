"""What a threshold can look at, and the names for it; the grammar is in :mod:`simulator.fleet.metrics.thresholds`."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

from simulator.fleet.metrics.ages import AGE_OPERATIONS, COMMAND_AGE, READING_AGE, command_of
from simulator.fleet.metrics.stages import FAMILY, STAGE_OPERATIONS, EndState
from simulator.fleet.outcomes import OutcomeClass

HELD: Final = frozenset({"http.long_poll"})
"""Held by the service on purpose: what they take says nothing about how quick it is."""

OPERATIONS: Final = frozenset(
    {
        "http.poll",
        "http.sensor_data",
        "http.report",
        "http.send_command",
        "http.scan_qr",
        "http.register",
        "http.remove",
        "http.read_back",
        "mqtt.connect",
        "mqtt.sensor_data",
        "mqtt.receipt",
        "mqtt.report",
        "mqtt.status",
        "mqtt.command",
    }
    | HELD
    | set(STAGE_OPERATIONS)
    | set(AGE_OPERATIONS)
)
"""The names of what is measured: ``FAMILY.OPERATION``."""

FAILED: Final = frozenset(OutcomeClass) - {OutcomeClass.OK, OutcomeClass.LIMITED}
WAITED: Final = frozenset({OutcomeClass.OK, OutcomeClass.TIMEOUT})
GROUPS: Final = {"failed": FAILED, "all": frozenset(OutcomeClass)}

AUDIT_COUNTS: Final = (
    "lost", "doubled", "reordered", "altered", "late", "unknown", "ambiguous", "resent", "resent_ambiguous", "sent",
    "accepted", "stored", "misdated",
)  # fmt: skip
AUDIT_STREAMS: Final = ("readings", "commands", "registrations")


class ThresholdError(ValueError):
    """A threshold that nobody can hold a run against.

    Attributes:
        expression: as it was given.
        column: where it stops making sense, from 1.
        expected: what should stand there.
    """

    def __init__(self, expression: str, column: int, expected: str) -> None:
        self.expression = expression
        self.column = column
        self.expected = expected
        super().__init__(f'threshold "{expression}", column {column}: {expected}')


TIMED: Final = frozenset({"percentile", "min", "max", "mean"})
"""Measures of an operation that are times."""


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
class Subject:
    """A measured subject: what a threshold can name.

    Attributes:
        source: where it comes from.
        names: the operations, ``http.*`` for a whole family; of the audit its streams; else one name.
        outcomes: of the operations.
        service: the time since the request was sent instead of since it was intended.
        measure: ``percentile``, ``min``, ``max``, ``mean``, ``last``, ``count``, ``rate``; the audit's count.
        percent: of a percentile.
        command: of the age of commands, the name of those that are meant; None for all.
        states: of the age of commands, the end states that are chosen; empty for all.
    """

    source: Source
    names: frozenset[str]
    outcomes: frozenset[OutcomeClass] = frozenset()
    service: bool = False
    measure: str = "count"
    percent: float = 0.0
    command: str | None = None
    states: frozenset[str] = frozenset()

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


_ENDS: Final = ("min", "max", "mean")
_ASPECTS: Final = ("response", "service")
_FAMILIES_OF_REQUESTS: Final = frozenset({"http", "mqtt"})
"""What is sent has two times; a stage of a command or the age of a reading has one."""
_GENERATOR: Final = {
    "send_lag": ("p99", "p50", "mean", "max"),
    "loop_lag": ("max",),
    "gc_pause": ("max",),
    "steal": ("max", "mean"),
    "cpu": ("max", "mean"),
    "sent": (),
    "delivered": (),
}
_OF_GAUGES: Final = ("min", "max", "mean", "last")
_PERCENTILE: Final = re.compile(r"p(\d{1,2}(?:\.\d+)?|100)")
_PART: Final = re.compile(r"(?:\[[^\]]*\]|[^.])*\.?")
_AGE_OF_COMMAND: Final = re.compile(r"age\[([^\]]*)\]")
_STATES: Final = {state.value: frozenset({state.value}) for state in EndState} | {"all": frozenset[str]()}


class SubjectNames:
    """A subject, split at its dots, with the column of each part.

    Args:
        expression: the threshold.
        column: where the subject begins.
        text: the subject.
        operations: the names that there are.
        commands: the names of the scenario's commands; None when they are not known, and any will do.
    """

    def __init__(
        self,
        expression: str,
        column: int,
        text: str,
        operations: Collection[str],
        commands: Collection[str] | None = None,
    ) -> None:
        self._expression = expression
        self._operations = operations
        self._commands = commands
        self._parts: list[tuple[int, str]] = []
        for part in _PART.finditer(text):
            name = part[0].removesuffix(".")
            if self._parts and name.isdigit() and re.fullmatch(r"p\d+", self._parts[-1][1]):
                at, before = self._parts.pop()  # the point of p99.9
                self._parts.append((at, f"{before}.{name}"))
            elif part[0]:
                self._parts.append((column + part.start(), name))
        self._end = column + len(text)

    def subject(self) -> tuple[Subject, tuple[Unit, ...]]:
        """What a text names, and the units that its limit may have."""
        families = sorted({name.partition(".")[0] for name in self._operations})
        family = self._one_of((*families, *(source.value for source in Source if source is not Source.OPERATIONS)))
        if family == Source.AUDIT:
            return self._audit()
        if family == Source.GENERATOR:
            return self._generator()
        if family == Source.GAUGES:
            return self._gauges()
        return self._operation(family)

    def _audit(self) -> tuple[Subject, tuple[Unit, ...]]:
        name = self._one_of((*AUDIT_COUNTS, *AUDIT_STREAMS))
        streams = frozenset(AUDIT_STREAMS)
        if name in AUDIT_STREAMS:
            streams, name = frozenset({name}), self._one_of(AUDIT_COUNTS)
        self._done()
        return Subject(Source.AUDIT, streams, measure=name), (Unit.COUNT,)

    def _generator(self) -> tuple[Subject, tuple[Unit, ...]]:
        name = self._one_of(tuple(_GENERATOR))
        if name in {"sent", "delivered"}:
            self._done()
            return Subject(Source.GENERATOR, frozenset({name}), measure="rate"), (Unit.SHARE,)
        measure, percent = self._measure(_GENERATOR[name], percentiles=name == "send_lag")
        unit = Unit.SHARE if name in {"steal", "cpu"} else Unit.TIME
        return Subject(Source.GENERATOR, frozenset({name}), measure=measure, percent=percent), (unit,)

    def _gauges(self) -> tuple[Subject, tuple[Unit, ...]]:
        if not self._parts:
            raise self._error("expected the name of a gauge, such as online")
        _, name = self._parts.pop(0)
        measure, _ = self._measure(_OF_GAUGES)
        return Subject(Source.GAUGES, frozenset({name}), measure=measure), (Unit.COUNT,)

    def _operation(self, family: str) -> tuple[Subject, tuple[Unit, ...]]:
        of_family = {name.partition(".")[2] for name in self._operations if name.startswith(f"{family}.")}
        if family == FAMILY and not self._next_is(of_family - {"age"}):
            return self._age_of_commands(of_family)
        outcomes = {outcome.value: frozenset({outcome}) for outcome in OutcomeClass} | GROUPS
        aspects = _ASPECTS if family in _FAMILIES_OF_REQUESTS else ()
        measures = ("p99", *_ENDS, "count", "rate")
        names = frozenset({READING_AGE if family == READING_AGE.partition(".")[0] else f"{family}.*"})
        if self._next_is(of_family):
            names = frozenset({f"{family}.{self._one_of(tuple(of_family))}"})
        elif not self._next_is({*outcomes, *aspects, *measures}) and not self._next_is_percentile():
            raise self._unknown((*sorted(of_family), *outcomes, *measures))
        if self._parts and not self._next_is({*outcomes, *aspects, *measures}) and not self._next_is_percentile():
            raise self._unknown((*outcomes, *aspects, *measures))
        given = outcomes[self._one_of(tuple(outcomes))] if self._next_is(outcomes) else None
        service = self._next_is(aspects) and self._one_of(aspects) == "service"
        measure, percent = self._measure(measures, percentiles=True)
        chosen = given or (WAITED if measure in TIMED else frozenset({OutcomeClass.OK}))
        return Subject(Source.OPERATIONS, names, chosen, service, measure, percent), _units(measure)

    def _age_of_commands(self, of_family: Collection[str]) -> tuple[Subject, tuple[Unit, ...]]:
        """Of the command in brackets, or of all; of the end state behind it, or of all."""
        measures = ("p99", *_ENDS, "count", "rate")
        after, command = (*_STATES, *measures), None
        is_short = self._next_is(after) or self._next_is_percentile()
        if not is_short and not self._next_is({"age"}):
            command = self._bracketed((*sorted(of_family), *after))
        if not is_short:
            self._parts.pop(0)
            if not self._next_is(after) and not self._next_is_percentile():
                raise self._unknown(after)
        states = _STATES[self._one_of(tuple(_STATES))] if self._next_is(_STATES) else None
        measure, percent = self._measure(measures, percentiles=True)
        chosen = WAITED if measure in TIMED else frozenset({OutcomeClass.OK})
        names, outcomes = frozenset({COMMAND_AGE}), chosen if states is None else frozenset(OutcomeClass)
        of_states = states or frozenset()
        subject = Subject(Source.OPERATIONS, names, outcomes, False, measure, percent, command, of_states)
        return subject, _units(measure)

    def _bracketed(self, known: tuple[str, ...]) -> str:
        found = _AGE_OF_COMMAND.fullmatch(self._parts[0][1]) if self._parts else None
        if found is None:
            raise self._unknown(known)
        if self._commands is not None and found[1] not in self._commands:
            sent = f"it sends {', '.join(sorted(self._commands))}" if self._commands else "it has no 'commands:'"
            text = f"the scenario sends no command {found[1]!r}: {sent}{nearest(found[1], self._commands)}"
            raise ThresholdError(self._expression, self._parts[0][0], text)
        return found[1]

    def _measure(self, known: tuple[str, ...], *, percentiles: bool = False) -> tuple[str, float]:
        if percentiles and self._next_is_percentile():
            name = self._parts.pop(0)[1]
            self._done()
            return "percentile", float(name[1:])
        name = self._one_of(known)
        self._done()
        return name, 0.0

    def _next_is(self, known: Collection[str]) -> bool:
        return bool(self._parts) and self._parts[0][1] in known

    def _next_is_percentile(self) -> bool:
        return bool(self._parts) and _PERCENTILE.fullmatch(self._parts[0][1]) is not None

    def _one_of(self, known: tuple[str, ...]) -> str:
        if not self._next_is(known):
            raise self._unknown(known)
        return self._parts.pop(0)[1]

    def _unknown(self, known: tuple[str, ...]) -> ThresholdError:
        return self._error(f"expected one of {', '.join(known)}", known)

    def _done(self) -> None:
        if self._parts:
            raise self._error("expected nothing after the measure")

    def _error(self, expected: str, known: Collection[str] = ()) -> ThresholdError:
        if not self._parts:
            return ThresholdError(self._expression, self._end, f"{expected}, and the name ends here")
        column, name = self._parts[0]
        return ThresholdError(self._expression, column, f"{expected}, found {name!r}{nearest(name, known)}")


def _units(measure: str) -> tuple[Unit, ...]:
    if measure in TIMED:
        return (Unit.TIME,)
    return (Unit.RATE, Unit.SHARE) if measure == "rate" else (Unit.COUNT,)


def nearest(word: str, known: Collection[str]) -> str:
    """``; did you mean 'x'?``, or nothing."""
    found = get_close_matches(word, list(known), n=1, cutoff=0.5) if word else []
    return f"; did you mean {found[0]!r}?" if found else ""
