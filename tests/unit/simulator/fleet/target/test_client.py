"""A pool of keys: the quota of each is kept, and one that has to wait lets the others go on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agent.errors import ServerFault, Unauthorized
from agent.wire.secret import Secret
from simulator.fleet.engine.http_answers import HttpAnswer
from simulator.fleet.target.client import Keyring, TargetClient, open_client
from simulator.fleet.target.target import Target
from simulator.keys import Keys
from tests.support.http_server import OK, Server

PAIRS = tuple(Keys(f"mk_{name}", Secret(f"msk_{name}")) for name in "abc")


class Limited:
    """A service that gives each key so many requests, and then asks for a rest."""

    base_url = "http://service.example/base"

    def __init__(self, quota: int, page: Any = None):
        self.quota = quota
        self.page = page
        self.used: dict[str, int] = {}
        self.targets: list[str] = []
        self.now_s = 0.0

    async def request(self, method, target, *, body=None, headers=None, wait_s=0.0):
        key = headers["x-api-key"]
        self.targets.append(target)
        self.used[key] = self.used.get(key, 0) + 1
        if self.used[key] > self.quota:
            return HttpAnswer(429, [(b"retry-after", b"20")], b'{"error":"rate_limit_exceeded"}')
        return self.page(target) if self.page else HttpAnswer(200, [], b"[]")

    async def sleep(self, seconds):
        self.now_s += seconds
        self.used.clear()

    def desk(self, pairs=PAIRS):
        return TargetClient(self, Keyring(pairs), sleep=self.sleep, clock=lambda: self.now_s)


def test_keys_take_turns_and_when_all_are_used_up_the_wait_is_as_long_as_the_service_asks_for():
    service = Limited(quota=1)

    async def ask() -> tuple[dict[str, int], float]:
        desk = service.desk()
        for _ in PAIRS:
            await desk.ask("GET", "/devices")
        used, waited_s = dict(service.used), service.now_s
        await desk.ask("GET", "/devices")
        return used, waited_s

    assert asyncio.run(ask()) == ({"mk_a": 1, "mk_b": 1, "mk_c": 1}, 0.0)
    assert service.now_s == 20.0


@pytest.mark.parametrize(("status", "error", "asked"), [(401, Unauthorized, 1), (500, ServerFault, 9)])
def test_what_does_not_pass_is_told_after_its_tries(status, error, asked):
    service = Limited(100, page=lambda target: HttpAnswer(status, [], b'{"error":"x"}'))
    with pytest.raises(error):
        asyncio.run(service.desk().ask("GET", "/devices"))
    assert len(service.targets) == asked


@pytest.mark.parametrize("absolute", ["", "http://service.example"])
def test_pages_are_followed_by_link_below_the_base_address(absolute):
    def page(target):
        last = "after=2" in target
        link = [] if last else [(b"link", f'<{absolute}/base/devices?after=2>; rel="next"'.encode())]
        return HttpAnswer(200, link, json.dumps([target]).encode())

    service = Limited(100, page)

    async def read():
        return [items async for items in service.desk().pages("/devices", {"limit": 5})]

    assert asyncio.run(read()) == [["/devices?limit=5"], ["/devices?after=2"]]


def test_the_desk_is_patient_however_hasty_the_devices_are():
    async def story() -> int:
        async def late(_head: bytes, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.1)
            writer.write(OK)

        async with Server(late, OK) as server:
            async with open_client(Target(server.base_url, PAIRS), timeout_s=0.01) as desk:
                await desk.ask("GET", "/products")
            return len(server.requests)

    assert asyncio.run(story()) == 1
