"""The device of docs/protocol.md runs as it stands, against a real gateway and the real service."""

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
from tests.system.agent_bench import wait_until
from tests.system.test_gateway_journey import Journey, travelling

ROOT = Path(__file__).resolve().parents[2]
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


def test_the_curl_device_runs_each_command_once_and_stores_its_readings(tmp_path):
    """Commands from before its first start, while it runs and while it is away."""
    require_program("curl")
    require_program("jq")
    folder = tmp_path / "device"
    folder.mkdir()
    (folder / "device.sh").write_text(device_of("A device with curl"))
    with travelling(tmp_path) as journey:
        journey.set_up()
        journey.start()
        url = f"https://127.0.0.1:{journey.port}"
        device_id = journey.add("SN-CURL", "--url", url)
        (folder / "token").write_text((tmp_path / "SN-CURL" / "token").read_text())
        environ = {"DEVICE": device_id, "CA": str(tmp_path / "etc" / "tls" / "ca.pem"), "GATEWAY": url}
        before = send(journey, device_id, "blink")
        with running(["sh", "device.sh"], folder, environ):
            wait_for(journey, device_id, before, "succeeded")
            meanwhile, unknown = send(journey, device_id, "blink"), send(journey, device_id, "fly")
            wait_for(journey, device_id, meanwhile, "succeeded")
            wait_for(journey, device_id, unknown, "rejected")
            wait_until(lambda: list(journey.client.sensor_data(device_id)), WAIT_S)
        away = send(journey, device_id, "blink")
        with running(["sh", "device.sh"], folder, environ):
            wait_for(journey, device_id, away, "succeeded")
        assert (folder / "blinked").read_text() == "blink\n" * 3
        assert len(list((folder / "taken").iterdir())) == 4
        values = [reading.sensor_data for reading in journey.client.sensor_data(device_id)]
        assert {value["temperature"] for value in values} == {21.5}
