"""Levels of the log that hold for a time, and the lines that are kept."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from agent.app.logs import CHARACTERS, LEVELS_MAX, LINES, LineFormatter, LogLevels, LogRing
from agent.handlers.base import HandlerRejected

OTHER = "agent.test_levels"


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
    levels = LogLevels("info", clock.schedule)
    for _ in range(100):
        assert levels.set("debug", 60.0, OTHER)["before"] in {"info", "debug"}
    levels.set("error", 25.0, "")
    assert len(clock.timers) == 1
    clock.run(20.0)
    assert (logging.getLogger().level, logging.getLogger(OTHER).level) == (logging.ERROR, logging.DEBUG)
    clock.run(40.0)
    assert (logging.getLogger().level, logging.getLogger(OTHER).level) == (logging.INFO, logging.DEBUG)
    assert levels.set("debug", 0.0, OTHER)["level"] == "info"
    clock.run(100.0)
    assert clock.timers == []


def test_no_more_loggers_have_a_level_than_the_bound(clock):
    levels = LogLevels("info", clock.schedule)
    for number in range(LEVELS_MAX):
        levels.set("debug", 60.0, f"{OTHER}.{number}")
    with pytest.raises(HandlerRejected, match="level of their own"):
        levels.set("debug", 60.0, OTHER)
    clock.run(70.0)
    assert levels.set("debug", 60.0, OTHER)["level"] == "debug"


@pytest.mark.parametrize("name", ["httpx", "httpcore.http11", "paho"])
def test_loggers_whose_lines_hold_keys_are_left_alone(clock, name):
    with pytest.raises(HandlerRejected, match="hold keys"):
        LogLevels("info", clock.schedule).set("debug", 60.0, name)


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
