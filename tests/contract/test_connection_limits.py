"""What one connection may send, at the gateway's front and the service's: others are served all the while."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from agent.wire.secret import Secret
from gateway.certificates import make_certificates
from gateway.config import HttpConfig
from gateway.http.connection_limits import ConnectionLimits
from gateway.http.front import HttpFront, HttpSettings, http_settings
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.conftest import require_program
from tests.fake_backend import FakeBackend, FakeTokens

pytestmark = pytest.mark.long

DISCOVERY = "/.well-known/device-service"
SHORT = ConnectionLimits(head_s=0.3, body_s=0.3, linger_s=0.3)


@contextlib.contextmanager
def gateway(limits: ConnectionLimits, **settings) -> Iterator[str]:
    front = HttpFront(HttpSettings(port=0, connections=limits, **settings), FakeBackend(), FakeTokens(t="d1"))
    front.start()
    try:
        yield front.base_url
    finally:
        assert front.stop(60)


@contextlib.contextmanager
def service(limits: ConnectionLimits) -> Iterator[str]:
    config = ServiceConfig(api_key="mk_test", secret_key=Secret("msk_test"), connection_limits=limits)
    with RunningService(config) as running:
        yield running.base_url


@pytest.fixture(params=["gateway", "gateway_tls", "service"])
def serve(request, tmp_path):
    """A front with these limits, as a context manager that gives its URL."""
    if request.param == "gateway_tls":
        files = make_certificates(tmp_path, ["127.0.0.1"], datetime.now(UTC))
        return lambda limits: gateway(limits, certificate=files.certificate, private_key=files.private_key)
    return {"gateway": gateway, "service": service}[request.param]


def connect(base_url: str) -> socket.socket:
    parts = urlsplit(base_url)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=120)
    return trusting().wrap_socket(connection) if parts.scheme == "https" else connection


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def rest_of(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    answer = b""
    with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
        while piece := connection.recv(65_536):
            answer += piece
    return answer


def other(base_url: str) -> httpx.Client:
    return httpx.Client(base_url=base_url, verify=trusting(), trust_env=False, timeout=120)


def test_a_head_of_many_megabytes_is_431_uses_no_memory_and_holds_nobody_up(serve):
    with serve(ConnectionLimits()) as base_url, other(base_url) as http, connect(base_url) as connection:
        assert http.get(DISCOVERY).status_code == 200
        tracemalloc.start()
        try:
            connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nx-large: ")
            with contextlib.suppress(OSError):  # it may close while we are still sending
                for _ in range(64):
                    connection.sendall(b"a" * 262_144)
                    assert http.get(DISCOVERY).status_code == 200
            used = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert used < 4_000_000, "of 16 MB that were sent"


def test_a_head_that_comes_byte_by_byte_is_431_at_its_limit(serve):
    with (
        serve(ConnectionLimits(head_bytes=1000, linger_s=0.3)) as base_url,
        other(base_url) as http,
        connect(base_url) as connection,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nx-large: ")
        for number in range(1000):
            connection.sendall(b"a")
            if number % 100 == 0:
                assert http.get(DISCOVERY).status_code == 200
        answer = rest_of(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert b"connection: close" in head
    assert json.loads(body)["error"] == "headers_too_large"


def test_half_sent_requests_are_answered_408_and_closed(serve):
    with serve(SHORT) as base_url, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(base_url)) for _ in range(50)]
        for number, connection in enumerate(connections):
            connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nx-slow: "[: 1 + number % 30])
        with other(base_url) as http:
            assert http.get(DISCOVERY).status_code == 200
        assert {rest_of(connection)[:13] for connection in connections} == {b"HTTP/1.1 408 "}


def test_a_body_that_stops_coming_is_answered_408_and_closed(serve):
    head = (
        "POST /sensor-data HTTP/1.1\r\nhost: x\r\nauthorization: Bearer t\r\n"
        "x-api-key: mk_test\r\nx-secret-key: msk_test\r\ncontent-length: 10\r\n\r\n{"
    )
    with serve(SHORT) as base_url, connect(base_url) as connection:
        connection.sendall(head.encode())
        answer = rest_of(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"request_timeout"' in answer


def test_curl_uploads_slowly_for_many_periods_and_a_trickle_is_ended(serve):
    """The whole takes as long as it takes: 2 KiB in each period are enough, and less is too little."""
    body = ('{"device_id": "d1", "sensor_data": {"warm": 1}}' + " " * 250_000).encode()
    with serve(ConnectionLimits(body_s=2)) as base_url:
        assert curl(f"{base_url}/sensor-data", body, bytes_per_s=60_000) in {201, 404}, "the service has no device d1"
        assert curl(f"{base_url}/sensor-data", body[:5_000], bytes_per_s=500) == 408


def test_the_gateways_body_timeout_is_for_each_2_kib_of_a_body():
    settings = http_settings(HttpConfig(port=0, body_timeout_s=2))
    front = HttpFront(settings, FakeBackend(), FakeTokens(t="d1"))
    front.start()
    body = ('{"device_id": "d1", "sensor_data": {"warm": 1}}' + " " * 250_000).encode()
    try:
        assert curl(f"{front.base_url}/sensor-data", body, bytes_per_s=60_000) == 201
        assert curl(f"{front.base_url}/sensor-data", body[:5_000], bytes_per_s=500) == 408
    finally:
        assert front.stop(60)


def curl(url: str, body: bytes, *, bytes_per_s: int) -> int:
    """The status that curl sees when it sends no faster than this; it ends by itself when it is answered early."""
    command = [
        require_program("curl"),
        "--silent",
        "--insecure",
        "--noproxy",
        "*",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
    ]
    for header in (
        "Content-Type: application/json",
        "Authorization: Bearer t",
        "x-api-key: mk_test",
        "x-secret-key: msk_test",
    ):
        command += ["-H", header]
    command += ["--limit-rate", str(bytes_per_s), "--data-binary", "@-", url]
    return int(subprocess.run(command, input=body, capture_output=True, check=False, timeout=120).stdout)


def test_a_tls_handshake_that_does_not_come_is_given_up(tmp_path):
    files = make_certificates(tmp_path, ["127.0.0.1"], datetime.now(UTC))
    with gateway(SHORT, certificate=files.certificate, private_key=files.private_key) as base_url:
        parts = urlsplit(base_url)
        with socket.create_connection((parts.hostname, parts.port), timeout=120) as connection:
            connection.sendall(b"\x16\x03\x01\x02")
            assert rest_of(connection) == b""


def test_connections_above_the_limit_are_503_until_one_ends(serve):
    with serve(ConnectionLimits(connections=3)) as base_url:
        held = [connect(base_url) for _ in range(3)]
        for connection in held:
            connection.sendall(f"GET {DISCOVERY} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        with connect(base_url) as connection:
            answer = rest_of(connection)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"too_many_connections" in answer
        for connection in held:
            connection.close()
        with other(base_url) as http:
            # The server sees the ends in its own time.
            assert is_served_again(http)


def is_served_again(http: httpx.Client) -> bool:
    """Whether a request gets through in the end; until then connections are refused or closed."""
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        with contextlib.suppress(httpx.TransportError):
            if http.get(DISCOVERY).status_code == 200:
                return True
    return False


FRONT = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
from gateway.http import front as http_front
from gateway.http.front import HttpFront, HttpSettings
from simulator.service import server
from simulator.service.server import RunningService
from tests.fake_backend import FakeBackend, FakeTokens
if len(sys.argv) > 2:
    http_front._loop = server._loop = lambda: sys.argv[2]
front = HttpFront(HttpSettings(port=0), FakeBackend(), FakeTokens()) if sys.argv[1] == "gateway" else RunningService()
front.start()
print(front.base_url, flush=True)
for _ in sys.stdin:
    open("/dev/null").close()  # there is room for the program's own files
    print("open", flush=True)
front.stop(*((60,) if sys.argv[1] == "gateway" else ()))
"""


@pytest.mark.parametrize("name", ["gateway", "service"])
def test_more_connections_than_files_may_be_open_leave_the_process_its_own(name):
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 400
    with (
        subprocess.Popen(
            [sys.executable, "-c", FRONT, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
        contextlib.ExitStack() as stack,
    ):
        base_url = process.stdout.readline().strip()
        connections = [stack.enter_context(connect(base_url)) for _ in range(300)]
        assert rest_of(connections[-1]).startswith(b"HTTP/1.1 503 ")
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "open\n"
        for connection in connections:
            connection.close()
        with other(base_url) as http:
            assert is_served_again(http)
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.mark.parametrize("name", ["gateway", "service"])
def test_connections_that_come_all_at_once_and_leave_no_file_free_do_not_flood_the_log(name):
    """The loop of asyncio accepts all that wait before a protocol sees the first of them."""
    with (
        subprocess.Popen(
            [sys.executable, "-c", FRONT, name, "asyncio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
        contextlib.ExitStack() as stack,
    ):
        base_url = process.stdout.readline().strip()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        connections = [stack.enter_context(connect(base_url)) for _ in range(300)]
        process.send_signal(signal.SIGCONT)
        assert any("no connection can be accepted" in line for line in process.stderr)
        for connection in connections:
            connection.close()
        with other(base_url) as http:
            assert is_served_again(http)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0
    assert len(errors.splitlines()) < 10, errors


SILENT = """
import resource, sys
from datetime import UTC, datetime
from pathlib import Path
from gateway.http import front as http_front
from gateway.certificates import make_certificates
from gateway.http.connection_limits import ConnectionLimits
from tests.fake_backend import FakeBackend, FakeTokens
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
http_front._loop = lambda: sys.argv[2]
files = make_certificates(Path(sys.argv[1]), ["127.0.0.1"], datetime.now(UTC))
limits = ConnectionLimits(head_s=float(sys.argv[3]))
settings = http_front.HttpSettings(
    port=0, certificate=files.certificate, private_key=files.private_key, connections=limits
)
front = http_front.HttpFront(settings, FakeBackend(), FakeTokens(t="d1"))
front.start()
print(front.base_url, flush=True)
sys.stdin.read()
front.stop(60)
"""


@contextlib.contextmanager
def silent_front(folder: Path, loop: str, head_s: float) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A front over TLS that may open 200 files, in a process of its own, and its URL."""
    with subprocess.Popen(
        [sys.executable, "-c", SILENT, str(folder), loop, str(head_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def hold_silent_connections(base_url: str, held: contextlib.ExitStack) -> None:
    """Open more connections than the front may open files; none begins its handshake."""
    parts = urlsplit(base_url)
    for _ in range(300):
        held.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=120))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_connections_that_never_begin_tls_and_leave_no_file_free_are_survived_without_a_flood_in_the_log(
    loop, tmp_path
):
    """Before the handshake ends no protocol sees a connection: there is no other bound than the process's files."""
    with silent_front(tmp_path, loop, head_s=0.5) as (process, base_url), contextlib.ExitStack() as held:
        hold_silent_connections(base_url, held)
        with other(base_url) as http:
            assert is_served_again(http), "while the silent ones are still held"
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0
    assert len(errors.splitlines()) < 10, errors


def test_a_front_that_ends_while_no_file_is_free_does_not_flood_the_log(tmp_path):
    """Asyncio's next attempts to accept come a second later: the front still waits for half a request by then."""
    half = b"POST /sensor-data HTTP/1.1\r\nhost: x\r\nauthorization: Bearer t\r\ncontent-length: 10\r\n\r\n{"
    with silent_front(tmp_path, "asyncio", head_s=600) as (process, base_url), contextlib.ExitStack() as held:
        held.enter_context(connect(base_url)).sendall(half)
        hold_silent_connections(base_url, held)
        assert process.stderr.readline().startswith("http=full ")
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0
    assert errors.count("Traceback") <= 1, "of the request that is canceled"


def test_curl_and_node_read_the_431(serve):
    with serve(ConnectionLimits()) as base_url:
        url = base_url + DISCOVERY
        curl = [require_program("curl"), "--silent", "--insecure", "--noproxy", "*", "-w", " %{http_code}", url]
        shown = subprocess.run(
            [*curl, "-H", "@-"], input="x-large: " + "a" * 120_000, capture_output=True, text=True, check=True
        )
        assert shown.stdout.endswith("} 431")
        assert '"error":"headers_too_large"' in shown.stdout
        program = """
            const url = new URL(process.argv[1]);
            require(url.protocol.slice(0, -1)).get(url, {
                rejectUnauthorized: false, headers: {"x-large": "a".repeat(120000)},
            }, answer => {
                let text = "";
                answer.on("data", piece => { text += piece; });
                answer.on("end", () => console.log(answer.statusCode, JSON.parse(text).error));
            });
        """
        node = [require_program("node", "nodejs"), "-e", program, url]
        shown = subprocess.run(node, capture_output=True, text=True, check=True, timeout=120)
        assert shown.stdout == "431 headers_too_large\n"
