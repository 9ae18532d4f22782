from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.errors import Conflict, Unauthorized
from agent.wire.secret import KeyPair, Secret
from gateway.client import RegisterDevice
from simulator.fleet.target.client import TargetClient, open_client
from simulator.fleet.target.provisioning import (
    MARK,
    Provisioned,
    clean_up,
    load_product,
    provision,
)
from simulator.fleet.target.target import Target
from simulator.keys import Keys
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from simulator.wire.client import ServiceClient
from simulator.wire.models import NewProduct

KEYS = Keys("mk_fleet", Secret("msk_fleet"))


@pytest.fixture
def service() -> Iterator[RunningService]:
    config = ServiceConfig(port=0, api_key=KEYS.api_key, secret_key=KEYS.secret_key, rate_limit=0)
    with RunningService(config) as running:
        yield running


@pytest.fixture
def client(service: RunningService) -> Iterator[ServiceClient]:
    with ServiceClient(service.base_url, KeyPair(KEYS.api_key, KEYS.secret_key)) as made:
        yield made


def at_desk(service: RunningService, work: Callable[[TargetClient], Any], keys: Keys = KEYS) -> Any:
    async def run() -> Any:
        async with open_client(Target(service.base_url, (keys,))) as desk:
            return await work(desk)

    return asyncio.run(run())


def make(service: RunningService, count: int, prefix: str = "sim-", keys: Keys = KEYS) -> Provisioned:
    names = [f"{prefix}{number:06d}" for number in range(count)]

    async def work(desk: TargetClient) -> Provisioned:
        return await provision(desk, load_product(), names, lambda *_: None, scenario="smoke", user_id="fleet")

    return at_desk(service, work, keys)


def test_devices_are_made_once_and_found_by_the_next_run(service, client):
    first = make(service, 130)
    assert len({device.device_id for device in first.devices}) == 130
    assert [device.name for device in first.devices] == [f"sim-{number:06d}" for number in range(130)]
    again = make(service, 150)
    assert again.devices[:130] == first.devices
    assert len(list(client.devices())) == 150
    assert all((device.device_name or "").startswith(MARK) for device in client.devices())


def test_an_identifier_of_somebody_else_stops_the_run_with_the_fix(service, client):
    first = make(service, 1)
    client.register_device(
        RegisterDevice(user_id="another", product_id=first.product_id, device_identifier="taken-000001")
    )
    with pytest.raises(Conflict) as caught:
        make(service, 3, "taken-")
    assert any("fleet.prefix" in note for note in caught.value.__notes__)


def test_cleanup_takes_what_carries_the_mark_or_a_prefix_as_well_and_nothing_else(service, client):
    own = client.create_product(NewProduct(name="a product of somebody"))
    client.register_device(RegisterDevice(user_id="u", product_id=own.product_id, device_identifier="qa-000001"))
    make(service, 3, "qa-")
    make(service, 40, "perf-")
    told: list[tuple[int, int]] = []

    def clean(prefix: str = "", *, dry_run: bool = False) -> tuple[int, int]:
        devices, products, _names = at_desk(
            service, lambda desk: clean_up(desk, lambda *both: told.append(both), prefix=prefix, dry_run=dry_run)
        )
        return products, devices

    assert clean("a-") == (0, 0), "in the middle of an identifier is no prefix"
    assert clean("qa-", dry_run=True) == (0, 3)
    assert clean("qa-") == (0, 3)
    assert clean("qa-") == (0, 0), "the device of somebody stays"
    told.clear()
    assert (clean(dry_run=True), told) == ((1, 40), [])
    assert len(list(client.devices())) == 41
    assert clean("perf-") == (1, 40), "the product goes with the last of its devices"
    assert told[-1] == (40, 40)
    make(service, 2)
    assert clean() == (1, 2)
    assert [device.device_identifier for device in client.devices()] == ["qa-000001"]
    assert [product.name for product in client.products()] == ["a product of somebody"]
    assert clean() == (0, 0)


def test_wrong_keys_are_told_at_once_and_not_tried_again(service):
    wrong = Keys("mk_fleet", Secret("msk_wrong"))
    with pytest.raises(Unauthorized):
        make(service, 3, keys=wrong)
