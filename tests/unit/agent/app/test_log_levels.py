"""The level of the log that holds for a time, and the lines that are kept."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from agent.app.logs import CHARACTERS, LINES, LineFormatter, LogLevel, LogRing


class Clock:
    """Seconds that pass when a timer is waited for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[tuple[float, Callable[[], object]]] = []

    def schedule(self, delay_s: float, call: Callable[[], object]) -> None:
        self.timers.append((self.now_s + delay_s, call))

    def run(self, until_s: float) -> None:
        while self.timers and self.timers[0][0] <= until_s:
            self.now_s, call = self.timers.pop(0)
            call()
        self.now_s = until_s


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("agent.app.logs.time.monotonic", lambda: clock.now_s)
    before = logging.getLogger().level
    logging.getLogger().setLevel(logging.INFO)
    yield clock
    clock.run(1e6)
    logging.getLogger().setLevel(before)


def test_a_level_goes_back_when_its_time_is_over_and_one_timer_is_enough(clock):
    level, root = LogLevel("info", clock.schedule), logging.getLogger()
    for _ in range(100):
        assert level.set("debug", 60.0)["before"] in {"info", "debug"}
    assert len(clock.timers) == 1
    clock.run(55.0)
    assert level.set("error", 25.0)["before"] == "debug"
    clock.run(75.0)
    assert root.level == logging.ERROR
    clock.run(95.0)
    assert (root.level, clock.timers) == (logging.INFO, [])
    level.set("debug", 60.0)
    assert level.set("debug", 0.0)["level"] == "info"
    clock.run(200.0)
    assert clock.timers == []


def test_the_ring_keeps_the_last_lines_cut_and_without_secrets():
    ring = LogRing(LineFormatter())
    for number in range(LINES + 10):
        text = f"line={number} msk_canary " + "x" * 1000
        ring.handle(logging.LogRecord("agent.x", logging.INFO, __file__, 1, text, (), None))
    lines = ring.lines()
    assert len(lines) == LINES
    assert "line=10 " in lines[0]
    assert max(map(len, lines)) == CHARACTERS
    assert "canary" not in "".join(lines)
