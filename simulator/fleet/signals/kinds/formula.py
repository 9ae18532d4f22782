"""Arithmetic over other readings of the same device."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from simulator.fleet.settings import key
from simulator.fleet.signals.base import Individual, Signal
from simulator.fleet.signals.expressions import Formula, check_formula, parse_formula
from simulator.fleet.signals.kind import Shape, SignalContext, register_signal


class FormulaSettings(Shape):
    """Arithmetic over other readings of the same device."""

    kind: Literal["formula"]
    expression: str = key(
        "arithmetic over readings, `t` (seconds since the epoch), `index` (of the device), `pi`; "
        "+ - * / // % **, comparisons (1 or 0), `a if b else c`, and/or/not, abs min max round floor ceil sqrt exp "
        "log sin cos tanh clip",
        min_length=1,
        max_length=500,
        example="temperature_celsius * 1.8 + 32",
    )

    @model_validator(mode="after")
    def _check_expression(self) -> Self:
        check_formula(self.expression)
        return self


class Computed:
    """A formula over other signals of the same device.

    Args:
        formula: what is computed.
        signals: the others; every name that the formula uses is in it.
    """

    __slots__ = ("_formula", "_signals")

    def __init__(self, formula: Formula, signals: dict[str, Signal]) -> None:
        self._formula = formula
        self._signals = signals

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""

        def number(name: str) -> float:
            if name == "t":
                return time_s
            return float(device.index) if name == "index" else self._signals[name].value_at(device, time_s)

        return self._formula.evaluate(number)


@register_signal(FormulaSettings)
def make_signal(_name: str, settings: FormulaSettings, context: SignalContext) -> Signal:
    """Make the signal that the settings describe."""
    formula = parse_formula(settings.expression)
    return Computed(formula, {other: context.reference(other) for other in sorted(formula.names)})
