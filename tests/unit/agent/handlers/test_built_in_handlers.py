from __future__ import annotations

import pytest

from agent.handlers.base import HandlerFailed, HandlerRejected
from agent.handlers.built_in.cancel import Cancel
from agent.handlers.built_in.ping import Ping
from agent.handlers.built_in.read_sensors import ReadSensors
from agent.handlers.built_in.restart_agent import RestartAgent
from agent.handlers.built_in.set_interval import SetInterval
from agent.wire.times import parse_time


def test_ping_answers_the_echo_the_time_and_the_uptime(make_context):
    answer = Ping().handle(Ping.Payload(echo={"a": [1]}), make_context())
    assert answer["pong"] is True
    assert answer["echo"] == {"a": [1]}
    assert answer["device_id"] == "device-1"
    assert parse_time(answer["agent_time"]) > 1_700_000_000
    assert answer["agent_uptime_s"] >= 0


def test_read_sensors_answers_readings_and_the_reason_for_what_is_missing(make_context):
    answer = ReadSensors().handle(ReadSensors.Payload(), make_context())
    assert answer == {
        "readings": {"board": {"cpu_temperature_c": 48.5}},
        "errors": {"boiler": "no answer within 10 s"},
    }


def test_read_sensors_reads_only_what_is_named(make_context):
    answer = ReadSensors().handle(ReadSensors.Payload(names=["board"]), make_context())
    assert answer == {"readings": {"board": {"cpu_temperature_c": 48.5}}, "errors": {}}


def test_read_sensors_rejects_a_name_that_no_sensor_has(make_context):
    with pytest.raises(HandlerRejected, match="unknown_sensor: this device has no sensor named 'cellar'"):
        ReadSensors().handle(ReadSensors.Payload(names=["cellar"]), make_context())


def test_read_sensors_fails_when_not_one_sensor_could_be_read(make_context):
    with pytest.raises(HandlerFailed, match="sensors_unreadable: boiler: no answer within 10 s") as caught:
        ReadSensors().handle(ReadSensors.Payload(names=["boiler"]), make_context())
    assert not isinstance(caught.value, HandlerRejected)


def test_set_interval_answers_what_is_in_force(make_context, controls):
    answer = SetInterval().handle(SetInterval.Payload(name="board", interval_s=5), make_context())
    assert answer == {"name": "board", "interval_s": 5.0}
    assert controls.intervals["board"] == 5.0


def test_set_interval_rejects_what_does_not_exist_or_is_out_of_bounds(make_context):
    with pytest.raises(HandlerRejected, match="unknown_name: this device has no interval named 'cellar'"):
        SetInterval().handle(SetInterval.Payload(name="cellar", interval_s=5), make_context())
    with pytest.raises(HandlerRejected, match="interval_out_of_bounds: an interval is at least 1 s"):
        SetInterval().handle(SetInterval.Payload(name="board", interval_s=0.5), make_context())


def test_restart_agent_asks_for_the_restart_and_says_nothing_before_it(make_context, controls):
    assert RestartAgent().handle(RestartAgent.Payload(reason="update"), make_context()) is None
    assert controls.restarts == ["command command-1: update"]


def test_restart_agent_succeeds_after_the_restart_and_asks_for_no_second_one(make_context, controls):
    answer = RestartAgent().handle(RestartAgent.Payload(), make_context(restarted=True, attempt=2))
    assert answer == {"restarted": True, "identity": controls.identity()}
    assert controls.restarts == []


@pytest.mark.parametrize(
    ("found", "is_canceled"), [("waiting", True), ("running", True), ("over", False), ("unknown", False)]
)
def test_cancel_answers_how_it_found_the_command(make_context, controls, found, is_canceled):
    controls.commands = {"c9": found}
    result = Cancel().handle(Cancel.Payload(command_id="c9"), make_context())
    assert result == {"command_id": "c9", "found": found, "canceled": is_canceled}
    assert controls.canceled == [("c9", "by command command-1")]


def test_cancel_does_not_cancel_itself(make_context, controls):
    with pytest.raises(HandlerRejected, match="cannot_cancel_itself"):
        Cancel().handle(Cancel.Payload(command_id="command-1"), make_context())
    assert controls.canceled == []
