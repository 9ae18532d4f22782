"""What the judge of a release sees of the service, out of the words of ``systemctl show``."""

from __future__ import annotations

import math
import time

import pytest

from agent.update.state import Places, now_s
from agent.update.trial import look


@pytest.fixture
def places(tmp_path):
    """A root whose ``systemctl`` prints a file."""
    program = tmp_path / "usr/bin/systemctl"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\ncat "{tmp_path}/shown"\n')
    program.chmod(0o755)
    return Places(tmp_path)


def shown(places, **properties):
    text = "".join(
        f"{name}={value}\n" for name, value in {"ActiveState": "active", "MainPID": "7", **properties}.items()
    )
    (places.root / "shown").write_text(text)
    return look(places)


def test_the_time_of_the_last_watchdog_message_is_that_of_the_trials_clock(places):
    at_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    seen = shown(places, WatchdogUSec="1min 30s", WatchdogTimestampMonotonic=at_us)
    assert seen.alive_s == pytest.approx(now_s(), abs=60)
    assert seen.is_ready
    assert seen.process_id == 7


@pytest.mark.parametrize("message", ["0", "", "[not set]"])
def test_a_service_that_never_said_that_it_makes_progress_is_not_alive(places, message):
    assert shown(places, WatchdogUSec="1min 30s", WatchdogTimestampMonotonic=message).alive_s == 0


@pytest.mark.parametrize("watchdog", ["infinity", "0"])
def test_a_service_whose_watchdog_was_switched_off_needs_no_message(places, watchdog):
    assert shown(places, WatchdogUSec=watchdog, WatchdogTimestampMonotonic="0").alive_s == math.inf
