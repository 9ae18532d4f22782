"""The gateway as a process between a real broker and a real service; foreign devices that know only the protocol."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.wire import topics
from gateway.client import SendCommand
from simulator.children import program_path
from tests.conftest import require_program
from tests.support.mosquitto import find_mosquitto
from tests.system.fault.gateway_rig import GatewayRig

SOON_S = 60.0


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[GatewayRig]:
    mosquitto = find_mosquitto() or require_program("mosquitto")
    with GatewayRig(tmp_path, mosquitto) as rig:
        rig.start_gateway()
        rig.wait_for_gateway()
        yield rig


def wait_until(is_so: Callable[[], Any], what: str) -> Any:
    deadline_s = time.monotonic() + SOON_S
    while not (found := is_so()):
        assert time.monotonic() < deadline_s, f"{what} did not happen"
        time.sleep(0.05)
    return found


def publish(rig: GatewayRig, topic: str, payload: str | bytes, *options: str) -> None:
    """As a shell script on a device would."""
    program = require_program("mosquitto_pub", "mosquitto-clients")
    command = [program, "-p", str(rig.broker.port), "-i", rig.device_id, "-q", "1", "-t", topic, "-s", *options]
    data = payload.encode() if isinstance(payload, str) else payload
    subprocess.run(command, input=data, check=True, timeout=SOON_S)


@contextlib.contextmanager
def subscribed(rig: GatewayRig, topic_filter: str, count: int) -> Iterator[Callable[[], list[tuple[str, Any]]]]:
    """A device that listens; call what is given for the messages: (topic, JSON)."""
    program = require_program("mosquitto_sub", "mosquitto-clients")
    name = f"listener-{uuid.uuid4().hex[:8]}"
    command = [program, "-p", str(rig.broker.port), "-i", name, "-q", "1", "-t", topic_filter, "-C", str(count)]
    process = subprocess.Popen([*command, "-W", str(int(SOON_S)), "-F", "%t %p"], stdout=subprocess.PIPE, text=True)

    def messages() -> list[tuple[str, Any]]:
        output, _ = process.communicate(timeout=2 * SOON_S)
        pairs = [line.split(" ", 1) for line in output.splitlines()]
        return [(topic, json.loads(text)) for topic, text in pairs]

    try:
        # What it prints stays in its buffer until its end; the broker knows when it listens.
        wait_until(lambda: f"Sending SUBACK to {name}" in rig.broker.log(), "it listened")
        yield messages
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def stored(rig: GatewayRig, name: str) -> list[float]:
    with rig.client() as client:
        records = client.sensor_data(device_id=rig.device_id)
        return sorted(record.sensor_data[name] for record in records if name in record.sensor_data)


def log(rig: GatewayRig) -> str:
    return (rig.folder / "gateway.log").read_text()


@pytest.mark.timeout(180)
def test_a_device_made_of_shell_commands_gets_its_commands_and_stores_its_readings(rig):
    device = rig.device_id
    with rig.client() as client:
        with subscribed(rig, topics.commands_filter(device), 1) as messages:
            sent = client.send_command(SendCommand(device_id=device, command_payload={"command": "blink"}))
            [(topic, record)] = messages()
        assert topics.parse(topic).command_id == sent.id == record["id"]
        assert record["command_payload"] == {"command": "blink"}

        publish(rig, topics.result(device, sent.id), '{"status":"succeeded","result":{"blinks":3}}')

        def result() -> Any:
            return next((r.result for r in client.device_commands(device).records if r.status == "succeeded"), None)

        assert wait_until(result, "the result came") == {"blinks": 3}

    publish(rig, topics.sensor_data(device), '{"sensor_data":{"t":1.5}}')
    with subscribed(rig, topics.receipts(device), 1) as messages:
        publish(
            rig, topics.sensor_data(device), '[{"sensor_data":{"t":2.5},"key":"a"},{"sensor_data":{"t":3.5},"key":"b"}]'
        )
        [(_, receipt)] = messages()
    assert receipt["stored"] == ["a", "b"]
    publish(rig, topics.sensor_data(device), '{"sensor_data":{"t":2.5},"key":"a"}')
    assert wait_until(lambda: len(stored(rig, "t")) >= 3 and stored(rig, "t"), "the readings are stored") == [
        1.5,
        2.5,
        3.5,
    ]

    _bad_input_is_told_once_and_stops_nobody(rig)


def _bad_input_is_told_once_and_stops_nobody(rig: GatewayRig) -> None:
    device = rig.device_id
    for _ in range(3):
        publish(rig, topics.sensor_data(device), "{not json")
        publish(rig, topics.sensor_data(device), b"x" * 1_000_000)
        publish(rig, topics.sensor_data("stranger"), '{"sensor_data":{"t":9.5}}')
        publish(rig, topics.status(device), "perhaps")
        publish(rig, topics.result(device, "made-up"), '{"status":"succeeded"}')
    publish(rig, topics.sensor_data(device), '{"sensor_data":{"t":4.5}}')
    wait_until(lambda: 4.5 in stored(rig, "t"), "a good reading after the bad ones is stored")
    assert 9.5 not in stored(rig, "t")
    for complaint in ("mqtt=invalid_json", "mqtt=unknown_device", "mqtt=bad_status"):
        wait_until(lambda complaint=complaint: complaint in log(rig), f"{complaint} was told")
        assert log(rig).count(complaint) == 1, complaint
    assert "Traceback" not in log(rig)


@pytest.mark.timeout(180)
def test_status_tells_of_a_running_a_dead_and_a_stopped_gateway(rig):
    assert wait_until(lambda: _status(rig)["is_healthy"], "all parts were well")
    rig.gateway.kill()
    assert _status(rig)["state"] == "died"

    rig.start_gateway()
    wait_until(lambda: _status(rig)["is_healthy"], "it was well again")
    assert rig.gateway.end() == 0
    assert _status(rig)["state"] == "stopped"


def _status(rig: GatewayRig) -> dict[str, Any]:
    command = [program_path("device-gateway"), "status", "--json", "--config", rig.folder / "gateway.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON_S, check=False)
    assert done.returncode in {0, 1}, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
