"""A command is over at its end, whatever happens to other requests or to the storage around that time."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import pytest

from agent.wire.encoding import parse_time
from simulator.wire.limits import OPEN_COMMANDS_MAX
from tests.support.service_running import Bench, running

STEPS = 150


@pytest.fixture
def bench():
    with running() as bench:
        yield bench


@contextlib.contextmanager
def storage_fails(bench: Bench, *, really: bool = True) -> Iterator[None]:
    """Within the block nothing can be written."""

    def set_writable(is_writable: bool) -> None:
        bench.service.do(lambda service: service.db.sql.execute(f"PRAGMA query_only = {not is_writable}"))

    set_writable(not really)
    yield
    set_writable(True)


def open_ids(bench: Bench, device_id: str, **query: object) -> list[str]:
    answer = bench.poll(device_id, **query)
    assert answer.status_code == 200, answer.text
    return [record["id"] for record in answer.json()["data"]]


def test_a_command_is_not_given_out_while_its_end_cannot_be_stored(bench: Bench):
    device = bench.device()
    command = bench.send(device, ttl_seconds=5)
    assert open_ids(bench, device) == [command]
    bench.clock.advance(6)
    with storage_fails(bench):
        assert bench.poll(device).status_code == 503
    assert open_ids(bench, device) == []
    assert bench.command(device, command)["status"] == "timed_out"


class World:
    """Three devices that things happen to, drawn from a seed; most of them concern one device and leave the others."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.random = random.Random(seed)
        self.product_id = bench.product()
        self.devices = [bench.device(self.product_id, f"SN-{n}") for n in range(3)]
        self.known = ["no-such-command"]
        for _ in range(OPEN_COMMANDS_MAX):  # what is sent to this one is refused at first
            bench.send(self.devices[0], ttl_seconds=60)

    def step(self) -> None:
        which = self.random.randrange(3)
        happening = self.random.choice([self.send, self.send, self.report, self.wait, self.wait, self.remove])
        with storage_fails(self.bench, really=self.random.random() < 0.1):
            happening(which)
        if self.random.random() < 0.5:
            self.look(self.random.randrange(3))

    def send(self, which: int) -> None:
        body = {"device_id": self.devices[which], "command_payload": {"command": "ping"}}
        self.bench.http.post("/commands/send", json={**body, "ttl_seconds": self.random.choice([1, 5, 60])})

    def report(self, which: int) -> None:
        status = self.random.choice(["failed", "succeeded"])
        self.bench.report(self.devices[which], self.random.choice(self.known), status)

    def wait(self, _which: int) -> None:
        self.bench.clock.advance(self.random.choice([0.5, 1, 5, 30]))

    def remove(self, which: int) -> None:
        if self.random.random() < 0.4:
            removed = self.random.choice([self.devices[which], "no-such-device"])
            self.bench.http.delete(f"/onboarding/device/{removed}")
        for n, device_id in enumerate(self.devices):
            if self.bench.poll(device_id).status_code == 404:
                body = {"user_id": "user-0001", "product_id": self.product_id, "device_identifier": f"SN-{n}"}
                answer = self.bench.http.post("/onboarding/device", json=body)
                if answer.status_code < 300:
                    self.devices[n] = answer.json()["device_id"]

    def look(self, which: int) -> None:
        answer = self.bench.poll(self.devices[which])
        if answer.status_code != 200:
            return
        now_s = self.bench.clock.now_ms() / 1000
        for record in answer.json()["data"]:
            self.known.append(record["id"])
            assert parse_time(record["expires_at"]) > now_s, "a command is listed after its end"
        for record in self.bench.http.get(f"/devices/{self.devices[which]}/commands?limit=1000").json()["data"]:
            is_open = record["status"] in {"queued", "delivered", "in_progress"}
            assert not is_open or parse_time(record["expires_at"]) > now_s, "a command is open after its end"


@pytest.mark.parametrize("seed", range(2))
def test_no_command_is_listed_after_its_end_whatever_fails(bench: Bench, seed: int):
    world = World(bench, seed)
    for _ in range(STEPS):
        world.step()
    for which in range(3):
        world.look(which)
    assert len(world.known) > 10
