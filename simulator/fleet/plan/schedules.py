"""When devices read their sensors and ask for commands: the agent's own rule, one phase for each device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from agent.core.schedule import phase_s
from simulator.fleet.plan.events import EventKind, EventTable
from simulator.fleet.plan.hashed_random import Floats, Indices
from simulator.fleet.scenario.fleet import ModelSettings
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.signals.base import READING, device_key

POLL: Final = "poll"


@dataclass(frozen=True, slots=True)
class Periodic:
    """Devices of one model that do one thing periodically.

    Attributes:
        device: counted from the begin of the range that they belong to.
        phase_s: of each.
    """

    kind: EventKind
    period_s: float
    device: Indices
    phase_s: Floats

    def between(self, from_s: float, to_s: float) -> EventTable:
        """Every instant of a stretch of time, for devices that are never off; not ordered yet."""
        first = np.floor((from_s - self.phase_s) / self.period_s)
        turns = np.arange(math.ceil((to_s - from_s) / self.period_s) + 2)
        time_s = (first[:, None] + turns[None, :]) * self.period_s + self.phase_s[:, None]
        inside = (time_s >= from_s) & (time_s < to_s)
        device = np.broadcast_to(self.device[:, None], time_s.shape)[inside]
        return EventTable.of(self.kind, time_s[inside], device)


def periodic_of(scenario: Scenario, kinds: Indices, devices: range) -> Iterator[Periodic]:
    """What the devices of a range do by themselves.

    Args:
        scenario: of the run.
        kinds: the model of each device of the fleet.
        devices: the range.
    """
    if scenario.kind in {"onboarding_storm", "limiter"} or scenario.arrivals:
        return
    for index, model in enumerate(scenario.fleet.models):
        local = np.flatnonzero(kinds[devices.start : devices.stop] == index).astype(np.int64)
        if not len(local):
            continue
        every_s = model.telemetry.every_s
        keys = [device_key(scenario.seed, devices.start + int(number)) for number in local]
        yield Periodic(EventKind.READING, every_s, local, _phases(keys, READING, every_s, model.telemetry.phase))
        if scenario.kind != "backfill" and not scenario.target.traits.is_pushed:
            poll_s = poll_period_s(scenario, model)
            yield Periodic(EventKind.POLL, poll_s, local, _phases(keys, POLL, poll_s, "hashed"))


def poll_period_s(scenario: Scenario, model: ModelSettings) -> float:
    """Between two polls of a device, as long as no command comes."""
    return model.poll.every_s if scenario.target.traits.polls == "periodic" else model.poll.wait_s


def _phases(keys: Sequence[str], name: str, period_s: float, phase: str) -> Floats:
    if phase == "in_step":
        return np.zeros(len(keys))
    return np.array([phase_s(key, name, period_s) for key in keys], dtype=np.float64)
