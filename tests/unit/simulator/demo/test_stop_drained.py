"""The real agent is stopped with an empty outbox, whatever came between the last look and the stop."""

from __future__ import annotations

import io
import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from simulator.demo import story
from simulator.demo.proofs import OutboxCounters
from simulator.demo.readback import DeviceReadBack, StoredReadingRow
from simulator.demo.screen import Screen
from simulator.demo.stage import DemoSettings
from simulator.demo.story import Story
from simulator.fleet.runner import DeviceIdentity


class Agent:
    """A reading comes at each of its first ``late`` stops, after the last look: it is delivered in the next life."""

    def __init__(self, late: float) -> None:
        self.late, self.lives, self.running, self.taken, self.delivered = late, 1, True, 10, 10

    def outbox(self) -> OutboxCounters:
        return OutboxCounters(self.taken, self.delivered, self.taken - self.delivered, 0, 0)

    def witnessed(self) -> tuple[Any, ...]:
        return ()

    def stop(self) -> int:
        self.running = False
        self.taken += self.lives <= self.late
        return 0

    def start(self) -> None:
        self.running = True
        self.lives += 1
        self.delivered = self.taken


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "INTERVAL_S", 0.0)


def stopped(monkeypatch: pytest.MonkeyPatch, agent: Agent, within_s: float) -> tuple[OutboxCounters, Any]:
    def read(_client: object, device_id: str) -> DeviceReadBack:
        return DeviceReadBack(device_id, (), (StoredReadingRow(0.0, {}),) * agent.delivered)

    monkeypatch.setattr(story, "read_device", read)
    real = DeviceIdentity("d1", "p1", "real-agent")
    outcome: Any = SimpleNamespace(agent=agent, onboarded=SimpleNamespace(devices=SimpleNamespace(real=real)), ends=[])
    nothing: Any = None
    played = Story(nothing, Screen(Console(file=io.StringIO())), DemoSettings(Path("unused")))
    code, outbox = played._stop_drained(nothing, outcome, time.monotonic() + within_s)
    assert code == 0
    return outbox, outcome


@pytest.mark.parametrize("late", [0, 1, 3])
def test_what_came_between_the_last_look_and_the_stop_is_delivered_by_another_life(monkeypatch, late):
    agent = Agent(late)
    outbox, outcome = stopped(monkeypatch, agent, 60.0)
    assert (outbox.waiting, agent.lives, agent.running) == (0, late + 1, False)
    assert len(outcome.ends) == late + 1
    assert [next_s for _, next_s in outcome.ends if math.isinf(next_s)] == [math.inf]


def test_what_waits_at_the_deadline_stays_and_is_counted(monkeypatch):
    agent = Agent(math.inf)
    outbox, _ = stopped(monkeypatch, agent, -1.0)
    assert (outbox.waiting, agent.lives) == (1, 1)
