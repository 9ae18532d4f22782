"""One account of a server in the contract suite: what consumers are given, and the test's own view from inside."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from agent.wire.auth import KeyPair
from agent.wire.secret import Secret
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from simulator.service.storage.sqlite import FILE_NAME
from tests.servers.covering import Case
from tests.servers.fronts import Front, Fronts


@dataclass(frozen=True, slots=True)
class Stored:
    """One reading that the server has.

    Attributes:
        row: identifies it, for :class:`LocalAccount`'s changes; 0 where rows cannot be changed.
    """

    values: Mapping[str, Any]
    row: int = 0


class Account(Protocol):
    """One account.

    Attributes:
        front: the proxy that consumers talk to.
        product_id: a product of it.
    """

    front: Front
    product_id: str
    api_key: str
    secret_key: str

    def device(self) -> str:
        """A newly registered device's id."""

    def send(self, device_id: str, payload: Mapping[str, Any]) -> None:
        """Send a command."""

    def stored(self, device_id: str) -> Sequence[Stored]:
        """Its readings, in the order in which they came."""


def key_pair(account: Account) -> KeyPair:
    """Its credential."""
    return KeyPair(account.api_key, Secret(account.secret_key))


@dataclass
class LocalAccount:
    """An account of the local service, which answers by the profile of a case.

    The test itself looks into the database: no choice of the server changes what it sees there.
    """

    front: Front
    product_id: str
    api_key: str
    secret_key: str = field(repr=False)
    http: httpx.Client = field(repr=False)
    database: Path = field(repr=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)

    def device(self) -> str:
        identifier = f"SN-{next(self._numbers):04d}"
        body = {
            "user_id": "user-1",
            "product_id": self.product_id,
            "device_name": identifier,
            "device_identifier": identifier,
            "qr_info": {},
        }
        _sent(self.http.post("/onboarding/device", json=body))
        sql = "SELECT id FROM devices WHERE product_id = ? AND device_identifier = ?"
        return str(self._look_up(sql, self.product_id, identifier)[0][0])

    def send(self, device_id: str, payload: Mapping[str, Any]) -> None:
        _sent(self.http.post("/commands/send", json={"device_id": device_id, "command_payload": payload}))

    def stored(self, device_id: str) -> Sequence[Stored]:
        sql = (
            "SELECT readings.seq, sensor_data FROM readings JOIN devices ON devices.seq = device_seq "
            "WHERE devices.id = ? ORDER BY readings.seq"
        )
        return [Stored(json.loads(text), row) for row, text in self._look_up(sql, device_id)]

    def results(self, device_id: str) -> Mapping[str, str]:
        """Command id -> status, as reported to the endpoint of results."""
        sql = (
            "SELECT commands.id, commands.status FROM commands JOIN devices ON devices.seq = device_seq "
            "WHERE devices.id = ?"
        )
        return dict(self._look_up(sql, device_id))

    def lose(self, row: int) -> None:
        """Take a stored reading away."""
        self._change("DELETE FROM readings WHERE seq = ?", row)

    def double(self, row: int) -> None:
        """Store a reading a second time."""
        self._change(
            "INSERT INTO readings (id, manufacturer_seq, device_seq, recorded_at, received_at, sensor_data) "
            "SELECT id || '-again', manufacturer_seq, device_seq, recorded_at, received_at, sensor_data "
            "FROM readings WHERE seq = ?",
            row,
        )

    def alter(self, row: int, values: Mapping[str, Any]) -> None:
        """Store other values in place of a reading's."""
        self._change("UPDATE readings SET sensor_data = ? WHERE seq = ?", json.dumps(values), row)

    def _look_up(self, sql: str, *parameters: Any) -> list[Any]:
        with contextlib.closing(sqlite3.connect(self.database, timeout=30)) as connection:
            return connection.execute(sql, parameters).fetchall()

    def _change(self, sql: str, *parameters: Any) -> None:
        with contextlib.closing(sqlite3.connect(self.database, timeout=30)) as connection, connection:
            changed = connection.execute(sql, parameters).rowcount
        assert changed == 1, sql


class LocalServer:
    """One process of the local service with any number of accounts, each with a profile of its own."""

    def __init__(self, service: RunningService, folder: Path) -> None:
        self._service = service
        self._folder = folder
        self._numbers = itertools.count(1)

    @contextlib.contextmanager
    def account(self, case: Case, fronts: Fronts) -> Iterator[LocalAccount]:
        """A new account with the profile of a case."""
        keys = self._service.add_account(f"case-{next(self._numbers)}")
        secret = keys.secret_key.reveal()
        headers = {"x-api-key": keys.api_key, "x-secret-key": secret}
        with httpx.Client(base_url=self._service.base_url, headers=headers, trust_env=False, timeout=120) as http:
            product = _sent(http.post("/products", json={"name": case.id})).json()["product_id"]
            path = f"/_emulator/accounts/{keys.api_key}/profile"
            _sent(http.put(path, json=case.profile.model_dump(mode="json")))
            front = fronts.before(self._service.base_url)
            front.swaps = case.elsewhere == "next"
            if case.elsewhere == "redirect":
                front.redirects = lambda seen, count: seen.method == "GET" and count % 3 == 0
            yield LocalAccount(front, product, keys.api_key, secret, http, self._folder / FILE_NAME)


@contextlib.contextmanager
def local_server(folder: Path) -> Iterator[LocalServer]:
    """A local service for the length of the block; it keeps its data in ``folder``."""
    with RunningService(ServiceConfig(data_dir=folder, rate_limit=0, log_level="warning")) as service:
        yield LocalServer(service, folder)


def _sent(answer: httpx.Response) -> httpx.Response:
    assert answer.is_success, answer.text
    return answer
