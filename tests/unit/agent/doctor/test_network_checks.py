"""The checks that ask others: real sockets, real certificates, a real service and a real broker."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from agent.app.lock import StateLock
from agent.app.status_file import StatusFile, write_status
from agent.doctor.findings import CheckStatus, Finding
from agent.runtime.health import Part
from tests.certificates import Authority, Pair
from tests.mosquitto import write_passwords
from tests.ports import free_port
from tests.service_running import running


def is_bad(finding: Finding, verdict: str, cause: str, fix: str, *, unreachable: bool = False) -> None:
    assert finding.verdict == verdict, finding
    assert cause in finding.cause, finding
    assert fix in finding.fix, finding
    assert finding.is_unreachable is unreachable, finding


def is_ok(finding: Finding, *words: str) -> None:
    assert finding.verdict is CheckStatus.OK, finding
    assert all(word in finding.seen for word in words), finding


class Answering:
    """A server that says the same to everybody."""

    def __init__(self, answer: Callable[[], bytes], context: ssl.SSLContext | None = None) -> None:
        self._answer = answer
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.05)
        self.port = self._listener.getsockname()[1]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError):  # nobody came, or whoever came does not like us
                peer, _ = self._listener.accept()
                with peer:
                    self._talk(peer)

    def _talk(self, peer: socket.socket) -> None:
        peer.settimeout(60)
        with contextlib.ExitStack() as stack:
            if self._context is not None:
                peer = stack.enter_context(self._context.wrap_socket(peer, server_side=True))
            if peer.recv(4096):
                peer.sendall(self._answer())


@pytest.fixture
def serve() -> Iterator[Callable[..., Answering]]:
    with contextlib.ExitStack() as stack:

        def start(answer: str | Callable[[], str], pair: Pair | None = None) -> Answering:
            context = None
            if pair is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(pair.certificate, pair.key)
            text = answer if callable(answer) else lambda: answer
            server = Answering(lambda: text().replace("\n", "\r\n").encode(), context)
            stack.callback(server.close)
            return server

        yield start


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def http(status: str, body: str, more: str = "") -> str:
    head = f"HTTP/1.1 {status}\nContent-Type: application/json\nContent-Length: {len(body)}\nConnection: close\n"
    return f"{head}{more}\n{body}"


class TestWay:
    def test_a_name_without_an_address(self, device):
        # A zone that no machine has: the guard of the tests lets only addresses through.
        device.values["mqtt"] = {"host": "::1%nosuchzone", "tls": True}
        device.values["auth"] = {"mode": "bearer", "token_file": device.key("token", "dat_1")}
        is_bad(device.findings("connection")[-1], "failed", "no address", "mqtt.host", unreachable=True)

    def test_a_port_where_nobody_listens(self, device):
        device.values["service"] = {"base_url": f"http://127.0.0.1:{free_port()}"}
        is_bad(device.look("connection"), "failed", "nobody listens", "service.base_url", unreachable=True)

    def test_what_is_not_encrypted_and_leaves_this_machine(self, device):
        device.values["service"] = {"base_url": "http://192.0.2.1", "allow_plain_http": True}
        is_bad(device.look("tls"), "warning", "anybody on the way", "https://")


class TestCertificates:
    @pytest.fixture
    def use(self, device, serve, authority):
        device.wall_s = time.time()

        def use(pair: Pair) -> None:
            server = serve(http("200 OK", "{}"), pair)
            service = {"base_url": f"https://127.0.0.1:{server.port}", "ca_file": authority.certificate}
            device.values["service"] = service

        return use

    def test_one_that_is_over_or_not_valid_yet_by_this_devices_clock(self, device, use, authority):
        for pair in (authority.issue("expired", expired=True), authority.issue("early", not_yet=True)):
            use(pair)
            is_bad(device.look("tls"), "failed", "this device's clock shows", "timedatectl")

    def test_one_that_is_signed_by_a_stranger(self, device, use, tmp_path):
        use(Authority(tmp_path / "other").issue("stranger"))
        is_bad(device.look("tls"), "failed", "nobody whom this device trusts", "service.ca_file")

    def test_one_that_is_made_out_to_another_name(self, device, use, authority):
        use(authority.issue("other", host="somewhere.example"))
        is_bad(device.look("tls"), "failed", "another name", "service.base_url")


class TestService:
    @pytest.fixture
    def bench(self, device):
        with running() as bench:
            self.use(device, bench)
            yield bench

    def use(self, device, bench) -> None:
        device.values["service"] = {"base_url": bench.service.base_url}
        device.keys["api_key"].write_text(bench.service.api_key)
        device.keys["secret_key"].write_text(bench.service.secret_key.reveal())
        device.values["device"] = {"device_id": bench.device()}

    def test_asking_marks_no_command_as_delivered(self, device, bench):
        device_id = device.values["device"]["device_id"]
        command_id = bench.send(device_id)
        is_ok(device.findings("service")[-1], "knows device")
        assert bench.command(device_id, command_id)["status"] == "queued"

    def test_keys_that_the_service_does_not_take(self, device, bench):
        device.keys["secret_key"].write_text("msk_wrong")
        is_bad(device.findings("service")[-1], "failed", "does not accept it", "files that auth names")

    def test_a_device_that_the_service_does_not_know(self, device, bench):
        device.values["device"] = {"device_id": "nobody"}
        is_bad(device.findings("service")[-1], "failed", "removed, or registered", "device.device_id")

    def test_a_clock_that_is_months_away_from_the_services_and_one_that_agrees(self, device, bench):
        finding = device.findings("service")[1]
        is_bad(finding, "failed", "one of the two clocks is wrong", "timedatectl")
        assert "ahead of" in finding.seen
        device.wall_s = bench.clock.now_ms() / 1000
        is_ok(device.findings("service")[1], "agrees")

    def test_without_a_service_there_is_nobody_to_ask(self, device):
        del device.values["service"]
        device.values["mqtt"] = {"host": "localhost"}
        device.values["auth"] = {"mode": "bearer", "token_file": device.key("token", "dat_1")}
        assert device.look("service").verdict is CheckStatus.SKIPPED

    def test_nobody_answers(self, device):
        device.values["service"] = {"base_url": f"http://127.0.0.1:{free_port()}"}
        is_bad(device.look("service"), "failed", "cannot connect", "", unreachable=True)


class TestBroker:
    @pytest.fixture
    def broker(self, device, start_mosquitto, tmp_path):
        broker = start_mosquitto(*write_passwords(tmp_path / "users", {"d1": "dat_right"}))
        del device.values["service"]
        device.values["mqtt"] = {"host": "127.0.0.1", "port": broker.port, "tls": False, "version": "5"}
        device.values["auth"] = {"mode": "bearer", "token_file": device.key("token", "dat_right")}
        return broker

    def test_a_broker_that_takes_this_device(self, device, broker):
        is_ok(device.look("broker"), "takes this device's token")

    def test_a_broker_that_refuses_the_token(self, device, broker):
        device.key("token", "dat_wrong")
        is_bad(device.look("broker"), "failed", "auth.token_file", "")

    def test_a_broker_that_speaks_no_tls_on_that_port(self, device, broker):
        device.values["mqtt"]["tls"] = True
        is_bad(device.look("tls"), "failed", "TLS handshake", "may not speak TLS", unreachable=True)
        is_bad(device.look("broker"), "failed", "mqtt.tls: false", "", unreachable=True)

    def test_a_broker_that_is_off(self, device, broker):
        broker.stop()
        is_bad(device.look("broker"), "failed", "nobody listens", "", unreachable=True)
        broker.start()

    def test_the_connection_of_a_running_agent_is_left_alone(self, device, broker):
        def tell(state: str, detail: str = "") -> None:
            parts = {"broker": Part(state, 0.0, detail)}
            write_status(device.state_dir / "status.json", StatusFile("running", 1, "0", "d1", 0.0, 1.0, "b", parts))

        with StateLock(device.state_dir):
            is_ok(device.look("broker"), "left alone")
            tell("ok")
            is_ok(device.look("broker"), "the agent runs and is connected")
            tell("unreachable", "nobody listens on broker:1883: is the broker running?")
            is_bad(device.look("broker"), "failed", "is the broker running?", "")
        assert "as d1" not in broker.log()
