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

    python benchmarks/fleet_core.py [--seconds 4] [--runs 3] [--devices 36000]

Exit codes: 0 the bar is reached, 1 it is not, 2 nginx or Locust is missing (apt-get install nginx-light).
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
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._fleet_target import Target, cores, find_locust, has_nginx, machine, nginx, pinned
from simulator.fleet.engine.preflight import raise_descriptor_limit
from simulator.fleet.metrics.health import Share, steal_ticks

BAR = 5.0
USERS = 64
PERIOD_S = 2.0
STEPS = 12
LATE_S = 0.5
DEVICES = Path(__file__).with_name("_fleet_devices.py")
LOCUSTFILE = """
import itertools
from locust import FastHttpUser, task
KEYS = {"x-api-key": "mk_benchmark", "x-secret-key": "msk_benchmark"}
class Device(FastHttpUser):
    numbers = itertools.count(1)
    def on_start(self):
        self.name = "019b76da-a800-7000-8000-%012x" % next(self.numbers)
        self.sequence = 0
    @task
    def live(self):
        self.client.get("/devices/%s/commands?status=open" % self.name, name="poll",
                        headers={**KEYS, "if-none-match": '"v1"'})
        self.sequence += 1
        number = self.sequence
        values = {"temperature_celsius": 18 + number % 800 * 0.01, "humidity_percent": 40 + number % 190 * 0.1}
        self.client.post("/sensor-data", json={"device_id": self.name, "sensor_data": {**values, "sequence": number}},
                         headers={**KEYS, "idempotency-key": "%s-%d" % (self.name, number)})
"""


@dataclass(frozen=True, slots=True)
class Result:
    """One run.

    Attributes:
        per_s: exchanges in a second.
        cpu: of the generator, share of a core.
        target_cpu: of nginx, share of a core.
        devices: that lived at once; users of Locust.
    """

    per_s: float
    cpu: float
    target_cpu: float
    devices: int

    @property
    def per_cpu_s(self) -> float:
        """Exchanges in a second of the generator's CPU time."""
        return self.per_s / max(self.cpu, 1e-9)


def run_ours(target: Target, seconds: float, core: int, devices: int) -> Result:
    """Virtual devices, more and more; the best step that kept up."""
    command = [sys.executable, str(DEVICES), target.url, "--devices", str(devices), "--steps", str(STEPS)]
    more = ["--period", str(PERIOD_S), "--seconds", str(seconds), "--settle", str(2 * PERIOD_S)]
    before_s = target.cpu_s()
    done = subprocess.run(
        [*command, *more, "--until-full", str(LATE_S), "--core", str(core)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"our devices failed: {done.stderr.strip()[-2000:]}")
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    if any(step["failed"] for step in steps):
        raise RuntimeError("exchanges of ours failed")
    best = max(steps, key=lambda step: step["ended"] / step["seconds"])
    used = (target.cpu_s() - before_s) / sum(step["seconds"] + 2 * PERIOD_S for step in steps)
    return Result(best["ended"] / best["seconds"], best["cpu_s"] / best["seconds"], used, best["devices"])


def run_locust(target: Target, seconds: float, core: int) -> Result:
    """Locust, one process, counted from when all users are there."""
    program = find_locust() or ""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "locustfile.py"
        file.write_text(LOCUSTFILE)
        command = [program, "-f", str(file), "--headless", "-u", str(USERS), "-r", str(USERS)]
        more = ["--reset-stats", "-t", f"{round(seconds) + 2}s", "--host", target.url, "--csv", f"{folder}/run"]
        own, before_s = resource.getrusage(resource.RUSAGE_CHILDREN), target.cpu_s()
        done = subprocess.run(
            pinned([*command, *more, "--only-summary"], core), capture_output=True, text=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise RuntimeError(f"Locust failed: {done.stderr.strip()[-2000:]}")
        with (Path(folder) / "run_stats.csv").open() as table:
            total = next(row for row in csv.DictReader(table) if row["Name"] == "Aggregated")
    used_s = after.ru_utime + after.ru_stime - own.ru_utime - own.ru_stime
    per_s = float(total["Requests/s"])
    if per_s <= 0:
        raise RuntimeError("Locust made no requests in time: give it more --seconds")
    return Result(per_s, used_s / (seconds + 2), (target.cpu_s() - before_s) / (seconds + 2), USERS)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="Figure F2: devices with agent.core per core, beside Locust.")
    parser.add_argument("--seconds", type=float, default=4, help="length of one measurement")
    parser.add_argument("--runs", type=int, default=3, help="runs of each generator")
    parser.add_argument("--devices", type=int, default=36_000, help="at most so many; they come in twelve crowds")
    given = parser.parse_args()
    if not has_nginx() or find_locust() is None:
        print("nginx or Locust is missing: apt-get install nginx-light", file=sys.stderr)
        sys.exit(2)
    target_core, core = cores()
    print(f"F2, {dt.datetime.now(dt.UTC):%Y-%m-%d}: polls and readings, generator and nginx on a core each")
    print(f"machine: {machine()}")
    print(f"method: {given.runs} interleaved runs, median; Locust with {USERS} users, ours until the core is full\n")
    results: dict[str, list[Result]] = {"Locust": [], "ours, agent.core": []}
    steal = Share(steal_ticks, 1)
    with nginx(target_core, raise_descriptor_limit()) as target:
        for _ in range(given.runs):
            results["Locust"].append(run_locust(target, given.seconds, core))
            results["ours, agent.core"].append(run_ours(target, given.seconds, core, given.devices))
    print(
        f"{'generator':<18}{'devices':>9}{'per s, median':>15}{'lowest':>9}{'highest':>9}"
        f"{'CPU':>7}{'per CPU s':>11}{'nginx':>8}"
    )
    for name, runs in results.items():
        rates = [run.per_s for run in runs]
        middle = sorted(runs, key=lambda run: run.per_s)[len(runs) // 2]
        cost = statistics.median(run.per_cpu_s for run in runs)
        print(
            f"{name:<18}{middle.devices:>9,}{statistics.median(rates):>15,.0f}{min(rates):>9,.0f}{max(rates):>9,.0f}"
            f"{middle.cpu:>7.0%}{cost:>11,.0f}{middle.target_cpu:>8.0%}"
        )
    locust, ours = (statistics.median(run.per_s for run in runs) for runs in results.values())
    cheaper = [statistics.median(run.per_cpu_s for run in runs) for runs in results.values()]
    print(f"\nthe host took {steal.take():.0f} % of the CPU")
    print(f"     {cheaper[1] / cheaper[0]:.2f} x Locust for each second of CPU")
    print(f"{'ok  ' if ours >= BAR * locust else 'MISS'} {ours / locust:.2f} x Locust; bar {BAR:g} x")
    sys.exit(0 if ours >= BAR * locust else 1)


if __name__ == "__main__":
    main()
