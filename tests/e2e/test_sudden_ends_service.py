"""Every thread and task of a running service, each ended by an error from inside: what is said, and how it goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.sudden_ends import DEFAULT_POOL, END, LIST

PROGRAM: Final = [sys.executable, "-c", "from tests.sudden_ends import serve; serve()"]
KEYS: Final = {"x-api-key": "mk_test", "x-secret-key": "msk_test"}
GREETING_LINES: Final = 4

ENDS: Final = {
    "service-writer": "service-writer ended unexpectedly: SuddenExit",
    "service-tick": "service-tick ended unexpectedly: Sudden",
    "service-scripted": "service-scripted ended unexpectedly: Sudden",
    "LifespanOn.main": "service-lifespan ended unexpectedly: Sudden",
    "Server.serve": "tests.sudden_ends.Sudden",
}
"""What the process ends with, exit code 1, and what it says: without the one part no answer of the others is true."""

GOES_ON: Final = {
    "service-reader": "a pool of the standard library, which gives an error to the request that waits for it",
    "service-look-up": "a pool like the one above",
    DEFAULT_POOL: "of the standard library too, for passwords and seeds: as above",
    "RequestResponseCycle.run_asgi": "a request: the server logs its error; its caller gets 500 or loses the stream",
    "wait_for_disconnect": "belongs to a held request, which ends with its error",
    "Event.wait": "belongs to an event stream, which ends with its error",
}
"""What the process goes on after, and why."""

NOT_ENDED: Final = {
    "MainThread": "runs the loop: its end is that of Server.serve",
}


@pytest.fixture
def held_requests() -> Iterator[list[threading.Thread]]:
    threads: list[threading.Thread] = []
    yield threads
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@contextmanager
def service(environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    process = subprocess.Popen(
        [*PROGRAM, "--port=0", "--api-key=mk_test", "--secret-key=msk_test"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(GREETING_LINES)]
        base_url = lines[0].split()[1]
        with httpx.Client(base_url=base_url, headers=KEYS, trust_env=False, timeout=60) as client:
            yield process, client
    finally:
        process.kill()
        process.communicate()


def get(client: httpx.Client, path: str) -> None:
    """Whatever becomes of it: it may be cut off."""
    try:
        client.get(path, timeout=60)
    except httpx.TransportError:
        return


def hold(client: httpx.Client, threads: list[threading.Thread]) -> str:
    """A held poll and an event stream stand, every pool has a thread; the id of the product."""
    product = client.post("/products", json={"name": "p"}).json()["product_id"]
    body = {"user_id": "u", "product_id": product, "device_identifier": "SN-1"}
    device = client.post("/onboarding/device", json=body).json()["device_id"]
    seeded = client.post(
        "/_emulator/seed",
        content="users: [{email: a@example.com, password: correct horse battery}]",
        headers={"content-type": "application/yaml"},
    )
    assert seeded.status_code == 200, seeded.text
    assert client.get("/devices").status_code == 200
    for path in (f"/devices/{device}/commands?status=open&wait=30", "/commands/events"):
        ready = threading.Event()
        thread = threading.Thread(target=_held, args=(str(client.base_url), path, ready))
        thread.start()
        threads.append(thread)
        assert ready.wait(60)
    return product


def _held(base_url: str, path: str, ready: threading.Event) -> None:
    with httpx.Client(base_url=base_url, headers=KEYS, trust_env=False, timeout=60) as client:
        try:
            if "events" not in path:
                ready.set()
            with client.stream("GET", path) as answer:
                for _ in answer.iter_bytes():
                    ready.set()
        except httpx.TransportError:
            return
        finally:
            ready.set()


def listed(process: subprocess.Popen[str], client: httpx.Client, file: Path) -> set[str]:
    """The parts of the process, once the held requests are among them."""
    for _ in range(600):
        file.unlink(missing_ok=True)
        process.send_signal(signal.SIGUSR1)
        while not file.exists() or not file.read_text():
            assert client.get("/products").status_code == 200
        found = set(file.read_text().split("\n"))
        if {"wait_for_disconnect", "Event.wait", "RequestResponseCycle.run_asgi"} <= found:
            return found
    raise AssertionError(found)


def test_every_thread_and_task_of_a_service_stands_in_the_tables(tmp_path, held_requests):
    file = tmp_path / "parts"
    with service({LIST: str(file)}) as (process, client):
        hold(client, held_requests)
        assert listed(process, client, file) == {*ENDS, *GOES_ON, *NOT_ENDED}


@pytest.mark.parametrize("part", ENDS)
def test_a_service_ends_with_a_part_without_which_it_is_none(part, held_requests):
    with service({END: part}) as (process, client):
        hold(client, held_requests)
        process.send_signal(signal.SIGUSR1)
        writes = threading.Thread(target=get, args=(client, "/products"))
        writes.start()
        writes.join(60)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 1, said
    assert ENDS[part] in said
    if part != "Server.serve":
        assert f"error: {ENDS[part]}" in said


def test_a_service_goes_on_after_the_end_of_what_belongs_to_one_request(held_requests):
    with service({END: ",".join(GOES_ON)}) as (process, client):
        hold(client, held_requests)
        process.send_signal(signal.SIGUSR1)
        for thread in held_requests:
            thread.join(60)  # what they waited for has ended, and nobody is left waiting
        for path in ("/_emulator/health", "/devices", "/products"):
            assert client.get(path).status_code == 200
        assert client.post("/products", json={"name": "another"}).status_code == 201
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
