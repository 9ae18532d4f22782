"""What the tests of handlers share: the agent as a handler sees it, without an agent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from agent.core.values import JsonObject
from agent.handlers.base import CommandContext


class FakeControls:
    """An identity and notes in memory."""

    def __init__(self) -> None:
        self.boot_id = "boot-1"
        self.notes: dict[str, str | None] = {}
        self.upkeep = self
        self.ca_file = None

    def identity(self) -> JsonObject:
        return {"device_id": "device-1", "agent_version": "0.1.0", "boot_id": self.boot_id, "agent_uptime_s": 1.5}

    def recall(self, name: str) -> str | None:
        return self.notes.get(name)

    def remember(self, name: str, value: str | None) -> None:
        self.notes[name] = value


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
