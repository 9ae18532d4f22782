from __future__ import annotations

import asyncio

import pytest

from agent.errors import ConfigurationError, TransportError, UnexpectedAnswer
from simulator.fleet.engine import pool as http
from simulator.fleet.engine.pool import HttpPool
from tests.http_server import OK, Server


def run(coroutine):
    return asyncio.run(coroutine)


def test_a_connection_is_kept_and_used_again():
    async def story():
        async with Server(OK, OK, OK) as server:
            pool = HttpPool(server.base_url)
            first = await pool.request("GET", "/devices?limit=1", headers={"x-api-key": "mk_1"})
            second = await pool.request("POST", "/sensor-data", body=b'{"a":1}', headers={"idempotency-key": "k"})
            await pool.close()
            return server, first, second

    server, first, second = run(story())
    assert server.connections == 1
    assert (first.status, first.body, [value for name, value in first.headers if name.lower() == b"x-twice"][-1]) == (
        200,
        b"{}",
        b"a",
    )
    assert second.status == 200
    assert server.requests[0].startswith(b"GET /devices?limit=1 HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"x-api-key: mk_1\r\n" in server.requests[0]
    assert server.requests[1].endswith(b'content-length: 7\r\n\r\n{"a":1}')
    assert b"idempotency-key: k\r\n" in server.requests[1]


def test_a_path_in_the_base_address_stands_before_every_path():
    async def story():
        async with Server(OK) as server:
            pool = HttpPool(f"{server.base_url}/v1/")
            await pool.request("GET", "/devices")
            await pool.close()
            return server

    assert run(story()).requests[0].startswith(b"GET /v1/devices HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{"\r\n5\r\na":1}\r\n0\r\n\r\n', b'{"a":1}'),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"{}"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end", b"until the end"),
        (b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n', b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
    ids=["chunked", "interim", "until close", "304", "204"],
)
def test_every_way_to_end_a_body_is_understood(answer, body):
    async def story():
        async with Server(answer) as server:
            pool = HttpPool(server.base_url, timeout_s=5)
            found = await pool.request("GET", "/")
            await pool.close()
            return found

    assert run(story()).body == body


def test_an_answer_that_closes_is_followed_by_a_new_connection():
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"

    async def story():
        async with Server(closing, OK) as server:
            pool = HttpPool(server.base_url)
            await pool.request("GET", "/")
            await pool.request("GET", "/")
            await pool.close()
            return server.connections

    assert run(story()) == 2


def test_no_more_connections_are_open_than_allowed():
    async def story():
        release, both_asked = asyncio.Event(), asyncio.Event()
        waiting = 0

        async def late(_: bytes, writer: asyncio.StreamWriter) -> None:
            nonlocal waiting
            waiting += 1
            if waiting == 2:
                both_asked.set()
            await release.wait()
            writer.write(OK)

        async with Server(late, late, late, late, OK) as server:
            pool = HttpPool(server.base_url, connections=2)
            asked = [asyncio.create_task(pool.request("GET", f"/{n}")) for n in range(4)]
            await both_asked.wait()
            seen = server.connections
            release.set()
            answers = await asyncio.gather(*asked)
            await pool.close()
            return seen, server.connections, [answer.status for answer in answers]

    assert run(story()) == (2, 2, [200] * 4)


def test_a_refused_connection_is_a_transport_error():
    async def story():
        async with Server(OK) as server:
            base_url = server.base_url
        with pytest.raises(TransportError, match="GET /: "):
            await HttpPool(base_url).request("GET", "/")

    run(story())


def test_a_connection_that_closes_without_an_answer_is_a_transport_error():
    async def close(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def story():
        async with Server(close) as server:
            with pytest.raises(TransportError, match="without an answer"):
                await HttpPool(server.base_url).request("GET", "/")

    run(story())


def test_a_truncated_answer_is_a_transport_error_not_a_short_body():
    async def story():
        async with Server(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{") as server:
            with pytest.raises(TransportError, match="closed the connection"):
                await HttpPool(server.base_url).request("GET", "/")

    run(story())


def test_silence_is_a_transport_error_after_the_time_limit_and_the_connection_is_not_used_again():
    async def story():
        done = asyncio.Event()

        async def silent(_: bytes, writer: asyncio.StreamWriter) -> None:
            await done.wait()

        async with Server(OK, silent, OK, OK) as server:
            pool = HttpPool(server.base_url)
            await pool.request("GET", "/")  # it is connected
            pool._timeout_s = 0.05
            with pytest.raises(TransportError, match=r"no answer within 0\.05 s"):
                await pool.request("GET", "/")
            pool._timeout_s = 60.0
            answer = await pool.request("GET", "/")
            await pool.close()
            done.set()
            return answer.status, server.connections

    assert run(story()) == (200, 2)


def test_what_is_not_http_is_an_unexpected_answer():
    async def story():
        async with Server(b"SSH-2.0-OpenSSH_9.2\r\n") as server:
            with pytest.raises(UnexpectedAnswer, match=r"not HTTP/1\.1"):
                await HttpPool(server.base_url).request("GET", "/")

    run(story())


def test_an_answer_beyond_the_cap_is_refused(monkeypatch):
    monkeypatch.setattr(http, "ANSWER_BYTES_MAX", 10)

    async def story():
        async with Server(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n" + b"x" * 50) as server:
            with pytest.raises(UnexpectedAnswer, match="larger than 10 bytes"):
                await HttpPool(server.base_url).request("GET", "/")

    run(story())


@pytest.mark.parametrize("base_url", ["ftp://x", "127.0.0.1:80", "http://", "http://a?b=c", "http://me:pw@host"])
def test_an_address_that_cannot_be_used_is_told(base_url):
    with pytest.raises(ConfigurationError, match="write it as http://host:port"):
        HttpPool(base_url)


def test_a_header_cannot_smuggle_another_one():
    with pytest.raises(ConfigurationError, match="line break"):
        run(HttpPool("http://127.0.0.1:1").request("GET", "/", headers={"x-api-key": "mk_1\r\nx-evil: 1"}))
