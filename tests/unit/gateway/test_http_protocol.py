"""What one connection may send, and when it is closed: the protocol alone, its loop's clock moved by the test."""

from __future__ import annotations

import asyncio

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from gateway.http.connection_limits import ConnectionLimits
from gateway.http.protocol import HttpProtocol

KEEP_ALIVE_S = 75
LIMITS = ConnectionLimits(connections=100)
HEAD = b"POST /x HTTP/1.1\r\nhost: x\r\n"
LENGTH = HEAD + b"content-length: 100000\r\n\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


class Clock:
    """The part of an event loop that a protocol uses; timers run when the clock is moved."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when, callback):
        timer = Timer(self, when, callback)
        self.timers.append(timer)
        return timer

    def call_later(self, delay, callback):
        return self.call_at(self.now + delay, callback)

    def move(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer.when <= end]:
            timer = min(due, key=lambda one: one.when)
            self.now = max(self.now, timer.when)
            timer.cancel()
            timer.callback()
        self.now = end


class Timer:
    def __init__(self, clock, when, callback) -> None:
        self.clock, self.when, self.callback = clock, when, callback

    def cancel(self) -> None:
        if self in self.clock.timers:
            self.clock.timers.remove(self)


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.unread = 0
        self.closed = ""

    def write(self, data) -> None:
        self.sent += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return bool(self.closed)

    def close(self) -> None:
        self.closed = self.closed or "closed"

    def abort(self) -> None:
        self.closed = "aborted"

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def _not_called(scope, receive, send) -> None:
    raise AssertionError("the test answers itself")


class Bench:
    """A connection whose requests are answered when the test says so."""

    def __init__(self, limits: ConnectionLimits = LIMITS, state: ServerState | None = None) -> None:
        config = Config(_not_called, lifespan="off", ws="none", log_config=None, timeout_keep_alive=KEEP_ALIVE_S)
        config.load()
        self.clock, self.wire, self.requests = Clock(), Wire(), []
        self.protocol = HttpProtocol(config, state or ServerState(), {}, self.clock, limits=limits)
        self.protocol._start_asgi_task = lambda cycle, _app: self.requests.append(cycle)
        self.protocol.connection_made(self.wire)

    def send(self, data: bytes, size: int = 1 << 20) -> None:
        for start in range(0, len(data), size):
            if not self.wire.closed:
                self.protocol.data_received(data[start : start + size])

    def answer(self) -> None:
        async def sent() -> None:
            cycle = self.requests.pop(0)
            await cycle.send({"type": "http.response.start", "status": 204, "headers": []})
            await cycle.send({"type": "http.response.body", "body": b""})

        asyncio.run(sent())

    @property
    def statuses(self) -> list[int]:
        return [int(part[:3]) for part in self.wire.sent.split(b"HTTP/1.1 ")[1:]]


def head_of(size: int) -> bytes:
    before, after = b"GET / HTTP/1.1\r\nhost: x\r\nx-large: ", b"\r\n\r\n"
    return before + b"a" * (size - len(before) - len(after)) + after


@pytest.mark.parametrize("size", [1 << 20, 16 * 1024, 1000, 1])
def test_a_head_of_64_kib_is_taken_and_one_byte_more_is_431(size):
    bench = Bench()
    bench.send(head_of(65_536), size)
    assert len(bench.requests) == 1
    bench = Bench()
    bench.send(head_of(65_537), size)
    assert (bench.requests, bench.statuses) == ([], [431])
    assert b'{"error":"headers_too_large","message":' in bench.wire.sent


def test_a_request_line_counts_too():
    bench = Bench()
    bench.send(b"GET /?" + b"a" * 65_536)
    assert bench.statuses == [431]


def test_each_request_of_a_connection_has_64_kib():
    bench = Bench()
    for _ in range(3):
        bench.send(head_of(60_000), 1460)
        bench.answer()
    assert bench.statuses == [204] * 3


def test_100_headers_are_taken_and_101_are_431():
    bench = Bench()
    bench.send(HEAD + b"a: b\r\n" * 99 + b"\r\n")
    assert len(bench.requests) == 1
    bench = Bench()
    bench.send(HEAD + b"a: b\r\n" * 100 + b"\r\n")
    assert (bench.requests, bench.statuses) == ([], [431])


@pytest.mark.parametrize("beginning", [b"G", HEAD, HEAD + b"x-a: aaa", b"\r\n\r\nGET"])
def test_a_head_that_is_not_complete_10_s_after_its_first_byte_is_408(beginning):
    bench = Bench()
    bench.send(beginning)
    bench.clock.move(9.9)
    assert not bench.wire.sent
    bench.clock.move(0.2)
    assert bench.statuses == [408]
    bench.clock.move(LIMITS.linger_s)
    assert bench.wire.closed
    assert not bench.clock.timers


def test_a_byte_now_and_then_lengthens_no_head():
    bench = Bench()
    bench.send(HEAD + b"x-slow: ")
    for _ in range(11):
        bench.clock.move(1)
        bench.send(b"a")
    assert bench.statuses == [408]


def test_the_time_of_a_head_begins_anew_with_each_request():
    bench = Bench()
    for _ in range(3):
        bench.send(HEAD)
        bench.clock.move(8)
        bench.send(b"\r\n")
        bench.answer()
        bench.clock.move(8)
    assert bench.statuses == [204] * 3


def test_a_request_that_is_being_answered_takes_as_long_as_it_takes():
    bench = Bench()
    bench.send(HEAD[:5])
    bench.send(HEAD[5:] + b"\r\n")
    bench.clock.move(3600)
    bench.answer()
    assert bench.statuses == [204]
    assert not bench.wire.closed


def test_a_body_that_stands_still_for_30_s_is_408_and_its_request_is_over():
    bench = Bench()
    bench.send(LENGTH)
    bench.send(b"x" * 50_000)
    bench.clock.move(30.1)  # enough came in this period, and nothing will in the next one
    assert not bench.wire.sent
    bench.clock.move(30.1)
    assert bench.statuses == [408]
    assert bench.requests[0].disconnected
    bench.clock.move(LIMITS.linger_s)
    assert bench.wire.closed


def test_a_body_that_is_slow_and_comes_on_is_taken():
    bench = Bench()
    bench.send(LENGTH)
    for _ in range(100_000 // 100):
        bench.send(b"x" * 100)
        bench.clock.move(1)
    bench.answer()
    assert bench.statuses == [204]


def test_a_body_that_this_side_does_not_read_is_not_late():
    bench = Bench()
    bench.send(LENGTH)
    bench.send(b"x" * 70_000)
    assert bench.protocol.flow.read_paused
    bench.clock.move(3600)
    assert not bench.wire.sent


def test_chunk_extensions_are_no_body():
    bench = Bench()
    bench.send(CHUNKED)
    for _ in range(31):
        bench.send(b"1;a=" + b"b" * 1000 + b"\r\nx\r\n")
        bench.clock.move(1)
    assert bench.statuses == [408]


def test_the_rest_of_a_body_whose_answer_was_early_is_thrown_away_for_30_s():
    bench = Bench()
    bench.send(LENGTH)
    bench.answer()
    for _ in range(31):
        bench.send(b"x" * 1000)
        bench.clock.move(1)
    assert bench.statuses == [204], "a second answer would be taken for the next request's"
    assert bench.wire.closed


def test_a_connection_whose_early_answered_body_ends_is_used_again_and_closed_when_idle():
    bench = Bench()
    bench.send(LENGTH)
    bench.answer()
    bench.send(b"x" * 100_000)
    bench.send(HEAD + b"\r\n")
    bench.answer()
    assert bench.statuses == [204, 204]
    bench.clock.move(KEEP_ALIVE_S + 1)
    assert bench.wire.closed


@pytest.mark.parametrize("size", [1 << 20, 1000])
def test_chunk_extensions_of_a_body_are_bounded_together(size):
    bench = Bench()
    bench.send(CHUNKED)
    bench.send((b"1;a=" + b"b" * 10_000 + b"\r\nx\r\n") * 8, size)
    assert bench.statuses == [413]


@pytest.mark.parametrize("size", [1 << 20, 1000])
def test_a_size_without_end_is_refused(size):
    bench = Bench()
    bench.send(CHUNKED)
    bench.send(b"0" * 100_000, size)
    assert bench.statuses == [413]


@pytest.mark.parametrize("size", [1 << 20, 1000])
def test_trailers_are_bounded(size):
    bench = Bench()
    bench.send(CHUNKED)
    bench.send(b"1\r\nx\r\n0\r\nx-late: " + b"a" * 100_000, size)
    assert bench.statuses == [413]


@pytest.mark.parametrize("size", [1 << 20, 1000])
def test_a_body_in_chunks_of_one_byte_is_taken(size):
    bench = Bench()
    bench.send(CHUNKED)
    bench.send(b"1\r\nx\r\n" * 60_000 + b"0\r\n\r\n", size)
    assert len(bench.requests[0].body) == 60_000
    assert not bench.requests[0].more_body
    assert not bench.wire.sent


def test_a_connection_that_sends_nothing_is_closed_like_an_idle_one():
    bench = Bench()
    bench.clock.move(KEEP_ALIVE_S - 1)
    assert not bench.wire.closed
    bench.clock.move(1)
    assert (bench.wire.closed, bench.wire.sent) == ("closed", b"")


def test_empty_lines_after_an_answer_do_not_keep_a_connection_open():
    bench = Bench()
    bench.send(HEAD + b"\r\n")
    bench.answer()
    bench.send(b"\r\n")
    bench.clock.move(KEEP_ALIVE_S)
    assert bench.wire.closed


def test_an_answer_under_way_goes_before_the_refusal_of_what_follows_it():
    bench = Bench()
    bench.send(HEAD + b"\r\n")
    bench.send(head_of(100_000))
    assert not bench.wire.sent
    bench.answer()
    assert bench.statuses == [204]
    assert bench.wire.closed


def test_what_comes_after_a_refusal_is_thrown_away_for_a_while():
    bench = Bench()
    bench.send(head_of(1 << 20))
    sent = bench.wire.sent
    bench.send(b"x" * 1_000_000)
    assert (bench.wire.sent, bench.wire.closed) == (sent, "")
    bench.clock.move(LIMITS.linger_s)
    assert bench.wire.closed == "closed"


def test_a_refusal_that_nobody_reads_ends_all_the_same():
    bench = Bench()
    bench.send(head_of(1 << 20))
    bench.wire.unread = 300
    bench.clock.move(LIMITS.linger_s)
    assert bench.wire.closed == "aborted"


def test_what_is_no_http_is_400_with_an_error_body():
    bench = Bench()
    bench.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert bench.statuses == [400]
    assert b'{"error":"bad_request","message":' in bench.wire.sent


def test_a_body_that_is_no_http_is_400_and_its_request_is_over():
    bench = Bench()
    bench.send(CHUNKED)
    bench.send(b"no size\r\n")
    assert bench.statuses == [400]
    assert bench.requests[0].disconnected


def test_a_request_for_another_protocol_is_answered_and_the_connection_goes_on():
    bench = Bench()
    bench.send(HEAD + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n")
    bench.answer()
    bench.send(HEAD + b"\r\n")
    bench.answer()
    assert bench.statuses == [204, 204]


def test_one_connection_more_than_there_may_be_is_503(caplog):
    state = ServerState()
    limits = ConnectionLimits(connections=2)
    first, _ = Bench(limits, state), Bench(limits, state)
    third = Bench(limits, state)
    assert (third.statuses, third.wire.closed) == ([503], "closed")
    third.protocol.connection_lost(None)
    first.protocol.connection_lost(None)
    assert not Bench(limits, state).wire.closed


def test_a_connection_that_ends_leaves_no_timer():
    bench = Bench()
    bench.send(HEAD + b"\r\n")
    bench.answer()
    bench.send(HEAD)
    bench.protocol.connection_lost(ConnectionResetError())
    assert not bench.clock.timers


def test_an_answer_that_nobody_reads_ends_its_connection():
    bench = Bench()
    bench.send(HEAD + b"\r\n")
    bench.wire.unread = 100_000
    bench.protocol.pause_writing()
    for _ in range(10):  # slow, and it goes on
        bench.wire.unread -= 3000
        bench.clock.move(30)
    assert not bench.wire.closed
    bench.clock.move(30)
    assert bench.wire.closed == "aborted"
    bench.protocol.connection_lost(None)
    assert not bench.clock.timers


def test_an_answer_that_is_read_in_the_end_leaves_no_timer_behind():
    bench = Bench()
    bench.send(HEAD + b"\r\n")
    bench.wire.unread = 100_000
    bench.protocol.pause_writing()
    bench.clock.move(20)
    bench.protocol.resume_writing()
    bench.clock.move(3600)
    assert not bench.wire.closed


def test_an_idle_connection_whose_last_answer_nobody_reads_is_closed_all_the_same():
    bench = Bench()
    bench.send(HEAD + b"\r\n")
    bench.answer()
    bench.wire.unread = 1000
    bench.clock.move(KEEP_ALIVE_S)
    assert bench.wire.closed == "aborted"


def test_a_last_answer_is_sent_as_long_as_it_is_read():
    bench = Bench()
    bench.send(HEAD + b"connection: close\r\n\r\n")
    bench.wire.unread = 20_000
    bench.answer()
    assert bench.wire.closed == "closed"
    for _ in range(4):
        bench.wire.unread -= 4000
        bench.protocol.resume_writing()
        bench.clock.move(LIMITS.body_s)
    assert bench.wire.closed == "closed"
    bench.clock.move(LIMITS.body_s)
    assert bench.wire.closed == "aborted"
