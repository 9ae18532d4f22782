"""The gateway as a process between a real broker and a real service: bad input, and how its state is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.wire import topics
from simulator.children import program_path
from tests.conftest import require_program
from tests.support.mosquitto import end_client, find_mosquitto
from tests.support.processes import run_program
from tests.system.agent_bench import wait_until
from tests.system.fault.gateway_rig import GatewayRig

SOON_S = 60.0


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[GatewayRig]:
    mosquitto = find_mosquitto() or require_program("mosquitto")
    with GatewayRig(tmp_path, mosquitto) as rig:
        rig.start_gateway()
        rig.wait_for_gateway()
        yield rig


def stored(rig: GatewayRig, name: str) -> list[float]:
    with rig.client() as client:
        records = client.sensor_data(device_id=rig.device_id)
        return sorted(record.sensor_data[name] for record in records if name in record.sensor_data)


def log(rig: GatewayRig) -> str:
    return (rig.folder / "gateway.log").read_text()


@pytest.mark.timeout(180)
def test_bad_input_of_a_device_is_told_once_and_stops_nobody(rig):
    device = rig.device_id
    client = rig.broker.client(device)
    for topic, payload in 3 * [
        (topics.sensor_data(device), b"{not json"),
        (topics.sensor_data(device), b"x" * 1_000_000),
        (topics.sensor_data("stranger"), b'{"sensor_data":{"t":9.5}}'),
        (topics.status(device), b"perhaps"),
        (topics.result(device, "made-up"), b'{"status":"succeeded"}'),
    ] + [(topics.sensor_data(device), b'{"sensor_data":{"t":4.5}}')]:
        client.publish(topic, payload, 1).wait_for_publish(SOON_S)
    end_client(client)
    wait_until(lambda: 4.5 in stored(rig, "t"), what="no good reading was stored after the bad ones")
    assert 9.5 not in stored(rig, "t")
    for complaint in ("mqtt=invalid_json", "mqtt=unknown_device", "mqtt=bad_status"):
        wait_until(lambda complaint=complaint: complaint in log(rig), what=f"nothing was told of {complaint}")
        assert log(rig).count(complaint) == 1, complaint
    assert "Traceback" not in log(rig)


@pytest.mark.timeout(180)
def test_status_tells_of_a_running_a_dead_and_a_stopped_gateway(rig):
    assert wait_until(lambda: _status(rig)["is_healthy"], what="not all parts were well")
    rig.gateway.kill()
    assert _status(rig)["state"] == "died"

    rig.start_gateway()
    wait_until(lambda: _status(rig)["is_healthy"], what="it was not well again")
    assert rig.gateway.end() == 0
    assert _status(rig)["state"] == "stopped"


def _status(rig: GatewayRig) -> dict[str, Any]:
    command = [program_path("device-gateway"), "status", "--json", "--config", rig.folder / "gateway.yaml"]
    done = run_program(command)
    assert done.returncode in {0, 1}, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
