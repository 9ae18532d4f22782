"""Each connection over TLS trusts the authorities of its own setting alone, and no environment variable changes that.

A row for every place where a connection over TLS is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from agent.app.enroll import certificate_fault
from agent.app.transport import make_client
from agent.config import AgentConfig, Credentials
from agent.doctor.checks import endpoints_of, judge_connection, try_broker
from agent.errors import AgentError
from agent.handlers.base import HandlerRejected
from agent.handlers.download import download
from agent.runtime.clocks import ServiceClock, SystemClock
from agent.wire.client import Connection
from agent.wire.secret import KeyPair, Secret
from gateway.config import GatewayConfig
from gateway.mqtt import check_broker_port
from gateway.options import service_client
from gateway.quota import Kind, Quota
from gateway.service import Service
from simulator.cli import program
from simulator.fleet.engine.pool import HttpPool
from simulator.fleet.target.target import TargetOptions, find_offers, find_target
from simulator.fleet.workload.devices import broker_of
from simulator.login.tokens import TokenSet, renew, write_tokens
from simulator.wire.client import ServiceClient
from tests.support.certificates import Authority

KEYS = Credentials("mk_1", Secret("msk_1"))
ROOT = Path(__file__).resolve().parents[2]


class Peer:
    """A server that only shakes hands.

    Attributes:
        trusted: whether the last client took its certificate; None before the first.
    """

    def __init__(self, authority: Authority) -> None:
        pair = authority.issue("peer")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pair.certificate, pair.key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.trusted: bool | None = None
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            plain.settimeout(60)
            with plain, contextlib.suppress(OSError):
                try:
                    served = self._context.wrap_socket(plain, server_side=True)
                except OSError:  # with TLS 1.3 it has an end only once the client has judged the certificate
                    self.trusted = False if self.trusted is None else self.trusted
                else:
                    self.trusted = True
                    served.close()


class Try:
    """One attempt: where to connect to, and the connection's own setting."""

    def __init__(self, folder: Path, port: int, ca_file: Path | None) -> None:
        self.folder = folder
        self.port = port
        self.ca_file = ca_file
        self.url = f"https://127.0.0.1:{port}"
        self.secret = folder / "secret_key"
        self.secret.write_text("msk_1")
        self.token = folder / "token"
        self.token.write_text("dat_" + "a" * 32)
        for path in (self.secret, self.token):
            path.chmod(0o600)

    @property
    def option(self) -> list[str]:
        return [] if self.ca_file is None else [f"--ca-file={self.ca_file}"]

    @property
    def keys(self) -> list[str]:
        return ["--api-key=mk_1", f"--secret-key-file={self.secret}", *self.option]

    @property
    def service(self) -> dict[str, Any]:
        return {"base_url": self.url, "timeout_s": 20} | self._own

    @property
    def mqtt(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.port, "tls": True} | self._own

    def agent(self, **sections: Any) -> AgentConfig:
        return AgentConfig.model_validate(
            {"device": {"device_id": "d1"}, "auth": {"allow_secret_key_on_device": True}, **sections}
        )

    def gateway(self, **sections: Any) -> GatewayConfig:
        return GatewayConfig.model_validate({"service": self.service, **sections})

    def cli(self, *arguments: str) -> None:
        CliRunner().invoke(program, [*arguments])

    @property
    def _own(self) -> dict[str, Any]:
        return {} if self.ca_file is None else {"ca_file": str(self.ca_file)}


def agent_service(one: Try) -> None:
    config = one.agent(service=one.service)
    assert config.service is not None
    with make_client(config.service, KEYS) as client:
        list(client.devices())


def agent_broker(one: Try) -> None:
    config = one.agent(mqtt=one.mqtt, auth={"mode": "bearer", "token_file": str(one.token)})
    assert config.mqtt is not None
    try_broker(config, config.mqtt, Credentials("", Secret("t")))


def doctor_service(one: Try) -> None:
    (service,) = endpoints_of(one.agent(service=one.service))
    judge_connection(service, time.time())


def doctor_broker(one: Try) -> None:
    auth = {"mode": "bearer", "token_file": str(one.token)}
    (broker,) = endpoints_of(one.agent(mqtt=one.mqtt, auth=auth))
    judge_connection(broker, time.time())


def agent_enrolling(one: Try) -> None:
    certificate_fault(one.url, None if one.ca_file is None else one.ca_file.read_text())


def agent_release(one: Try) -> None:
    context: Any = SimpleNamespace(
        controls=SimpleNamespace(upkeep=SimpleNamespace(ca_file=one.ca_file)), stopping=threading.Event()
    )
    limits: Any = SimpleNamespace(max_bytes=1000, give_up_s=0)
    with contextlib.suppress(HandlerRejected):
        download(f"{one.url}/release", "0" * 64, one.folder / "release", limits, context)


async def ask_as_gateway(config: Any) -> None:
    clock = ServiceClock(SystemClock(), trust_wall=True)
    service = Service(config, KEYS, Quota(None, time.monotonic), clock)
    try:
        await service.request("GET", "/devices", Kind.COMMANDS)
    finally:
        await service.close()


def gateway_service(one: Try) -> None:
    service = one.gateway().service
    asyncio.run(ask_as_gateway(service))


def gateway_command(one: Try) -> None:
    with service_client(one.gateway().service, KEYS) as client:
        list(client.devices())


def gateway_broker(one: Try) -> None:
    config = one.gateway(mqtt={"enabled": True, **one.mqtt})
    check_broker_port(config.mqtt)


def service_client_of_a_program(one: Try) -> None:
    with ServiceClient(one.url, KeyPair("mk_1", Secret("msk_1")), ca_file=one.ca_file) as client:
        list(client.devices())


def login_renewal(one: Try) -> None:
    file = one.folder / "renewed.json"
    over = TokenSet(
        base_url=one.url, client_id="c", access_token=Secret("a" * 20), refresh_token=Secret("r" * 20), expires_at=0
    )
    write_tokens(file, over)
    with Connection(one.url, ca_file=one.ca_file) as connection:
        renew(connection, file, None)


def probe(one: Try) -> None:
    one.cli("probe", "--base-url", one.url, *one.keys)


def command_send(one: Try) -> None:
    one.cli("command", "send", "--base-url", one.url, *one.keys, "--device=d1", '--payload={"command":"ping"}')


def onboard(one: Try) -> None:
    (one.folder / "run.sqlite").touch()
    one.cli("onboard", "cleanup", str(one.folder / "run.sqlite"), "--base-url", one.url, *one.keys)


def login(one: Try) -> None:
    one.cli("login", "--base-url", one.url, "--client-id=c", *one.option, "--paste", f"--out={one.folder / 't.json'}")


def fleet_cleanup(one: Try) -> None:
    one.cli("cleanup", "--base-url", one.url, *one.keys)


def fleet_discovery(one: Try) -> None:
    options = TargetOptions(base_url=one.url, api_key="mk_1", secret_key_file=one.secret, ca_file=one.ca_file)
    find_offers(find_target(options))


def fleet_devices(one: Try) -> None:
    async def story() -> None:
        pool = HttpPool(one.url, ca_file=one.ca_file)
        try:
            await pool.request("GET", "/")
        finally:
            await pool.close()

    asyncio.run(story())


def fleet_sessions(one: Try) -> None:
    broker = broker_of(f"mqtts://127.0.0.1:{one.port}", one.ca_file, ())
    assert broker.tls is not None
    with (
        socket.create_connection(("127.0.0.1", one.port)) as plain,
        broker.tls.wrap_socket(plain, server_hostname="127.0.0.1"),
    ):
        pass


ROWS: tuple[Callable[[Try], None], ...] = (
    agent_service,
    agent_broker,
    doctor_service,
    doctor_broker,
    agent_enrolling,
    agent_release,
    gateway_service,
    gateway_command,
    gateway_broker,
    service_client_of_a_program,
    login_renewal,
    probe,
    command_send,
    onboard,
    login,
    fleet_cleanup,
    fleet_discovery,
    fleet_devices,
    fleet_sessions,
)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """It signed the peer's certificate."""
    return Authority(tmp_path_factory.mktemp("theirs"))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"))


@pytest.fixture
def environment(theirs: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An administrator has named the peer's authority, in every way that libraries look at."""
    hashed = tmp_path / "hashed"
    hashed.mkdir()
    command = ["openssl", "x509", "-hash", "-noout", "-in", str(theirs.certificate)]
    name = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    (hashed / f"{name}.0").write_bytes(theirs.certificate.read_bytes())
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(variable, str(theirs.certificate))
    monkeypatch.setenv("SSL_CERT_DIR", str(hashed))


def attempt(connect: Callable[[Try], None], folder: Path, theirs: Authority, ca_file: Path | None) -> bool | None:
    """Whether the peer's certificate was taken; None when nobody connected."""
    peer = Peer(theirs)
    with contextlib.suppress(AgentError, OSError):
        connect(Try(folder, peer.port, ca_file))
    peer.close()
    return peer.trusted


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("connect", ROWS)
@pytest.mark.parametrize("setting", ["the peer's", "another's", "none"])
def test_a_connection_trusts_its_own_setting_alone(connect, setting, tmp_path, theirs, ours):
    ca_file = {"the peer's": theirs.certificate, "another's": ours.certificate, "none": None}[setting]
    assert attempt(connect, tmp_path, theirs, ca_file) is (setting == "the peer's")


@pytest.mark.parametrize(
    ("service", "broker"),
    [(agent_service, agent_broker), (gateway_service, gateway_broker), (fleet_devices, fleet_sessions)],
)
def test_the_services_authority_is_not_the_brokers(service, broker, tmp_path, theirs):
    """Both in one process, the service first."""
    taken = []
    for connect, ca_file in ((service, theirs.certificate), (broker, None)):
        (folder := tmp_path / connect.__name__).mkdir()
        taken.append(attempt(connect, folder, theirs, ca_file))
    assert taken == [True, False]
