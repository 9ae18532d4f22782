"""Figure F1: requests in a second of one core over HTTP, beside wrk and Locust.

Method. The target is nginx, one process on a core of its own, which answers every POST with 45 constant bytes. Each
generator has the other core to itself and sends ``POST /sensor-data`` with two keys and about 130 bytes of JSON. It is
a closed load: as many users as connections, each sends again when it has its answer. wrk sends the same
bytes again and again; Locust (FastHttpUser) and ours make a new body with new values for each request, and ours records
the intended, sent and received time of each exchange into histograms of three digits. 64 connections are a pool, 8,000
are a socket of each device's own. Runs are interleaved and the median counts. Beside the rate stand the CPU time of
generator and target: where the target has no core left, the generator could do more, and ``per CPU s`` compares what a
request costs (a program's start is in the CPU time of the peers).

    python -m benchmarks.fleet_http [--seconds 5] [--runs 3] [--many 8000]

Exit codes: 0 the bars are reached, 1 one is not, 2 nginx or wrk is missing (apt-get install nginx-light wrk).
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
from collections.abc import Callable

from benchmarks._peers import (
    LOCUSTFILE,
    Load,
    constant,
    find_locust,
    find_nginx,
    has_wrk,
    nginx,
    run_locust,
    run_wrk,
    show,
)
from benchmarks._rig import KEYS, Server, cores, judge, machine, run
from simulator.fleet.engine.preflight import raise_descriptor_limit

FEW = 64
BAR_WRK, BAR_LOCUST = 0.6, 10.0
BAR_MEMORY_BYTES = 40_000
HEADERS = {**KEYS, "idempotency-key": "019b76da-a800-7000-8000-000000000001-1"}
BODY = (
    '{"device_id":"019b76da-a800-7000-8000-000000000001",'
    '"sensor_data":{"temperature_celsius":21.50,"humidity_percent":40.3,"sequence":100}}'
)


def run_ours(
    target: Server, connections: int, seconds: float, core: int, grown_bytes: list[float], *, per_device: bool
) -> Load:
    """Our engine; ``grown_bytes`` takes the memory of one connection."""
    words = ["benchmarks._fleet_load", f"{target.url}/sensor-data", "--connections", connections, "--seconds", seconds]
    done = run([*words, *(["--per-device"] if per_device else [])], core=core, target_pid=target.pid)
    [load] = done.lines
    if load["failed"]:
        raise RuntimeError(f"{load['failed']} of our requests failed")
    grown_bytes.append(load["connection_bytes"])
    rate, cpu = load["requests"] / load["seconds"], load["cpu_s"] / load["seconds"]
    target_cpu = done.target_cpu_s / done.seconds
    return Load(rate, cpu, target_cpu, connections, load["p50_ms"], load["p99_ms"], load["requests"])


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Figure F1: HTTP load of one core, beside its peers.")
    parser.add_argument("--seconds", type=float, default=5, help="length of one run")
    parser.add_argument("--runs", type=int, default=3, help="runs of each generator")
    parser.add_argument("--many", type=int, default=8000, help="the large number of connections")
    given = parser.parse_args()
    if not find_nginx() or not has_wrk():
        return 2
    many, seconds = min(given.many, raise_descriptor_limit() - 300), given.seconds
    print(f"F1: POST /sensor-data, closed, generator and nginx on a core each\n{machine()}")
    print(f"{given.runs} interleaved runs of {seconds:g} s, median; only ours and Locust make bodies\n")
    target_core, core = cores()
    grown: list[float] = []
    with nginx(target_core) as target:
        start = functools.partial(run, core=core, target_pid=target.pid)
        url, script = f"{target.url}/sensor-data", constant(HEADERS, BODY)
        wrk = functools.partial(run_wrk, url, script, seconds=seconds, start=start)
        ours = functools.partial(run_ours, target, seconds=seconds, core=core)
        plan: dict[str, Callable[[], Load]] = {
            f"wrk, {FEW}": lambda: wrk(connections=FEW),
            "ours, pool": lambda: ours(FEW, grown_bytes=[], per_device=False),
            f"wrk, {many:,}": lambda: wrk(connections=many),
            "ours, per device": lambda: ours(many, grown_bytes=grown, per_device=True),
        }
        if find_locust() is not None:
            plan["Locust"] = lambda: run_locust(f"POLLS = False\n{LOCUSTFILE}", target, FEW, seconds, core)
        results: dict[str, list[Load]] = {name: [] for name in plan}
        for _ in range(given.runs):
            for name, measure in plan.items():
                results[name].append(measure())
    rate = show(results)
    print()
    few_ratio, many_ratio = rate["ours, pool"] / rate[f"wrk, {FEW}"], rate["ours, per device"] / rate[f"wrk, {many:,}"]
    kept = [
        judge(f"x wrk, {FEW} connections", few_ratio, BAR_WRK, is_least=True),
        judge(f"x wrk, {many:,} connections", many_ratio, BAR_WRK, is_least=True),
        judge("memory of a connection", statistics.median(grown), BAR_MEMORY_BYTES, "bytes"),
    ]
    if "Locust" in rate:
        kept.append(judge("x Locust", rate["ours, pool"] / rate["Locust"], BAR_LOCUST, is_least=True))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
