"""From an empty folder to a device behind the gateway, with the commands that docs/gateway.md shows."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack, contextmanager

import pytest

from agent.wire.secret import KeyPair, Secret
from gateway.client import RegisterDevice, SendCommand
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from simulator.wire.client import ServiceClient
from simulator.wire.models import NewProduct
from tests.conftest import require_program
from tests.support.mosquitto import Mosquitto, find_mosquitto
from tests.support.ports import free_port
from tests.support.processes import run_module
from tests.system.agent_bench import API_KEY, SECRET_KEY, AgentProcess, wait_until

# So that nothing here waits for half a minute.
AGENT = {"DEVICE_AGENT_COMMANDS__LONG_POLL_S": "1", "DEVICE_AGENT_COMMANDS__POLL__IDLE_S": "10"}
pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


class Journey:
    """A folder, a service, and the commands."""

    def __init__(self, folder, service, stack):
        self.folder, self.service, self._stack = folder, service, stack
        self.client = stack.enter_context(ServiceClient(service.base_url, KeyPair(API_KEY, Secret(SECRET_KEY))))
        self.product_id = self.client.create_product(NewProduct(name="Door")).product_id
        self.config = folder / "etc" / "config.yaml"
        self.port = free_port()

    def run(self, *words, code=0):
        """What it says: its answer, or of a refusal the reason."""
        environ = {"DEVICE_GATEWAY_CONFIG": str(self.config)}
        done = run_module("gateway.cli", *words, code=code, cwd=self.folder, environ=environ)
        return done.stderr if code else done.stdout

    def set_up(self, *options):
        """``gateway init``, the key pair, and ports of this test's own."""
        where = ["--dir", "etc", "--state-dir", "var", "--base-url", self.service.base_url]
        self.run("init", *where, "--host", "127.0.0.1", *options)
        (self.folder / "etc" / "api_key").write_text(API_KEY)
        (self.folder / "etc" / "secret_key").write_text(SECRET_KEY)
        text = self.config.read_text().replace("port: 8443", f"port: {self.port}")
        self.config.write_text(f"{text}\nmetrics: {{port: 0}}\n")

    def start_broker(self):
        """mosquitto with what ``broker-config`` writes, after ``set_up("--mqtt")``."""
        program = find_mosquitto() or require_program("mosquitto")
        folder = self.folder / "mosquitto"
        conf = folder / "device-gateway.conf"
        self._broker_config = ("broker-config", "--conf", conf, "--dir", folder / "dg", "--standalone")
        port = free_port()
        self.config.write_text(self.config.read_text().replace("port: 8883", f"port: {port}"))
        self.run(*self._broker_config)
        lines = [line for line in conf.read_text().splitlines() if line and not line.startswith("listener")]
        self.broker = Mosquitto(program, folder, lines, port=port)
        self.broker.start()
        self._stack.callback(self.broker.stop)

    def reload_broker(self):
        """It learns which devices have a token by now."""
        before = self.broker.log().count("Reloading config")
        assert "reload mosquitto" in self.run(*self._broker_config)
        os.kill(self.broker.pid, signal.SIGHUP)
        wait_until(lambda: self.broker.log().count("Reloading config") > before)

    def start(self, until="gateway=ready"):
        gateway = AgentProcess(self.config, module="gateway.cli")
        self._stack.callback(gateway.close)
        gateway.wait_for(until)
        return gateway

    def add(self, identifier, *address):
        """A device that the service knows; its folder is named like its identifier."""
        label = RegisterDevice(user_id="me", product_id=self.product_id, device_identifier=identifier)
        device_id = self.client.register_device(label).device_id
        out = self.folder / identifier
        self.run("devices", "add", "--device-id", device_id, "--config-out", out, "--device-dir", out, *address)
        return device_id

    def start_agent(self, identifier):
        folder = self.folder / identifier
        agent = AgentProcess(folder / "config.yaml", **AGENT, DEVICE_AGENT_STATE_DIR=str(folder / "state"))
        self._stack.callback(agent.close)
        agent.wait_for("agent=ready")
        return agent

    def ping(self, device_id):
        command = self.client.send_command(SendCommand(device_id=device_id, command_payload={"command": "ping"}))

        def ended():
            records = {record.id: record for record in self.client.device_commands(device_id).records}
            return records[command.id].status == "succeeded"

        wait_until(ended, 90.0)  # a busy machine may make the agent meet its new token late, and back off


@pytest.fixture
def journey(tmp_path):
    with travelling(tmp_path) as journey:
        yield journey


@contextmanager
def travelling(folder):
    config = ServiceConfig(api_key=API_KEY, secret_key=Secret(SECRET_KEY))
    with RunningService(config) as service, ExitStack() as stack:
        yield Journey(folder, service, stack)


def test_over_https_from_an_empty_folder_to_a_command_a_rotation_and_an_end(journey):
    journey.set_up()
    assert "FAIL" not in journey.run("check", "--online")
    gateway = journey.start()
    url = f"https://127.0.0.1:{journey.port}"
    device_id = journey.add("SN-1", "--url", url)
    agent = journey.start_agent("SN-1")
    journey.ping(device_id)
    wait_until(lambda: list(journey.client.sensor_data(device_id)), 90.0)
    out = journey.folder / "SN-1"
    old = (out / "token").read_text()
    journey.run("devices", "rotate", device_id, "--config-out", out, "--device-dir", out, "--url", url)
    assert (out / "token").read_text() != old
    journey.ping(device_id)
    wait_until(lambda: json.loads(journey.run("devices", "list", "--json"))[0]["old_token_until"] is None, 60.0)
    journey.run("devices", "revoke", device_id)
    agent.wait_for("invalid_token", 60.0)
    assert agent.terminate()[0] == 0
    assert gateway.terminate(90.0)[0] == 0
    logged = "\n".join(gateway.lines + agent.lines)
    assert old.strip() not in logged
    assert SECRET_KEY not in logged


def test_over_mqtt_with_mosquitto_and_tls(journey):
    journey.set_up("--mqtt")
    journey.start_broker()
    gateway = journey.start("mqtt=connected")
    device_id = journey.add("SN-1", "--broker", f"127.0.0.1:{journey.broker.port}")
    journey.reload_broker()
    agent = journey.start_agent("SN-1")
    journey.ping(device_id)
    wait_until(lambda: list(journey.client.sensor_data(device_id)), 90.0)
    journey.run("devices", "revoke", device_id)
    journey.reload_broker()
    agent.wait_for("broker=unauthorized", 60.0)
    assert agent.terminate()[0] == 0
    assert gateway.terminate(90.0)[0] == 0
