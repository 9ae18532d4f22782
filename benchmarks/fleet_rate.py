"""Open arrivals at 2,000 requests a second: how many did the target get? Ours and Locust.

Method. nginx with a constant answer on one core, the generator on the other. Nobody is believed: nginx counts its
requests (``stub_status``), and this program asks for the count once a second over a connection of its own, whose
requests are taken off. The first and the last two seconds of a run are left out (connections are made, users are
started), and what is left is divided by the time between the two samples. *Error* is how far that is from the rate that
was asked for, *worst second* the second that is farthest from it. Ours is the worker's own play of a scenario: level
wire, open arrivals ``spacing: even``, a body made for each request, every exchange recorded. Locust has 100 users with
``constant_throughput``.

    python -m benchmarks.fleet_rate [--seconds 60] [--rate 2000]

Exit codes: 0 our error is at most 0.5 %, 1 it is more, 2 nginx is missing. Part of figure F5.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import itertools
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks._peers import find_locust, find_nginx, locust, nginx
from benchmarks._rig import KEYS, ROOT, Server, cores, judge, machine, pinned, write_keys
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.scenario.model import READER
from simulator.fleet.settings import KeyPairFile
from simulator.fleet.workload.base import Job
from simulator.fleet.workload.fleet import FleetWorkload

BAR = 0.005
EDGE_S = 2
USERS = 100
DEVICES = 1000
_LEAD_S = 0.5
DRAIN_S = 5.0
_COUNTS = re.compile(rb"\s(\d+)\s+(\d+)\s+(\d+)\s*\n")

LOCUSTFILE = """
from locust import FastHttpUser, constant_throughput, task
class Device(FastHttpUser):
    wait_time = constant_throughput({each})
    @task
    def send(self):
        self.client.post("/sensor-data", json={{"sensor_data": {{"temperature_celsius": 21.5}}}})
"""


def kept(samples: Sequence[tuple[float, int]], asked: float, seconds: float) -> tuple[float, float, float]:
    """What the target's counts come to.

    Args:
        samples: time in seconds and the count of requests at it, in order; before, during and after the load.
        asked: requests a second.
        seconds: how long the load was meant to last, from the first sample with a request in it.

    Returns:
        Requests a second over the whole stretch; how far that is from what was asked for, as a share of it, below zero
        for too few; and the same of the second that is farthest off.

    Raises:
        RuntimeError: too few samples have load in them.
    """
    begin = next((at for at, (_, count) in enumerate(samples) if count > samples[0][1]), len(samples))
    inner = [sample for sample in samples[begin:] if EDGE_S <= sample[0] - samples[begin][0] <= seconds - EDGE_S]
    if len(inner) < 2:
        raise RuntimeError(f"no samples from the middle of the load, give it more --seconds: {samples}")
    (first_s, first), (last_s, last) = inner[0], inner[-1]
    rate = (last - first) / (last_s - first_s)
    rates = [(b - a) / (b_s - a_s) for (a_s, a), (b_s, b) in itertools.pairwise(inner)]
    worst = max((each / asked - 1 for each in rates), key=abs)
    return rate, rate / asked - 1, worst


def watched(command: list[str], target: Server) -> list[tuple[float, int]]:
    """Run a generator, and ask nginx each second for the time and its requests so far, without those that asked."""
    connection = http.client.HTTPConnection(target.url.removeprefix("http://"), timeout=5)
    samples: list[tuple[float, int]] = []

    def sample() -> None:
        connection.request("GET", "/status")
        *_, requests = _COUNTS.search(connection.getresponse().read()).groups()  # type: ignore[union-attr]
        samples.append((time.monotonic(), int(requests) - len(samples) - 1))

    sample()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, cwd=ROOT)
        try:
            due_s = time.monotonic()
            while process.poll() is None:
                due_s += 1.0
                time.sleep(max(due_s - time.monotonic(), 0.0))
                sample()
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            said.seek(0)
            raise RuntimeError(said.read().decode(errors="replace")[-2000:])
    return samples


async def play(url: str, rate: float, seconds: float, folder: Path) -> None:
    """A worker's play of a scenario with open arrivals."""
    document = {
        "scenario": "rate",
        "kind": "requests",
        "target": {"connections": 64},
        "fleet": {"devices": DEVICES},
        "arrivals": [{"operation": "sensor_data", "rate_per_s": rate, "spacing": "even"}],
        "phases": [{"name": "hold", "kind": "hold", "duration_s": seconds}],
    }
    scenario = READER.validate_json(json.dumps(document), strict=True)
    write_keys(folder)
    keys = (KeyPairFile(KEYS["x-api-key"], folder / "x-secret-key"),)
    names = tuple(f"d{number}" for number in range(DEVICES))
    recorder = Recorder()
    job = Job(
        workload_class=FleetWorkload,
        scenario=scenario,
        device_url=url,
        keys=keys,
        base_url=url,
        devices=range(DEVICES),
        device_ids=names,
        product_id="p",
        folder=folder,
        model_numbers=(0,) * DEVICES,
        offers=frozenset(),
        device_offers=frozenset(),
        run="run",
        connections=64,
    )
    piece = job.make(recorder)
    began_s = time.monotonic() + _LEAD_S
    piece.begin(began_s)
    piece.enter_phase(0, began_s)
    for second in range(round(seconds)):
        await asyncio.sleep(max(0.0, began_s + second + 1 - time.monotonic()))
        recorder.cut(second).measured()
    await piece.drain(began_s + seconds, time.monotonic() + DRAIN_S)
    await piece.close()


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Open arrivals at a rate: how many did the target get?")
    parser.add_argument("--seconds", type=float, default=60, help="length of each run")
    parser.add_argument("--rate", type=float, default=2000, help="requests in a second")
    parser.add_argument("--play", metavar="URL", help="be the generator that is measured, against this target")
    given = parser.parse_args()
    seconds, rate = given.seconds, given.rate
    if given.play:
        with tempfile.TemporaryDirectory() as folder:
            uvloop.run(play(given.play, rate, seconds, Path(folder)))
        return 0
    if not find_nginx():
        return 2
    print(f"F5: open arrivals, {rate:g} requests/s for {seconds:g} s\n{machine()}\n")
    target_core, core = cores()
    with nginx(target_core) as target:
        words = ["-m", "benchmarks.fleet_rate", "--play", target.url, "--rate", str(rate), "--seconds", str(seconds)]
        ours = kept(watched(pinned([sys.executable, *words], core), target), rate, seconds)
        found = {"ours, a worker's play": ours}
        if find_locust() is not None:
            with locust(LOCUSTFILE.format(each=rate / USERS), target.url, USERS) as command:
                samples = watched(pinned([*command, "-t", f"{round(seconds)}s"], core), target)
            found["Locust, constant_throughput"] = kept(samples, rate, seconds)
    print(f"{'as nginx counts it':<32}{'requests/s':>14}{'error':>12}{'worst second':>16}")
    for name, (per_s, error, worst) in found.items():
        print(f"{name:<32}{per_s:>14,.1f}{error:>+12.3%}{worst:>+16.2%}")
    return 0 if judge("rate of open arrivals is off by", 100 * abs(ours[1]), 100 * BAR, "%") else 1


if __name__ == "__main__":
    sys.exit(main())
