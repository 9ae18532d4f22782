"""``fleet-simulator up`` as its users run it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import paho.mqtt.client as paho
import pytest
import yaml

from agent.errors import ConfigurationError
from agent.wire import topics
from agent.wire.secret import Secret
from simulator.cli import main
from simulator.gateway import broker
from simulator.gateway.trial import MQTT, running_trial
from simulator.keys import Keys
from tests.conftest import do_without, require_program
from tests.support.ports import free_port
from tests.support.processes import run_program
from tests.support.service_running import running
from tests.system.agent_bench import wait_until

pytestmark = pytest.mark.long


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


UP = [program("fleet-simulator"), "up", "--port=0", "--gateway-port=0", "--json"]
THROUGH_GATEWAY = """\
scenario: through-gateway
target: {through: gateway, transport: http_poll}
fleet: {devices: 2, models: [{telemetry: {every_s: 500ms}}]}
phases: [{name: hold, kind: hold, duration_s: 2s}]
thresholds: [audit.lost == 0]
"""
ADDRESS = "10.9.9.9"


def start(*options: str) -> tuple[subprocess.Popen[str], dict]:
    process = subprocess.Popen(
        [*UP, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return process, json.loads(line)


def end(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    return process.returncode


def devices_of(told: dict) -> list[dict]:
    headers = {"x-api-key": told["api_key"], "x-secret-key": told["secret_key"]}
    answer = httpx.get(f"{told['base_url']}/devices", headers=headers, trust_env=False, timeout=120)
    assert answer.status_code == 200
    return answer.json()["data"]


def test_a_data_folder_keeps_keys_devices_and_the_brokers_port_over_two_starts(tmp_path):
    wanted = free_port()
    process, first = start("--devices=2", f"--data={tmp_path / 'data'}", f"--mqtt-port={wanted}")
    try:
        assert first["mqtt_port"] == wanted
        socket.create_connection(("127.0.0.1", wanted), 10).close()
    finally:
        assert end(process) == 0
    process, second = start("--devices=2", f"--data={tmp_path / 'data'}")
    try:
        assert second["device_ids"] == first["device_ids"]
        assert second["secret_key"] == first["secret_key"]
        assert second["mqtt_port"] == wanted, "the next start keeps it without the option"
        owns = [[own["device_id"] for own in told["own_devices"]] for told in (first, second)]
        assert owns[0] == owns[1]
        ids = {*second["device_ids"], *(own["device_id"] for own in second["own_devices"])}
        assert {device["device_id"] for device in devices_of(second)} == ids
        assert len(ids) == 4, "two virtual ones and one's own two"
    finally:
        end(process)
    assert (tmp_path / "data" / "keys" / "secret_key").stat().st_mode & 0o077 == 0


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run ``up`` with options that it refuses, in this process; what it says."""

    def refuse(*options: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*UP[1:], *options])
        assert ended.value.code == 2
        return capsys.readouterr().err

    return refuse


def test_settings_that_cannot_be_used_are_refused_with_2_and_the_fix(refused, tmp_path):
    assert "which --no-console leaves out" in refused("--no-console", f"--runs={tmp_path}")
    (tmp_path / "file").write_text("")
    assert "file" in refused(f"--data={tmp_path / 'file' / 'data'}")


def test_a_port_that_is_taken_or_wanted_twice_is_refused_at_once_with_its_own_option(refused):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        for option in ("--port", "--gateway-port", "--mqtt-port"):
            assert refused(f"{option}={taken}") == (
                f"fleet-simulator up: port {taken} on 127.0.0.1 is in use: stop what listens there, "
                f"or give another {option} (0 takes any)\n"
            )
    assert "--gateway-port and --mqtt-port are both 9" in refused("--gateway-port=9", "--mqtt-port=9")
    for option in ("--mqtt-port=0", "--gateway-port=0"):
        assert "--no-gateway leaves out" in refused("--no-gateway", option)


def test_a_broker_that_does_not_start_is_said_by_the_exit_code(capsys, monkeypatch):
    monkeypatch.setattr("simulator.gateway.broker.find_mosquitto", lambda: "/bin/false")
    with pytest.raises(SystemExit) as ended:
        main(UP[1:])
    assert ended.value.code == 5
    assert "mosquitto ended with 1 before it listened" in capsys.readouterr().err


def test_a_gateway_that_loses_its_port_before_it_listens_names_the_option(tmp_path):
    keys = Keys("mk_a", Secret("msk_a"))
    with socket.create_server(("127.0.0.1", 0)) as other, running() as bench:
        run = running_trial(tmp_path, bench.service.base_url, keys, {}, "127.0.0.1", other.getsockname()[1])
        with pytest.raises(ConfigurationError, match="give another --gateway-port"), run:
            pytest.fail("it listens on a port that somebody else has")


def test_up_brings_a_gateway_and_a_device_of_ones_own_that_works_with_its_token_alone():
    process, told = start()
    try:
        own = next(own for own in told["own_devices"] if own["transport"] == "HTTP")
        headers = {"authorization": f"Bearer {own['device_token']}"}
        device_id = own["device_id"]
        reading = {"device_id": device_id, "sensor_data": {"t": 21.5}}
        assert told["console_url"].startswith(f"{told['base_url']}/console/")
        with httpx.Client(base_url=told["gateway_url"], headers=headers, trust_env=False, timeout=120) as http:
            assert http.get(f"/devices/{device_id}/commands?status=open").json()["data"] == []
            assert http.post("/sensor-data", json=reading).status_code == 201
            assert http.post("/sensor-data", json={**reading, "device_id": "another"}).status_code in {403, 404}
        wait_until_stored(told, device_id)
        assert all(told["secret_key"] not in Path(each["agent_config"]).read_text() for each in told["own_devices"])
    finally:
        assert end(process) == 0
    assert not Path(own["agent_config"]).exists(), "without --data nothing is left"


@pytest.mark.skipif(sys.platform != "linux", reason="an address of a network of its own needs a network namespace")
def test_a_board_on_the_desk_enrolls_with_the_line_that_up_prints(tmp_path):
    """The address is on the loopback device of a network namespace: nothing leaves this machine."""
    unshare, nsenter, ip = (require_program(*each) for each in (("unshare",), ("nsenter",), ("ip", "iproute2")))
    network = f'{ip} address add {ADDRESS}/32 dev lo && {ip} link set lo up && exec "$@"'
    up = [*UP, "--host", ADDRESS, "--gateway-host", ADDRESS, f"--data={tmp_path / 'up'}"]
    process = subprocess.Popen(
        [unshare, "--net", "sh", "-c", network, "sh", *up], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line and "Operation not permitted" in (said := process.stderr.read()):
            do_without(f"no network namespace can be made: {said}", "run the build as root")
        told = json.loads(line)
        assert told["console_url"] is None  # its pages are for loopback alone
        assert told["gateway_url"].startswith(f"https://{ADDRESS}:")
        enroll = shlex.split(told["enroll"].removeprefix("sudo "))
        inside = [nsenter, "--target", str(process.pid), "--net"]
        options = ["--dir", str(tmp_path), "--no-start", "--identifier", "BOARD-1"]
        done = run_program([*inside, program(enroll[0]), *enroll[1:], *options])
        assert done.returncode == 0, done.stderr
        config = str(tmp_path / "config.yaml")
        checked = run_program([*inside, program("device-agent"), "check", "--online", "--config", config])
        assert checked.returncode == 0, checked.stdout + checked.stderr
        again = run_program([*inside, program(enroll[0]), *enroll[1:], *options, "--identifier", "BOARD-2"])
        assert again.returncode == 1, "one code is for one device"
        scenario = tmp_path / "scenario.yaml"
        scenario.write_text(THROUGH_GATEWAY)
        fleet = [program("fleet-simulator"), "run", scenario, "--up", tmp_path / "up", "--out", tmp_path / "run"]
        done = run_program([*inside, *map(str, fleet), "--i-own-this-target"])
        assert done.returncode in {0, 3}, done.stdout + done.stderr  # 3: a machine with other work was the limit
        assert "nothing was lost" in done.stdout
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def test_the_gateway_needs_one_address_of_this_machine(refused):
    assert "one address" in refused("--gateway-host=0.0.0.0")
    assert "--no-gateway leaves out" in refused("--no-gateway", "--gateway-host=127.0.0.1")
    assert "cannot listen on 192.0.2.77" in refused("--gateway-host=192.0.2.77")


def test_the_lines_that_up_prints_bring_a_command_to_an_agent_over_mqtt_and_another_runs_over_http():
    up = [word for word in UP if word != "--json"]
    with subprocess.Popen(up, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            lines = list(iter(process.stdout.readline, "Ctrl-C ends it.\n"))
            mqtt, http, send, look = [line.strip() for line in lines if line.startswith("  ")]
            texts = [Path(shlex.split(agent)[-1]).read_text() for agent in (mqtt, http)]
            assert ["\nmqtt:" in text for text in texts] == [True, False]
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            agents = [subprocess.Popen(shlex.split(agent), env={**os.environ, "PATH": path}) for agent in (mqtt, http)]
            try:
                assert pasted(send)["status"] == "queued"
                wait_until(lambda: pasted(look)["data"][0]["status"] == "succeeded", what="the ping never succeeded")
                device_id = yaml.safe_load(texts[1])["device"]["device_id"]
                other = re.sub(r"/devices/[^/]+/commands", f"/sensor-data?device_id={device_id}", look)
                wait_until(lambda: pasted(other)["data"], what="no reading ever came over HTTP")
            finally:
                for agent in agents:
                    agent.send_signal(signal.SIGTERM)
                assert [agent.wait(60) for agent in agents] == [0, 0]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def pasted(line: str) -> dict:
    done = run_program(["sh", "-c", f"{line} --silent --noproxy '*'"], timeout=120)
    return json.loads(done.stdout)


def wait_until_stored(told: dict, device_id: str) -> None:
    headers = {"x-api-key": told["api_key"], "x-secret-key": told["secret_key"]}
    with httpx.Client(base_url=told["base_url"], headers=headers, trust_env=False, timeout=120) as http:
        ask = partial(http.get, "/sensor-data", params={"device_id": device_id})
        wait_until(lambda: ask().json()["data"], what="the reading never came to the service")


def test_without_mosquitto_a_broker_in_this_process_does(monkeypatch, tmp_path):
    monkeypatch.setattr(broker, "find_mosquitto", lambda: None)
    with running() as bench:
        device_id = bench.device()
        keys = Keys(bench.service.api_key, bench.service.secret_key)
        with running_trial(tmp_path, bench.service.base_url, keys, {MQTT: device_id}, "127.0.0.1", 0) as trial:
            assert "amqtt" in trial.broker.name
            config = yaml.safe_load(trial.devices[0].agent_config.read_text())
            assert config["mqtt"]["version"] == "3.1.1"
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, device_id, protocol=paho.MQTTv311)
            client.connect("127.0.0.1", trial.broker.port)
            client.loop_start()
            client.publish(topics.sensor_data(device_id), b'{"sensor_data":{"t":21.5}}', 1).wait_for_publish(60)
            client.disconnect()
            client.loop_stop()
            ask = partial(bench.http.get, "/sensor-data", params={"device_id": device_id})
            wait_until(lambda: ask().json()["data"], what="the reading never came to the service")
