from __future__ import annotations

import pytest

from agent.handlers.base import HandlerFailed, HandlerRejected
from agent.handlers.built_in.cancel import Cancel
from agent.handlers.built_in.ping import Ping
from agent.handlers.built_in.read_sensors import ReadSensors
from agent.handlers.built_in.restart_agent import RestartAgent
from agent.handlers.built_in.run import Run
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


def run_with(**programs) -> Run:
    return Run(Run.Settings.model_validate({"programs": programs}))


def test_run_runs_a_listed_program_and_answers_its_output(make_context):
    handler = run_with(hello={"argv": ["/bin/echo", "hello"]})
    handler.check()
    answer = handler.handle(Run.Payload(program="hello"), make_context())
    assert (answer["program"], answer["exit_code"], answer["output"], answer["truncated"]) == (
        "hello",
        0,
        "hello\n",
        False,
    )


def test_run_rejects_a_program_that_is_not_listed(make_context):
    handler = run_with(hello={"argv": ["/bin/echo", "hello"]})
    with pytest.raises(HandlerRejected, match=r"unknown_program: .* no program 'helo' \(did you mean 'hello'\?\)"):
        handler.handle(Run.Payload(program="helo"), make_context())
    with pytest.raises(HandlerRejected, match="unknown_program"):
        handler.handle(Run.Payload(program="/bin/sh"), make_context())


def test_run_takes_no_arguments_unless_the_configuration_gives_a_pattern(make_context):
    handler = run_with(hello={"argv": ["/bin/echo", "hello"]})
    with pytest.raises(HandlerRejected, match="arguments_not_allowed"):
        handler.handle(Run.Payload(program="hello", args=["x"]), make_context())


def test_run_passes_arguments_that_match_as_a_whole_and_no_shell_sees_them(make_context):
    handler = run_with(say={"argv": ["/bin/echo"], "args_pattern": r"[a-z$();]+", "args_max": 2})
    answer = handler.handle(Run.Payload(program="say", args=["$(reboot)", "b"]), make_context())
    assert answer["output"] == "$(reboot) b\n"
    with pytest.raises(HandlerRejected, match="argument_refused: argument 2 of program 'say' does not match"):
        handler.handle(Run.Payload(program="say", args=["a", "b\n"]), make_context())
    with pytest.raises(HandlerRejected, match="argument_refused: program 'say' takes at most 2 arguments"):
        handler.handle(Run.Payload(program="say", args=["a", "b", "c"]), make_context())


def test_run_fails_by_the_exit_code_and_tells_the_end_of_stderr(make_context):
    handler = run_with(bad={"argv": ["/bin/sh", "-c", "echo no paper >&2; exit 7"]})
    with pytest.raises(HandlerFailed, match=r"program_failed: .*exit code 7; stderr ended with: no paper"):
        handler.handle(Run.Payload(program="bad"), make_context())


def test_run_succeeds_although_the_program_writes_to_stderr(make_context):
    handler = run_with(warns={"argv": ["/bin/sh", "-c", "echo careful >&2; echo ok"]})
    assert handler.handle(Run.Payload(program="warns"), make_context())["output"] == "ok\n"


def test_run_gives_the_program_its_ids_and_none_of_our_environment(make_context, monkeypatch):
    monkeypatch.setenv("X_SECRET_KEY", "msk_canary")
    handler = run_with(env={"argv": ["/usr/bin/env"], "environment": {"MODE": "full"}})
    lines = handler.handle(Run.Payload(program="env"), make_context())["output"].split()
    assert sorted(line.split("=")[0] for line in lines) == ["COMMAND_ID", "DEVICE_ID", "MODE", "PATH"]


def test_run_ends_a_program_that_hangs(make_context):
    handler = run_with(hang={"argv": ["/bin/sleep", "60"], "timeout_s": 0.1})
    with pytest.raises(HandlerFailed, match="timeout: the program was ended by its timeout"):
        handler.handle(Run.Payload(program="hang"), make_context())


def test_run_has_more_time_than_the_longest_of_its_programs():
    handler = run_with(a={"argv": ["true"], "timeout_s": 5}, b={"argv": ["true"], "timeout_s": 500})
    assert handler.timeout_s > 500


def test_the_check_of_run_names_the_program_that_is_missing():
    handler = run_with(a={"argv": ["true"]}, b={"argv": ["/no/such"]})
    with pytest.raises(Exception, match=r"programs.b: program /no/such is not there"):
        handler.check()


def test_a_pattern_that_is_no_regular_expression_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="not a regular expression"):
        run_with(a={"argv": ["true"], "args_pattern": "["})


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
