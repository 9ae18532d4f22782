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

import httpx
import pytest
from click.testing import CliRunner, Result

from agent.config.credentials import read_credentials
from agent.config.model import AuthConfig
from agent.errors import Unauthorized
from agent.wire.client import Connection
from agent.wire.secret import BearerToken, Secret
from simulator.cli import program
from simulator.exit_codes import ExitCode
from simulator.login.errors import TokensNotStored
from simulator.login.tokens import FileToken, read_tokens, renew, write_tokens
from simulator.wire.client import ServiceClient
from tests.support.partner import PlainBrowser
from tests.support.ports import free_port
from tests.support.processes import run_module
from tests.support.service_running import Bench, Client, running
from tests.system.agent_bench import wait_until

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


def register(bench: Bench, port: int, *, public: bool = True) -> Client:
    return bench.add_client("Bench tool", [f"http://127.0.0.1:{port}/callback"], public=public)


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
    return CliRunner().invoke(program, args, input=typed)


@pytest.mark.parametrize("public", [True, False], ids=["public", "confidential"])
def test_a_browser_signs_in_and_the_file_is_ready_to_use(bench, browser, port, tmp_path, public):
    client, out = register(bench, port, public=public), tmp_path / "token.json"
    more = []
    if not public:
        (tmp_path / "secret").write_text(client.client_secret + "\n")
        more = ["--client-secret-file", str(tmp_path / "secret")]
    with started(*arguments(bench, client.client_id, port, out, *more)) as (process, address):
        back = say(browser, address)
        assert back.startswith(f"http://127.0.0.1:{port}/callback?")
        page = httpx.get(back, trust_env=False, timeout=120)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert (page.status_code, "Go back to the terminal" in page.text) == (200, True)
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

    token = FileToken(out)
    with ServiceClient(token.base_url, token) as service:
        assert list(service.devices()) == []
    with Connection(bench.service.base_url) as connection:
        write_tokens(out, read_tokens(out).model_copy(update={"expires_at": 1.0}))
        renewed = renew(connection, out, None if public else Secret(client.client_secret))
    assert renewed.access_token == read_tokens(out).access_token
    assert renewed.refresh_token not in {None, written["refresh_token"]}


@pytest.mark.parametrize("how", ["access_denied", "state does not match"])
def test_a_no_and_an_answer_to_another_sign_in_change_nothing_and_are_told(bench, browser, port, tmp_path, how):
    client = register(bench, port)
    with started(*arguments(bench, client.client_id, port, tmp_path / "t")) as (process, address):
        stolen = f"http://127.0.0.1:{port}/callback?code=stolen&state=other"
        httpx.get(say(browser, address, "deny") if "denied" in how else stolen, trust_env=False, timeout=120)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == ExitCode.CHECK_FAILED
    assert how in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "t").exists()


def test_the_listener_answers_its_own_address_only_and_holds_up_nobody(bench, browser, port, tmp_path):
    client = register(bench, port)
    with (
        started(*arguments(bench, client.client_id, port, tmp_path / "t")) as (process, address),
        socket.create_connection(("127.0.0.1", port)),  # as browsers do: opened ahead, nothing said
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=120) as http,
    ):
        assert http.get("/favicon.ico").status_code == 404
        assert http.get("/callback?code=x&state=y", headers={"host": "evil.test"}).status_code == 404
        assert http.post("/callback").status_code == 501
        assert httpx.get(say(browser, address), trust_env=False, timeout=120).status_code == 200
        process.communicate(timeout=120)
        assert process.returncode == 0


def test_the_address_can_be_pasted_where_there_is_no_browser(bench, browser, port, tmp_path):
    client = register(bench, port)
    args = arguments(bench, client.client_id, port, tmp_path / "t", "--paste")
    with started(*args) as (process, address):
        _, errors = process.communicate(say(browser, address) + "\n", timeout=120)
        assert process.returncode == 0, errors
    assert read_tokens(tmp_path / "t").refresh_token


def test_ctrl_c_ends_the_waiting_at_once(bench, port, tmp_path):
    client = register(bench, port)
    with started(*arguments(bench, client.client_id, port, tmp_path / "t")) as (process, _):
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == ExitCode.INTERRUPTED
    assert "Traceback" not in errors


def test_nobody_comes_in_time(bench, port, tmp_path):
    client = register(bench, port)
    result = run(*arguments(bench, client.client_id, port, tmp_path / "t", "--timeout", "1", "--no-browser"))
    assert "within 1 s" in result.stderr


def test_a_port_in_use_is_one_line(bench, port, tmp_path):
    client = register(bench, port)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        result = run(*arguments(bench, client.client_id, port, tmp_path / "t", "--no-browser"))
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
    words = ("login", "--base-url", f"http://127.0.0.1:{port}", "--client-id", "a")
    done = run_module("simulator.cli", *words, code=ExitCode.UNREACHABLE, cwd=tmp_path)
    assert done.stderr.count("\n") == 1


# --- renewing -------------------------------------------------------------------------------------------------------


@pytest.fixture
def held(bench, browser, port, tmp_path) -> Path:
    """A token file of somebody who signed in, whose access token is over by this machine's clock."""
    client, out = register(bench, port), tmp_path / "token.json"
    with started(*arguments(bench, client.client_id, port, out)) as (process, address):
        httpx.get(say(browser, address), trust_env=False, timeout=120)
        assert process.wait(120) == 0
    write_tokens(out, read_tokens(out).model_copy(update={"expires_at": 1.0}))
    return out


@contextlib.contextmanager
def keeping(bench: Bench, held: Path, port: int, *more: str) -> Iterator[subprocess.Popen[str]]:
    args = arguments(bench, read_tokens(held).client_id, port, held, "--keep", *more)
    process = subprocess.Popen([sys.executable, "-m", "simulator.cli", *args], stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def is_good(bench: Bench, token: Secret) -> bool:
    with ServiceClient(bench.service.base_url, BearerToken(token)) as service:
        try:
            return list(service.devices()) == []
        except Unauthorized:
            return False


def test_keep_renews_the_file_and_the_token_of_a_device_and_whoever_reads_them_follows(bench, held, port, tmp_path):
    first, device_file = read_tokens(held), tmp_path / "token"
    credential = FileToken(held)
    with keeping(bench, held, port, "--token-file", str(device_file)) as process:
        wait_until(lambda: device_file.exists() or process.poll() is not None)
        second = run(*arguments(bench, first.client_id, port, held))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == ExitCode.INTERRUPTED, errors
    assert second.exit_code == ExitCode.USAGE
    assert "another login keeps it" in second.stderr
    token = read_credentials(AuthConfig(mode="bearer", token_file=device_file), {}).secret
    assert token == read_tokens(held).access_token != first.access_token
    assert is_good(bench, token)
    with ServiceClient(credential.base_url, credential) as service:
        assert list(service.devices()) == []


def test_a_sign_in_that_the_service_has_ended_is_said_and_ends_the_keeping(bench, held, port):
    used = held.read_text()
    with Connection(bench.service.base_url) as connection:
        renew(connection, held, None)
    held.write_text(used)  # a copy of before: the service takes its refresh token for stolen
    with keeping(bench, held, port) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == ExitCode.USAGE
    assert "sign in again: fleet-simulator login --out" in errors


def test_a_disk_that_takes_nothing_costs_nobody_the_sign_in(bench, held, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    before = held.read_text()
    with Connection(bench.service.base_url) as connection:
        with monkeypatch.context() as patched:
            patched.setattr("simulator.login.tokens.replace_file", full)
            with pytest.raises(TokensNotStored, match="No space left on device"):
                renew(connection, held, None)
        assert held.read_text() == before
        assert is_good(bench, renew(connection, held, None).access_token)


def test_tokens_go_to_no_other_service(held):
    with running() as other, ServiceClient(other.service.base_url, FileToken(held)) as service:
        assert other.service.base_url != read_tokens(held).base_url
        with pytest.raises(Unauthorized):
            list(service.devices())
        assert read_tokens(held).access_token.reveal() not in other.http.get("/_emulator/requests").text
