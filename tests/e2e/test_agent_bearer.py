"""``device-agent`` on tokens that a person signed in for: it renews them, and says how they stand."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agent.wire import paths
from agent.wire.secret import Secret
from simulator.login.cli import DEFAULT_SCOPE
from tests import canary
from tests.e2e.agent_bench import API_KEY, SECRET_KEY, AgentBench
from tests.partner import VERIFIER, PlainBrowser, parameters_of, request_query
from tests.service_running import Bench, ManualClock, running

EMAIL, PASSWORD = "ada@example.com", "correct horse battery staple"
REDIRECT = "http://127.0.0.1:1/callback"


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Bench]:
    seed = tmp_path_factory.mktemp("seed") / "seed.yaml"
    seed.write_text(
        f"users:\n  - email: {EMAIL}\n    password: {PASSWORD}\n"
        f"clients:\n  - client_id: bench-tool\n    public: true\n    name: Bench tool\n"
        f"    redirect_uris: ['{REDIRECT}']\n"
    )
    clock = ManualClock(round(time.time() * 1000))  # the agent lays commands' times beside the Date of answers
    with running(seed_file=seed, api_key=API_KEY, secret_key=Secret(SECRET_KEY), clock=clock) as found:
        yield Bench(found.service, clock, found.http)


@pytest.fixture
def bench(service, tmp_path) -> Iterator[AgentBench]:
    found = AgentBench(tmp_path, service.service.base_url)
    write_config(found, service.service.base_url)
    yield found
    found.close()


def write_config(bench: AgentBench, base_url: str) -> None:
    bench.config.write_text(
        f"service: {{base_url: '{base_url}', timeout_s: 30}}\n"
        f"device: {{device_id: '{bench.device_id}'}}\n"
        f"auth: {{mode: bearer, token_file: '{bench.folder}/token.json'}}\n"
        f"state_dir: '{bench.state_dir}'\n"
        f"commands:\n  long_poll: 'off'\n  poll: {{fast_s: 0.2, slow_s: 0.5, idle_s: 1, spread_s: 0}}\n"
    )


def sign_in(service: Bench, path: Path) -> dict[str, str]:
    """What ``fleet-simulator login`` would have written."""
    url = service.service.base_url
    with PlainBrowser(url) as browser:
        query = request_query("bench-tool", REDIRECT, scope=DEFAULT_SCOPE, state=os.urandom(8).hex())
        code = parameters_of(browser.approve(query, EMAIL, PASSWORD))["code"]
    body = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT, "client_id": "bench-tool"}
    answer = httpx.post(
        f"{url}{paths.OAUTH_TOKEN}", json={**body, "code_verifier": VERIFIER}, trust_env=False, timeout=60
    )
    tokens = answer.json()
    members = {name: tokens[name] for name in ("access_token", "refresh_token", "scope")}
    for name in ("access_token", "refresh_token"):
        canary.watch(members[name], f"an {name}")
    path.write_text(json.dumps({"base_url": url, "client_id": "bench-tool", **members}))
    path.chmod(0o600)
    return members


def device_agent(bench: AgentBench, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agent.cli", *arguments, "--config", str(bench.config)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_agent_works_on_renews_and_shows_tokens_of_the_default_scope(bench, service):
    handed = bench.folder / "token.json"
    first = sign_in(service, handed)
    before = handed.read_text()
    agent = bench.start()
    assert bench.wait_for(bench.send(command="ping"), within_s=60).status == "succeeded"

    service.clock.advance(3601)
    assert bench.wait_for(bench.send(command="ping"), within_s=60).status == "succeeded"
    own = bench.state_dir / "token.json"
    renewed = json.loads(own.read_text())
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    assert renewed["refresh_token"] != first["refresh_token"]
    assert handed.read_text() == before

    status = device_agent(bench, "status")
    assert "tokens     client bench-tool, scope manufacturer:devices" in status.stdout
    check = device_agent(bench, "check", "--online")
    assert re.search(r"^ok +tokens +client bench-tool", check.stdout, re.MULTILINE), check.stdout
    assert check.returncode == 0

    httpx.post(
        f"{service.service.base_url}{paths.OAUTH_REVOKE}",
        data={"token": renewed["refresh_token"], "client_id": "bench-tool"},
        trust_env=False,
    )
    line = agent.wait_for("commands=unauthorized", 60)
    assert f"fleet-simulator login --out {handed}" in line
    told = "\n".join(agent.lines) + status.stdout + check.stdout
    tokens = [members[name] for members in (first, renewed) for name in ("access_token", "refresh_token")]
    assert not [token for token in tokens if token in told]

    check = device_agent(bench, "check", "--online")
    assert check.returncode == 1
    assert "sign in again" in check.stdout
    second = sign_in(service, handed)
    check = device_agent(bench, "check", "--online")
    assert check.returncode == 0, check.stdout
    assert second["access_token"] != first["access_token"]


def test_tokens_for_another_service_are_one_clear_line(bench, service):
    sign_in(service, bench.folder / "token.json")
    write_config(bench, "http://127.0.0.1:1")
    done = device_agent(bench, "run")
    assert done.returncode == 2
    assert "the tokens in" in done.stderr
    assert "Traceback" not in done.stderr
