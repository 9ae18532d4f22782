"""The log of requests: what it keeps, for how long, and what it says of what has left it."""

from __future__ import annotations

import asyncio
import gc
import json
from types import FunctionType, MethodType, ModuleType, SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from agent.wire import paths
from simulator.service.logged_requests import FAILS, HOLDS, INCONCLUSIVE, Expectation, MatchResult, verify
from simulator.service.matching import Difference, PathTemplates
from simulator.service.request_log.entry import BODY_BYTES, ENTRY_BYTES
from simulator.service.request_log.recorder import Recorder
from simulator.service.request_log.recording import Recording
from simulator.service.request_log.store import RequestLog
from simulator.service.storage.keys import Caller

TEMPLATES = PathTemplates({"/sensor-data": ["POST"], "/devices/{device_id}/commands": ["GET"]})
CALLER = Caller(3, "mk_a", b"")


async def nothing():
    raise AssertionError("nobody reads here")


def recording(path="/sensor-data", received_ms=0, body=b"", caller=CALLER, method="POST"):
    scope = {
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"x-secret-key", b"msk_a")],
        "client": ("127.0.0.1", 5),
    }
    made = Recording(scope, nothing, nothing, received_ms)
    made.body, made.body_bytes, made.caller, made.status = body, len(body), caller, 201
    return made


def run(scene):
    """Play a scene on an event loop."""

    async def play():
        scene()

    asyncio.run(play())


@given(keep=st.integers(1, 8), steps=st.lists(st.sampled_from(["add", "read", "clear", "clear one"]), max_size=40))
def test_the_last_requests_are_kept_and_what_has_left_is_counted(keep, steps):
    def scene():
        log = RequestLog(keep, TEMPLATES.find)
        model, dropped = [], 0
        for step in steps:
            if step == "add":
                log.add(recording(caller=Caller(len(model) % 2, "mk_a", b"")))
                model.append((log.last_seq, len(model) % 2))
                if len(model) > keep:
                    del model[0]
                    dropped += 1
            elif step == "read":
                log.entries()
            elif step == "clear":
                log.clear()
                model, dropped = [], 0
            else:
                log.clear(1)
                model = [one for one in model if one[1] != 1]
            assert log.dropped == dropped
        assert [one.seq for one in log.entries()] == [seq for seq, _ in model]

    run(scene)


def test_the_bytes_of_all_entries_are_bounded():
    def scene():
        log = RequestLog(1_000, TEMPLATES.find, total_bytes=5 * (ENTRY_BYTES + BODY_BYTES))
        for _ in range(20):
            log.add(recording(body=b"x" * 100_000))
        entries = log.entries()
        assert [one.seq for one in entries] == [17, 18, 19, 20]
        assert [len(one.body) for one in entries] == [BODY_BYTES] * 4
        assert log.dropped == 16

    run(scene)


def reachable_from(root):
    """Every object that is reached from one, but for what the program itself consists of."""
    seen, todo = {}, [root]
    while todo:
        one = todo.pop()
        if id(one) not in seen and not isinstance(one, type | ModuleType | FunctionType | MethodType | Caller):
            seen[id(one)] = one
            todo += gc.get_referents(one)
    return list(seen.values())


SECRET = "Zq7-hidden-9x"
SECRETS = {
    "a header": {"headers": [(b"x-secret-key", SECRET.encode())]},
    "a header that is mistaken for another": {"headers": [(b"x-api-key", SECRET.encode())]},
    "a token": {"headers": [(b"authorization", f"Bearer {SECRET}".encode())]},
    "a header of somebody else": {"headers": [(b"X-Vendor-Token".lower(), SECRET.encode())]},
    "a path": {"path": f"/devices/msk_{SECRET}/commands"},
    "an encoded path": {"path": f"/devices/msk%5F{SECRET}/commands"},
    "a query": {"query_string": f"status=open&token={SECRET}".encode()},
    "an encoded query": {"query_string": f"note=msk%5F{SECRET}".encode()},
    "a body": {"body": json.dumps({"user": "a", "password": SECRET}).encode()},
    "a form": {"path": paths.OAUTH_TOKEN, "body": f"grant_type=a&client_secret={SECRET}".encode()},
    "a long body": {"body": json.dumps({"pad": "x" * (BODY_BYTES - 20), "password": SECRET}).encode()},
    "an answer": {"answer": json.dumps({"api_key": "mk_a", "secret_key": SECRET}).encode()},
    "an address": {"answer_headers": [(b"location", f"https://a/cb?code={SECRET}".encode())]},
}


class Connection:
    """As uvicorn's: it has the scope of its request, which comes to hold its ``send``."""

    def __init__(self):
        path = "/sensor-data"
        self.scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "client": None}
        self.scope |= {"query_string": b"", "headers": []}

    async def receive(self):
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(self, message):
        pass


def test_how_many_requests_of_a_time_have_left():
    def scene():
        log = RequestLog(2, TEMPLATES.find)
        for at_ms in (10, 20, 30, 40):
            log.add(recording(received_ms=at_ms))
        assert (log.dropped_since(None, None), log.dropped_since(21, None), log.dropped_since(20, None)) == (2, 0, 2)
        assert (log.dropped_since(None, 1), log.dropped_since(None, 2)) == (1, 0)

    run(scene)


def judged(count, unclear):
    entry, difference = SimpleNamespace(seq=1), Difference("path", "/a", "/b")
    return [MatchResult(entry, ())] * count + [MatchResult(entry, (difference,), is_open=True)] * unclear


@given(
    count=st.integers(0, 4),
    unclear=st.integers(0, 2),
    dropped=st.integers(0, 2),
    at_least=st.integers(0, 5),
    more=st.integers(0, 3) | st.none(),
)
def test_an_expectation_holds_or_fails_only_where_it_does_so_whatever_the_unknown_ones_were(
    count, unclear, dropped, at_least, more
):
    at_most = None if more is None else at_least + more
    true_counts = range(count, count + unclear + dropped + 1)
    possible = {at_least <= true and (at_most is None or true <= at_most) for true in true_counts}
    found = verify(judged(count, unclear), dropped, Expectation(at_least, at_most))
    assert found.verdict == {frozenset({True}): HOLDS, frozenset({False}): FAILS}.get(frozenset(possible), INCONCLUSIVE)
    assert (found.reason is None) == (found.verdict != INCONCLUSIVE)
    assert found.unknown == unclear + dropped


def test_a_request_that_ends_without_an_answer_is_kept_as_such():
    async def app(_scope, receive, _send):
        await receive()

    async def disconnected():
        return {"type": "http.disconnect"}

    async def body():
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(_message):
        raise AssertionError("nothing is answered")

    async def play():
        log = RequestLog(5, TEMPLATES.find)
        recorder = Recorder(app, log=log, now_ms=lambda: 1, is_observer=lambda _: False)
        for receive in (body, disconnected):
            scope = {
                "type": "http",
                "method": "POST",
                "path": "/sensor-data",
                "raw_path": b"/sensor-data",
                "query_string": b"",
                "headers": [],
                "client": None,
            }
            await recorder(scope, receive, send)
        assert [(one.outcome, one.status, one.body) for one in log.entries()] == [
            ("no_answer", None, b"{}"),
            ("caller_gone", None, b""),
        ]
        assert not log.under_way

    asyncio.run(play())
