from __future__ import annotations

import sys
import threading

import pytest

from agent.core.values import Contract
from agent.handlers.base import HandlerFailed, HandlerRejected
from agent.handlers.executable import AnyPayload, Executable, ExecutableSettings
from agent.program import ProgramNotStarted


def script(text: str, **settings):
    return Executable("open_valve", ExecutableSettings(argv=(sys.executable, "-S", "-c", text), **settings))


def shell(text: str, **settings):
    return Executable("open_valve", ExecutableSettings(argv=("/bin/sh", "-c", text), **settings))


def payload(**members) -> AnyPayload:
    return AnyPayload(**members)


def test_the_payload_goes_in_and_the_json_object_comes_out_as_the_result(make_context):
    handler = script("import json,sys; p = json.load(sys.stdin); print(json.dumps({'opened': p['valve']}))")
    assert handler.handle(payload(valve=[3, "ä"], json="x"), make_context()) == {"opened": [3, "ä"]}


def test_the_environment_tells_who_it_is_for_and_nothing_of_the_agents_own(make_context, monkeypatch):
    monkeypatch.setenv("X_SECRET_KEY", "msk_canary")
    handler = script("import json,os; print(json.dumps(dict(os.environ)))", environment={"VALVE_BUS": "1"})
    environment = handler.handle(payload(), make_context(attempt=2, restarted=True))
    for name in ("PATH", "LC_CTYPE"):  # Python itself sets LC_CTYPE
        environment.pop(name, None)
    assert environment == {
        "COMMAND": "open_valve",
        "COMMAND_ATTEMPT": "2",
        "COMMAND_ID": "command-1",
        "COMMAND_RESTARTED": "1",
        "DEVICE_ID": "device-1",
        "VALVE_BUS": "1",
    }


def test_the_exit_code_decides_and_not_what_is_written_to_stderr(make_context):
    assert shell("echo '{\"ok\":true}'; echo warning >&2").handle(payload(), make_context()) == {"ok": True}
    with pytest.raises(HandlerFailed, match=r"program_failed: .*exit code 3; stderr ended with: stuck") as caught:
        shell("echo '{\"ok\":true}'; echo stuck >&2; exit 3").handle(payload(), make_context())
    assert not isinstance(caught.value, HandlerRejected)


def test_exit_code_64_rejects_with_the_last_line_of_stderr(make_context):
    with pytest.raises(HandlerRejected, match="rejected_by_program: valve 9 does not exist"):
        shell("echo valve 9 does not exist >&2; exit 64").handle(payload(), make_context())


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        (r"[1,2]", "object"),
        (r'{"a": 1, "a": 2}', "twice"),
        (r'{"a": "\377"}', "JSON"),
    ],
)
def test_output_that_is_not_one_json_object_fails_with_the_fix(make_context, printed, why):
    with pytest.raises(HandlerFailed, match=r"invalid_output: .*set output: text") as caught:
        shell(f"printf '%b' '{printed}'").handle(payload(), make_context())
    assert why in str(caught.value)


def test_what_a_command_brings_is_no_argument(make_context):
    handler = Executable("say", ExecutableSettings(argv=("/bin/echo", "$HOME"), output="text"))
    assert handler.handle(payload(args=["x"]), make_context()) == {"output": "$HOME\n", "truncated": False}


def test_a_program_that_vanished_after_the_start_fails_with_a_sentence(make_context):
    handler = Executable("gone", ExecutableSettings(argv=("/no/such/program",)))
    with pytest.raises(HandlerFailed, match="program_not_started: program /no/such/program is not there"):
        handler.handle(payload(), make_context())
    with pytest.raises(Exception, match="is not there.*: install it"):
        handler.check()


@pytest.mark.parametrize("script", ["kill -TERM $$", "sleep 60"])
def test_a_program_that_restarts_the_device_is_not_failed_by_the_restart_it_asked_for(make_context, script):
    stopping = threading.Event()
    if "sleep" in script:
        stopping.set()
    reboot = shell(script, contract=Contract.RESTARTS_DEVICE)
    assert reboot.handle(payload(), make_context(stopping=stopping)) is None
    with pytest.raises(HandlerFailed):
        reboot.handle(payload(), make_context(stopping=stopping, restarted=True))
    with pytest.raises(HandlerFailed):
        shell(script).handle(payload(), make_context(stopping=stopping))


# --- verify, and signs of life --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"#!/bin/sh\r\necho hello\r\n", "line ends of Windows"),
        (b"#!/usr/bin/no-such-python\nprint(1)\n", "needs '/usr/bin/no-such-python', which is not there"),
        (b"#!\necho\n", "needs '', which is not there"),
    ],
)
def test_a_script_that_the_kernel_will_not_start_is_found_at_the_start(tmp_path, content, words):
    path = tmp_path / "valve"
    path.write_bytes(content)
    path.chmod(0o755)
    with pytest.raises(ProgramNotStarted, match=words):
        Executable("valve", ExecutableSettings(argv=(str(path),))).check()


def test_a_script_and_a_program_that_the_kernel_starts_are_good(tmp_path, make_context):
    path = tmp_path / "valve"
    path.write_text("#!/usr/bin/env sh\nexit 0\n")
    path.chmod(0o755)
    for argv in ((str(path),), ("true",), (sys.executable, "-S", "-c", "pass")):
        handler = Executable("valve", ExecutableSettings(argv=argv))
        handler.check()
        assert handler.handle(payload(), make_context()) is None
