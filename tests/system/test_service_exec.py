"""``fleet-simulator service exec``: a command with a service of its own, and nothing left afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import click
import httpx
import pytest

from agent.wire.secret import Secret
from simulator.cli import program
from simulator.service.exec_command import Runner, environment
from simulator.watched import PartEnded
from tests.support.processes import run_module, run_program

pytestmark = pytest.mark.long

EXEC = [sys.executable, "-m", "simulator.cli", "service", "exec"]
ASK = """
import os, sys
import httpx
keys = {"x-api-key": os.environ["DEVICE_SERVICE_API_KEY"], "x-secret-key": os.environ["DEVICE_SERVICE_SECRET_KEY"]}
answer = httpx.get(os.environ["DEVICE_SERVICE_URL"] + "/products", headers=keys, trust_env=False, timeout=60)
print(os.environ["DEVICE_SERVICE_URL"], answer.status_code, input())
print(open(os.environ["DEVICE_SERVICE_SECRET_KEY_FILE"]).read())
sys.exit(7)
"""
SERVE_UNTIL_TERM = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
print(os.environ["DEVICE_SERVICE_URL"], flush=True)
signal.pause()
"""


@contextlib.contextmanager
def serving():
    """A ``service exec`` whose command runs until it is told to end, and the address of its service."""
    command = [*EXEC, "--", sys.executable, "-c", SERVE_UNTIL_TERM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return run_program([*EXEC, *arguments], input="told\n", environ=environ)


def test_the_command_reaches_the_service_gives_its_exit_code_and_nothing_is_left(tmp_path):
    done = run("--", sys.executable, "-c", ASK, TMPDIR=str(tmp_path))
    assert done.returncode == 7, done.stderr
    url, status, told, secret = done.stdout.split()
    assert (status, secret[:4], told) == ("200", "msk_", "told")
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", urlsplit(url).port)):
        pass


@pytest.mark.parametrize("needs_token", [False, True])
def test_commands_of_the_simulator_find_the_service_its_keys_and_its_token_by_themselves(needs_token):
    options = ("--control-token", "0123456789abcdef") if needs_token else ()
    script = """
        "$0" -m simulator.cli command send --device nobody --payload '{}'
        set -e
        "$0" -m simulator.cli faults add lose=answer --method POST --path /sensor-data >&2
        "$0" -m simulator.cli faults list
    """
    done = run(*options, "--", "sh", "-c", script, sys.executable)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "device_not_found" in done.stderr
    assert "/sensor-data" in done.stdout


def test_every_command_that_takes_an_address_a_key_pair_or_a_control_token_gets_it(tmp_path):
    def wanted(group: click.Group, words: str) -> set[str]:
        found: set[str] = set()
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            options = {option for parameter in command.params for option in parameter.opts}
            here = f"{words}_{name.replace('-', '_').upper()}"
            taken = {f"{here}_BASE_URL"} if "--base-url" in options else set()
            if taken and "--secret-key-file" in options:  # an --api-key alone picks requests
                taken |= {f"{here}_API_KEY", f"{here}_SECRET_KEY_FILE"}
            if taken and "--control-token" in options:
                taken.add(f"{here}_CONTROL_TOKEN")
            named = [option.envvar for option in command.params if isinstance(option, click.Option)]
            flat = {one for names in named for one in ([names] if isinstance(names, str) else names or [])}
            assert taken <= flat
            found |= taken
            if isinstance(command, click.Group):
                found |= wanted(command, here)
        return found

    exported = environment("http://127.0.0.1:1", "mk_a", Secret("msk_a"), Secret("token"), tmp_path)
    assert {name for name in exported if name.startswith("FLEET_SIMULATOR_")} == wanted(program, "FLEET_SIMULATOR")
    assert not any(name.endswith("_CONTROL_TOKEN") for name in environment("", "", Secret("a"), None, tmp_path))


def test_options_are_the_services_own_and_a_key_pair_may_be_chosen():
    show = "import os; print(os.environ['DEVICE_SERVICE_API_KEY'], os.environ['DEVICE_SERVICE_SECRET_KEY'])"
    done = run("--api-key", "mk_mine", "--secret-key", "msk_mine", sys.executable, "-c", show)
    assert done.stdout.split() == ["mk_mine", "msk_mine"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--", "no-such-program"), "there is no program 'no-such-program'"),
        ((), "Missing argument"),
        (("--rate-limit", "-1", "true"), "--rate-limit"),
        (("--api-key", "mk_alone", "true"), "belong together"),
    ],
)
def test_what_cannot_be_run_is_refused_with_exit_code_2_and_says_why(arguments, line):
    done = run(*arguments)
    assert done.returncode == 2
    assert line in done.stderr
    assert "Traceback" not in done.stderr


def test_an_option_before_exec_is_refused_instead_of_ignored():
    done = run_module("simulator.cli", "service", "--rate-limit", "5", "exec", "true", code=2)
    assert "service exec --rate-limit ..." in done.stderr


def test_the_service_serves_until_a_signal_is_passed_on_and_the_commands_own_exit_code_stays():
    with serving() as (process, url):
        assert httpx.get(f"{url}/_emulator/health", trust_env=False, timeout=60).json()["status"] == "ok"
        process.terminate()
        assert process.wait(120) == 9


def test_a_command_that_a_signal_ends_gives_128_and_its_number():
    done = run("--", "sh", "-c", "kill -KILL $$")
    assert done.returncode == 128 + signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_the_command_does_not_outlive_a_service_exec_that_is_killed():
    with serving() as (process, url):
        assert url
        process.kill()
        assert process.stdout.read() == ""  # returns when the command has closed its end, which is when it has ended


def test_an_error_that_ends_the_service_ends_the_command_too():
    def look() -> None:
        raise PartEnded("service", RuntimeError("planted"))

    with pytest.raises(PartEnded):
        Runner().run([sys.executable, "-c", "import signal; signal.pause()"], {}, look)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_no_key_pair_stays_in_a_temporary_folder_after_kill_9(tmp_path):
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    service, exec_, up = (
        [*EXEC[:-1], "--port", "0"],
        [*EXEC, "--", sys.executable, "-c", SERVE_UNTIL_TERM],
        [*EXEC[:-2], "up", "--port=0", "--no-gateway"],
    )
    for command in (service, exec_, up):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            assert list(tmp_path.glob("device-service-*"))
            process.kill()
        deadline_s = time.monotonic() + 60
        while list(tmp_path.glob("device-service-*")):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
