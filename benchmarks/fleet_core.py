"""Figure F2: exchanges in a second of one core over HTTP with ``agent.core`` in every device, beside Locust.

Method. The target is nginx, one process on a core of its own, with constant answers: 304 to a poll that names the
version it has, 200 with an id to readings. Each generator has the other core to itself; half of its requests are polls
(``GET /devices/{id}/commands?status=open`` with ``If-None-Match``) and half readings (``POST /sensor-data`` with a new
body, an idempotency key and two signals), with two keys each. Locust (FastHttpUser) is closed: 64 users, each sends
again when it has its answer, and knows nothing of commands, outboxes and back-off. Ours are virtual devices with the
agent's own core, each with a poll and a reading every two seconds over 128 shared connections; more and more of
them are switched on until the core is full: until requests go out late (99th percentile over 0.5 s), or less than
97 % of what fell due was answered. The best step counts. Runs are interleaved, and the median counts. A host that takes
the core away makes our requests late and ends the steps early, while closed users only wait; so its share is printed,
and the exchanges for each second of CPU beside those of the clock.

    python -m benchmarks.fleet_core [--seconds 4] [--runs 3] [--devices 36000]

Exit codes: 0 the bar is reached, 1 it is not, 2 nginx or Locust is missing (apt-get install nginx-light).
"""

from __future__ import annotations

import argparse
import statistics
import sys

from benchmarks._peers import LOCUSTFILE, Load, find_locust, find_nginx, nginx, run_locust, show
from benchmarks._rig import Server, cores, judge, machine, run
from simulator.fleet.metrics.health import Share, steal_ticks

BAR = 5.0
USERS = 64
PERIOD_S = 2.0
STEPS = 12
LATE_S = 0.5
LOCUST, OURS = "Locust", "ours, agent.core"


def run_ours(target: Server, seconds: float, core: int, devices: int) -> Load:
    """Virtual devices, more and more; the best step that kept up."""
    words = ["--devices", devices, "--steps", STEPS, "--period", PERIOD_S, "--seconds", seconds]
    more = ["--settle", 2 * PERIOD_S, "--until-full", LATE_S]
    done = run(["benchmarks._fleet_devices", target.url, *words, *more], core=core, target_pid=target.pid)
    if any(step["failed"] for step in done.lines):
        raise RuntimeError("exchanges of ours failed")
    best = max(done.lines, key=lambda step: step["ended"] / step["seconds"])
    target_cpu = done.target_cpu_s / sum(step["seconds"] + 2 * PERIOD_S for step in done.lines)
    return Load(best["ended"] / best["seconds"], best["cpu_s"] / best["seconds"], target_cpu, best["devices"])


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Figure F2: devices with agent.core per core, beside Locust.")
    parser.add_argument("--seconds", type=float, default=4, help="length of one measurement")
    parser.add_argument("--runs", type=int, default=3, help="runs of each generator")
    parser.add_argument("--devices", type=int, default=36_000, help="at most so many; they come in twelve crowds")
    given = parser.parse_args()
    if not find_nginx() or find_locust() is None:
        return 2
    print(f"F2: polls and readings, generator and nginx on a core each\n{machine()}")
    print(f"{given.runs} interleaved runs, median; Locust with {USERS} users, ours until the core is full\n")
    target_core, core = cores()
    results: dict[str, list[Load]] = {LOCUST: [], OURS: []}
    steal = Share(steal_ticks, 1)
    with nginx(target_core) as target:
        for _ in range(given.runs):
            locustfile = f"POLLS = True\n{LOCUSTFILE}"
            results[LOCUST].append(run_locust(locustfile, target, USERS, given.seconds, core))
            results[OURS].append(run_ours(target, given.seconds, core, given.devices))
    rate = show(results)
    cost = {name: statistics.median(load.per_cpu_s for load in loads) for name, loads in results.items()}
    print(f"\nthe host took {steal.take():.0f} % of the CPU")
    print(f"     ours is {rate[OURS] / rate[LOCUST]:.2f} x Locust on the clock")
    return 0 if judge("x Locust, for each second of CPU", cost[OURS] / cost[LOCUST], BAR, is_least=True) else 1


if __name__ == "__main__":
    sys.exit(main())
