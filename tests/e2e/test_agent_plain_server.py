"""The agent over HTTP, as a process, in front of a server that has the specification and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from agent.cli.program import device_agent
from agent.wire.secret import Secret
from simulator.service.clock import SystemClock
from tests.e2e.agent_bench import API_KEY, SECRET_KEY, AgentBench, AgentProcess, wait_until
from tests.e2e.test_gateway_plain_server import DAY_S, PlainServer
from tests.profiles import profile, running_as, switch
from tests.service_running import Bench

pytestmark = pytest.mark.long


@pytest.fixture(params=["queued", "in_progress"])
def server(request: pytest.FixtureRequest) -> Iterator[PlainServer]:
    """It writes the same word at each command for ever."""
    made = PlainServer(word=request.param)
    yield made
    made.close()


@pytest.fixture
def config(server: PlainServer, tmp_path: Path) -> Path:
    for name, text in {"api_key": "mk_1", "secret_key": "msk_1"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    members = {
        "service": {"base_url": f"http://127.0.0.1:{server.port}"},
        "auth": {
            "mode": "key_pair",
            "api_key_file": str(tmp_path / "api_key"),
            "secret_key_file": str(tmp_path / "secret_key"),
            "allow_secret_key_on_device": True,
        },
        "device": {"device_id": "d1", "product_id": "p1"},
        "state_dir": str(tmp_path / "state"),
        "commands": {"poll": {"spread_s": 0, "idle_s": 1, "slow_s": 1, "fast_s": 0.5}},
    }
    path = tmp_path / "agent.yaml"
    path.write_text(yaml.safe_dump(members))
    return path


@pytest.mark.timeout(240)
def test_a_fresh_device_runs_nothing_that_is_called_open_for_ever(server, config):
    for number in range(20):
        server.send(f"old-{number}", age_s=(11 + number) * DAY_S)
    agent = AgentProcess(config)
    try:
        agent.wait_for("commands=skipped count=20")
        server.send("new")
        server.wait_until(lambda: "new" in server.results, "the new command ran")
        looks = server.looks
        server.wait_until(lambda: server.looks > looks + 3, "the list came again")
    finally:
        agent.close()
    assert server.results == ["new"]
    assert server.queries == {""}, "nothing beyond the specification was asked for"


SENSORS = "sensors: [{name: s, type: simulated, interval_s: 0.1}]\n"


def status(bench: AgentBench, *options: str) -> str:
    return CliRunner().invoke(device_agent, ["status", "--config", str(bench.config), *options]).output


@pytest.mark.timeout(300)
@pytest.mark.parametrize("restarts", [False, True])
def test_results_without_a_place_hold_no_readings_and_are_reported_once_there_is_one(tmp_path, restarts):
    without = profile("plain", results="none", command_list="open", status_words="none")
    with running_as(without, clock=SystemClock(), api_key=API_KEY, secret_key=Secret(SECRET_KEY)) as service:
        bench = AgentBench(tmp_path, service.service.base_url)
        bench.write_config(service.service.base_url, more=SENSORS)
        try:
            agent = bench.start(module="tests.e2e.hasty_agent")
            wait_until(lambda: "first_contact" in json.loads(status(bench, "--json"))["store"]["settings"])
            sent = [service.send(bench.device_id) for _ in range(3)]
            wait_until(lambda: json.loads(status(bench, "--json"))["store"]["results"]["put_aside"] == 3)
            shown = status(bench)
            assert "has no place for results" in shown
            assert "\nresults    3 put aside" in shown
            before = readings(service, bench)
            wait_until(lambda: readings(service, bench) >= before + 50)
            if restarts:
                agent.kill()
            switch(service, profile())
            if restarts:
                bench.start(module="tests.e2e.hasty_agent")
            wait_until(lambda: {service.command(bench.device_id, each)["status"] for each in sent} == {"succeeded"})
            wait_until(lambda: "takes results at their commands" in status(bench))
            assert json.loads(status(bench, "--json"))["store"]["results"]["put_aside"] == 0
        finally:
            bench.close()


def readings(service: Bench, bench: AgentBench) -> int:
    """How many the service has, up to a page."""
    answer = service.http.get("/sensor-data", params={"device_id": bench.device_id, "limit": 1000})
    return len(answer.json()["data"])
