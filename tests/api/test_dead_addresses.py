"""A name with two addresses that nobody answers and one that works: every client gets there within seconds."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agent.transports.mqtt_connection import Broker as BrokerOfAgent
from agent.transports.mqtt_connection import Role
from agent.transports.mqtt_connection import Session as SessionOfAgent
from agent.wire.client import Connection
from agent.wire.network import connect
from agent.wire.secret import Secret
from simulator.fleet.engine.addresses import TargetAddress, read_origin
from simulator.fleet.engine.http import Http1Engine
from simulator.fleet.engine.mqtt import MqttSessions, Opening
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.conftest import require_program
from tests.support.mosquitto import Mosquitto, find_mosquitto, mosquitto


def port_of(service: RunningService) -> int:
    return urlsplit(service.base_url).port or 0


NAME = "service.test"
DEAD = ("127.0.77.1", "127.0.77.2")
SOON_S = 15.0
"""Far below what the system takes to give up two addresses, far above what a busy machine needs."""


@contextlib.contextmanager
def dead(port: int) -> Iterator[None]:
    """The dead addresses drop what asks for a connection at this port: their queue is full and stays so."""
    with contextlib.ExitStack() as stack:
        for address in DEAD:
            listener = stack.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(0)
            for _ in range(4):
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex((address, port))
        yield


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name has the dead addresses first, as a name with dead IPv6 addresses has."""
    ours = socket.getaddrinfo

    def getaddrinfo(host, port, *_given, **_options):
        if host not in {NAME, NAME.encode()}:
            return ours(host, port, *_given, **_options)
        return [ours(address, port, type=socket.SOCK_STREAM)[0] for address in (*DEAD, "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


pytestmark = pytest.mark.usefixtures("named")


@pytest.fixture
def service() -> Iterator[RunningService]:
    with (
        RunningService(ServiceConfig(port=0, api_key="mk_dead", secret_key=Secret("msk_dead"))) as running,
        dead(port_of(running)),
    ):
        yield running


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(find_mosquitto() or require_program("mosquitto"), tmp_path) as running, dead(running.port):
        yield running


def test_http_of_agent_and_gateway(service):
    begun_s = time.monotonic()
    with Connection(f"http://{NAME}:{port_of(service)}", timeout_s=10) as connection:
        assert connection.request("GET", "/products", accepts={401}).status == 401
    assert time.monotonic() - begun_s < SOON_S


def test_mqtt_of_agent_and_gateway(broker):
    up = threading.Event()
    role = Role((), lambda _arrival: None, lambda _session: up.set())
    session = SessionOfAgent(BrokerOfAgent(NAME, broker.port, "d-1"), Secret("x"), role)
    thread = threading.Thread(target=session.run)
    thread.start()
    try:
        assert up.wait(SOON_S)
    finally:
        session.disconnect()
        thread.join()


class Waits:
    """Whoever asked the engine; holds what came."""

    is_wanted = True

    def __init__(self) -> None:
        self.came: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def answered(self, status, _headers, _body, _sent_s, _now_s):
        self.came.set_result(status)

    def failed(self, *why):
        self.came.set_result(why)

    def connected(self, *_given):
        self.came.set_result("up")

    def lost(self, *why):
        if not self.came.done():
            self.came.set_result(why)


def test_http_of_the_fleet(service):
    async def ask() -> object:
        engine = Http1Engine(read_origin(f"http://{NAME}:{port_of(service)}"))
        caller = Waits()
        engine.send(0, b"GET /products HTTP/1.1\r\nHost: x\r\n\r\n", caller, SOON_S)
        try:
            return await caller.came
        finally:
            await engine.close()

    assert asyncio.run(ask()) == 401


def test_mqtt_of_the_fleet(broker):
    async def opened() -> object:
        engine = MqttSessions(TargetAddress(NAME, broker.port), connect_timeout_s=SOON_S)
        listener = Waits()
        engine.open(0, Opening("d-1", None), listener)
        try:
            return await listener.came
        finally:
            await engine.close()

    assert asyncio.run(opened()) == "up"


def test_no_address_answers(service):
    del service
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with dead(port):
        begun_s = time.monotonic()
        with pytest.raises(ConnectionRefusedError):
            connect(NAME, port, 2.0)
        assert time.monotonic() - begun_s >= 1.0, "one that was refused ends nothing while others may answer"
        with pytest.raises(ConnectionRefusedError):
            asyncio.run(asyncio.wait_for(TargetAddress(NAME, port).get(), SOON_S))
