"""The real ``device-agent`` process over MQTT: a real mosquitto, and a gateway of the tests behind it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.test_command_source_port import Answer, ScriptedServer
from tests.support.canary import DEVICE_TOKEN as TOKEN
from tests.support.gateway_stand_in import GatewayStandIn
from tests.support.mosquitto import Mosquitto, write_passwords
from tests.support.processes import run_module
from tests.system.agent_bench import PROMPT_S, SOON_S, AgentProcess

SENSORS = "sensors: [{name: s, type: simulated, interval_s: 0.1}]\n"


class Bench:
    """A broker with passwords, a gateway, and agents of one device in a folder of its own."""

    def __init__(self, folder: Path, broker: Mosquitto) -> None:
        self.folder = folder
        self.broker = broker
        self.gateway = GatewayStandIn(broker, user="gateway-1", password="g")
        self.config = folder / "config.yaml"
        self.agents: list[AgentProcess] = []
        self.write()

    def write(self, *, token: str = TOKEN, port: int | None = None, receipt_timeout_s: int = 2, more: str = "") -> None:
        path = self.folder / "token"
        path.write_text(token)
        path.chmod(0o600)
        self.config.write_text(
            f"mqtt: {{host: 127.0.0.1, port: {port or self.broker.port}, tls: false, reconnect_max_s: 1,\n"
            f"       receipt_timeout_s: {receipt_timeout_s}}}\n"
            f"device: {{device_id: d1}}\nauth: {{mode: bearer, token_file: '{path}'}}\n"
            f"state_dir: '{self.folder / 'state'}'\ncommands: {{poll: {{spread_s: 0}}}}\n"
            f"outbox: {{send_every_s: 0}}\n{more}"
        )

    def start(self, until: str = "agent=ready") -> AgentProcess:
        self.agents.append(AgentProcess(self.config))
        self.agents[-1].wait_for(until)
        return self.agents[-1]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_module("agent.cli", *arguments, "--config", self.config)

    def ping(self, command_id: str) -> None:
        self.gateway.send("d1", command_id, {"command": "ping", "echo": command_id})

    def wait_for_results(self, *command_ids: str) -> None:
        wanted = {(command_id, "succeeded") for command_id in command_ids}
        self.gateway.wait_until(lambda: wanted <= self.gateway.results.keys())

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        self.gateway.close()


@pytest.fixture
def bench(start_mosquitto: Callable[..., Mosquitto], tmp_path: Path) -> Iterator[Bench]:
    passwords = write_passwords(tmp_path / "users", {"d1": TOKEN, "gateway-1": "g"})
    made = Bench(tmp_path, start_mosquitto(*passwords))
    yield made
    made.close()


def test_commands_results_and_readings_travel_over_mqtt(bench):
    bench.write(more=SENSORS, receipt_timeout_s=60)
    agent = bench.start()
    bench.ping("c1")
    bench.gateway.send("d1", "c2", {"command": "open_door"})
    bench.wait_for_results("c1")
    assert bench.gateway.results["c1", "succeeded"].result["echo"] == "c1"
    bench.gateway.wait_until(lambda: ("c2", "rejected") in bench.gateway.results)
    bench.gateway.wait_until(lambda: len(bench.gateway.readings) >= 3)
    status = bench.run("status", "--json")
    parts = json.loads(status.stdout)["last_status"]["parts"]
    assert status.returncode == 0, status.stdout
    assert "MQTT 5" in parts["broker"]["detail"]
    code, took_s = agent.terminate()
    assert code == 0
    assert took_s < PROMPT_S
    bench.gateway.wait_until(lambda: bench.gateway.status_of("d1") == "offline")
    assert bench.gateway.repeats == 0
    assert TOKEN not in "\n".join(agent.lines)


def test_a_wrong_token_is_one_clear_line_and_the_right_one_is_taken_up(bench):
    bench.write(token="wrong")
    agent = bench.start(until="broker=unauthorized")
    check = bench.run("check", "--online")
    assert "left alone" in check.stdout
    status = bench.run("status")
    assert status.returncode == 1
    assert "broker unauthorized" in status.stdout
    assert "auth.token_file" in status.stdout
    assert len([line for line in agent.lines if "broker=unauthorized" in line]) == 1
    bench.write()
    bench.ping("c1")
    bench.wait_for_results("c1")
    agent.wait_for("broker=ok")


def test_with_a_list_over_http_beside_it_nothing_hangs_on_the_broker(bench):
    listed: list[dict[str, Any]] = []

    def script(_method: str, path: str, _headers: dict[str, str]) -> Answer:
        return Answer(body={"extensions": ["command-status"]} if "well-known" in path else {"data": listed})

    server = ScriptedServer(script)
    try:
        listed.append({"id": "l1", "device_id": "d1", "command_payload": {"command": "ping"}, "status": "queued"})
        bench.write(more=f"service: {{base_url: '{server.base_url}'}}\n")
        agent = bench.start()
        bench.wait_for_results("l1")
        bench.ping("p1")
        bench.wait_for_results("p1")
        bench.broker.kill()
        agent.wait_for("broker=")
        listed.append({"id": "l2", "device_id": "d1", "command_payload": {"command": "ping"}, "status": "queued"})
        asked = len(server.asked)
        while len(server.asked) < asked + 2:
            server.arrived.clear()
            assert server.arrived.wait(SOON_S)
        bench.broker.start()
        bench.wait_for_results("l2")
        assert all(headers.get("authorization") == f"Bearer {TOKEN}" for _, _, headers in server.asked)
    finally:
        server.stop()


def test_each_way_loads_its_own_library_only(bench):
    def loaded() -> set[str]:
        agent = AgentProcess(bench.config, command=(sys.executable, "-X", "importtime", "-m", "agent.cli"))
        bench.agents.append(agent)
        agent.wait_for("agent=ready")
        agent.terminate()
        return {"httpx", "paho"} & {line.rpartition("|")[2].strip() for line in agent.lines if "import time:" in line}

    assert loaded() == {"paho"}
    text = bench.config.read_text()
    bench.config.write_text("service: {base_url: 'http://127.0.0.1:1'}\n" + text[text.index("device:") :])
    assert loaded() == {"httpx"}
