from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import pytest
import uvloop

from agent.errors import ConfigurationError
from simulator.fleet.engine.addresses import TargetAddress, read_origin
from simulator.fleet.engine.http import Http1Engine
from simulator.fleet.engine.pool import HttpPool
from simulator.fleet.outcomes import OutcomeClass
from tests.support.certificates import Authority
from tests.support.http_server import OK, Server

GET = b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n"


class Caller:
    """Who asks, and what it is told; a second call is a failure."""

    is_wanted = True

    def __init__(self) -> None:
        self.told = asyncio.get_running_loop().create_future()

    def answered(self, status, headers, body, sent_s, now_s):
        assert sent_s <= now_s
        self.told.set_result((status, headers, body))

    def failed(self, outcome, reason, sent_s, now_s):
        assert sent_s is None or sent_s <= now_s
        self.told.set_result((outcome, reason, sent_s is not None))


@contextlib.asynccontextmanager
async def engine_for(base_url: str, **options) -> AsyncIterator[Http1Engine]:
    engine = Http1Engine(read_origin(base_url), **options)
    try:
        yield engine
    finally:
        await engine.close()


async def ask(engine: Http1Engine, message: bytes = GET, *, device: int = 0, timeout_s: float = 60.0):
    caller = Caller()
    engine.send(device, message, caller, timeout_s)
    return await caller.told


def cut(engine: Http1Engine, *callers: Caller) -> None:
    """The power of device 7 goes: these are its callers."""
    for caller in callers:
        caller.is_wanted = False
    engine.cut(7)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    factory = uvloop.new_event_loop if request.param == "uvloop" else None

    def run_story(story):
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(story)

    return run_story


def test_an_answer_reaches_the_one_who_asked_with_its_headers_as_they_came(run):
    async def story():
        async with Server(OK, OK) as server, engine_for(server.base_url) as engine:
            return await ask(engine), await ask(engine), server.requests, server.connections

    first, second, requests, connections = run(story())
    status, headers, body = second
    assert first == (200, [(b"Content-Length", b"2"), (b"X-Twice", b"a")], b"{}")
    assert (status, list(headers), body) == first
    assert (requests, connections) == ([GET, GET], 1)


def in_pieces(answer: bytes):
    async def serve(_: bytes, writer: asyncio.StreamWriter) -> None:
        for byte in answer:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    return serve


def close_after(answer: bytes):
    async def serve(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    return serve


class Gate:
    """Holds answers back until it is opened."""

    def __init__(self, answer: bytes = OK) -> None:
        self.asked = asyncio.Event()
        self._opened = asyncio.Event()
        self._answer = answer

    async def __call__(self, _: bytes, writer: asyncio.StreamWriter) -> None:
        self.asked.set()
        await self._opened.wait()
        writer.write(self._answer)

    def open(self) -> None:
        self._opened.set()


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{"\r\n5\r\na":1}\r\n0\r\n\r\n', b'{"a":1}'),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"{}"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\n", b""),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
        (b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n', b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\n{}", b"{}"),
    ],
    ids=["chunked", "interim", "until close", "empty until close", "HTTP/1.0", "304", "204", "no reason phrase"],
)
@pytest.mark.parametrize("as_it_comes", [lambda answer: answer, in_pieces], ids=["at once", "byte by byte"])
def test_every_way_to_end_an_answer_is_understood(run, answer, body, as_it_comes):
    async def story():
        # The server closes after its last answer, which is where some of these end.
        times = 1 if b"close" in answer or b"HTTP/1.0" in answer else 3
        async with Server(*[as_it_comes(answer)] * times) as server, engine_for(server.base_url) as engine:
            return [await ask(engine) for _ in range(times)]

    first, *again = run(story())
    _, headers, found = first
    assert found == body
    assert (b"Link", b"x") not in headers
    assert [(status, list(names), text) for status, names, text in again] == [first] * len(again)


KNOWN = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
BROKEN_OFF = (OutcomeClass.TRANSPORT, True)


@pytest.mark.parametrize(
    ("second", "told", "connections"),
    [
        (KNOWN + b"abcd", b"abcd", 1),
        (in_pieces(KNOWN + b"abcd"), b"abcd", 1),
        (KNOWN + b"abc", BROKEN_OFF, 2),
        (KNOWN, BROKEN_OFF, 2),
        (b"", BROKEN_OFF, 2),
        (KNOWN + b"abcdHTTP", b"abcd", 2),
        (KNOWN + b"abcd" + KNOWN + b"abcd", b"abcd", 2),
        (KNOWN.replace(b"4", b"5") + b"abcde", b"abcde", 1),
        (KNOWN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"abcd", b"abcd", 2),
    ],
    ids=[
        "same",
        "in pieces",
        "short",
        "no body",
        "closed at once",
        "bytes behind",
        "twice",
        "another length",
        "closing",
    ],
)
def test_an_answer_with_a_head_that_came_before_is_read_as_the_first_was(run, second, told, connections):
    async def story():
        ended = second if callable(second) else close_after(second)
        ended = ended if connections == 2 else second
        async with Server(KNOWN + b"1234", ended, OK) as server, engine_for(server.base_url) as engine:
            await ask(engine)
            answer = await ask(engine)
            await ask(engine)
            assert len(server.requests) == 3, "nothing is sent twice"
            return answer, server.connections

    (outcome, reason_or_headers, told_last), made = run(story())
    found = (outcome, told_last) if isinstance(outcome, OutcomeClass) else told_last
    assert (found, made) == (told, connections), reason_or_headers


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"HTTP/9.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    ],
    ids=["SSH", "TLS", "version", "negative", "two lengths", "chunk", "upgrade"],
)
def test_what_is_not_http_is_unexpected_and_its_connection_is_not_used_again(run, answer):
    async def story():
        async with Server(answer, OK, OK) as server, engine_for(server.base_url) as engine:
            return await ask(engine), (await ask(engine))[0], server.connections

    (outcome, reason, was_sent), status, connections = run(story())
    assert (outcome, was_sent) == (OutcomeClass.UNEXPECTED, True)
    assert "not HTTP/1.1" in reason
    assert (status, connections) == (200, 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 201 Crea",
        b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n",
        b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\n",
        b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\n{}\r",
        b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    ],
    ids=["in the first line", "in the head", "before the body", "in the body", "between chunks"],
)
def test_an_answer_that_is_cut_off_is_a_transport_failure_and_no_answer(run, answer):
    async def story():
        async with Server(close_after(answer), OK) as server, engine_for(server.base_url) as engine:
            return await ask(engine), (await ask(engine))[0], len(server.requests)

    (outcome, _, was_sent), status, requests = run(story())
    assert (outcome, was_sent, status, requests) == (OutcomeClass.TRANSPORT, True, 200, 2)


def test_silence_ends_at_the_time_limit_and_its_connection_with_it(run):
    async def story():
        gate = Gate()
        async with Server(OK, gate, OK, OK) as server, engine_for(server.base_url) as engine:
            await ask(engine)  # it is connected
            told = await ask(engine, timeout_s=0.02)
            left = engine.connections
            second = await ask(engine)
            gate.open()
            return told, left, second, server.connections

    told, left, second, connections = run(story())
    assert told == (OutcomeClass.TIMEOUT, "no answer in time", True)
    assert (left, second[0], connections) == (0, 200, 2)


def test_requests_wait_in_their_order_and_one_connection_never_carries_two(run):
    async def story():
        gate = Gate()
        async with Server(gate, *[OK] * 4) as server, engine_for(server.base_url, pool=1) as engine:
            asked = [
                asyncio.ensure_future(ask(engine, b"GET /%d HTTP/1.1\r\nhost: a\r\n\r\n" % n, device=n))
                for n in range(4)
            ]
            await gate.asked.wait()
            alone = len(server.requests)
            gate.open()
            await asyncio.gather(*asked)
            return alone, [request.split()[1] for request in server.requests], server.connections

    assert run(story()) == (1, [b"/0", b"/1", b"/2", b"/3"], 1)


@pytest.mark.parametrize("per_device", [False, True], ids=["pooled", "per device"])
def test_after_a_cut_nobody_is_called_and_only_its_own_socket_ends(run, per_device):
    async def story():
        gate, ended = Gate(), asyncio.Event()

        async def held(head: bytes, writer: asyncio.StreamWriter) -> None:
            await gate(head, writer)
            ended.set()

        options = {"per_device": per_device, "pool": 1, "device_sockets": 1}
        async with Server(held, OK, OK, OK) as server, engine_for(server.base_url, **options) as engine:
            callers = [Caller(), Caller()]
            for caller in callers:
                engine.send(7, GET, caller, 10)
            await gate.asked.wait()
            cut(engine, *callers)
            left = engine.connections
            gate.open()
            await ended.wait()
            after = await ask(engine, device=7)
            return left, after[0], [caller.told.done() for caller in callers], server.connections

    left, status, told, connections = run(story())
    assert (left, connections) == ((0, 2) if per_device else (1, 1))
    assert (status, told) == (200, [False, False])


def test_closing_the_engine_tells_everybody_who_waits(run):
    async def story():
        gate = Gate()
        async with Server(gate) as server:
            async with engine_for(server.base_url, pool=1) as engine:
                asked = [asyncio.ensure_future(ask(engine)) for _ in range(2)]
                await gate.asked.wait()
            gate.open()
            with pytest.raises(RuntimeError, match="closed"):
                await ask(engine)
            return await asyncio.gather(*asked)

    reason = "the engine was closed"
    assert run(story()) == [(OutcomeClass.TRANSPORT, reason, True), (OutcomeClass.TRANSPORT, reason, False)]


def test_an_attempt_to_connect_that_hangs_is_made_again_while_somebody_waits(run, monkeypatch):
    async def story():
        attempts, really_connect = [], TargetAddress.connect

        async def connect(target, protocol, turn):
            attempts.append(turn)
            if len(attempts) == 1:
                await asyncio.get_running_loop().create_future()
            await really_connect(target, protocol, turn)

        async with Server(OK) as server, engine_for(server.base_url, connect_timeout_s=0.3) as engine:
            monkeypatch.setattr(TargetAddress, "connect", connect)
            return (await ask(engine))[0], len(attempts)

    assert run(story()) == (200, 2)


# --- TLS ------------------------------------------------------------------------------------------------------------


def server_side(pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


def test_tls_with_an_authority_of_ones_own(run, tmp_path):
    authority = Authority(tmp_path)

    async def story():
        async with Server(*[OK] * 4, tls=server_side(authority.issue("s"))) as server:
            origin = read_origin(server.base_url, authority.certificate)
            engine = Http1Engine(origin, per_device=True)
            found = [(await ask(engine, device=device))[0] for device in (0, 1, 0)]
            await engine.close()
            return found, server.connections

    assert run(story()) == ([200, 200, 200], 2)


@pytest.mark.parametrize(("issued", "trusted"), [({}, False), ({"expired": True}, True), ({"host": "elsewhere"}, True)])
def test_a_certificate_that_is_not_to_be_trusted_is_a_transport_failure(run, tmp_path, issued, trusted):
    authority, stranger = Authority(tmp_path / "a"), Authority(tmp_path / "b")

    async def story():
        pair = authority.issue("s", **issued)
        async with Server(OK, tls=server_side(pair)) as server:
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the server's side of the refusal
            trust = (authority if trusted else stranger).certificate
            engine = Http1Engine(read_origin(server.base_url, trust))
            told = await ask(engine)
            await engine.close()
            return told, server.requests

    (outcome, reason, was_sent), requests = run(story())
    assert (outcome, was_sent, requests) == (OutcomeClass.TRANSPORT, False, [])
    assert reason.startswith("TLS: ")


# --- awaited --------------------------------------------------------------------------------------------------------


def test_a_path_in_the_base_address_stands_before_every_path():
    async def story():
        async with Server(OK) as server:
            pool = HttpPool(f"{server.base_url}/v1/")
            await pool.request("GET", "/devices")
            await pool.close()
            return server

    assert asyncio.run(story()).requests[0].startswith(b"GET /v1/devices HTTP/1.1\r\n")


@pytest.mark.parametrize("base_url", ["ftp://x", "127.0.0.1:80", "http://", "http://a?b=c", "http://me:pw@host"])
def test_an_address_that_cannot_be_used_is_told(base_url):
    with pytest.raises(ConfigurationError, match="write it as http://host:port"):
        HttpPool(base_url)


def test_a_header_cannot_smuggle_another_one():
    with pytest.raises(ConfigurationError, match="line break"):
        asyncio.run(HttpPool("http://127.0.0.1:1").request("GET", "/", headers={"x-api-key": "mk_1\r\nx-evil: 1"}))
