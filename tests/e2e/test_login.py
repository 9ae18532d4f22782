"""``fleet-simulator login`` as a process, with a person's browser, against the real service; and what uses its file."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from agent.wire.secret import Secret
from simulator.cli import program
from simulator.exit_codes import ExitCode
from simulator.login.cli import login_command
from simulator.login.refreshing import RefreshingBearer
from simulator.login.token_store import TokenFile
from simulator.wire.client import ServiceClient
from tests.partner import PlainBrowser
from tests.ports import free_port
from tests.service_running import Bench, running

EMAIL, PASSWORD = "ada@example.com", "correct horse battery staple"
SCOPE = "manufacturer:devices manufacturer:commands manufacturer:data"


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Iterator[Bench]:
    seed = tmp_path_factory.mktemp("seed") / "seed.yaml"
    seed.write_text(f"users:\n  - email: {EMAIL}\n    password: {PASSWORD}\n")
    with running(seed_file=seed) as found:
        yield found


@pytest.fixture
def browser(bench) -> Iterator[PlainBrowser]:
    with PlainBrowser(bench.service.base_url, EMAIL, PASSWORD) as found:
        yield found


@pytest.fixture
def port() -> int:
    return free_port()


def register(bench: Bench, port: int, *, public: bool = True) -> dict[str, Any]:
    body = {"name": "Bench tool", "redirect_uris": [f"http://127.0.0.1:{port}/callback"], "public": public}
    answer = bench.http.post("/_emulator/clients", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def arguments(bench: Bench, client_id: str, port: int, out: Path, *more: str) -> list[str]:
    given = {"base-url": bench.service.base_url, "client-id": client_id, "redirect-port": port, "out": out}
    return ["login", *(part for name, value in given.items() for part in (f"--{name}", str(value))), *more]


@contextlib.contextmanager
def started(*args: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The program, and the address that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "simulator.cli", *args, "--no-browser"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http"), process.communicate()[1]
        yield process, address
    finally:
        process.kill()
        process.communicate()


def say(browser: PlainBrowser, address: str, said: str = "approve") -> str:
    answer = browser.send(browser.open(address), said)
    assert answer.status_code == 303, answer.text
    location = answer.headers["location"]
    assert location.startswith("http://127.0.0.1:"), location
    return location


def run(*args: str, typed: str | None = None) -> Result:
    """The command in this process, ended as the program ends it."""
    return CliRunner().invoke(login_command, args[1:], input=typed, standalone_mode=True)


@pytest.mark.parametrize("public", [True, False], ids=["public", "confidential"])
def test_a_browser_signs_in_and_the_file_is_ready_to_use(bench, browser, port, tmp_path, public):
    client, out = register(bench, port, public=public), tmp_path / "token.json"
    more = []
    if not public:
        (tmp_path / "secret").write_text(client["client_secret"] + "\n")
        more = ["--client-secret-file", str(tmp_path / "secret")]
    with started(*arguments(bench, client["client_id"], port, out, *more)) as (process, address):
        back = say(browser, address)
        assert back.startswith(f"http://127.0.0.1:{port}/callback?")
        page = httpx.get(back, trust_env=False, timeout=120)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert (page.status_code, "You are signed in" in page.text) == (200, True)
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cache-control"] == "no-store"
    assert "signed in" in output

    written = json.loads(out.read_text())
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert (written["base_url"], written["scope"]) == (bench.service.base_url, SCOPE)
    secrets = [written["access_token"], written["refresh_token"], back.split("code=")[1].split("&")[0]]
    assert not [secret for secret in secrets if secret in output + errors + page.text]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(("token", ".token"))) == [
        "token.json",
        "token.json.lock",
    ]

    bearer = RefreshingBearer(TokenFile(out), client_secret=None if public else Secret(client["client_secret"]))
    with ServiceClient(bearer.base_url, bearer) as service:
        assert list(service.devices()) == []
        bench.clock.advance(3601)
        assert list(service.devices()) == []
    assert json.loads(out.read_text())["refresh_token"] != written["refresh_token"]


def test_a_no_in_the_browser_changes_nothing_and_is_told_on_both_sides(bench, browser, port, tmp_path):
    client = register(bench, port)
    with started(*arguments(bench, client["client_id"], port, tmp_path / "t")) as (process, address):
        page = httpx.get(say(browser, address, "deny"), trust_env=False, timeout=120)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == ExitCode.CHECK_FAILED
    assert "access was denied" in errors
    assert "access was denied" in page.text
    assert "Traceback" not in errors
    assert not (tmp_path / "t").exists()


def test_an_answer_to_another_sign_in_is_refused(bench, port, tmp_path):
    client = register(bench, port)
    with started(*arguments(bench, client["client_id"], port, tmp_path / "t")) as (process, _):
        page = httpx.get(f"http://127.0.0.1:{port}/callback?code=stolen&state=other", trust_env=False, timeout=120)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == ExitCode.CHECK_FAILED
    assert "state does not match" in errors
    assert "That did not work" in page.text


def test_the_listener_answers_its_own_address_only_and_holds_up_nobody(bench, browser, port, tmp_path):
    client = register(bench, port)
    with (
        started(*arguments(bench, client["client_id"], port, tmp_path / "t")) as (process, address),
        socket.create_connection(("127.0.0.1", port)),  # as browsers do: opened ahead, nothing said
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=120) as http,
    ):
        assert http.get("/favicon.ico").status_code == 404
        assert http.get("/callback?code=x&state=y", headers={"host": "evil.test"}).status_code == 400
        assert http.post("/callback").status_code == 501
        assert httpx.get(say(browser, address), trust_env=False, timeout=120).status_code == 200
        process.communicate(timeout=120)
        assert process.returncode == 0


def test_the_address_can_be_pasted_where_there_is_no_browser(bench, browser, port, tmp_path):
    client = register(bench, port)
    args = arguments(bench, client["client_id"], port, tmp_path / "t", "--paste")
    with started(*args) as (process, address):
        _, errors = process.communicate(say(browser, address) + "\n", timeout=120)
        assert process.returncode == 0, errors
    assert TokenFile(tmp_path / "t").read().refresh_token


def test_ctrl_c_ends_the_waiting_at_once(bench, port, tmp_path):
    client = register(bench, port)
    with started(*arguments(bench, client["client_id"], port, tmp_path / "t")) as (process, _):
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == ExitCode.INTERRUPTED
    assert "Traceback" not in errors


def test_nobody_comes_in_time(bench, port, tmp_path):
    client = register(bench, port)
    result = run(*arguments(bench, client["client_id"], port, tmp_path / "t", "--timeout", "1", "--no-browser"))
    assert "within 1 s" in str(result.exception)


def test_a_port_in_use_is_one_line(bench, port, tmp_path):
    client = register(bench, port)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        result = run(*arguments(bench, client["client_id"], port, tmp_path / "t", "--no-browser"))
    assert result.exit_code == ExitCode.USAGE
    assert f"--redirect-port {port}: Address already in use" in result.stderr


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda folder: folder / "none" / "t", "No such file or directory"),
        (lambda folder: folder, "no regular file|directory"),
        (lambda folder: (folder / "notes.txt").write_text("mine") and folder / "notes.txt", "is no token file"),
    ],
)
def test_a_file_that_cannot_be_written_is_told_before_anybody_signs_in(bench, port, tmp_path, prepare, words):
    result = run(*arguments(bench, "app", port, prepare(tmp_path)))
    assert result.exit_code == ExitCode.USAGE
    assert re.search(words, result.stderr), result.stderr
    if (tmp_path / "notes.txt").exists():
        assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_service_that_is_not_there_ends_with_5(port, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "simulator.cli", "login", "--base-url", f"http://127.0.0.1:{port}", "--client-id", "a"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert done.returncode == ExitCode.UNREACHABLE
    assert done.stderr.count("\n") == 1


def test_the_command_is_in_the_overview():
    assert "login" in CliRunner().invoke(program, ["--help"]).output
