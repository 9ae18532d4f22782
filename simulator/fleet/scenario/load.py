"""What is asked for beside the devices' own schedules: the operator's commands, and pure arrivals."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from simulator.fleet.settings import Delay, Rate, Section, Share

Spacing = Literal["even", "poisson"]


class CommandSettings(Section):
    """A stream of commands that the operator sends."""

    payload: dict[str, Any] = Field(description="The command_payload, as the product's vocabulary takes it.")
    rate_per_s: Rate = Field(description="How many in a second, over the whole fleet.")
    spacing: Spacing = Field(default="even", description="Evenly spaced, or as independent senders would (Poisson).")
    expect: Literal["succeeded", "failed", "rejected", "expired", "any"] = Field(
        default="succeeded",
        description="How each has to end; the run fails when one ends otherwise. any: it does not matter.",
    )
    ttl_s: Annotated[Delay, Field(ge=1, le=172_800)] = Field(
        default=60.0, description="How long the service keeps it for a device that does not fetch it."
    )
    devices: Share = Field(default=1.0, gt=0, description="Share of the fleet that gets such commands.")

    @property
    def name(self) -> str:
        """What the command is called in reports and thresholds."""
        return str(self.payload.get("command", "")) or "(no name)"


class OpenArrivals(Section):
    """Requests at a rate of their own, whatever the target does: as the world outside behaves."""

    kind: Literal["open"]
    operation: Literal["sensor_data", "poll", "send_command"] = Field(
        default="sensor_data", description="What is requested."
    )
    rate_per_s: Rate = Field(description="How many in a second, over the whole fleet; a ramp brings it up with it.")
    spacing: Spacing = Field(default="even", description="Evenly spaced, or as independent senders would (Poisson).")


class ClosedArrivals(Section):
    """So many users, each of whom sends the next request after the answer: shows the throughput, hides stalls."""

    kind: Literal["closed"]
    operation: Literal["sensor_data", "poll", "send_command"] = Field(
        default="sensor_data", description="What is requested."
    )
    users: Annotated[int, Field(ge=1, le=1_000_000)] = Field(description="How many requests are in flight.")
    pause_s: Delay = Field(default=0.0, description="Between an answer and the next request.")


Arrivals = Annotated[OpenArrivals | ClosedArrivals, Field(discriminator="kind")]
"""Pure load of one kind."""
