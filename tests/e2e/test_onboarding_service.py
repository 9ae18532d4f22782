"""Labels from the printer's files into the local service and out again."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from agent.wire.auth import KeyPair
from simulator.labels.make import make_labels
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from simulator.wire.client import ServiceClient
from simulator.wire.products import NewProduct

pytestmark = pytest.mark.long

PROGRAM = (sys.executable, "-m", "simulator.cli")


@pytest.fixture(name="service")
def _service():
    with RunningService(ServiceConfig(port=0, data_dir=None)) as service:
        yield service


@pytest.fixture(name="client")
def _client(service):
    with ServiceClient(service.base_url, KeyPair(service.api_key, service.secret_key)) as client:
        yield client


@pytest.fixture(name="onboard")
def _onboard(service, client, tmp_path):
    product = client.create_product(NewProduct(name="Thermometer"))
    labels = make_labels(product_id=product.product_id, count=4, out=tmp_path / "labels", template="T {serial} °C")
    key_file = tmp_path / "secret.key"
    key_file.write_text(service.secret_key.reveal())

    def run(*more, user_id="u-1"):
        keys = ["--api-key", service.api_key, "--secret-key-file", str(key_file), "--user-id", user_id]
        command = [
            *PROGRAM,
            "onboard",
            "labels",
            str(labels.folder),
            "--base-url",
            service.base_url,
            *keys,
            "--json",
            *more,
        ]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert service.secret_key.reveal() not in result.stdout + result.stderr
        return result

    return run


def test_a_round_trip_over_every_label_is_as_specified_and_leaves_no_device(onboard, client):
    result = onboard("--remove")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["labels_passed"] == 4
    assert {step["verdict"] for journey in report["journeys"] for step in journey["steps"]} == {"passed"}
    assert list(client.devices()) == []


def test_kept_devices_are_listed_by_the_service_under_their_own_identifiers(onboard, client):
    report = json.loads(onboard("--keep").stdout)
    listed = {device.device_id: device.device_identifier for device in client.user_devices("u-1")}
    assert listed == {journey["device_id"]: journey["device_identifier"] for journey in report["journeys"]}
    assert sorted(listed.values()) == [f"T {n} °C" for n in (1, 2, 3, 4)]


def test_the_same_labels_again_keep_their_device_ids_and_another_user_is_refused(onboard):
    first, again = (json.loads(onboard("--keep").stdout) for _ in range(2))
    assert first["still_registered"] == again["still_registered"]
    assert again["journeys"][0]["steps"][0]["answered"] == "registered product shown"
    foreign = onboard("--remove", user_id="u-2")
    assert foreign.returncode == 1
    report = json.loads(foreign.stdout)
    assert {journey["steps"][1]["answered"] for journey in report["journeys"]} == {"conflict"}
    assert "failed: T 1 °C: register: answered conflict" in foreign.stderr
