"""What is read holds nobody up: no read runs on the event loop's thread, and no kind of read waits for a slower one."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sqlalchemy import event

from simulator.service.app import ENDPOINTS
from simulator.service.oauth import account_pages
from simulator.service.routes import control, control_clients, control_clock, control_profiles
from simulator.service.storage.database import READERS, Database
from tests.service_running import running

WAIT_S = 60
SUMMARIES = (
    "/sensor-data?agg=avg&interval=3600",
    "/analytics/devices",
)
READING_THREADS = ("service-look-up", "service-reader", "service-summary")


@pytest.fixture(params=["temporary", "file"])
def bench(request, tmp_path):
    with running(**({"data_dir": tmp_path} if request.param == "file" else {})) as bench:
        assert bench.service._service.database.kind == request.param
        yield bench


def _engine(bench):
    return bench.service._service.database._read_engine


def statements_seen(bench):
    """The threads that send statements to the storage to read from now on, by name, with each statement."""
    seen = []

    def note(_connection, _cursor, statement, *_):
        seen.append((threading.current_thread().name, statement))

    event.listen(_engine(bench), "before_cursor_execute", note)
    return seen


class Gate:
    """Holds the statements of readers that a pattern finds, until it is opened at the end of the block."""

    def __init__(self, bench, pattern):
        self._pattern = re.compile(pattern, re.DOTALL)
        self.held = threading.Semaphore(0)
        self._open = threading.Event()
        event.listen(_engine(bench), "before_cursor_execute", self._hold)

    def _hold(self, _connection, _cursor, statement, *_):
        if self._pattern.search(statement) and not self._open.is_set():
            self.held.release()
            assert self._open.wait(WAIT_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._open.set()


class SlowAverage:
    """SQLite's ``avg`` while this test has it: it stands still inside the database until it is let go."""

    entered = threading.Semaphore(0)
    go = threading.Event()

    def __init__(self):
        self._numbers = []

    def step(self, number):
        if not self._numbers:
            SlowAverage.entered.release()
            assert SlowAverage.go.wait(WAIT_S)
        self._numbers.append(number)

    def finalize(self):
        return sum(self._numbers) / len(self._numbers)


def _others_are_answered(bench, device_id):
    """Each kind of ordinary request: a poll from memory and one that is made, a look-up, a list, a write."""
    assert bench.poll(device_id).status_code == 200
    assert bench.poll(device_id, limit=7).status_code == 200
    assert bench.http.get(f"/devices/{device_id}").status_code == 200
    assert bench.http.get("/devices", params={"limit": 5}).status_code == 200
    assert bench.http.get("/sensor-data", params={"limit": 5}).status_code == 200
    assert bench.post_reading(device_id).status_code == 201
    bench.report(device_id, bench.send(device_id), "succeeded")


def test_summaries_that_the_database_is_busy_with_keep_nobody_from_an_answer(bench):
    device_id = bench.device()
    bench.post_reading(device_id, sensor_data={"t": 20})
    SlowAverage.entered, SlowAverage.go = threading.Semaphore(0), threading.Event()
    pool = _engine(bench)

    def connected(driver_connection, _record):
        driver_connection.create_aggregate("avg", 1, SlowAverage)

    event.listen(pool, "connect", connected)
    pool.dispose()  # so that every reading connection has it
    with ThreadPoolExecutor(READERS + 2) as callers:
        try:
            asked = [callers.submit(bench.http.get, SUMMARIES[0]) for _ in range(READERS + 2)]
            assert SlowAverage.entered.acquire(timeout=WAIT_S)  # one at least is inside SQLite by now
            _others_are_answered(bench, device_id)
            assert not any(one.done() for one in asked)
        finally:
            SlowAverage.go.set()
    assert [one.result().status_code for one in asked] == [200] * (READERS + 2)
    assert asked[0].result().json()["data"][0]["sensor_data"]["t"] == pytest.approx(20, abs=2)


def test_long_lists_keep_no_poll_and_no_write_from_an_answer(bench):
    device_id = bench.device()
    bench.post_reading(device_id)
    with ThreadPoolExecutor(READERS + 2) as callers:
        with Gate(bench, r"FROM readings.*LIMIT") as gate:
            asked = [callers.submit(bench.http.get, "/sensor-data") for _ in range(READERS + 2)]
            assert all(gate.held.acquire(timeout=WAIT_S) for _ in range(READERS))
            assert bench.poll(device_id, limit=7).status_code == 200
            assert bench.http.get(f"/devices/{device_id}").status_code == 200
            assert bench.post_reading(device_id).status_code == 201
            assert not any(one.done() for one in asked)
        assert [one.result().status_code for one in asked] == [200] * (READERS + 2)


def test_half_of_the_cores_are_left_to_everything_but_summaries(bench):
    service = bench.service._service
    assert 1 <= service._summing._max_workers <= READERS
    device_id = bench.device()
    bench.post_reading(device_id)
    with ThreadPoolExecutor(READERS + 2) as callers, Gate(bench, "avg") as gate:
        asked = [callers.submit(bench.http.get, SUMMARIES[0]) for _ in range(READERS + 2)]
        assert all(gate.held.acquire(timeout=WAIT_S) for _ in range(service._summing._max_workers))
        _others_are_answered(bench, device_id)
        assert not gate.held.acquire(blocking=False)  # the others wait for their turn
        assert not any(one.done() for one in asked)


@pytest.mark.parametrize("path", SUMMARIES)
def test_what_looks_at_all_rows_is_read_by_the_threads_for_summaries(bench, path):
    device_id = bench.device()
    bench.post_reading(device_id)
    seen = statements_seen(bench)
    assert bench.http.get(path).status_code == 200
    assert {thread.rsplit("_", 1)[0] for thread, statement in seen if "readings" in statement} == {"service-summary"}


def test_no_endpoint_reads_the_storage_on_the_thread_of_the_event_loop(bench):
    """Every endpoint there is, with ids of what is there and of what is not."""
    product_id = bench.product()
    device_id = bench.device(product_id)
    bench.post_reading(device_id)
    command_id = bench.send(device_id)
    known = {"product_id": product_id, "device_id": device_id, "command_id": command_id, "user_id": "user-0001"}
    bodies = {
        "sign_in": {"email": "a@example.com", "password": "not the right one"},
        "scan_qr": {"qr_data": "none"},
    }
    groups = (account_pages, control, control_clients, control_clock, control_profiles)
    served = [*ENDPOINTS, *(endpoint for group in groups for endpoint in group.ENDPOINTS)]
    reads = 0
    seen = statements_seen(bench)
    for endpoint in served:
        if endpoint.name == "stream_command_events" or endpoint.path.endswith("/reset"):
            continue
        for ids in (known, {}):
            path = re.sub(r"\{(\w+)[^}]*\}", lambda found, ids=ids: ids.get(found[1], "nobody"), endpoint.path)
            body = {} if endpoint.method in {"GET", "DELETE"} else {"json": bodies.get(endpoint.name, {})}
            if endpoint.method == "DELETE" and ids is known:
                continue
            before = len(seen)
            answer = bench.http.request(endpoint.method, path, **body)
            assert answer.status_code < 500, (endpoint.name, answer.text)
            reads += len(seen) > before
    for path in ("/devices?status=online", f"/sensor-data?device_id={device_id}", *SUMMARIES):
        assert bench.http.get(path).status_code == 200
    bearer = {"authorization": "Bearer unknown"}
    assert httpx.get(f"{bench.service.base_url}/products", headers=bearer, trust_env=False).status_code == 401
    with bench.http.stream("GET", "/commands/events") as stream:
        assert next(stream.iter_bytes()).startswith(b": commands")
    threads = {thread.rsplit("_", 1)[0] for thread, _ in seen}
    assert threads == set(READING_THREADS)
    assert reads > 20  # the requests above do reach the storage


def test_the_threads_that_read_and_their_connections_are_as_many_as_each_other():
    database = Database()
    try:
        assert database._read_engine.pool.size() == len(READING_THREADS) * READERS
    finally:
        database.close()
