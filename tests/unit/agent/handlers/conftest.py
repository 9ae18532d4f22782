"""What the tests of handlers share: the agent as a handler sees it, without an agent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

import pytest

from agent.core.values import JsonObject
from agent.handlers.base import CommandContext


class FakeControls:
    """Sensors, intervals and an identity in memory."""

    def __init__(self) -> None:
        self.sensors: dict[str, Mapping[str, float] | str] = {
            "board": {"cpu_temperature_c": 48.5},
            "boiler": "no answer within 10 s",
        }
        self.intervals = {"board": 60.0}
        self.boot_id = "boot-1"
        self.notes: dict[str, str | None] = {}
        self.upkeep = self
        self.ca_file = None
        self.bundle: JsonObject = {}

    def read_sensors(self, names: list[str] | None) -> Mapping[str, Mapping[str, float] | str]:
        return dict(self.sensors) if names is None else {name: self.sensors[name] for name in names}

    def set_interval(self, name: str, interval_s: float | None) -> float:
        before = self.intervals[name]
        if interval_s is not None and interval_s < 1:
            raise ValueError("an interval is at least 1 s")
        self.intervals[name] = before if interval_s is None else interval_s
        return self.intervals[name]

    def identity(self) -> JsonObject:
        return {"device_id": "device-1", "agent_version": "0.1.0", "boot_id": self.boot_id, "agent_uptime_s": 1.5}

    def recall(self, name: str) -> str | None:
        return self.notes.get(name)

    def remember(self, name: str, value: str | None) -> None:
        self.notes[name] = value

    def collect_diagnostics(self) -> JsonObject:
        return dict(self.bundle)


@pytest.fixture
def controls() -> FakeControls:
    return FakeControls()


@pytest.fixture
def make_context(controls: FakeControls) -> Callable[..., CommandContext]:
    def make(**changes) -> CommandContext:
        members = {
            "command_id": "command-1",
            "device_id": "device-1",
            "attempt": 1,
            "restarted": False,
            "stopping": threading.Event(),
            "log": logging.LoggerAdapter(logging.getLogger("tests.handler"), {}),
            "controls": controls,
            "report_progress": lambda result: None,
        }
        return CommandContext(**(members | changes))

    return make
