"""How the connection to the broker is told."""

from __future__ import annotations

import logging

import pytest

from agent.errors import LockedOut, Offline, SessionTakenOver
from agent.runtime.broker_watch import BrokerWatch
from agent.runtime.health import Health
from agent.runtime.retry_policy import RetryPolicy
from tests.fakes import FakeClock

AWAY = Offline("unreachable", "nobody listens")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def health(clock) -> Health:
    return Health(clock)


@pytest.fixture
def watch(clock, health) -> BrokerWatch:
    return BrokerWatch(clock, health, repeat_after_s=300.0)


def test_a_trouble_is_one_line_until_it_is_over(watch, health, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(10):
        watch.down(AWAY, 3.0)
    assert [record.getMessage() for record in caplog.records] == ["broker=unreachable: nobody listens; next try in 3 s"]
    assert health.parts()["broker"].state == "unreachable"
    watch.up("connected to mqtt://b with MQTT 5")
    assert caplog.records[-1].getMessage() == "broker=ok: connected to mqtt://b with MQTT 5"
    assert (health.parts()["broker"].state, health.parts()["broker"].detail) == (
        "ok",
        "connected to mqtt://b with MQTT 5",
    )


def test_a_connection_without_trouble_before_is_no_line(watch, caplog):
    caplog.set_level(logging.INFO)
    watch.up("connected")
    assert caplog.text == ""


def test_a_fight_for_the_id_is_not_told_at_each_of_its_rounds_and_stays_in_the_status(watch, clock, health, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(20):
        watch.down(SessionTakenOver("taken_over", "another client"), 30.0)
        clock.advance(60)
        watch.up("connected")
    assert caplog.text.count("taken_over") == 1
    assert health.parts()["broker"].state == "ok"
    assert "took it over before" in health.parts()["broker"].detail
    assert "broker=ok" not in caplog.text


@pytest.mark.parametrize(
    "error", [LockedOut("unauthorized", "wrong token"), SessionTakenOver("taken_over", "another client")]
)
def test_who_is_not_let_in_waits_long_and_ever_longer(error):
    retry_policy = RetryPolicy(lambda: 0.5, base_s=1.0, cap_s=60.0)
    waits_s = [retry_policy.failed(error) for _ in range(8)]
    assert waits_s[0] >= 30
    assert waits_s == sorted(waits_s)
    assert waits_s[-1] <= 900
    assert retry_policy.failed(AWAY) <= 60
