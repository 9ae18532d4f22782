"""Figure F1: requests in a second of one core over HTTP, beside wrk and Locust.

Method. The target is nginx, one process on a core of its own, which answers every POST with 45 constant bytes. Each
generator has the other core to itself and sends ``POST /sensor-data`` with two keys and about 130 bytes of JSON. It is
a closed load: as many users as connections, each sends again when it has its answer. wrk sends the same
bytes again and again; Locust (FastHttpUser) and ours make a new body with new values for each request, and ours records
the intended, sent and received time of each exchange into histograms of three digits. 64 connections are a pool, 8,000
are a socket of each device's own. Runs are interleaved and the median counts. Beside the rate stand the CPU time of
generator and target: where the target has no core left, the generator could do more, and ``per CPU s`` compares what a
request costs (a program's start is in the CPU time of the peers).

    python benchmarks/fleet_http.py [--seconds 5] [--runs 3] [--many 8000]

Exit codes: 0 the bars are reached, 1 one is not, 2 nginx or wrk is missing (apt-get install nginx-light wrk).
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import _wrk
from benchmarks._fleet_target import Target, cores, find_locust, has_nginx, machine, nginx, pinned
from simulator.fleet.engine.preflight import raise_descriptor_limit

FEW = 64
BAR_WRK, BAR_LOCUST = 0.6, 10.0
BAR_MEMORY_BYTES = 40_000
LOAD = Path(__file__).with_name("_fleet_load.py")
PATH = "/sensor-data"
HEADERS = {
    "x-api-key": "mk_benchmark",
    "x-secret-key": "msk_benchmark",
    "content-type": "application/json",
    "idempotency-key": "019b76da-a800-7000-8000-000000000001-1",
}
BODY = (
    '{"device_id":"019b76da-a800-7000-8000-000000000001",'
    '"sensor_data":{"temperature_celsius":21.50,"humidity_percent":40.3,"sequence":100}}'
)
LOCUSTFILE = """
import itertools
from locust import FastHttpUser, task
class Device(FastHttpUser):
    numbers = itertools.count(1)
    def on_start(self):
        self.name = "019b76da-a800-7000-8000-%012x" % next(self.numbers)
        self.sequence = 0
    @task
    def send(self):
        self.sequence += 1
        number = self.sequence
        values = {"temperature_celsius": 18 + number % 800 * 0.01, "humidity_percent": 40 + number % 190 * 0.1}
        self.client.post("/sensor-data", json={"device_id": self.name, "sensor_data": {**values, "sequence": number}},
                         headers={"x-api-key": "mk_benchmark", "x-secret-key": "msk_benchmark",
                                  "idempotency-key": "%s-%d" % (self.name, number)})
"""


@dataclass(frozen=True, slots=True)
class Result:
    """One run of one generator.

    Attributes:
        per_s: requests in a second.
        cpu: of the generator, share of a core.
        target_cpu: of nginx, share of a core.
        p99_ms: as the generator itself tells it.
        connection_bytes: memory of one connection; ours only.
    """

    per_s: float
    cpu: float
    target_cpu: float
    p99_ms: float
    connection_bytes: float = 0.0

    @property
    def per_cpu_s(self) -> float:
        """Requests in a second of the generator's CPU time."""
        return self.per_s / max(self.cpu, 1e-9)


Runner = Callable[[Target, int, float, int], Result]


def run_ours(target: Target, connections: int, seconds: float, core: int) -> Result:
    """Our engine."""
    command = [sys.executable, str(LOAD), target.url + PATH, "--connections", str(connections), "--core", str(core)]
    if connections > FEW:
        command.append("--per-device")
    before_s = target.cpu_s()
    began_s = time.monotonic()
    done = _run([*command, "--seconds", str(seconds)])
    used = (target.cpu_s() - before_s) / (time.monotonic() - began_s)
    load = json.loads(done)
    if load["failed"]:
        raise RuntimeError(f"{load['failed']} of our requests failed")
    rate, cpu = load["requests"] / load["seconds"], load["cpu_s"] / load["seconds"]
    return Result(rate, cpu, used, load["response_ms"]["p99"], load["connection_bytes"])


def run_wrk(target: Target, connections: int, seconds: float, core: int) -> Result:
    """wrk, one thread; the same bytes again and again."""
    url = target.url + PATH
    with _wrk.command(url, headers=HEADERS, body=BODY, connections=connections, seconds=seconds) as words:
        text, cpu, target_cpu = _watched(target, pinned(words, core), seconds)
    load = _wrk.read(text)
    return Result(load.per_s, cpu, target_cpu, load.p99_ms)


def run_locust(target: Target, connections: int, seconds: float, core: int) -> Result:
    """Locust, one process, FastHttpUser; counted from when all users are there."""
    program = find_locust() or ""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "locustfile.py"
        file.write_text(LOCUSTFILE)
        command = [program, "-f", str(file), "--headless", "-u", str(connections), "-r", str(connections)]
        more = ["--reset-stats", "-t", f"{round(seconds) + 2}s", "--host", target.url, "--csv", f"{folder}/run"]
        _, cpu, target_cpu = _watched(target, pinned([*command, *more, "--only-summary"], core), seconds + 2)
        with (Path(folder) / "run_stats.csv").open() as table:
            total = next(row for row in csv.DictReader(table) if row["Name"] == "Aggregated")
    if int(total["Failure Count"]):
        raise RuntimeError("requests of Locust failed")
    return Result(float(total["Requests/s"]), cpu, target_cpu, float(total["99%"]))


def _watched(target: Target, command: list[str], seconds: float) -> tuple[str, float, float]:
    """What a program prints, and the share of a core that it and the target took for so many seconds of load."""
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    before_s = target.cpu_s()
    text = _run(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - own.ru_utime - own.ru_stime
    return text, used_s / seconds, (target.cpu_s() - before_s) / seconds


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def _measure(seconds: float, runs: int, many: int) -> dict[tuple[str, int], list[Result]]:
    target_core, core = cores()
    plan: list[tuple[str, int, Runner]] = [("wrk", FEW, run_wrk), ("ours, pool", FEW, run_ours)]
    if find_locust() is not None:
        plan.append(("Locust", FEW, run_locust))
    plan += [("wrk", many, run_wrk), ("ours, per device", many, run_ours)]
    results: dict[tuple[str, int], list[Result]] = {}
    with nginx(target_core, raise_descriptor_limit()) as target:
        for _ in range(runs):
            for name, connections, run in plan:
                results.setdefault((name, connections), []).append(run(target, connections, seconds, core))
    return results


def _show(results: dict[tuple[str, int], list[Result]]) -> dict[tuple[str, int], float]:
    medians = {key: statistics.median(run.per_s for run in runs) for key, runs in results.items()}
    print(
        f"{'generator':<18}{'sockets':>8}{'req/s, median':>15}{'lowest':>10}{'highest':>10}{'p99 ms':>9}"
        f"{'CPU':>7}{'per CPU s':>11}{'nginx CPU':>11}"
    )
    for (name, connections), runs in results.items():
        rates = [run.per_s for run in runs]
        cpu, costs, target_cpu, p99 = (
            statistics.median(getattr(run, field) for run in runs)
            for field in ("cpu", "per_cpu_s", "target_cpu", "p99_ms")
        )
        print(
            f"{name:<18}{connections:>8,}{medians[name, connections]:>15,.0f}{min(rates):>10,.0f}{max(rates):>10,.0f}"
            f"{p99:>9.1f}{cpu:>7.0%}{costs:>11,.0f}{target_cpu:>11.0%}"
        )
    return medians


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="Figure F1: HTTP load of one core, beside its peers.")
    parser.add_argument("--seconds", type=float, default=5, help="length of one run")
    parser.add_argument("--runs", type=int, default=3, help="runs of each generator")
    parser.add_argument("--many", type=int, default=8000, help="the large number of connections")
    given = parser.parse_args()
    if not has_nginx() or not _wrk.is_here():
        print("this needs nginx and wrk: apt-get install nginx-light wrk", file=sys.stderr)
        sys.exit(2)
    many = min(given.many, raise_descriptor_limit() - 300)
    print(f"F1, {dt.datetime.now(dt.UTC):%Y-%m-%d}: POST {PATH}, closed, generator and nginx on a core each")
    print(f"machine: {machine()}")
    print(f"method: {given.runs} interleaved runs of {given.seconds:g} s, median; only ours and Locust make bodies\n")
    results = _measure(given.seconds, given.runs, many)
    medians = _show(results)
    ours, ours_many = medians["ours, pool", FEW], medians["ours, per device", many]
    bars = [
        (ours / medians["wrk", FEW], BAR_WRK, f"wrk, {FEW} connections"),
        (ours_many / medians["wrk", many], BAR_WRK, f"wrk, {many:,} connections"),
    ]
    if ("Locust", FEW) in medians:
        bars.append((ours / medians["Locust", FEW], BAR_LOCUST, f"Locust, {FEW} connections"))
    print()
    for ratio, bar, peer in bars:
        print(f"{'ok  ' if ratio >= bar else 'MISS'} {ratio:.2f} x {peer}; bar {bar:g} x")
    memory = statistics.median(run.connection_bytes for run in results["ours, per device", many])
    is_light = memory <= BAR_MEMORY_BYTES
    print(f"{'ok  ' if is_light else 'MISS'} {memory:,.0f} bytes of memory for a connection; bar {BAR_MEMORY_BYTES:,}")
    sys.exit(0 if is_light and all(ratio >= bar for ratio, bar, _ in bars) else 1)


if __name__ == "__main__":
    main()
