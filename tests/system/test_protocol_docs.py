"""Foreign devices: the one of docs/protocol.md as it stands, and one in Node that was written from that page alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.client import SendCommand
from tests.conftest import require_program
from tests.support.node_packages import node_with
from tests.system.agent_bench import wait_until
from tests.system.test_gateway_journey import Journey, travelling

ROOT = Path(__file__).resolve().parents[2]
MQTT_CLIENT = Path(__file__).with_name("mqtt_client")
PAGE = (ROOT / "docs" / "protocol.md").read_text("utf-8")
WAIT_S = 120.0
pytestmark = [pytest.mark.timeout(400), pytest.mark.long]


def device_of(heading: str) -> str:
    """The one script under a heading."""
    section = PAGE.split(f"### {heading}\n", 1)[1].split("\n### ", 1)[0]
    (script,) = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return script


def send(journey: Journey, device_id: str, name: str) -> str:
    command = SendCommand(device_id=device_id, command_payload={"command": name})
    return journey.client.send_command(command).id


def wait_for(journey: Journey, device_id: str, command_id: str, status: str) -> None:
    def has_ended() -> bool:
        records = {record.id: record for record in journey.client.device_commands(device_id).records}
        return records[command_id].status == status

    wait_until(has_ended, WAIT_S)


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


def prove(journey: Journey, identifier: str, command: list[str], way: list[str], **environ: str) -> None:
    """Commands from before its first start, while it runs and while it is away run once each, and readings come."""
    device_id = journey.add(identifier, *way)
    if "--broker" in way:
        journey.reload_broker()
    folder = journey.folder / identifier
    environ |= {"DEVICE": device_id, "CA": str(journey.folder / "etc" / "tls" / "ca.pem")}
    before = send(journey, device_id, "blink")
    with running(command, folder, environ):
        wait_for(journey, device_id, before, "succeeded")
        meanwhile, unknown = send(journey, device_id, "blink"), send(journey, device_id, "fly")
        wait_for(journey, device_id, meanwhile, "succeeded")
        wait_for(journey, device_id, unknown, "rejected")
        wait_until(lambda: list(journey.client.sensor_data(device_id)), WAIT_S)
    away = send(journey, device_id, "blink")
    with running(command, folder, environ):
        wait_for(journey, device_id, away, "succeeded")
    assert (folder / "blinked").read_text() == "blink\n" * 3
    assert len(list((folder / "taken").iterdir())) == 4
    readings = list(journey.client.sensor_data(device_id))
    assert {each.sensor_data["temperature"] for each in readings} == {21.5}


def test_the_curl_device_over_http_runs_each_command_once_and_stores_its_readings(tmp_path):
    require_program("curl")
    require_program("jq")
    (tmp_path / "device.sh").write_text(device_of("A device with curl"))
    with travelling(tmp_path) as journey:
        journey.set_up()
        journey.start()
        url = f"https://127.0.0.1:{journey.port}"
        prove(journey, "SN-CURL", ["sh", "../device.sh"], ["--url", url], GATEWAY=url)


def test_a_device_in_node_over_mqtt_runs_each_command_once_and_stores_its_readings(tmp_path):
    """Somebody else's MQTT client, and firmware that was written from the page alone."""
    node = node_with(MQTT_CLIENT)
    with travelling(tmp_path) as journey:
        journey.set_up("--mqtt")
        journey.start_broker()
        journey.start("mqtt=connected")
        port = str(journey.broker.port)
        prove(journey, "SN-NODE", [node, str(MQTT_CLIENT / "device.mjs")], ["--broker", f"127.0.0.1:{port}"], PORT=port)
        assert (tmp_path / "SN-NODE" / "confirmed").exists(), "a receipt has named the last key that waited"


def test_the_lock_file_names_no_registry():
    lock = (MQTT_CLIENT / "package-lock.json").read_text("utf-8")
    assert "resolved" not in lock
    assert "integrity" in lock
