"""What a phase waits for: ``online >= 99%``, ``open_commands == 0 and waiting_readings < 100``.

Comparisons of a gauge with a number, joined by ``and``. ``%`` means of the fleet's devices.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

GAUGES: Final = ("online", "connections", "open_commands", "waiting_readings")
"""What a condition may be about; the gauges of a run's seconds."""

_OF_DEVICES: Final = frozenset({"online", "connections"})
_COMPARE: Final = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
_TERM: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*([<>=!]{1,2})\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*(%?)\s*", re.ASCII)
_WHOLE_PERCENT: Final = 100.0


class ConditionError(ValueError):
    """A text that is no condition, with what to write instead."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One gauge against one number.

    Attributes:
        comparison: one of ``>= <= > < == !=``.
        of_devices: ``number`` is a share (0 to 1) of the fleet's devices.
    """

    gauge: str
    comparison: str
    number: float
    of_devices: bool

    def holds(self, gauges: Mapping[str, float], devices: int) -> bool:
        """Whether the condition is met; never while a gauge in it was not measured yet."""
        value = gauges.get(self.gauge)
        limit = self.number * devices if self.of_devices else self.number
        if value is None:
            return False
        # Half a percent of 1,000 devices must not fail for the last binary digit of 0.995.
        return bool(_COMPARE[self.comparison](limit if math.isclose(value, limit, rel_tol=1e-9) else value, limit))


@dataclass(frozen=True, slots=True)
class Condition:
    """All of its comparisons hold."""

    text: str
    comparisons: tuple[Comparison, ...]

    def holds(self, gauges: Mapping[str, float], devices: int) -> bool:
        """Whether it is so now.

        Args:
            gauges: of the latest second, by name.
            devices: of the whole fleet.
        """
        return all(comparison.holds(gauges, devices) for comparison in self.comparisons)


def parse_condition(text: str) -> Condition:
    """The condition of a text.

    Raises:
        ConditionError: it is none.
    """
    return Condition(text, tuple(_comparison(term) for term in re.split(r"\band\b", text)))


def _comparison(term: str) -> Comparison:
    found = _TERM.fullmatch(term)
    if found is None or found[2] not in _COMPARE:
        raise ConditionError(
            f"{term.strip()!r} is no condition; write it like 'online >= 99%' or 'open_commands == 0', with one of "
            f"{' '.join(_COMPARE)}"
        )
    gauge, comparison, number, percent = found.groups()
    if gauge not in GAUGES:
        near = difflib.get_close_matches(gauge, GAUGES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(GAUGES)}"
        raise ConditionError(f"{gauge!r} is nothing that a run measures; {hint}")
    if percent and gauge not in _OF_DEVICES:
        raise ConditionError(f"{gauge} has no whole that a percentage could be of: give a number")
    value = float(number.replace("_", ""))
    if percent and value > _WHOLE_PERCENT:
        raise ConditionError(f"{number}% is more than all devices")
    return Comparison(gauge, comparison, value / _WHOLE_PERCENT if percent else value, bool(percent))
