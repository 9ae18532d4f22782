"""What happens in which order: ramps, holds and storms."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simulator.fleet.settings import Delay, Name, Seconds, Section, Share

_RATE_FACTOR = Field(
    default=1.0, gt=0, le=1000, description="Multiplies the rates of 'arrivals' and 'commands' during this phase."
)


class _Phase(Section):
    name: Name = Field(description="What the report calls it.")
    duration_s: Seconds = Field(description="How long it lasts.")
    until: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="A barrier at its end, such as 'online >= 99%': the next phase waits until this holds.",
    )
    until_within_s: Delay = Field(
        default=60.0, description="How long the barrier may keep the run waiting; then the run fails."
    )
    rate_factor: float = _RATE_FACTOR


class RampPhase(_Phase):
    """Devices come online one after another, or go."""

    kind: Literal["ramp"]
    to: Share = Field(default=1.0, description="Share of the fleet that is online at its end.")


class HoldPhase(_Phase):
    """Everything goes on as it is. A hold with no ramp before it switches all devices on at once."""

    kind: Literal["hold"]


class StormPhase(_Phase):
    """Devices vanish in the same instant and come back in the same instant, once or in waves."""

    kind: Literal["storm"]
    share: Share = Field(default=1.0, description="Share of the fleet that each wave takes down.")
    away_s: Seconds = Field(default=5.0, description="How long a wave keeps them away.")
    waves: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1, description="How many times, spread evenly over the phase."
    )
    loss: Literal["connection", "power"] = Field(
        default="power",
        description="What they lose: the connection alone, or the power (what was not committed is gone).",
    )


Phase = Annotated[RampPhase | HoldPhase | StormPhase, Field(discriminator="kind")]
"""One phase."""
