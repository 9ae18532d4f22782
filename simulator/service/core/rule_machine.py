"""When a rule fires, decided without I/O: one state for each rule and device, moved by readings and by time.

A rule fires once its condition has held for ``for_seconds`` without a break: the condition holds from the reading that
meets it until one that does not. It fires once; the reading that ends the condition arms it again.

Time is what each caller hands in, so a timer that runs late and readings that come a little late lead to the same
firings. A reading that comes later than ``LATE_MS`` is of a past that no command can mend: it ends a condition, and
neither begins one nor fires (docs/decisions/0009).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from simulator.wire.rules import Comparison

LATE_MS: Final = 15 * 60_000
"""A reading that was taken longer ago than this fires nothing."""

_COMPARE: Final[Mapping[Comparison, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of a rule.

    Attributes:
        reading: the name of the reading that is looked at.
        for_ms: how long the comparison must hold before the rule fires.
    """

    reading: str
    op: Comparison
    value: float
    for_ms: int

    def holds(self, value: float) -> bool:
        """Whether a reading meets it."""
        return _COMPARE[self.op](value, self.value)


class Phase(StrEnum):
    """Where a rule stands with a device."""

    ARMED = "armed"
    """The last reading did not meet the condition, or came too late to begin it."""
    HOLDING = "holding"
    """It holds, and not for long enough yet."""
    FIRED = "fired"
    """It has fired, and the condition has not ended since."""


@dataclass(frozen=True, slots=True)
class State:
    """A rule's state with one device; times in milliseconds since the epoch.

    Attributes:
        since_ms: from when on the condition holds; None when it does not.
        observed_ms: the time of the latest reading that was taken into account.
    """

    phase: Phase
    since_ms: int | None
    observed_ms: int


@dataclass(frozen=True, slots=True)
class Step:
    """A state after something happened, and whether the rule fired on the way."""

    state: State
    fires: bool = False


def due_ms(condition: Condition, state: State) -> int | None:
    """When the rule fires if no further reading comes; None for never."""
    if state.phase is not Phase.HOLDING or state.since_ms is None:
        return None
    return state.since_ms + condition.for_ms


def elapse(condition: Condition, state: State, now_ms: int) -> Step:
    """Time has gone by until ``now_ms``."""
    at_ms = due_ms(condition, state)
    if at_ms is None or at_ms > now_ms:
        return Step(state)
    return Step(replace(state, phase=Phase.FIRED), fires=True)


def observe(condition: Condition, state: State | None, value: float, recorded_ms: int, now_ms: int) -> Step:
    """A reading has come.

    Args:
        condition: the rule's trigger.
        state: its state with this device; None before the first reading.
        value: the reading's.
        recorded_ms: when it was taken, as the device says. A time to come counts as now.
        now_ms: when it came in. A state from after that is of a clock that was set back since: its times count no more.

    Returns:
        The state after it. A reading that is older than one that was seen already changes nothing: it says nothing of
        how things are now. One that is older than ``LATE_MS`` only ends the condition, if it does not meet it.
    """
    at_ms = min(recorded_ms, now_ms)
    fires = False
    if state is not None and state.observed_ms > now_ms:
        state = replace(state, observed_ms=at_ms, since_ms=None if state.since_ms is None else at_ms)
    if state is not None and at_ms < state.observed_ms:
        return Step(state)
    if at_ms < now_ms - LATE_MS:
        return Step(_after_late(condition, state, value, at_ms))
    if state is not None:
        state, fires = (step := elapse(condition, state, at_ms)).state, step.fires
    if not condition.holds(value):
        return Step(State(Phase.ARMED, None, at_ms), fires)
    if state is None or state.phase is Phase.ARMED:
        began = State(Phase.HOLDING, at_ms, at_ms)
        step = elapse(condition, began, at_ms)
        return Step(step.state, fires or step.fires)
    return Step(replace(state, observed_ms=at_ms), fires)


def _after_late(condition: Condition, state: State | None, value: float, at_ms: int) -> State:
    if state is None or not condition.holds(value):
        return State(Phase.ARMED, None, at_ms)
    return replace(state, observed_ms=at_ms)
