"""The whole scenario document, frozen. Reading it from a file, with every fault's line: ``scenario.reading``."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, Tag

from simulator.fleet.faults import AnyFault
from simulator.fleet.scenario.fleet import FleetSettings
from simulator.fleet.scenario.kinds import AuditedSettings, BackfillSettings, OnboardingSettings
from simulator.fleet.scenario.load import Arrivals, CommandSettings
from simulator.fleet.scenario.phases import Phase
from simulator.fleet.scenario.target import TargetSettings
from simulator.fleet.settings import Delay, Name, Section

Kind = Literal["load", "command_round_trip", "onboarding_storm", "backfill"]
AUTO: Final = "auto"


def _form(value: object) -> str:
    return "(text)" if isinstance(value, str) else "(number)"


Workers = Annotated[
    Annotated[Literal["auto"], Tag("(text)")] | Annotated[int, Field(ge=1, le=256), Tag("(number)")],
    Discriminator(_form),
]


class Scenario(Section):
    """A run, described."""

    scenario: Name = Field(description="Its name, in reports and in the label of what it creates.")
    description: str = Field(default="", max_length=2000, description="What it is for, in a sentence; `plan` shows it.")
    seed: int = Field(default=1, ge=0, lt=1 << 63, description="The same seed plans the same events.")
    kind: Kind = Field(
        default="load",
        description="What is played: load by devices, the round trip of commands split by stage, onboarding from "
        "labels, or days of history at full speed.",
    )
    level: Literal["core", "wire"] = Field(
        default="core",
        description="core: every device runs the agent's own core; wire: requests without a device behind them.",
    )
    workers: Workers = Field(default=AUTO, description="Processes that make the load; auto: one for each core.")
    target: TargetSettings = Field(default_factory=TargetSettings, description="Whom the fleet talks to.")
    fleet: FleetSettings = Field(description="The devices.")
    commands: tuple[CommandSettings, ...] = Field(default=(), max_length=100, description="What the operator sends.")
    arrivals: tuple[Arrivals, ...] = Field(default=(), max_length=100, description="Pure load, for level wire.")
    phases: tuple[Phase, ...] = Field(min_length=1, max_length=1000, description="What happens, in order.")
    drain_s: Delay = Field(
        default=30.0, description="How long devices may take at the end to hand over what they still hold."
    )
    faults: tuple[AnyFault, ...] = Field(
        default=(), max_length=1000, description="What is broken on purpose, and when."
    )
    thresholds: tuple[str, ...] = Field(
        default=(), max_length=200, description="What has to hold, such as 'http.sensor_data.p99 < 250ms over 1m'."
    )
    audit: AuditedSettings = Field(default_factory=AuditedSettings, description="What is proven at the end.")
    onboarding: OnboardingSettings | None = Field(default=None, description="For kind onboarding_storm.")
    backfill: BackfillSettings | None = Field(default=None, description="For kind backfill.")

    @property
    def duration_s(self) -> float:
        """All phases together, without the waits at barriers and the drain."""
        return sum(phase.duration_s for phase in self.phases)


def schema_text() -> str:
    """The schema as a file holds it."""
    return json.dumps(scenario_schema(), indent=2) + "\n"


def scenario_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 with every key, unit and bound; reading a scenario also checks how its parts fit."""
    schema = Scenario.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Fleet scenario"}
