"""A running service with a client in front of it, for tests: real sockets, a clock that stands until it is moved."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx

from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService

T0_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z, the beginning of a calendar minute."""


class ManualClock:
    """A clock that stands until somebody moves it."""

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """This instant, milliseconds since the epoch."""
        return self._now_ms

    def advance(self, seconds: float) -> None:
        """Move forward."""
        if seconds < 0:
            raise ValueError("a clock that stands is moved forward only: give seconds >= 0")
        self._now_ms += round(seconds * 1000)


@dataclass
class Bench:
    """A service, its clock, and a client that has the first account's keys."""

    service: RunningService
    clock: ManualClock
    http: httpx.Client

    def product(self, **members: Any) -> str:
        """A new product's id."""
        answer = self.http.post("/products", json={"name": "Door controller", **members})
        assert answer.status_code == 201, answer.text
        return answer.json()["product_id"]

    def device(self, product_id: str | None = None, identifier: str = "SN-000001", user_id: str = "user-0001") -> str:
        """A newly registered device's id."""
        body = {"user_id": user_id, "product_id": product_id or self.product(), "device_identifier": identifier}
        answer = self.http.post("/onboarding/device", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()["device_id"]

    def of(self, http: httpx.Client) -> Bench:
        """The same service with another account's client."""
        return replace(self, http=http)

    def wait_until_held(self, count: int = 1) -> None:
        """Until so many polls for commands have come and have no answer yet."""
        asked = {"match": {"path": "/devices/{device_id}/commands"}, "exactly": 0, "status": "2xx"}
        ends_s = time.monotonic() + 60
        while self.made("requests/verify", asked)["unknown"] < count:
            assert time.monotonic() < ends_s, "the polls are not held"
            time.sleep(0.01)

    def send(self, device_id: str, command: str = "ping", **members: Any) -> str:
        """A newly sent command's id."""
        answer = self.http.post(
            "/commands/send", json={"device_id": device_id, "command_payload": {"command": command}, **members}
        )
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]

    def poll(self, device_id: str, etag: str | None = None, **query: Any) -> httpx.Response:
        """The device's poll."""
        headers = {} if etag is None else {"if-none-match": etag}
        return self.http.get(f"/devices/{device_id}/commands", params={"status": "open", **query}, headers=headers)

    def report(self, device_id: str, command_id: str, status: str, **members: Any) -> httpx.Response:
        """A result."""
        return self.http.post(f"/devices/{device_id}/commands/{command_id}/result", json={"status": status, **members})

    def command(self, device_id: str, command_id: str) -> dict[str, Any]:
        """A command as the service shows it."""
        answer = self.http.get(f"/devices/{device_id}/commands/{command_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post_reading(self, device_id: str, key: str | None = None, **members: Any) -> httpx.Response:
        """One reading."""
        headers = {} if key is None else {"idempotency-key": key}
        body = {"device_id": device_id, "sensor_data": {"t": 21.5}, **members}
        return self.http.post("/sensor-data", json=body, headers=headers)

    def add_account(self, name: str) -> Keys:
        """A further account, with keys of its own."""
        return Keys(**self.made("accounts", {"name": name})["keys"][0])

    def add_user(self, email: str, password: str, *, api_key: str | None = None, **members: Any) -> None:
        """A person who may sign in, of the first account unless a key says another; ``members`` as in a seed."""
        self.made("seed", {"users": [{"email": email, "password": password, **members}]}, api_key)

    def add_client(self, name: str, redirect_uris: list[str], *, api_key: str | None = None, **members: Any) -> Client:
        """A partner application, of the first account unless a key says another; ``members`` as in ``NewClient``."""
        return Client(**self.made("clients", {"name": name, "redirect_uris": redirect_uris, **members}, api_key))

    def made(self, path: str, body: dict[str, Any], api_key: str | None = None) -> dict[str, Any]:
        """What a control path answers that makes something."""
        query = {} if api_key is None else {"api_key": api_key}
        answer = self.http.post(f"/_emulator/{path}", json=body, params=query)
        assert answer.is_success, answer.text
        return answer.json()


@dataclass
class Keys:
    """A key pair that was made just now."""

    api_key: str
    secret_key: str
    created_at: str


@dataclass
class Client:
    """A partner application that was registered just now; a public one has no secret."""

    client_id: str
    client_secret: str | None
    name: str
    redirect_uris: list[str]
    scopes: list[str]
    grant_types: list[str]


@contextlib.contextmanager
def running(**settings: Any) -> Iterator[Bench]:
    """A service for the length of the block, in a temporary folder unless ``data_dir`` says otherwise."""
    clock = ManualClock(T0_MS)
    config = ServiceConfig(**{"clock": clock, "rate_limit": 0, "seed": 7, **settings})
    with RunningService(config) as service, client(service) as http:
        yield Bench(service, clock, http)


def client(service: RunningService, api_key: str | None = None, secret_key: str | None = None) -> httpx.Client:
    """A client with keys; the first account's unless others are given."""
    keys = {
        "x-api-key": api_key or service.api_key,
        "x-secret-key": secret_key or service.secret_key.reveal(),
    }
    return httpx.Client(base_url=service.base_url, headers=keys, trust_env=False, timeout=120)
