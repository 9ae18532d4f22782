"""While the storage takes nothing, writes wait up to a bound in bytes; further ones are 503 with ``Retry-After``."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from simulator.service.storage import writer as writer_module
from tests.service_running import running

WAIT_S = 120
LARGE = {f"{n:03}{'x' * 990}": n for n in range(200)}


def test_writes_beyond_the_bytes_that_may_wait_are_503_and_nothing_of_them_is_stored(monkeypatch):
    monkeypatch.setattr(writer_module, "WAITING_BYTES_MAX", 500_000)
    with running() as bench, ThreadPoolExecutor(8) as callers:
        device_id = bench.device()
        writer = bench.service._service.writer
        held, go = threading.Event(), threading.Event()

        def hold(_connection):
            held.set()
            assert go.wait(WAIT_S)

        callers.submit(writer.call, hold)
        try:
            assert held.wait(WAIT_S)
            asked = [callers.submit(bench.post_reading, device_id, sensor_data=LARGE) for _ in range(5)]
            refused = [answer for answer in _first_to_end(asked, 3) if answer.status_code == 503]
            assert [answer.json()["error"] for answer in refused] == ["service_busy"] * 3
            assert {answer.headers["retry-after"] for answer in refused} == {"1"}
            assert bench.poll(device_id).status_code == 200, "what is no write is answered"
        finally:
            go.set()
        assert sorted(one.result().status_code for one in asked) == [201, 201, 503, 503, 503]
        assert bench.post_reading(device_id, sensor_data=LARGE).status_code == 201
        assert len(bench.http.get("/sensor-data", params={"device_id": device_id}).json()["data"]) == 3


def test_polls_that_lead_to_large_answers_count_as_large_writes(monkeypatch):
    monkeypatch.setattr(writer_module, "WAITING_BYTES_MAX", 100_000)
    with running() as bench, ThreadPoolExecutor(8) as callers:
        product_id = bench.product()
        device_ids = [bench.device(product_id, identifier=f"SN-{number}") for number in range(3)]
        for device_id in device_ids:
            body = {"device_id": device_id, "command_payload": {"text": "x" * 60_000}}
            assert bench.http.post("/commands/send", json=body).status_code == 202
        writer = bench.service._service.writer
        held, go = threading.Event(), threading.Event()

        def hold(_connection):
            held.set()
            assert go.wait(WAIT_S)

        callers.submit(writer.call, hold)
        try:
            assert held.wait(WAIT_S)
            asked = [callers.submit(bench.poll, device_id) for device_id in device_ids]
            assert [answer.status_code for answer in _first_to_end(asked, 2)] == [503, 503]
        finally:
            go.set()
        assert sorted(one.result().status_code for one in asked) == [200, 503, 503]
        for device_id in device_ids:
            assert len(bench.poll(device_id).json()["data"]) == 1


def _first_to_end(asked, number):
    """The answers of the first requests that end."""
    ended = threading.Semaphore(0)
    for one in asked:
        one.add_done_callback(lambda _one: ended.release())
    for _ in range(number):
        assert ended.acquire(timeout=WAIT_S)
    return [one.result() for one in asked if one.done()]
