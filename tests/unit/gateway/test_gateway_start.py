"""When the gateway begins to serve devices: with the service's clock, or as soon as nothing will bring it."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
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
from simulator.pytest_plugin.service import DeviceService, running_service
from tests.fake_backend import FakeTokens
from tests.fakes import FakeNotifier

AHEAD_S = 3600.0
CONFIGURED = {"extensions": ["command-status"]}
NO_KEYS = Credentials("mk_1", Secret("msk_1"))


@pytest.fixture(autouse=True)
def _waits_long(monkeypatch):
    monkeypatch.setattr(engine_module, "FIRST_ANSWER_S", 30.0)


@pytest.fixture(scope="module", name="service")
def _service() -> Iterator[DeviceService]:
    with running_service() as service:
        yield service


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@contextlib.contextmanager
def started(
    folder: Path, base_url: str, dialect: object, tokens: FakeTokens, keys: Credentials = NO_KEYS
) -> Iterator[Engine]:
    """A gateway that has begun to serve."""
    service = {"base_url": base_url} if dialect == "auto" else {"base_url": base_url, "dialect": dialect}
    config = GatewayConfig.model_validate({"service": service, "state_dir": folder, "http": {"port": 0}})
    clock = SystemClock()
    store = StoreWriter(folder / FILE_NAME, clock=clock)
    supervisor = Supervisor(FakeNotifier(), clock, on_change=lambda: "")
    store.start()
    engine = Engine(
        config,
        keys,
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


@contextlib.contextmanager
def served_by(
    service: DeviceService, folder: Path, dialect: object, *, has_device: bool, **axes: object
) -> Iterator[Engine]:
    """A gateway in front of a plain server whose clock is an hour ahead."""
    service.control.put("clock", {"mode": "offset", "offset_s": int(AHEAD_S)})
    service.clock.is_moved = True  # the plug-in puts it back
    with service.account(profile={"base": "plain", **axes}) as account:
        tokens = FakeTokens(t=account.device()) if has_device else FakeTokens()
        keys = Credentials(account.api_key, account.secret_key)
        with started(folder, account.base_url, dialect, tokens, keys) as engine:
            yield engine


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
def test_a_gateway_without_devices_waits_for_no_clock_of_a_plain_server(tmp_path, service, dialect):
    with served_by(service, tmp_path, dialect, has_device=False) as engine:
        assert abs(ahead_s(engine)) < AHEAD_S / 2, "there was nothing to ask"


@pytest.mark.parametrize("dialect", ["auto", CONFIGURED])
def test_a_device_is_served_with_the_time_of_the_service(tmp_path, service, dialect):
    with served_by(service, tmp_path, dialect, has_device=True) as engine:
        assert abs(ahead_s(engine) - AHEAD_S) < AHEAD_S / 2
