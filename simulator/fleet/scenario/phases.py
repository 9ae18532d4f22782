"""What happens in a scenario, one phase after the other: ramps, holds, what to wait for, a search for the limit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from simulator.fleet.metrics.thresholds import COMPARISONS
from simulator.fleet.settings import Delay, Name, Seconds, Section, Share

_STEPS_MAX: Final = 200
_ROUNDING: Final = 1e-9


GAUGES: Final = ("online", "connections", "open_commands", "waiting_readings")
"""What a condition may be about; the gauges of a run's seconds."""
_COMPARISON: Final = re.compile(
    rf"\s*({'|'.join(GAUGES)})\s*({'|'.join(COMPARISONS)})\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*",
    re.ASCII,
)
_OF_DEVICES: Final = frozenset({"online", "connections"})
_WHOLE_PERCENT: Final = 100.0


def holds(condition: str, gauges: Mapping[str, float], devices: int) -> bool:
    """Whether what a phase waits for is so now; never while a gauge in it was not measured yet.

    Args:
        condition: comparisons of a gauge with a number, joined by ``and``; ``%`` means of the fleet's devices.
        gauges: of the latest second, by name.
        devices: of the whole fleet.

    Raises:
        ValueError: it is no condition; the text says what to write.
    """
    held = True
    for term in re.split(r"\band\b", condition):
        found = _COMPARISON.fullmatch(term)
        if found is None or (found[4] and found[1] not in _OF_DEVICES):
            raise ValueError(
                f"{term.strip()!r} is no condition: compare {', '.join(GAUGES)} with a number, or the first two with a "
                "share of all devices, such as 'online >= 99%' or 'open_commands == 0', and join several by 'and'"
            )
        gauge, comparison, number, percent = found.groups()
        limit = float(number) * devices / _WHOLE_PERCENT if percent else float(number)
        value = gauges.get(gauge, math.nan)
        # Half a percent of 1,000 devices must not fail for the last binary digit of 0.995.
        value = limit if math.isclose(value, limit, rel_tol=1e-9) else value
        held = held and not math.isnan(value) and COMPARISONS[comparison](value, limit)
    return held


def _check_condition(text: str) -> str:
    holds(text, {}, 1)
    return text


Condition = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_condition)]


class _Phase(Section):
    name: Name = Field(description="What the report calls it.")
    duration_s: Seconds = Field(description="How long it lasts.")
    rate_factor: float = Field(
        default=1.0, gt=0, le=1000, description="Multiplies the rates of requests during this phase."
    )


class LabelPhase(_Phase):
    """Labels are scanned."""

    until: ClassVar[None] = None
    until_within_s: ClassVar[float] = 0.0
    kind: Literal["hold"]


class _WaitingPhase(_Phase):
    until: Condition | None = Field(
        default=None,
        description="A barrier at its end, such as 'online >= 99%': the next phase waits until this holds.",
    )
    until_within_s: Delay = Field(
        default=60.0, description="How long the barrier may keep the run waiting; then the run fails."
    )


class RampPhase(_WaitingPhase):
    """Devices come online one after another, or go."""

    kind: Literal["ramp"]
    to: Share = Field(default=1.0, description="Share of the fleet that is online at its end.")


class HoldPhase(_WaitingPhase):
    """Everything goes on as it is. A hold with no ramp before it switches all devices on at once."""

    kind: Literal["hold"]


class StepPhase(HoldPhase):
    """One step of a search, which is judged at its end; never written in a scenario.

    Attributes:
        level: devices that are on, or requests a second.
    """

    level: float


class StepsPhase(Section):
    """A search for the limit: step by step more of it, until a threshold breaks."""

    name: Annotated[Name, Field(max_length=40)] = Field(description="What the report calls it.")
    kind: Literal["steps"]
    first: float = Field(
        alias="from", gt=0, description="The first step: devices that are on, or requests a second of all arrivals."
    )
    to: float = Field(gt=0, description="The last step; all devices, or all arrivals at their rates, at most.")
    by: float = Field(gt=0, description="From one step to the next.")
    settle_s: Seconds = Field(
        default=10.0, description="How long each step takes to go up from the one before it; nothing of it is judged."
    )
    hold_s: Seconds = Field(description="How long each step is held; thresholds are about these seconds.")
    until_broken: tuple[str, ...] = Field(
        min_length=1, max_length=50, description="Thresholds that each step is held against; one that breaks ends it."
    )

    @model_validator(mode="after")
    def _check_levels(self) -> Self:
        if self.to < self.first:
            raise ValueError(f"'to' is less than 'from', {self.first:g}: steps go up")
        if (self.to - self.first) / self.by > _STEPS_MAX:
            raise ValueError(f"'by' makes more than {_STEPS_MAX} steps: write a larger one")
        return self

    @property
    def levels(self) -> list[float]:
        """Devices or requests a second of each step; the last one is ``to``."""
        count = max(0, math.ceil((self.to - self.first) / self.by - _ROUNDING))
        return [*(self.first + step * self.by for step in range(count)), self.to]

    def phases(self, whole: float) -> Iterable[RampPhase | StepPhase]:
        """What is played: a ramp and a hold for each step.

        Args:
            whole: devices of the fleet, or requests a second of all arrivals.
        """
        for level in self.levels:
            name = f"{self.name}-{level:.10g}"
            yield RampPhase(name=f"{name}-ramp", kind="ramp", duration_s=self.settle_s, to=min(level / whole, 1.0))
            yield StepPhase(name=name, kind="hold", duration_s=self.hold_s, level=level)


Phase = RampPhase | HoldPhase
ListedPhase = Annotated[Phase | StepsPhase, Field(discriminator="kind")]
