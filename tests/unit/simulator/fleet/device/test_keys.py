"""Which key a device uses, and what it does when that key's quota is used up."""

from __future__ import annotations

import pytest

from agent.core.backoff import Backoff
from agent.errors import RateLimited, TransportError
from simulator.fleet.device.driver import Member
from simulator.fleet.device.http_driver import HttpDriver
from simulator.fleet.device.model import Clocks, DeviceModel, SharedSettings
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.device.retry_policy import RetryPolicy
from simulator.fleet.engine.http.origin import read_origin
from simulator.fleet.engine.wheel import Wheel

LIMITED = RateLimited(429, "rate_limit_exceeded", "", retry_after_s=40.0)


class Post:
    """An engine that only notes what is sent."""

    def __init__(self):
        self.sent = {}

    def send(self, device, message, caller, timeout_s):
        self.sent[device] = message.decode()

    def cut(self, device):
        pass


class HandClock:
    """Time that goes on to whatever is due next."""

    def __init__(self):
        self.now_s = 0.0
        self._due = []

    def time(self):
        return self.now_s

    def call_at(self, when, callback):
        self._due.append((when, callback))
        return self

    def cancel(self):
        self._due.clear()

    def go_on(self):
        (self.now_s, callback), self._due = min(self._due), []
        callback()


def test_a_device_uses_the_key_of_its_place_in_the_worker():
    post, origin = Post(), read_origin("http://127.0.0.1:1")
    names = ("mk_a", "mk_a", "mk_b", "mk_b", "mk_c")
    templates = [RequestTemplate(origin, {"x-api-key": name}) for name in names]
    members = [Member(f"d-{number}", "p", DeviceModel()) for number in range(5, 10)]
    fleet = SharedSettings(frozenset({"long-poll"}), seed=1, run="r")
    clock = HandClock()
    clocks = Clocks(clock.time, lambda: 1_767_225_600.0 + clock.time())
    driver = HttpDriver(post, Wheel(clock), templates, members, fleet, first_index=5, clocks=clocks)
    for device in range(5, 10):
        driver.switch_on(device)
    while len(post.sent) < 5:
        clock.go_on()
    assert {device: text.split("x-api-key: ")[1][:4] for device, text in post.sent.items()} == {
        5: "mk_a",
        6: "mk_a",
        7: "mk_b",
        8: "mk_b",
        9: "mk_c",
    }


def test_a_device_waits_as_long_as_the_service_asks_for():
    assert RetryPolicy(Backoff(), lambda: 0.5).failed(LIMITED) >= 40.0


@pytest.mark.parametrize("failures", [1, 50])
def test_a_defiant_device_goes_on_in_a_second_however_often_it_was_told(failures):
    retry_policy = RetryPolicy(Backoff(), lambda: 0.5, defies_limit=True)
    for _ in range(failures):
        assert retry_policy.failed(LIMITED) == 1.0
    assert RetryPolicy(Backoff(base_s=8.0), lambda: 0.5, defies_limit=True).failed(TransportError("x")) == 4.0
