"""When the gateway begins to serve devices: with the service's clock, or as soon as nothing will bring it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from agent.adapters.clocks import SystemClock
from agent.config.credentials import Credentials
from agent.runtime.health import Health
from agent.runtime.supervisor import Supervisor
from agent.wire.secret import Secret
from gateway import engine as engine_module
from gateway.config import GatewayConfig
from gateway.engine import Engine
from gateway.http.front import HttpFront
from gateway.store.schema import FILE_NAME
from gateway.store.service import StoreWriter
from tests.fake_backend import FakeTokens
from tests.fakes import FakeNotifier

AHEAD_S = 3600.0
CONFIGURED = {"extensions": ["command-status"]}


@pytest.fixture(autouse=True)
def _waits_long(monkeypatch):
    monkeypatch.setattr(engine_module, "FIRST_ANSWER_S", 30.0)


@contextlib.contextmanager
def server(*, has_date: bool = True) -> Iterator[str]:
    """A plain server whose clock is an hour ahead."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = self.path.startswith("/devices/")
            self.send_response_only(200 if found else 404)
            if has_date:
                self.send_header("date", self.date_time_string(time.time() + AHEAD_S))
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"[]" if found else b"{}")

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@contextlib.contextmanager
def started(folder: Path, base_url: str, dialect: object, tokens: FakeTokens) -> Iterator[Engine]:
    """A gateway that has begun to serve."""
    service = {"base_url": base_url} if dialect == "auto" else {"base_url": base_url, "dialect": dialect}
    config = GatewayConfig.model_validate({"service": service, "state_dir": folder, "http": {"port": 0}})
    clock = SystemClock()
    store = StoreWriter(folder / FILE_NAME, clock=clock)
    supervisor = Supervisor(FakeNotifier(), clock, on_change=lambda: "")
    store.start()
    engine = Engine(
        config,
        Credentials("mk_1", Secret("msk_1")),
        store=store,
        tokens=tokens,
        clock=clock,
        supervisor=supervisor,
        health=Health(clock, supervisor.changed),
    )
    try:
        engine.start()
        assert engine._time_settled.is_set(), "it waited for what did not come"
        yield engine
    finally:
        engine.stop(5.0)
        store.stop(10.0)
        supervisor.close()


def ahead_s(engine: Engine) -> float:
    """How far the time that devices are sent is ahead of this machine's, seconds."""
    (front,) = engine.fronts
    assert isinstance(front, HttpFront)
    answer = httpx.get(f"{front.base_url}/.well-known/device-service", trust_env=False, timeout=60)
    return parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time()


@pytest.mark.parametrize("dialect", ["auto", CONFIGURED])
@pytest.mark.parametrize("devices", [{}, {"t": "d1"}])
def test_devices_are_served_at_once_where_nobody_answers(tmp_path, dialect, devices):
    with nobody() as base_url, started(tmp_path, base_url, dialect, FakeTokens(**devices)) as engine:
        assert abs(ahead_s(engine)) < AHEAD_S / 2


@pytest.mark.parametrize("dialect", ["auto", CONFIGURED])
@pytest.mark.parametrize("devices", [{}, {"t": "d1"}])
def test_devices_are_served_at_once_where_the_service_sends_no_date(tmp_path, dialect, devices):
    with server(has_date=False) as base_url, started(tmp_path, base_url, dialect, FakeTokens(**devices)) as engine:
        assert abs(ahead_s(engine)) < AHEAD_S / 2


@pytest.mark.parametrize("dialect", ["auto", CONFIGURED])
def test_a_gateway_without_devices_waits_for_no_clock_of_a_plain_server(tmp_path, dialect):
    with server() as base_url, started(tmp_path, base_url, dialect, FakeTokens()) as engine:
        assert abs(ahead_s(engine)) < AHEAD_S / 2, "there was nothing to ask"


@pytest.mark.parametrize("dialect", ["auto", CONFIGURED])
def test_a_device_is_served_with_the_time_of_the_service(tmp_path, dialect):
    with server() as base_url, started(tmp_path, base_url, dialect, FakeTokens(t="d1")) as engine:
        assert abs(ahead_s(engine) - AHEAD_S) < AHEAD_S / 2
