from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import uvloop

from simulator.fleet.engine.http.engine import Http1Engine, HttpOptions
from simulator.fleet.engine.http.origin import read_origin
from simulator.fleet.metrics.outcomes import OutcomeClass
from tests.http_server import OK, Server

GET = b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n"


class Caller:
    """Who asks, and what it is told; a second call is a failure."""

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
    engine = Http1Engine(HttpOptions(read_origin(base_url), **options))
    try:
        yield engine
    finally:
        await engine.close()


async def ask(engine: Http1Engine, message: bytes = GET, *, device: int = 0, timeout_s: float = 10.0):
    caller = Caller()
    engine.send(device, message, caller, timeout_s)
    return await caller.told


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
    assert first == (200, [(b"Content-Length", b"2"), (b"X-Twice", b"a")], b"{}")
    assert second == first
    assert (requests, connections) == ([GET, GET], 1)


def test_nobody_is_called_from_within_send(run):
    async def story():
        async with engine_for("http://127.0.0.1:9") as engine:
            caller = Caller()
            engine.send(0, GET, caller, 5)
            assert not caller.told.done()
            return await caller.told

    outcome, reason, was_sent = run(story())
    assert (outcome, was_sent) == (OutcomeClass.TRANSPORT, False)
    assert "refused" in reason.lower()
