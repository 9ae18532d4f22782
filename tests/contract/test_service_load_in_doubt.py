"""The connection to the storage is lost while a snapshot's load commits: what is in memory fits what is stored."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.wire.secret import Secret
from simulator.service.storage.commit_mark import CommitMark
from tests.failing_storage import Storage
from tests.service_running import Bench, client, running
from tests.unit.simulator.service.tcp_proxy import proxy

CLOCKS = {"earlier": "2025-03-01T00:00:00.000Z", "later": "2027-03-01T00:00:00.000Z"}
"""Of the new state; by the one of the old state it is 2026-01-01."""
TTL_S = 60
SETTINGS = {"rate_limit": 1000, "api_key": "mk_own", "secret_key": Secret("msk_own")}


@contextlib.contextmanager
def lose_the_marked(storage: Storage, mode: str) -> Iterator[None]:
    real = CommitMark.set

    def mark(self, connection):
        real(self, connection)
        storage.fail_this(mode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CommitMark, "set", mark)
        yield


@contextlib.contextmanager
def losing(request: pytest.FixtureRequest, storage: str, *, committed: bool) -> Iterator[tuple[Bench, Callable]]:
    """A service, and what makes it lose the connection in the next load: really, where there is a connection."""
    if storage == "sqlite":
        with running(**SETTINGS) as bench:
            yield bench, lambda: lose_the_marked(Storage(bench), "in doubt" if committed else "lost")
        return
    cluster = request.getfixturevalue("postgresql")
    with cluster.database() as url, proxy(cluster.port) as between:

        @contextlib.contextmanager
        def lose():
            between.cut_at_commit(b"new-state", delivered=committed)
            yield

        with running(database=between.through(url), **SETTINGS) as bench:
            yield bench, lose


def make(bench: Bench, name: str) -> dict[str, str]:
    """A state in which everything has this name, down to its one device, which has one command."""
    device = bench.device(bench.product(name=name), name, name)
    return {"name": name, "device": device, "command": bench.send(device, name, ttl_seconds=TTL_S)}


def begin(bench: Bench, clock: str) -> tuple[dict[str, str], dict[str, str]]:
    """The old state, which is there, with what is kept in memory of it, and the new one, which is a snapshot."""
    assert bench.http.put("/_emulator/clock", json={"mode": "frozen", "time": clock}).status_code == 200
    new = make(bench, "new-state")
    assert bench.http.post("/_emulator/snapshots", json={"name": "new"}).status_code == 201
    assert bench.http.post("/_emulator/reset").status_code == 204
    old = make(bench, "old-state")
    for _ in range(2):  # the second answer is a kept one
        assert listed(bench.poll(old["device"])) == [old["command"]]
    script = {"device_id": old["device"], "answers": [{"command": "a-later-one"}, {"status": "never"}]}
    answer = bench.http.post("/_emulator/devices", json=script)
    assert answer.status_code == 201, answer.text
    assert bench.http.post("/_emulator/accounts", json={"name": "of-old", "keys": [KEYS]}).status_code == 201
    return old, new


KEYS = {"api_key": "mk_of_old", "secret_key": "msk_of_old"}


def listed(answer) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["data"]]


def left(bench: Bench) -> int:
    return int(bench.http.get("/products").headers["x-ratelimit-remaining"])


def check(bench: Bench, there: dict[str, str], *, is_new: bool, clock: str) -> None:
    """Storage and memory are of this one state, and it goes on."""
    http, device = bench.http, there["device"]
    assert [one["name"] for one in http.get("/products").json()["data"]] == [there["name"]]
    (shown,) = http.get("/devices").json()["data"]
    assert (shown["device_identifier"], shown["last_seen_at"] is None) == (there["name"], is_new)
    assert http.get("/_emulator/clock").json()["time"] == clock
    kept, again = (listed(bench.poll(device)) for _ in range(2))
    assert kept == again == listed(bench.poll(device, limit=100)) == [there["command"]]
    assert len(http.get("/_emulator/devices").json()["data"]) == (0 if is_new else 1)
    with client(bench.service, *KEYS.values()) as of_old:
        assert of_old.get("/products").status_code == (401 if is_new else 200)
    assert http.post("/_emulator/clock/advance", json={"seconds": TTL_S - 1}).status_code == 200
    assert bench.command(device, there["command"])["status"] == "delivered"
    assert http.post("/_emulator/clock/advance", json={"seconds": 2}).status_code == 200
    assert bench.command(device, there["command"])["status"] == "timed_out"
    assert listed(bench.poll(device)) == []
    later = bench.send(device, "a-later-one")
    assert http.post("/_emulator/clock/advance", json={"seconds": 30}).status_code == 200
    assert bench.command(device, later)["status"] == ("queued" if is_new else "succeeded")


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("committed", [True, False])
def test_after_a_load_whose_commit_is_in_doubt_memory_fits_what_is_stored(request, storage, committed, clock):
    with losing(request, storage, committed=committed) as (bench, lose):
        old, new = begin(bench, CLOCKS[clock])
        before = left(bench)
        with lose():
            answer = bench.http.post("/_emulator/snapshots/new/load")
        if committed:
            assert answer.status_code == 200, answer.text
            assert left(bench) == 999
            check(bench, new, is_new=True, clock=CLOCKS[clock])
        else:
            assert (answer.status_code, answer.json()["error"]) == (503, "storage_unavailable")
            assert left(bench) == before - 1
            check(bench, old, is_new=False, clock="2026-01-01T00:00:00.000Z")


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.one_database
def test_while_a_load_is_in_doubt_nothing_is_written_by_the_wrong_clock(storage, request, monkeypatch, committed):
    real, undecided, decided = CommitMark.is_committed, threading.Event(), threading.Event()

    def look(mark, connection):
        undecided.set()
        return real(mark, connection) if decided.is_set() else None

    monkeypatch.setattr(CommitMark, "is_committed", look)
    with losing(request, storage, committed=committed) as (bench, lose), ThreadPoolExecutor(2) as threads:
        # By the other state's clock the command of the one that is stored would be over.
        old, new = begin(bench, CLOCKS["earlier" if committed else "later"])
        with lose():
            loading = threads.submit(bench.http.post, "/_emulator/snapshots/new/load")
            assert undecided.wait(60)
        try:
            with client(bench.service) as http:
                waiting = threads.submit(http.post, "/products", json={"name": "meanwhile"})
                pause, writer = threading.Event(), bench.service._service.writer
                # The regular work, which finds that ends of commands may be due: behind the load, or in its group.
                while not writer._queue.qsize() and len(writer._in_hand) < 2:
                    pause.wait(0.01)
                assert http.get("/_emulator/health").status_code == 200
                assert not loading.done()
                assert not waiting.done()
                decided.set()
                assert waiting.result(60).status_code == 201
        finally:
            decided.set()
        assert loading.result(60).status_code == (200 if committed else 503)
        there = new if committed else old
        assert listed(bench.poll(there["device"])) == [there["command"]]


def test_a_service_can_end_while_a_load_is_in_doubt(storage, request, monkeypatch):
    looked = threading.Event()
    monkeypatch.setattr(CommitMark, "is_committed", lambda *_: looked.set())
    load = b"POST /_emulator/snapshots/new/load HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    with contextlib.ExitStack() as stack:
        bench, lose = stack.enter_context(losing(request, storage, committed=True))
        begin(bench, CLOCKS["later"])
        url = bench.http.base_url
        with lose(), socket.create_connection((url.host, url.port)) as connection:
            connection.sendall(load)
            assert looked.wait(60)
            stack.close()
