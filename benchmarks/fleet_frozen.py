"""A target that stands still for 5 seconds out of 60: what the percentiles say, ours and Locust's, beside the truth.

Method. nginx is stopped with SIGSTOP for the seconds 20 to 25 of the run. Open arrivals, 1,000 in a second, each with
an intended time; the truth is computed from the plan and the two instants of the signals alone: what was due while the
target stood still had to wait until it went on, everything else nothing. Our percentiles are those of the response from
the intended time. Beside them those of the time from sending, in which most of the stall does not exist: a request that
could not be sent has not begun to wait (coordinated omission). Locust makes the same rate with 100 users of 10 requests
in a second each (``constant_throughput``) and tells what its users saw: one slow request each.

    python benchmarks/fleet_frozen.py [--seconds 60] [--frozen 5] [--rate 1000] [--without-locust]

Exit codes: 0 our p99 and p99.9 are within 2 % of the truth, 1 one is not, 2 nginx is missing.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._fleet_target import Target, cores, find_locust, has_nginx, machine, nginx, pinned
from simulator.fleet.engine.preflight import raise_descriptor_limit

BAR = 0.02
LOAD = Path(__file__).with_name("_fleet_load.py")
PATH = "/sensor-data"
PERCENTS = (50, 90, 99, 99.9)
_USERS = 100
_START_S = 1.5
LOCUSTFILE = """
from locust import FastHttpUser, constant_throughput, task
class Device(FastHttpUser):
    wait_time = constant_throughput({each})
    @task
    def send(self):
        self.client.post("/sensor-data", json={{"sensor_data": {{"temperature_celsius": 21.5}}}})
"""


def true_percentiles(rate_per_s: float, seconds: float, stopped_s: float, went_on_s: float) -> dict[str, float]:
    """What each percentile of the response is in milliseconds, if the target itself takes no time.

    Args:
        rate_per_s: evenly spaced, the first at 0.
        seconds: of the plan.
        stopped_s: when the target was stopped, since the plan's begin.
        went_on_s: when it went on.
    """
    waits = []
    for number in range(int(rate_per_s * seconds)):
        due_s = number / rate_per_s
        waits.append(went_on_s - due_s if stopped_s <= due_s < went_on_s else 0.0)
    waits.sort()
    return {f"p{percent:g}": waits[math.ceil(percent / 100 * len(waits)) - 1] * 1000 for percent in PERCENTS}


def freeze(target: Target, at_s: float, frozen_s: float, seen: list[float]) -> threading.Thread:
    """Stop the target at an instant of the monotonic clock, for a while; the two instants go into ``seen``."""

    def work() -> None:
        time.sleep(max(at_s - time.monotonic(), 0))
        target.freeze()
        seen.append(time.monotonic())
        time.sleep(frozen_s)
        seen.append(time.monotonic())
        target.thaw()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def run_ours(
    target: Target, core: int, seconds: float, frozen_s: float, rate: float
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Our percentiles from the intended and from the sent time, and the true ones."""
    command = [sys.executable, str(LOAD), target.url + PATH, "--connections", "64", "--core", str(core)]
    seen: list[float] = []
    thread = freeze(target, time.monotonic() + _START_S + seconds / 3, frozen_s, seen)
    done = subprocess.run(
        [*command, "--seconds", str(seconds), "--rate", str(rate)], stdout=subprocess.PIPE, text=True, check=True
    )
    thread.join()
    load = json.loads(done.stdout)
    planned = int(rate * seconds)
    if load["failed"] or load["requests"] != planned:
        raise RuntimeError(f"{load['requests']} of {planned} requests were answered, {load['failed']} failed")
    truth = true_percentiles(rate, seconds, seen[0] - load["began_s"], seen[1] - load["began_s"])
    return {"ours, from the intended time": load["response_ms"], "ours, from sending": load["service_ms"]}, truth


def run_locust(target: Target, core: int, seconds: float, frozen_s: float, rate: float) -> dict[str, float] | None:
    """Locust's percentiles; None where there is no Locust."""
    program = find_locust()
    if program is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "locustfile.py"
        file.write_text(LOCUSTFILE.format(each=rate / _USERS))
        command = [program, "-f", str(file), "--headless", "-u", str(_USERS), "-r", str(_USERS), "--only-summary"]
        more = ["-t", f"{round(seconds) + 1}s", "--host", target.url, "--csv", f"{folder}/run"]
        seen: list[float] = []
        thread = freeze(target, time.monotonic() + _START_S + seconds / 3, frozen_s, seen)
        subprocess.run(pinned([*command, *more], core), check=True, capture_output=True)
        thread.join()
        with (Path(folder) / "run_stats.csv").open() as table:
            total = next(row for row in csv.DictReader(table) if row["Name"] == "Aggregated")
    return {f"p{percent:g}": float(total[f"{percent:g}%"]) for percent in PERCENTS}


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="A frozen target: percentiles beside the truth.")
    parser.add_argument("--seconds", type=float, default=60, help="length of the run")
    parser.add_argument("--frozen", type=float, default=5, help="how long the target stands still")
    parser.add_argument("--rate", type=float, default=1000, help="requests in a second")
    parser.add_argument("--without-locust", action="store_true", help="only ours")
    given = parser.parse_args()
    if not has_nginx():
        print("nginx is not installed: apt-get install nginx-light", file=sys.stderr)
        sys.exit(2)
    print(
        f"frozen target, {dt.datetime.now(dt.UTC):%Y-%m-%d}: "
        f"{given.frozen:g} s of {given.seconds:g} s, {given.rate:g} requests/s"
    )
    print(f"machine: {machine()}\n")
    target_core, core = cores()
    with nginx(target_core, raise_descriptor_limit()) as target:
        rows, truth = run_ours(target, core, given.seconds, given.frozen, given.rate)
        locust = None if given.without_locust else run_locust(target, core, given.seconds, given.frozen, given.rate)
    names = list(truth)
    print(f"{'milliseconds':<32}" + "".join(f"{name:>12}" for name in names))
    shown = {"the truth": truth, **rows} | ({} if locust is None else {"Locust, constant_throughput": locust})
    for name, values in shown.items():
        print(f"{name:<32}" + "".join(f"{values[percent]:>12,.1f}" for percent in names))
    print()
    ours = rows["ours, from the intended time"]
    errors = {name: abs(ours[name] - truth[name]) / truth[name] for name in ("p99", "p99.9")}
    for name, error in errors.items():
        print(f"{'ok  ' if error <= BAR else 'MISS'} {name} is {error:.2%} from the truth; bar {BAR:.0%}")
    sys.exit(0 if all(error <= BAR for error in errors.values()) else 1)


if __name__ == "__main__":
    main()
