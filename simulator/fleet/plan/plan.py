"""The plan of a run: its phases, the model of each device, and when devices read. What happens when: ``plan.feed``."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Final

from agent.core.schedule import Schedule
from simulator.fleet.plan.hashed_random import Indices
from simulator.fleet.plan.power import model_of
from simulator.fleet.plan.timeline import Timeline
from simulator.fleet.scenario.fleet import ModelSettings
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.signals import READING, device_key

_BARRIER_SLACK_S: Final = 60.0
"""A barrier that does not open in time is given up when somebody looks: a little after its time."""
_DIGITS: Final = 32


class Plan:
    """What follows from a scenario and its seed.

    Args:
        scenario: what is planned.

    Attributes:
        timeline: the phases, without waits at barriers.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.timeline = Timeline.of(scenario)

    @cached_property
    def digest(self) -> str:
        """Of the scenario and its seed, hexadecimal; neither of what describes it nor of where it is played."""
        said = self.scenario.model_dump_json(exclude={"description", "workers", "target", "thresholds"})
        return hashlib.sha256(said.encode()).hexdigest()[:_DIGITS]

    @property
    def longest_s(self) -> float:
        """When the last phase ends at the latest, if every barrier waits as long as it may."""
        waits_s = sum(phase.until_within_s for phase in self.scenario.phases if phase.until is not None)
        return self.end_s + waits_s + (_BARRIER_SLACK_S if waits_s else 0.0)

    @property
    def end_s(self) -> float:
        """When the last phase ends."""
        return self.timeline.end_s

    @cached_property
    def models(self) -> Indices:
        """The model of each device, by its index in the scenario's list."""
        return model_of(self.scenario)

    def reading_schedule(self, device: int) -> Schedule:
        """When a device reads its sensors, on the run's clock: what a core's own schedule is to be."""
        telemetry = self.scenario.fleet.models[int(self.models[device])].telemetry
        if telemetry.phase == "in_step":
            return Schedule(telemetry.every_s, 0.0)
        return Schedule.of(device_key(self.scenario.seed, device), READING, telemetry.every_s)


def poll_period_s(scenario: Scenario, model: ModelSettings) -> float:
    """Between two polls of a device, as long as no command comes."""
    return model.poll.every_s if scenario.target.traits.polls == "periodic" else model.poll.wait_s
