"""Figure S1: ``POST /sensor-data``, stored, beside the same frameworks answering a constant.

Method: each server is one process with one uvicorn worker (uvloop, httptools). The service stores every
reading in a SQLite file with WAL and ``synchronous=FULL`` before it answers; keys are checked, bodies are validated,
the quota is off. Request log and access log are on, as they are by default. They are off in a second process of the
service, whose runs follow those of the first: the ratios of these pairs say what the logs cost. The constant
applications read the body and answer 201 with a body of the same size; they write no access log. One load generator
in a process of its own holds 64 keep-alive connections. Runs are interleaved, and the median of each server counts.
At the end the rows in the file are counted: fewer than were answered would fail the benchmark.

Beside them runs a device's poll of the service.

    python benchmarks/service_ingest.py [--seconds 3] [--runs 5] [--dir FOLDER]

Exit codes: 0 the bars are reached, 1 one is not, 4 rows are missing.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
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

from benchmarks._load_client import LoadResult, load

BAR, BAR_LOGS = 0.5, 0.95
STORED, STORED_QUIETLY = "service, stored", "service, no logs"
POLL = "service, device poll"
Runs = dict[str, list[LoadResult]]
KEYS = {"x-api-key": "mk_benchmark", "x-secret-key": "msk_benchmark"}
READY = "ready "
LOGGED, QUIET = ("1000", "info"), ("0", "warning")
"""What the service is started with: requests that it keeps, level of its log."""

SERVICE = """
import sys
from pathlib import Path
from agent.wire.secret import Secret
from simulator.service.config import ServiceConfig
from simulator.service.server import serve
keep, level = sys.argv[2:] or ("0", "warning")
config = ServiceConfig(data_dir=Path(sys.argv[1]), api_key="mk_benchmark", secret_key=Secret("msk_benchmark"),
                       rate_limit=0, keep_requests=int(keep), log_level=level)
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
listener = socket.create_server(("127.0.0.1", 0))
print("ready", "http://127.0.0.1:%d" % listener.getsockname()[1], flush=True)
config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="warning")
uvicorn.Server(config).run([listener])
"""


@contextlib.contextmanager
def server(code: str, *arguments: str, log: Path | None = None) -> Iterator[str]:
    """A server process; its base URL. Its standard error goes to ``log``."""
    with contextlib.ExitStack() as files:
        errors = None if log is None else files.enter_context(log.open("wb"))
        command = [sys.executable, "-c", code, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith(READY):
            raise RuntimeError(f"a server did not start: {line!r}")
        url = line.removeprefix(READY).strip()
        _processes[url] = process.pid
        yield url
    finally:
        process.terminate()
        process.wait(60)


_processes: dict[str, int] = {}
"""Base URL -> the process that serves it."""


def cpu_s(base_url: str) -> float:
    """The CPU that a server has used so far, seconds: proc(5); 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{_processes[base_url]}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


def _measure(folder: Path, seconds: float, runs: int) -> tuple[Runs, dict[str, list[float]], int]:
    """The runs of each server, the CPU for each request in each, microseconds, and the rows that are stored."""
    results: dict[str, list[LoadResult]] = {}
    cpu: dict[str, list[float]] = {}
    with (
        server(SERVICE, str(folder / "logged"), *LOGGED, log=folder / "access.log") as service,
        server(SERVICE, str(folder / "quiet"), *QUIET) as quiet,
        server(CONSTANT, "fastapi") as fastapi,
        server(CONSTANT, "starlette") as starlette,
    ):
        device_id = make_device(service)
        asked: dict[str, tuple[str, bytes | None]] = {
            STORED: (f"{service}/sensor-data", _reading(device_id)),
            STORED_QUIETLY: (f"{quiet}/sensor-data", _reading(make_device(quiet))),
            "FastAPI, constant": (f"{fastapi}/sensor-data", _reading(device_id)),
            "Starlette, constant": (f"{starlette}/sensor-data", _reading(device_id)),
            POLL: (f"{service}/devices/{device_id}/commands?status=open", None),
        }
        for url, body in asked.values():  # everybody is warm before anybody is measured
            load(url, headers=KEYS, body=body, seconds=1)
        for _ in range(runs):
            for name, (url, body) in asked.items():
                base_url = url[: url.index("/", len("http://"))]
                before_s = cpu_s(base_url) if base_url in _processes else 0.0
                result = load(url, headers=KEYS, body=body, seconds=seconds)
                if base_url in _processes:
                    cpu.setdefault(name, []).append((cpu_s(base_url) - before_s) / result.requests * 1e6)
                if not set(result.statuses) <= {"200", "201"}:
                    raise RuntimeError(f"{name} answered {result.statuses}")
                results.setdefault(name, []).append(result)
    with contextlib.closing(sqlite3.connect(folder / "logged" / "service.db")) as file:
        return results, cpu, file.execute("SELECT count(*) FROM readings").fetchone()[0]


def _reading(device_id: str) -> bytes:
    return json.dumps({"device_id": device_id, "sensor_data": {"temperature_c": 21.5, "humidity": 40.25}}).encode()


def _show(results: dict[str, list[LoadResult]]) -> dict[str, float]:
    """Print the table; server -> how many times as fast the stored ingest is."""
    medians = {name: statistics.median(run.per_second for run in runs) for name, runs in results.items()}
    stored = medians[STORED]
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
    return {name: stored / median for name, median in medians.items()}


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
        results, cpu, rows = _measure(Path(folder), given.seconds, given.runs)
    ratios = _show(results)
    answered = sum(run.requests for run in results[STORED])
    print(f"\nanswered {answered:,}, rows in the file {rows:,}")
    bars = {"Starlette, constant": BAR}  # the framework that the service stands on
    found = {name: ratios[name] for name in bars if name in ratios}
    for name, ratio in found.items():
        print(f"{'ok  ' if ratio >= bars[name] else 'MISS'} {ratio:.2f} x {name}; bar {bars[name]:g} x")
    logs = _cost_of_logs(results, cpu)
    if rows < answered:
        print("rows are missing")
        sys.exit(4)
    sys.exit(0 if logs >= BAR_LOGS and all(ratio >= bars[name] for name, ratio in found.items()) else 1)


def _cost_of_logs(results: dict[str, list[LoadResult]], cpu: dict[str, list[float]]) -> float:
    """Print what the logs cost; the rate with them beside the one without."""
    pairs = list(zip(results[STORED], results[STORED_QUIETLY], strict=True))
    ratio = statistics.median(logged.per_second / quiet.per_second for logged, quiet in pairs)
    verdict = "ok  " if ratio >= BAR_LOGS else "MISS"
    print(f"{verdict} logs: {ratio:.3f} x the rate without them, median of pairs; bar {BAR_LOGS:g} x")
    logged_us, quiet_us = (statistics.median(cpu[name]) for name in (STORED, STORED_QUIETLY))
    of_pairs = statistics.median(a / b for a, b in zip(cpu[STORED], cpu[STORED_QUIETLY], strict=True) if b)
    print(f"     CPU for each request: {logged_us:.1f} us with them, {quiet_us:.1f} us without; pairs {of_pairs:.3f} x")
    return ratio


def machine() -> str:
    """What it was measured on."""
    return f"{platform.machine()}, {_cpu()}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return f"{os.cpu_count()} x {line.partition(':')[2].strip()}"
    return f"{os.cpu_count()} cores"


if __name__ == "__main__":
    main()
