"""Figure S1: ``POST /sensor-data``, stored, beside the same frameworks answering a constant.

Method: each server is one process with one uvicorn worker (uvloop, httptools, no access log). The service stores every
reading in a SQLite file with WAL and ``synchronous=FULL`` before it answers; keys are checked, bodies are validated,
the quota is off. The constant applications read the body and answer 201 with a body of the same size. One load
generator in a process of its own holds 64 keep-alive connections. Runs are interleaved, and the median of each server
counts. At the end the rows in the file are counted: fewer than were answered would fail the benchmark.

    python benchmarks/service_ingest.py [--seconds 3] [--runs 5] [--dir FOLDER]

Exit codes: 0 the bar is reached, 1 it is not, 4 rows are missing.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.load_client import LoadResult, load

BAR = 0.5
KEYS = {"x-api-key": "mk_benchmark", "x-secret-key": "msk_benchmark"}
READY = "ready "

SERVICE = """
import sys
from pathlib import Path
from agent.wire.secret import Secret
from simulator.service.config import ServiceConfig
from simulator.service.server import serve
config = ServiceConfig(data_dir=Path(sys.argv[1]), api_key="mk_benchmark", secret_key=Secret("msk_benchmark"),
                       rate_limit=0, log_level="warning")
serve(config, lambda service, url: print("ready", url, flush=True))
"""

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
listener = socket.createserver(("127.0.0.1", 0))
print("ready", "http://127.0.0.1:%d" % listener.getsockname()[1], flush=True)
config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="warning")
uvicorn.Server(config).run([listener])
"""


@contextlib.contextmanager
def server(code: str, argument: str) -> Iterator[str]:
    """A server process; its base URL."""
    process = subprocess.Popen([sys.executable, "-c", code, argument], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith(READY):
            raise RuntimeError(f"a server did not start: {line!r}")
        yield line.removeprefix(READY).strip()
    finally:
        process.terminate()
        process.wait(10)


def _call(url: str, body: dict[str, object]) -> dict[str, str]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {**KEYS, "content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        found: dict[str, str] = json.load(answer)
        return found


def make_device(base_url: str) -> str:
    """A new device of a new product; its id."""
    product_id = _call(f"{base_url}/products", {"name": "benchmark"})["product_id"]
    body = {"user_id": "benchmark", "product_id": product_id, "device_identifier": "benchmark"}
    return _call(f"{base_url}/onboarding/device", dict(body))["device_id"]


def _measure(folder: Path, seconds: float, runs: int) -> tuple[dict[str, list[LoadResult]], int]:
    """The runs of each server, and how many rows the service has stored."""
    results: dict[str, list[LoadResult]] = {}
    with (
        server(SERVICE, str(folder)) as service,
        server(CONSTANT, "fastapi") as fastapi,
        server(CONSTANT, "starlette") as starlette,
    ):
        reading = {"device_id": make_device(service), "sensor_data": {"temperature_c": 21.5, "humidity": 40.25}}
        servers = {"service, stored": service, "FastAPI, constant": fastapi, "Starlette, constant": starlette}
        for url in servers.values():  # everybody is warm before anybody is measured
            load(f"{url}/sensor-data", headers=KEYS, body=json.dumps(reading).encode(), seconds=1)
        for _ in range(runs):
            for name, url in servers.items():
                result = load(f"{url}/sensor-data", headers=KEYS, body=json.dumps(reading).encode(), seconds=seconds)
                if set(result.statuses) != {"201"}:
                    raise RuntimeError(f"{name} answered {result.statuses}")
                results.setdefault(name, []).append(result)
    with contextlib.closing(sqlite3.connect(folder / "service.db")) as file:
        return results, file.execute("SELECT count(*) FROM readings").fetchone()[0]


def _show(results: dict[str, list[LoadResult]]) -> float:
    medians = {name: statistics.median(run.per_second for run in runs) for name, runs in results.items()}
    stored = medians["service, stored"]
    print(
        f"{'server':<22}{'req/s, median':>15}{'lowest':>10}{'highest':>10}{'p50 ms':>9}{'p99 ms':>9}{'service is':>12}"
    )
    for name, runs in results.items():
        rates = [run.per_second for run in runs]
        p50, p99 = (statistics.median(run.latency_ms[p] for run in runs) for p in ("p50", "p99"))
        print(
            f"{name:<22}{medians[name]:>15,.0f}{min(rates):>10,.0f}{max(rates):>10,.0f}{p50:>9.1f}{p99:>9.1f}"
            f"{stored / medians[name]:>10.2f} x"
        )
    return stored / medians["FastAPI, constant"]


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="Figure S1: stored ingest beside a constant answer.")
    parser.add_argument("--seconds", type=float, default=3, help="length of one run")
    parser.add_argument("--runs", type=int, default=5, help="runs of each server")
    parser.add_argument("--dir", type=Path, help="where the file lives; the disk matters")
    given = parser.parse_args()
    if given.dir is not None:
        given.dir.mkdir(parents=True, exist_ok=True)
    print(f"S1, {dt.datetime.now(dt.UTC):%Y-%m-%d}: POST /sensor-data, 64 connections, one worker each")
    print(f"machine: {machine()}")
    print(f"method: {given.runs} interleaved runs of {given.seconds:g} s, median; own load client in its own process\n")
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        results, rows = _measure(Path(folder), given.seconds, given.runs)
    ratio = _show(results)
    answered = sum(run.requests for run in results["service, stored"])
    print(f"\nanswered {answered:,}, rows in the file {rows:,}; bar {BAR} x FastAPI: {ratio:.2f} x")
    if rows < answered:
        print("rows are missing")
        sys.exit(4)
    sys.exit(0 if ratio >= BAR else 1)


def machine() -> str:
    """What it was measured on."""
    return f"{platform.machine()}, {_cpu()}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"


def _cpu() -> str:
    import os

    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return f"{os.cpu_count()} x {line.partition(':')[2].strip()}"
    return f"{os.cpu_count()} cores"


if __name__ == "__main__":
    main()
