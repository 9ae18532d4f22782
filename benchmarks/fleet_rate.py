"""Open arrivals at 2,000 requests a second: how many did the target get? Ours and Locust.

Method. nginx with a constant answer on one core, the generator on the other. Nobody is believed: nginx counts its
requests (``stub_status``), and this program asks for the count once a second over a connection of its own, whose
requests are taken off. The first and the last two seconds of a run are left out (connections are made, users are
started), and what is left is divided by the time between the two samples. *Error* is how far that is from the rate that
was asked for, *worst second* the second that is farthest from it. Ours is the worker's own play of a scenario: level
wire, open arrivals ``spacing: even``, a body made for each request, every exchange recorded. Locust has 100 users with
``constant_throughput``.

    python benchmarks/fleet_rate.py [--seconds 60] [--rate 2000] [--without-locust]

Exit codes: 0 our error is at most 0.5 %, 1 it is more, 2 nginx is missing. Part of figure F5.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import http.client
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._fleet_target import Target, cores, find_locust, has_nginx, machine, nginx, pinned
from simulator.fleet.engine.preflight import raise_descriptor_limit
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.scenario.model import READER
from simulator.fleet.settings import KeyPairFile
from simulator.fleet.workload.fleet import FleetJob, FleetWorkload

BAR = 0.005
EDGE_S = 2
USERS = 100
DEVICES = 1000
_LEAD_S = 0.5
_COUNT = re.compile(rb"\s(\d+)\s+(\d+)\s+(\d+)\s*\n")

LOCUSTFILE = """
from locust import FastHttpUser, constant_throughput, task
class Device(FastHttpUser):
    wait_time = constant_throughput({each})
    @task
    def send(self):
        self.client.post("/sensor-data", json={{"sensor_data": {{"temperature_celsius": 21.5}}}})
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """How a rate was kept, as the target saw it.

    Attributes:
        rate: requests a second over the whole stretch.
        error: of it, as a share of what was asked for; below zero is too few.
        worst: the same of the second that is farthest off.
    """

    rate: float
    error: float
    worst: float


def kept(samples: Sequence[tuple[float, int]], asked: float, seconds: float) -> Kept:
    """What the target's counts come to.

    Args:
        samples: time in seconds and the count of requests at it, in order; before, during and after the load.
        asked: requests a second.
        seconds: how long the load was meant to last, from the first sample with a request in it.

    Raises:
        RuntimeError: too few samples have load in them.
    """
    begin = next((at for at, (_, count) in enumerate(samples) if count > samples[0][1]), len(samples))
    inner = [sample for sample in samples[begin:] if EDGE_S <= sample[0] - samples[begin][0] <= seconds - EDGE_S]
    if len(inner) < 2:
        raise RuntimeError(f"{len(samples)} samples, and none of them from the middle of the load")
    (first_s, first), (last_s, last) = inner[0], inner[-1]
    rate = (last - first) / (last_s - first_s)
    rates = [(b - a) / (b_s - a_s) for (a_s, a), (b_s, b) in itertools.pairwise(inner)]
    worst = max((each / asked - 1 for each in rates), key=abs)
    return Kept(rate, rate / asked - 1, worst)


class Counter:
    """Asks nginx for the number of its requests, without those that asked."""

    def __init__(self, target: Target) -> None:
        self._connection = http.client.HTTPConnection(target.url.removeprefix("http://"), timeout=5)
        self._own = 0

    def sample(self) -> tuple[float, int]:
        """Now, and the requests until now."""
        self._connection.request("GET", "/status")
        text = self._connection.getresponse().read()
        self._own += 1
        found = _COUNT.search(text)
        if found is None:
            raise RuntimeError(f"nginx has no stub_status: {text[:80]!r}")
        return time.monotonic(), int(found[3]) - self._own


def watched(command: list[str], target: Target) -> list[tuple[float, int]]:
    """Run a generator, and take a sample each second for as long as it runs."""
    counter = Counter(target)
    samples = [counter.sample()]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        try:
            due_s = time.monotonic()
            while process.poll() is None:
                due_s += 1.0
                time.sleep(max(due_s - time.monotonic(), 0.0))
                samples.append(counter.sample())
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            said.seek(0)
            raise RuntimeError(said.read().decode(errors="replace")[-2000:])
    return samples


async def play(url: str, rate: float, seconds: float, folder: Path, drain_s: float = 5.0) -> dict[str, float]:
    """A worker's play of a scenario with open arrivals; what the recorder says of it."""
    document = {
        "scenario": "rate",
        "kind": "requests",
        "target": {"connections": 64},
        "fleet": {"devices": DEVICES},
        "arrivals": [{"operation": "sensor_data", "rate_per_s": rate, "spacing": "even"}],
        "phases": [{"name": "hold", "kind": "hold", "duration_s": seconds}],
    }
    scenario = READER.validate_json(json.dumps(document), strict=True)
    secret = folder / "secret"
    secret.write_text("msk_benchmark", encoding="ascii")
    secret.chmod(0o600)
    keys = (KeyPairFile("mk_benchmark", secret),)
    names = tuple(f"d{number}" for number in range(DEVICES))
    recorder = Recorder()
    job = FleetJob(
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
    piece = FleetWorkload(job, recorder)
    began_s = time.monotonic() + _LEAD_S
    piece.begin(began_s)
    piece.enter_phase(0, began_s)
    intended = sent = undelivered = 0
    for second in range(round(seconds) + 2):
        if second == round(seconds):
            await piece.drain(began_s + seconds, time.monotonic() + drain_s)
            await piece.close()
        await asyncio.sleep(max(0.0, began_s + second + 1 - time.monotonic()) if second < round(seconds) else 0)
        health = recorder.cut(second).measured().health
        intended, sent = intended + health.intended, sent + health.sent
        undelivered += health.undelivered
    return {"intended": intended, "sent": sent, "undelivered": undelivered}


def measure(target: Target, core: int, given: argparse.Namespace) -> dict[str, Kept]:
    """Every generator, one after the other."""
    seconds, rate = given.seconds, given.rate
    ours = [sys.executable, __file__, "--play", target.url, "--rate", str(rate), "--seconds", str(seconds)]
    found = {"ours, a worker's play": kept(watched(pinned(ours, core), target), rate, seconds)}
    program = None if given.without_locust else find_locust()
    if program is not None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "locustfile.py"
            file.write_text(LOCUSTFILE.format(each=rate / USERS))
            command = [program, "-f", str(file), "--headless", "-u", str(USERS), "-r", str(USERS), "--only-summary"]
            command += ["-t", f"{round(seconds)}s", "--host", target.url]
            found["Locust, constant_throughput"] = kept(watched(pinned(command, core), target), rate, seconds)
    return found


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="Open arrivals at a rate: how many did the target get?")
    parser.add_argument("--seconds", type=float, default=60, help="length of each run")
    parser.add_argument("--rate", type=float, default=2000, help="requests in a second")
    parser.add_argument("--without-locust", action="store_true", help="leave Locust out")
    parser.add_argument("--play", metavar="URL", help="be the generator that is measured, against this target")
    given = parser.parse_args()
    if given.play:
        with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(play(given.play, given.rate, given.seconds, Path(folder)))))
        return
    if not has_nginx():
        print("nginx is not installed: apt-get install nginx-light", file=sys.stderr)
        sys.exit(2)
    print(
        f"rate of open arrivals, {dt.datetime.now(dt.UTC):%Y-%m-%d}: {given.rate:g} requests/s for {given.seconds:g} s"
    )
    print(f"machine: {machine()}; load of the machine at the begin: {os.getloadavg()[0]:.1f}\n")
    target_core, core = cores()
    with nginx(target_core, raise_descriptor_limit()) as target:
        found = measure(target, core, given)
    print(f"{'as nginx counts it':<32}{'requests/s':>14}{'error':>12}{'worst second':>16}")
    for name, each in found.items():
        print(f"{name:<32}{each.rate:>14,.1f}{each.error:>+12.3%}{each.worst:>+16.2%}")
    error = abs(next(iter(found.values())).error)
    print(f"\n{'ok  ' if error <= BAR else 'MISS'} ours is {error:.3%} off; bar {BAR:.1%}")
    sys.exit(0 if error <= BAR else 1)


if __name__ == "__main__":
    main()
