from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from agent.app.log_levels import WAITING_MAX, LogLevels
from agent.app.logs import CHARACTERS, LINES, LogRing, TextFormatter
from agent.handlers.upkeep import UpkeepRefused


@pytest.fixture
def calls():
    """What was scheduled; the levels are as they were when the test is over."""
    names = ("", "agent.test_levels")
    before = [logging.getLogger(name or None).level for name in names]
    logging.getLogger().setLevel(logging.INFO)
    made: list[tuple[float, Callable[[], object]]] = []
    yield made
    for name, level in zip(names, before, strict=True):
        logging.getLogger(name or None).setLevel(level)


@pytest.fixture
def levels(calls) -> LogLevels:
    return LogLevels(lambda delay_s, call: calls.append((delay_s, call)))


def test_no_more_wait_for_their_end_than_the_bound_and_then_there_is_room_again(levels, calls):
    for _ in range(WAITING_MAX):
        levels.set("debug", 60.0, "agent.test_levels")
    with pytest.raises(UpkeepRefused, match="wait for their end"):
        levels.set("debug", 60.0, "agent.test_levels")
    assert levels.set("debug", 0.0, "agent.test_levels")["for_s"] == 0.0
    for _, end in calls:
        end()
    assert levels.set("debug", 60.0, "agent.test_levels")["level"] == "debug"


@pytest.mark.parametrize("name", ["httpx", "httpcore.http11", "paho"])
def test_loggers_whose_lines_hold_keys_are_left_alone(levels, calls, name):
    with pytest.raises(UpkeepRefused, match="hold keys"):
        levels.set("debug", 60.0, name)
    assert calls == []


def test_a_log_that_is_set_up_anew_keeps_the_level_set_and_goes_back_to_the_new_one(levels, calls):
    levels.set("debug", 60.0, "")
    logging.getLogger().setLevel(logging.WARNING)
    levels.set_up_anew()
    assert logging.getLogger().level == logging.DEBUG
    calls[0][1]()
    assert logging.getLogger().level == logging.WARNING


def test_the_ring_keeps_the_last_lines_cut_and_without_secrets():
    ring = LogRing(TextFormatter(under_journald=False))
    for number in range(LINES + 10):
        text = f"line={number} msk_canary " + "x" * 1000
        ring.handle(logging.LogRecord("agent.x", logging.INFO, __file__, 1, text, (), None))
    lines = ring.lines()
    assert len(lines) == LINES
    assert "line=10 " in lines[0]
    assert max(map(len, lines)) == CHARACTERS
    assert "canary" not in "".join(lines)
