"""Virtual devices against the real local service, over real sockets."""

from __future__ import annotations

import threading

import pytest

from agent.core.poll_interval import PollIntervals
from agent.wire.auth import KeyPair
from gateway.client import RegisterDevice, SendCommand
from simulator.fleet.device.model import DeviceModel
from simulator.fleet.runner import DeviceIdentity, FleetTarget, FleetThread
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from simulator.wire.client import ServiceClient
from simulator.wire.models import NewProduct
from tests.ports import free_port
from tests.reading_audit import ReadingFact, audit_readings

MODEL = DeviceModel(interval_s=0.2, polling=PollIntervals(0.2, 0.4, 0.8))


@pytest.fixture
def service():
    with RunningService(ServiceConfig(rate_limit=0)) as running:
        yield running


@pytest.fixture
def client(service):
    with ServiceClient(service.base_url, KeyPair(service.api_key, service.secret_key)) as made:
        yield made


def registered(client: ServiceClient, count: int) -> list[DeviceIdentity]:
    product = client.create_product(NewProduct(name="Climate node"))
    made = [
        client.register_device(
            RegisterDevice(user_id="u", product_id=product.product_id, device_identifier=f"d{number}")
        )
        for number in range(count)
    ]
    return [DeviceIdentity(device.device_id, product.product_id, f"v{n}") for n, device in enumerate(made)]


def target_of(service, client) -> FleetTarget:
    headers = {"x-api-key": service.api_key, "x-secret-key": service.secret_key.reveal()}
    return FleetTarget(service.base_url, headers, client.discover().extensions)


def stored_readings(client: ServiceClient, device_id: str) -> list[ReadingFact]:
    """What the service has, under the millisecond that each reading carries."""
    return [
        ReadingFact(round(row.recorded_at * 1000), row.sensor_data)
        for row in client.sensor_data(device_id, order="asc")
    ]


def wait_for_end(client: ServiceClient, device: DeviceIdentity, command_id: str) -> str:
    """The command's final state; a held poll of the service is the clock."""
    etag = None
    for _ in range(90):
        listed = client.device_commands(device.device_id, wait_s=1, etag=etag)
        etag = listed.etag
        for record in listed.records:
            if record.id == command_id and record.completed_at is not None:
                return record.status
    return "never ended"


def test_a_fleet_runs_commands_and_hands_over_every_reading_once(service, client):
    devices = registered(client, 8)
    with FleetThread(target_of(service, client), devices, MODEL, seed=1) as fleet:
        fleet.switch_on()
        sent = [
            (device, client.send_command(SendCommand(device_id=device.device_id, command_payload=payload)).id)
            for device in devices
            for payload in ({"command": "self_test", "seconds": 0.8}, {"command": "make_coffee"})
        ]
        states = [wait_for_end(client, device, command_id) for device, command_id in sent]
        fleet.sample(on=False)
        assert fleet.settle(60) == []
        assert states == ["succeeded", "rejected"] * 8
        for device in devices:
            ledger = fleet.ledgers[device.device_id]
            found = audit_readings(ledger, stored_readings(client, device.device_id))
            assert found.clean, found.wrong
            assert found.accepted > 0
            assert ledger.faults == []
            assert sum(ledger.effects.values()) == 1


def test_a_device_that_was_off_gets_its_command_when_it_is_on_again(service, client):
    (device,) = registered(client, 1)
    with FleetThread(target_of(service, client), [device], MODEL, seed=1) as fleet:
        fleet.switch_on()
        first = client.send_command(SendCommand(device_id=device.device_id, command_payload={"command": "ping"})).id
        assert wait_for_end(client, device, first) == "succeeded"
        fleet.switch_off()
        second = client.send_command(SendCommand(device_id=device.device_id, command_payload={"command": "ping"})).id
        assert client.device_commands(device.device_id, status="queued").records[0].id == second
        fleet.switch_on()
        assert wait_for_end(client, device, second) == "succeeded"
        assert fleet.ledgers[device.device_id].effects == {first: 1, second: 1}


def test_a_fleet_outlives_its_service_and_loses_nothing(tmp_path):
    port = free_port()
    config = ServiceConfig(rate_limit=0, data_dir=tmp_path, port=port)
    with RunningService(config) as service:
        key, secret = service.api_key, service.secret_key
        client = ServiceClient(service.base_url, KeyPair(key, secret))
        (device,) = registered(client, 1)
        fleet = FleetThread(target_of(service, client), [device], MODEL, seed=1)
        fleet.__enter__()
        fleet.switch_on()
        ping = client.send_command(SendCommand(device_id=device.device_id, command_payload={"command": "ping"})).id
        assert wait_for_end(client, device, ping) == "succeeded"
    try:
        config = ServiceConfig(rate_limit=0, data_dir=tmp_path, port=port, api_key=key, secret_key=secret)
        with RunningService(config):
            again = client.send_command(SendCommand(device_id=device.device_id, command_payload={"command": "ping"})).id
            assert wait_for_end(client, device, again) == "succeeded"
            fleet.sample(on=False)
            assert fleet.settle(60) == []
            ledger = fleet.ledgers[device.device_id]
            found = audit_readings(ledger, stored_readings(client, device.device_id))
            assert found.clean, found.wrong
            assert ledger.effects == {ping: 1, again: 1}
    finally:
        fleet.__exit__(None, None, None)
        client.close()


def test_a_fleet_leaves_no_thread_behind(service, client):
    devices = registered(client, 2)
    with FleetThread(target_of(service, client), devices, MODEL, seed=1) as fleet:
        fleet.switch_on()
    assert [thread.name for thread in threading.enumerate() if thread.name == "fleet"] == []
