"""Thresholds as a scenario writes them: ``http.sensor_data.p99 < 250ms over 1m``.

::

    threshold  = subject operator value ["in" PHASE] ["over" time]
    subject    = operation ["." outcome] ["." ("response" | "service")] "." measure
               | "audit" ["." ("readings" | "commands")] "." count
               | "generator" "." ("send_lag" | "loop_lag" | "gc_pause" | "steal" | "cpu" | "sent") ["." measure]
               | "gauges" "." NAME "." ("min" | "max" | "mean" | "last")
               | "commands.age" ["[" NAME "]"] ["." state] "." measure
    operation  = such as http.sensor_data or readings.age, or a family: http, mqtt; readings and commands for their ages
    state      = an end state of commands: succeeded, failed, rejected, expired, open; or "all"
    outcome    = a class of outcomes, or "failed" (all but ok and limited), or "all"
    measure    = "p" PERCENT | "min" | "max" | "mean" | "count" | "rate"
    operator   = "<" | "<=" | ">" | ">=" | "==" | "!="
    value      = a number with its unit: us ms s m h for times, /s /m /h or % for rates, nothing for counts

Without an outcome, times are those of ``ok`` and ``timeout`` together (a request that was never answered has waited,
too; a refusal in a millisecond must not lower a percentile), and counts and rates are those of ``ok``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from simulator.fleet.metrics.subjects import (
    GROUPS,
    OPERATIONS,
    Source,
    Subject,
    SubjectNames,
    ThresholdError,
    Unit,
    nearest,
)


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold of a scenario, parsed.

    Attributes:
        expression: as it was given.
        operator: one of ``< <= > >= == !=``.
        limit: in seconds, per second, percent or pieces, as ``unit`` says.
        over_s: length of the windows, each of which has to hold; None for the run, or phase, as a whole.
        phase: only what was measured in phases of this name; None for everything.
    """

    expression: str
    subject: Subject
    operator: str
    limit: float
    unit: Unit
    over_s: int | None = None
    phase: str | None = None


_TIMES: Final = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_RATES: Final = {"/s": 1.0, "/m": 1 / 60, "/min": 1 / 60, "/h": 1 / 3600}
_OPERATORS: Final = ("<=", ">=", "==", "!=", "<", ">")
_MISSPELT: Final = {"=": "==", "=<": "<=", "=>": ">=", "<>": "!=", "≤": "<=", "≥": ">=", "===": "=="}
_SUBJECT: Final = re.compile(r"(?:\[[^\]]*\]|[^\s<>=!≤≥])+")
_NUMBER: Final = re.compile(r"\d+(?:_\d+)*(?:\.\d+)?")


def parse(
    expression: str,
    *,
    operations: Collection[str] = OPERATIONS,
    phases: Collection[str] | None = None,
    commands: Collection[str] | None = None,
) -> Threshold:
    """Parse the text of a threshold.

    Args:
        expression: such as ``http.sensor_data.p99 < 250ms over 1m``.
        operations: the names that there are.
        phases: the names of the scenario's phases; None when they are not known, and any will do.
        commands: the names of the scenario's commands; None when they are not known, and any will do.

    Raises:
        ThresholdError: it makes no sense, and where.
    """
    text = _Text(expression)
    column, subject_text = text.take(_SUBJECT, "expected what is measured, such as http.sensor_data.p99")
    subject, units = SubjectNames(expression, column, subject_text, operations, commands).subject()
    operator = _operator(text)
    limit, unit = _value(text, subject_text, units)
    _check_share(text, subject, unit, column)
    text.skip()
    if subject.source is Source.AUDIT and text.rest:
        raise text.error("expected the end: the audit is of the whole run")
    phase, over_s = _where(text, phases)
    return Threshold(expression, subject, operator, limit, unit, over_s, phase)


class _Text:
    """The expression, read from left to right."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._at = 0

    def skip(self) -> None:
        while self._at < len(self.expression) and self.expression[self._at].isspace():
            self._at += 1

    @property
    def column(self) -> int:
        return self._at + 1

    @property
    def rest(self) -> str:
        return self.expression[self._at :]

    def take(self, pattern: re.Pattern[str], expected: str) -> tuple[int, str]:
        """The next word after white space, and its column."""
        self.skip()
        found = pattern.match(self.expression, self._at)
        if found is None:
            raise self.error(expected)
        return self.take_text(found[0])

    def take_text(self, word: str) -> tuple[int, str]:
        column = self.column
        self._at += len(word)
        return column, word

    def error(self, expected: str, hint: str = "") -> ThresholdError:
        found = self.rest.split(maxsplit=1)
        said = f", found {found[0]!r}" if found else ", and it ends here"
        return ThresholdError(self.expression, self.column, expected + said + hint)


def _operator(text: _Text) -> str:
    text.skip()
    found = re.match(r"[<>=!≤≥]*", text.rest)
    word = found[0] if found else ""
    if word not in _OPERATORS:
        hint = f"; did you mean {_MISSPELT[word]!r}?" if word in _MISSPELT else ""
        raise text.error(f"expected one of {' '.join(_OPERATORS)}", hint)
    return text.take_text(word)[1]


def _value(text: _Text, subject: str, units: tuple[Unit, ...]) -> tuple[float, Unit]:
    _, number = text.take(_NUMBER, "expected a number")
    value = float(number.replace("_", ""))
    text.skip()
    found = re.match(r"%|/?[A-Za-zµ]+", text.rest)
    word = found[0] if found and found[0] not in {"in", "over"} else ""
    known = [name for unit in units for name in _names_of(unit)]
    for unit in units:
        factor = _factor(unit, word)
        if factor is not None:
            text.take_text(word)
            return value * factor, unit
    if known:
        near = nearest(word, known) or (f"; write {number}s or {number}ms" if Unit.TIME in units and not word else "")
        raise text.error(f"expected the unit of {subject}, {_choice(known)}", near)
    raise text.error(f"{subject} is counted in pieces: expected no unit")


def _names_of(unit: Unit) -> tuple[str, ...]:
    return {Unit.TIME: tuple(_TIMES), Unit.RATE: tuple(_RATES), Unit.SHARE: ("%",), Unit.COUNT: ()}[unit]


def _choice(known: Collection[str]) -> str:
    return f"one of {' '.join(known)}" if len(known) > 1 else " ".join(known)


def _factor(unit: Unit, word: str) -> float | None:
    """What a number with this unit is multiplied by; None when it is no such unit."""
    if unit is Unit.TIME:
        return _TIMES.get(word)
    if unit is Unit.RATE:
        return _RATES.get(word)
    return 1.0 if word == ("%" if unit is Unit.SHARE else "") else None


def _check_share(text: _Text, subject: Subject, unit: Unit, column: int) -> None:
    is_all = subject.outcomes == GROUPS["all"] and not subject.states
    if subject.source is Source.OPERATIONS and unit is Unit.SHARE and is_all:
        raise ThresholdError(
            text.expression, column, "all of all is always 100 %: name an outcome, such as limited or failed"
        )


def _where(text: _Text, phases: Collection[str] | None) -> tuple[str | None, int | None]:
    """The phase and the window, if there are any, and nothing after them."""
    phase: str | None = None
    over_s: int | None = None
    word = re.compile(r"\S+")
    text.skip()
    if re.match(r"in\b", text.rest):
        text.take_text("in")
        column, phase = text.take(word, "expected the name of a phase")
        if phases is not None and phase not in phases:
            known = f"known are {', '.join(sorted(phases))}" if phases else "the scenario has no phases"
            raise ThresholdError(
                text.expression, column, f"no phase is called {phase!r}: {known}{nearest(phase, phases)}"
            )
    text.skip()
    if re.match(r"over\b", text.rest):
        text.take_text("over")
        column, number = text.take(_NUMBER, "expected a length of time, such as 1m")
        text.skip()
        unit = re.match(r"[A-Za-zµ]*", text.rest)
        name = unit[0] if unit else ""
        if name not in _TIMES:
            raise text.error(f"expected a unit of time, {_choice(_TIMES)}", nearest(name, _TIMES))
        text.take_text(name)
        length_s = float(number.replace("_", "")) * _TIMES[name]
        if length_s < 1 or length_s != int(length_s):
            raise ThresholdError(text.expression, column, "a window is a whole number of seconds, 1s at least")
        over_s = int(length_s)
    text.skip()
    if text.rest:
        raise text.error(
            f"expected {'' if phase or over_s else 'in PHASE, '}{'' if over_s else 'over TIME, or '}the end"
        )
    return phase, over_s
