"""The agent over HTTP, as a process, in front of a server that has the specification and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.agent_bench import AgentProcess
from tests.e2e.test_gateway_plain_server import DAY_S, PlainServer


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
