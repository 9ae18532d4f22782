"""Figure S1 and what else a user of the local service waits for.

The service is started as its users start it (``fleet-simulator service``), with the request log on and no quota, in a
process of its own; the peers are FastAPI and Starlette answering a constant, one uvicorn worker each (uvloop,
httptools). wrk holds 64 keep-alive connections. Runs are interleaved, the median
of each server counts. At the end the rows in the file are counted.

=====================  =====================================================================================
S1                     ``POST /sensor-data``, stored, beside FastAPI's constant; bar 0.5
polls                  ``GET /devices/{id}/commands?status=open`` of a device without commands
expensive query        p99 of polls while another caller asks for hourly averages over all readings, again and again
start                  from the command to the first answer of ``/_emulator/health``
memory                 resident set after the start, and after the load
=====================  =====================================================================================

    python benchmarks/service.py [--seconds 3] [--runs 5]

Exit codes: 0 the bar is reached, 1 it is not, 2 wrk is missing, 4 rows are missing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._wrk import Load, is_here, load

BAR = 0.5
KEYS = {"x-api-key": "mk_benchmark", "x-secret-key": "msk_benchmark"}
STORED, POLL, FASTAPI, STARLETTE = "service, stored", "service, poll", "FastAPI, constant", "Starlette, constant"

CONSTANT = """
import socket, sys, uvicorn
ANSWER = {"id": "019b76da-a800-7000-8000-000000000006", "device_id": "019b76da-a800-7000-8000-000000000002",
          "sensor_data": {"temperature_c": 21.5, "humidity": 40.25},
          "recorded_at": "2026-01-01T00:00:00.000Z", "received_at": "2026-01-01T00:00:00.000Z"}
if sys.argv[1] == "fastapi":
    from fastapi import FastAPI, Request
    app = FastAPI()
    @app.post("/sensor-data", status_code=201)
    async def post(request: Request) -> dict:
        await request.body()
        return ANSWER
else:
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route
    async def post(request):
        await request.body()
        return JSONResponse(ANSWER, 201)
    app = Starlette(routes=[Route("/sensor-data", post, methods=["POST"])])
config = uvicorn.Config(app, port=int(sys.argv[2]), loop="uvloop", http="httptools", access_log=False)
uvicorn.Server(config).run()
"""


class Server:
    """A server process on a free port of this machine."""

    def __init__(self, command: list[str], port: int, environment: dict[str, str] | None = None) -> None:
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        began = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
        )
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/_emulator/health", timeout=5).close()
                break
            except urllib.error.HTTPError:  # the peers have no such path, which is an answer
                break
            except OSError:
                pass
            if self.process.poll() is not None:
                raise RuntimeError(f"{command} ended with {self.process.returncode}")
            time.sleep(0.005)
        self.start_s = time.perf_counter() - began

    def memory_mb(self) -> float:
        """Resident set, MB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="utf-8").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextlib.contextmanager
def running(command: list[str], port: int, environment: dict[str, str] | None = None) -> Iterator[Server]:
    """A server for the length of the block."""
    server = Server(command, port, environment)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait(60)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def service(folder: Path) -> Iterator[Server]:
    """The local service, storing into a file, without a quota."""
    port = free_port()
    program = [sys.executable, "-m", "simulator.cli", "service", "--port", str(port), "--data", str(folder)]
    keys = {"FLEET_SIMULATOR_API_KEY": KEYS["x-api-key"], "FLEET_SIMULATOR_SECRET_KEY": KEYS["x-secret-key"]}
    with running([*program, "--rate-limit", "0"], port, keys) as server:
        yield server


@contextlib.contextmanager
def constant(kind: str) -> Iterator[Server]:
    """``fastapi`` or ``starlette`` answering a constant; the health path answers 404, which is an answer."""
    port = free_port()
    with running([sys.executable, "-c", CONSTANT, kind, str(port)], port) as server:
        yield server


def call(url: str, body: dict[str, object] | None = None) -> dict[str, str]:
    """One request with the keys."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {**KEYS, "content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, str] = json.load(answer)
        return found


def make_device(base_url: str) -> str:
    """A new device of a new product; its id."""
    product_id = call(f"{base_url}/products", {"name": "benchmark"})["product_id"]
    body: dict[str, object] = {"user_id": "u", "product_id": product_id, "device_identifier": "benchmark"}
    return call(f"{base_url}/onboarding/device", body)["device_id"]


def reading(device_id: str) -> str:
    """A reading of two values, as it goes over the wire."""
    return json.dumps({"device_id": device_id, "sensor_data": {"temperature_c": 21.5, "humidity": 40.25}})


def poll_beside_aggregates(url: str, poll: str, device_id: str, seconds: float) -> Load:
    """Polls of eight connections while one caller aggregates everything, again and again."""
    done = threading.Event()

    def aggregate() -> None:
        while not done.is_set():
            call(f"{url}/sensor-data?device_id={device_id}&agg=avg&interval=3600")

    other = threading.Thread(target=aggregate)
    other.start()
    try:
        return load(poll, headers=KEYS, body=None, connections=8, seconds=seconds)
    finally:
        done.set()
        other.join()


def show(name: str, runs: list[Load]) -> float:
    """Print a line of the table; the median rate."""
    rates = [run.per_s for run in runs]
    median = statistics.median(rates)
    p50, p99 = statistics.median(run.p50_ms for run in runs), statistics.median(run.p99_ms for run in runs)
    print(
        f"{name:<24}{median:>9,.0f}/s  {min(rates):>9,.0f} to {max(rates):>7,.0f}   p50 {p50:.1f} ms, p99 {p99:.1f} ms"
    )
    return median


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Figure S1: stored readings beside a constant answer.")
    parser.add_argument("--seconds", type=float, default=3, help="length of one run")
    parser.add_argument("--runs", type=int, default=5, help="runs of each server")
    given = parser.parse_args()
    if not is_here():
        return 2
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; 64 connections")
    with tempfile.TemporaryDirectory() as name, service(Path(name)) as own:
        fresh_mb = own.memory_mb()
        device_id = make_device(own.url)
        poll = f"{own.url}/devices/{device_id}/commands?status=open"
        runs: dict[str, list[Load]] = {}
        with constant("fastapi") as fastapi, constant("starlette") as starlette:
            asked = {
                STORED: (f"{own.url}/sensor-data", reading(device_id)),
                FASTAPI: (f"{fastapi.url}/sensor-data", reading(device_id)),
                STARLETTE: (f"{starlette.url}/sensor-data", reading(device_id)),
                POLL: (poll, None),
            }
            for _ in range(given.runs + 1):
                for server, (url, body) in asked.items():
                    runs.setdefault(server, []).append(load(url, headers=KEYS, body=body, seconds=given.seconds))
        answered = sum(run.requests for run in runs[STORED])
        warm = {server: found[1:] for server, found in runs.items()}
        medians = {server: show(server, found) for server, found in warm.items()}
        show("poll, 8 connections", [load(poll, headers=KEYS, body=None, connections=8, seconds=given.seconds)])
        show("  beside an aggregate", [poll_beside_aggregates(own.url, poll, device_id, given.seconds)])
        requests = sum(run.requests for server in (STORED, POLL) for run in runs[server])
        print(
            f"start {own.start_s:.2f} s; memory {fresh_mb:.0f} MB, after {requests:,} requests {own.memory_mb():.0f} MB"
        )
        with contextlib.closing(sqlite3.connect(Path(name) / "service.db")) as file:
            rows = file.execute("SELECT count(*) FROM readings").fetchone()[0]
    ratio = medians[STORED] / medians[FASTAPI]
    print(
        f"S1 {ratio:.2f} x FastAPI's constant (bar {BAR:g}), {medians[STORED] / medians[STARLETTE]:.2f} x Starlette's"
    )
    print(f"answered {answered:,} readings, rows in the file {rows:,}")
    if rows < answered:
        print("rows are missing")
        return 4
    return 0 if ratio >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
