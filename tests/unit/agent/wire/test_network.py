"""A request as a whole ends after its time, whatever a server does with its bytes; on real sockets."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from agent.errors import ServiceError, TransportError
from agent.wire.connection import Connection
from agent.wire.network import HEAD_MAX_BYTES, TimeBudget, this_thread

LIMIT_S = 0.3
SOON_S = 20.0
"""Long enough for a loaded machine, and much shorter than what these servers would take."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"


class SlowServer:
    """Takes connections one after the other and sends what ``pieces`` gives, one piece each ``pause_s``."""

    def __init__(self, pieces: Callable[[], Iterator[bytes]], pause_s: float, *, reads: bool = True) -> None:
        self._pieces = pieces
        self._pause_s = pause_s
        self._reads = reads
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(SOON_S)
        self._listener.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                peer, _ = self._listener.accept()
                with peer, contextlib.suppress(OSError):
                    self._answer(peer)

    def _answer(self, peer: socket.socket) -> None:
        peer.settimeout(SOON_S)
        if not self._reads:
            self._ended.wait(SOON_S)
            return
        peer.recv(65536)
        for piece in self._pieces():
            if self._ended.wait(self._pause_s):
                return
            peer.sendall(piece)


def trickle(text: bytes) -> Iterator[bytes]:
    return (text[n : n + 1] for n in range(len(text)))


def body_that_trickles() -> Iterator[bytes]:
    return itertools.chain([HEAD], trickle(b" " * 100_000))


def interim_answers() -> Iterator[bytes]:
    return itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n")


def silence() -> Iterator[bytes]:
    return iter(())


@pytest.mark.parametrize(
    "pieces",
    [
        lambda: trickle(HEAD + b" " * 1000),
        body_that_trickles,
        interim_answers,
        lambda: trickle(b"HTTP/1.1 102 X" * 999),
    ],
)
@pytest.mark.parametrize("wait_s", [0.0, 0.2])
def test_an_answer_that_trickles_ends_with_the_time_of_the_request(pieces, wait_s):
    with SlowServer(pieces, 0.05) as url, Connection(url, timeout_s=LIMIT_S) as conn:
        began_s = time.monotonic()
        with pytest.raises(ServiceError):
            conn.request("GET", "/devices", wait_s=wait_s)
        assert time.monotonic() - began_s < SOON_S / 2


def test_interim_answers_without_end_are_given_up_after_so_many_bytes_and_not_only_after_the_time():
    with (
        SlowServer(lambda: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 100), 0.0) as url,
        Connection(url, timeout_s=600.0) as conn,
        pytest.raises(TransportError, match="does not end"),
    ):
        conn.request("GET", "/devices")


def test_a_peer_that_takes_nothing_of_a_large_request_ends_with_the_time_of_the_request():
    with SlowServer(silence, 0.0, reads=False) as url, Connection(url, timeout_s=LIMIT_S) as conn:
        began_s = time.monotonic()
        with pytest.raises(TransportError):
            conn.request("POST", "/sensor-data", body=b" " * 50_000_000)
        assert time.monotonic() - began_s < SOON_S / 2


def test_the_next_request_has_its_own_time_and_an_ordinary_answer_comes_through():
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]"
    with SlowServer(lambda: trickle(answer), 0.0) as url, Connection(url, timeout_s=SOON_S) as conn:
        for _ in range(2):
            assert conn.request("GET", "/devices").content == b"[]"
    assert this_thread.budget is None


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_body_that_comes_at_a_good_rate_may_take_up_to_sixty_seconds():
    clock = Clock()
    budget = TimeBudget(clock, 10.0, 25.0)
    assert budget.left_s == 35.0
    clock.now_s = 1.0
    budget.head_is_here(1.0)
    assert budget.left_s == 10.0
    budget.has_body(100)
    assert budget.left_s < 10.1
    budget.has_body(20 * 2048)
    assert budget.left_s == 30.0
    budget.has_body(10**9)
    assert budget.left_s == 60.0


def test_the_time_of_an_exchange_inside_another_one_is_not_the_outer_ones():
    clock = Clock()
    with TimeBudget(clock, 10.0) as outer:
        with TimeBudget(clock, 10.0) as inner:
            assert this_thread.budget is inner
            clock.now_s = 8.0
            assert inner.left_s == 2.0
        assert this_thread.budget is outer
        assert outer.left_s == 10.0
    assert this_thread.budget is None


def test_the_head_of_an_answer_has_a_bound_and_the_body_has_another():
    budget = TimeBudget(Clock(), 10.0)
    assert budget.take_head(HEAD_MAX_BYTES)
    assert not budget.take_head(1)
    budget.head_is_here(0.0)
    assert budget.take_head(10**9)
