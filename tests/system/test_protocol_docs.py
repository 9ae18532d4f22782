"""Every device of docs/protocol.md runs as it stands, against a real gateway, a real broker and the real service."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from gateway.client import SendCommand
from tests.conftest import require_program
from tests.support.mosquitto import Mosquitto, find_mosquitto
from tests.support.node_packages import node_with
from tests.support.ports import free_port
from tests.system.agent_bench import wait_until
from tests.system.test_gateway_journey import Journey, travelling

ROOT = Path(__file__).resolve().parents[2]
MQTT_CLIENTS = Path(__file__).with_name("mqtt_clients")
PAGE = (ROOT / "docs" / "protocol.md").read_text("utf-8")
WAIT_S = 120.0
pytestmark = [pytest.mark.timeout(400), pytest.mark.long]


def device_of(heading: str) -> str:
    """The one script under a heading."""
    section = PAGE.split(f"### {heading}\n", 1)[1].split("\n### ", 1)[0]
    (script,) = re.findall(r"^```(?:sh|js)\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return script


class Bench:
    """Service, gateway and broker, with TLS.

    Attributes:
        journey: the service and the gateway's commands.
        broker_port: of mosquitto, with the rules of ``broker-config``.
    """

    def __init__(self, folder: Path, journey: Journey, stack: ExitStack) -> None:
        self.journey = journey
        self.broker_port = free_port()
        journey.set_up("--mqtt")
        self._folder = folder / "mosquitto"
        conf = self._folder / "device-gateway.conf"
        self._broker_config = [
            *("broker-config", "--conf", conf, "--dir", self._folder / "dg", "--tls-dir", "etc/tls"),
            *("--standalone", "--port", self.broker_port, "--bind", "127.0.0.1"),
        ]
        text = journey.config.read_text().replace("port: 8883", f"port: {self.broker_port}")
        journey.config.write_text(text)
        journey.run(*self._broker_config)
        lines = [line for line in conf.read_text().splitlines() if line and not line.startswith("listener")]
        program = find_mosquitto() or require_program("mosquitto")
        self._broker = Mosquitto(program, self._folder, lines, port=self.broker_port)
        self._broker.start()
        stack.callback(self._broker.stop)
        journey.start().wait_for("mqtt=connected", WAIT_S)

    def add(self, identifier: str) -> tuple[str, str]:
        """A new device that the broker knows: its id and token."""
        device_id = self.journey.add(identifier, "--broker", f"127.0.0.1:{self.broker_port}")
        self.journey.run(*self._broker_config)
        os.kill(self._broker.pid, signal.SIGHUP)
        wait_until(lambda: "Reloading config" in self._broker.log(), WAIT_S)
        return device_id, (self.journey.folder / identifier / "token").read_text().strip()

    def send(self, device_id: str, name: str) -> str:
        command = SendCommand(device_id=device_id, command_payload={"command": name})
        return self.journey.client.send_command(command).id

    def wait_for(self, device_id: str, command_id: str, status: str) -> None:
        def has_ended() -> bool:
            records = {record.id: record for record in self.journey.client.device_commands(device_id).records}
            return records[command_id].status == status

        wait_until(has_ended, WAIT_S)


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("protocol")
    with travelling(folder) as journey, ExitStack() as stack:
        yield Bench(folder, journey, stack)


@contextmanager
def running(command: list[str], folder: Path, environ: dict[str, str]) -> Iterator[None]:
    """The device until the end of the block; then it and all that it started is killed."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **environ}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
        assert process.poll() is None, (folder / "log").read_text()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def prove(bench: Bench, folder: Path, identifier: str, command: list[str]) -> None:
    """Commands from before its first start, while it runs and while it is away, each once; and readings."""
    device_id, token = bench.add(identifier)
    (folder / "token").write_text(f"{token}\n")
    authority = str(bench.journey.folder / "etc" / "tls" / "ca.pem")
    environ = {
        "DEVICE": device_id,
        "CA": authority,
        "NODE_EXTRA_CA_CERTS": authority,
        "BROKER": "127.0.0.1",
        "PORT": str(bench.broker_port),
        "GATEWAY": f"https://127.0.0.1:{bench.journey.port}",
    }
    before = bench.send(device_id, "blink")
    with running(command, folder, environ):
        bench.wait_for(device_id, before, "succeeded")
        meanwhile, unknown = bench.send(device_id, "blink"), bench.send(device_id, "fly")
        bench.wait_for(device_id, meanwhile, "succeeded")
        bench.wait_for(device_id, unknown, "rejected")
        wait_until(lambda: list(bench.journey.client.sensor_data(device_id)), WAIT_S)
    away = bench.send(device_id, "blink")
    with running(command, folder, environ):
        bench.wait_for(device_id, away, "succeeded")
    assert (folder / "blinked").read_text() == "blink\n" * 3
    assert {len(list(folder.joinpath("taken").iterdir()))} == {4}
    values = [reading.sensor_data for reading in bench.journey.client.sensor_data(device_id)]
    assert {value["temperature"] for value in values} == {21.5}


def test_the_curl_device_over_http_runs(bench, tmp_path):
    require_program("curl")
    require_program("jq")
    (tmp_path / "device.sh").write_text(device_of("A device with curl"))
    prove(bench, tmp_path, "SN-CURL", ["sh", "device.sh"])


def test_the_node_device_over_mqtt_runs(bench, tmp_path):
    node = node_with(MQTT_CLIENTS)
    (tmp_path / "node_modules").symlink_to(MQTT_CLIENTS / "node_modules")
    (tmp_path / "device.mjs").write_text(device_of("A device in Node, over MQTT"))
    prove(bench, tmp_path, "SN-NODE-MQTT", [node, "device.mjs"])


def test_the_lock_file_names_no_registry():
    lock = (MQTT_CLIENTS / "package-lock.json").read_text("utf-8")
    assert "resolved" not in lock
    assert "integrity" in lock
