"""The connection against real sockets: held polls that are interrupted, broken answers, TLS."""

from __future__ import annotations

import itertools
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from agent.errors import ConfigurationError, InvalidMessage, ServiceError, TransportError, UnexpectedAnswer
from agent.wire.client import Connection, DeviceClient, Interrupted
from tests.api.test_command_source_port import Answer, ScriptedServer
from tests.support.certificates import Authority

SOON_S = 20.0


@contextmanager
def running(tls: ssl.SSLContext | None = None, let_go: threading.Event | None = None) -> Iterator[ScriptedServer]:
    """A server that holds each poll with ``wait`` and each POST until it is let go, and answers the rest at once."""
    let_go = let_go or threading.Event()

    def answer(method: str, path: str, _headers: dict[str, str]) -> Answer:
        return Answer(body=[], hold=let_go if "wait=" in path or method == "POST" else None)

    server = ScriptedServer(answer, tls=tls)
    try:
        yield server
    finally:
        let_go.set()
        server.stop()


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with running() as held:
        yield held


def client_of(server: ScriptedServer, **more: Any) -> DeviceClient:
    return DeviceClient(server.base_url, None, **more)


@contextmanager
def in_thread(work: Callable[[], Any]) -> Iterator[Future[Any]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(work)


# --- interrupting a held poll -----------------------------------------------------------------------------------


def test_an_interrupt_that_comes_just_before_the_poll_is_not_lost(server):
    with client_of(server) as client:
        client.interrupt()
        with pytest.raises(Interrupted):
            client.device_commands("d", wait_s=25)
        assert client.device_commands("d").records == []
    assert len(server.asked) == 1


def test_an_interrupt_ends_polls_only_and_no_other_request():
    let_go = threading.Event()
    with (
        running(let_go=let_go) as server,
        client_of(server) as client,
        in_thread(lambda: client.request("POST", "/sensor-data", body=b"{}").status) as posted,
    ):
        assert server.arrived.wait(SOON_S)
        client.interrupt()
        let_go.set()
        assert posted.result(60) == 200


def test_closing_ends_a_held_poll_and_refuses_later_requests(server):
    client = client_of(server)
    with in_thread(lambda: client.device_commands("d", wait_s=25)) as poll:
        assert server.arrived.wait(SOON_S)
        client.close()
        with pytest.raises(TransportError):
            poll.result(SOON_S)
    client.close()
    with pytest.raises(TransportError, match="is closed"):
        list(client.devices())


def test_an_interrupt_while_connecting_ends_the_poll_when_connecting_ends():
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection and never greets
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        with (
            DeviceClient(url, None, timeout_s=60) as client,
            in_thread(lambda: client.device_commands("d", wait_s=25)) as poll,
        ):
            taken, _ = silent.accept()
            with taken:
                client.interrupt()
            with pytest.raises(Interrupted):
                poll.result(SOON_S)


# --- timeouts ---------------------------------------------------------------------------------------------------


def test_a_poll_may_take_as_long_as_it_is_held_on_top_of_the_timeout():
    asked: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json=[])

    with DeviceClient("http://service.test", None, timeout_s=7, transport=httpx.MockTransport(handle)) as client:
        client.device_commands("d", wait_s=25)
        client.device_commands("d", wait_s=99)
        client.device_commands("d")
    assert [request.extensions["timeout"]["read"] for request in asked] == [32, 37, 7]
    assert [request.url.params.get("wait") for request in asked] == ["25", "30", None]
    assert {request.extensions["timeout"]["connect"] for request in asked} == {5}


# --- answers that no HTTP library would send --------------------------------------------------------------------


@contextmanager
def answering(raw: bytes) -> Iterator[str]:
    """A server that takes one request, sends these bytes and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            taken, _ = listener.accept()
            with taken:
                taken.settimeout(60)
                taken.recv(65536)
                taken.sendall(raw)

        with in_thread(serve) as served:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            served.result(60)


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        OK + b'Content-Length: 100\r\n\r\n{"data":[',
        OK + b'Content-Length: 9\r\n\r\n{"data":[{"device_id":"d"}]}',
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n[",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n[]\r\n0\r\n\r\n",
        OK + b"X: " + b"x" * 200_000 + b"\r\n\r\n[]",
        OK + b'\r\n{"data":[',
    ],
)
def test_a_broken_answer_is_an_error_of_ours_on_one_line(raw):
    with answering(raw) as url, DeviceClient(url, None, timeout_s=60) as client:
        with pytest.raises(ServiceError) as caught:
            list(client.devices())
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 600


# --- what leaves this machine -----------------------------------------------------------------------------------


def test_the_environments_proxy_and_netrc_are_not_used(server, monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password made-up")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with client_of(server) as client:
        assert list(client.devices()) == []


def test_a_header_that_could_smuggle_another_is_not_sent():
    with Connection("http://service.test", transport=httpx.MockTransport(lambda request: httpx.Response(200))) as conn:
        for value in ("a\r\nX: y", "ü", "\0"):
            with pytest.raises(InvalidMessage):
                conn.request("POST", "/x", headers={"Idempotency-Key": value})


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "service.test",
        "ftp://a.test",
        "http://",
        "http://u:pw@a.test",
        "http://a.test/?x=1",
        "http://[",
        "http://a:0",
        "http://a.test/#",
        "http://a.test/?",
    ],
)
def test_a_base_url_that_cannot_be_used_is_refused_without_repeating_it(base_url):
    with pytest.raises(ConfigurationError) as caught:
        Connection(base_url)
    assert str(caught.value).startswith("base_url: ")
    assert "pw" not in str(caught.value)


def test_an_absolute_url_of_another_origin_is_never_asked():
    with Connection("http://a.test") as connection, pytest.raises(InvalidMessage):
        connection.request("GET", "http://b.test/devices")


# --- TLS --------------------------------------------------------------------------------------------------------


def test_a_held_poll_over_tls_ends_at_once_too(tmp_path):
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with running(context) as server, client_of(server, ca_file=authority.certificate) as client:
        with in_thread(lambda: client.device_commands("d", wait_s=25)) as poll:
            assert server.arrived.wait(SOON_S)
            client.interrupt()
            with pytest.raises(Interrupted):
                poll.result(SOON_S)
        assert client.device_commands("d").records == []


@pytest.mark.parametrize("has_tls", [False, True])
def test_polls_that_bring_nothing_new_all_go_over_one_connection(has_tls, tmp_path):
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = ScriptedServer(lambda *_: Answer(304), tls=context if has_tls else None)
    with client_of(server, ca_file=authority.certificate) as client:
        assert all(client.device_commands("d", etag='"v1"').unchanged for _ in range(5))
    server.stop()
    assert len(server.peers) == 1


def test_a_certificate_is_judged_by_the_name_and_not_by_its_address(monkeypatch, tmp_path):
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = authority.issue("server", host="service.test")
    context.load_cert_chain(pair.certificate, pair.key)
    server = ScriptedServer(lambda *_: Answer(304), tls=context)
    port = server.base_url.rpartition(":")[2]
    ours = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *more, **named: ours("127.0.0.1", *more, **named))
    with DeviceClient(f"https://service.test:{port}", None, ca_file=authority.certificate) as client:
        assert client.device_commands("d", etag='"v1"').unchanged
    for name in ("other.test", "127.0.0.1"):
        with (
            DeviceClient(f"https://{name}:{port}", None, ca_file=authority.certificate) as client,
            pytest.raises(TransportError, match="write a name that the certificate shows into base_url"),
        ):
            client.device_commands("d")
    server.stop()


def test_each_good_answer_tells_the_services_time_and_how_long_it_took():
    told: list[tuple[float, float]] = []
    answers = iter(
        [
            httpx.Response(200, json={}, headers={"date": "Thu, 01 Jan 2026 00:00:00 GMT"}),
            httpx.Response(200, html="<html>sign in</html>", headers={"date": "Thu, 01 Jan 2026 00:00:00 GMT"}),
            httpx.Response(200, json={}),
        ]
    )
    clock = itertools.count(10.0, 0.5)
    transport = httpx.MockTransport(lambda request: next(answers))
    with Connection("http://service.test", transport=transport, monotonic=lambda: next(clock)) as conn:
        conn.on_date = lambda *what: told.append(what)
        conn.request("GET", "/devices")
        with pytest.raises(UnexpectedAnswer):
            conn.request("GET", "/devices")
        conn.request("GET", "/devices")
    # Half a second until the head was there, and a whole one for the body, by which the date is older now.
    assert told == [(1767225601.0, 0.5)]
