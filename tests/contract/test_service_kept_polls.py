"""The answers of polls are kept until something changes: whatever happens, a kept one equals one that is made anew."""

from __future__ import annotations

import random

import pytest

from tests.service_running import Bench, running

STEPS = 80


@pytest.fixture
def bench():
    with running() as bench:
        yield bench


def made_anew(bench: Bench, device_id: str):
    """The same poll in words that are not kept."""
    return bench.http.get(f"/devices/{device_id}/commands", params={"status": "open", "limit": 100})


class World:
    """Two devices that things happen to, drawn from a seed."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.random = random.Random(seed)
        self.product_id = bench.product()
        self.devices = [bench.device(self.product_id, f"SN-{n}") for n in range(2)]

    def step(self) -> None:
        happening = self.random.choice(
            [self.send, self.send, self.report, self.report, self.let_time_pass, self.remove, self.fire_a_rule]
        )
        happening(self.random.randrange(2))

    def send(self, which: int) -> None:
        self.bench.send(self.devices[which], ttl_seconds=self.random.choice([5, 60, 3600]))

    def report(self, which: int) -> None:
        listed = made_anew(self.bench, self.devices[which]).json()["data"]
        if listed:
            status = self.random.choice(["in_progress", "succeeded", "failed"])
            self.bench.report(self.devices[which], self.random.choice(listed)["id"], status)

    def let_time_pass(self, _which: int) -> None:
        self.bench.clock.advance(self.random.choice([1, 10, 100]))

    def remove(self, which: int) -> None:
        if self.random.random() < 0.3:
            assert self.bench.http.delete(f"/onboarding/device/{self.devices[which]}").status_code == 204
            assert self.bench.poll(self.devices[which]).status_code == 404
            self.devices[which] = self.bench.device(self.product_id, f"SN-{which}")

    def fire_a_rule(self, which: int) -> None:
        rule = {
            "product_id": self.product_id,
            "name": "hot",
            "trigger": {"reading": "t", "op": ">", "value": 20},
            "actions": [{"type": "command", "command_payload": {"command": "cool"}}],
        }
        made = self.bench.http.post("/rules", json=rule)
        assert made.status_code == 201, made.text
        assert self.bench.post_reading(self.devices[which]).status_code == 201
        assert self.bench.http.delete(f"/rules/{made.json()['id']}").status_code == 204


@pytest.mark.parametrize("seed", range(2))
def test_a_kept_answer_is_the_one_that_would_be_made(bench, seed):
    world = World(bench, seed)
    for _ in range(STEPS):
        world.step()
        for device_id in world.devices:
            kept, made = bench.poll(device_id), made_anew(bench, device_id)
            assert kept.json() == made.json()
            assert kept.headers["etag"] == made.headers["etag"]
            assert bench.poll(device_id, etag=made.headers["etag"]).status_code == 304


def test_a_reset_forgets_what_was_kept(bench):
    device_id = bench.device()
    assert [bench.poll(device_id).status_code for _ in range(2)] == [200, 200]
    assert bench.http.post("/_emulator/reset").status_code in {200, 204}
    assert bench.poll(device_id).status_code == 404


def test_a_kept_answer_is_its_own_accounts(bench):
    device_id = bench.device()
    assert bench.poll(device_id).status_code == 200
    other = bench.service.add_account("other")
    keys = {"x-api-key": other.api_key, "x-secret-key": other.secret_key.reveal()}
    foreign = bench.http.get(f"/devices/{device_id}/commands", params={"status": "open"}, headers=keys)
    assert foreign.status_code == 404
    assert bench.poll(device_id).status_code == 200


def test_a_device_that_gets_kept_answers_is_online(bench):
    device_id = bench.device()
    for _ in range(4):
        bench.clock.advance(100)
        bench.poll(device_id)
    assert bench.http.get("/devices").json()["data"][0]["status"] == "online"
