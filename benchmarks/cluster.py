"""Measures a run on a cluster: the conductor's share of a core, Ray's overhead, and many devices on several nodes.

Without an option: stand-ins for 10 to 1,000 workers. A stand-in sends what a worker sends: each second the pickled
message of its counts, with histograms of as many exchanges as were asked for, three operations, their values drawn anew
for each of twenty stand-ins. The conductor does what it does in a run: unpickles, merges, writes the second to the
run's folder, once a second. Its CPU time is measured with the process's own clock, without what makes the messages.
Neither Ray's share nor the view is in it.

``--overhead``: the same devices on two workers of this machine, on two of one Ray node and on one of each of two, one
after the other, several rounds. The target is nginx with constant answers. Requests that were answered are divided by
the CPU time of the workers' processes, and by that of everything but nginx; memory is the proportional set size at the
end. A cluster is started anew for each run, so that nothing of Ray is there while its peer is measured.

``--devices N``: so many devices on nodes of a Ray cluster on this machine, each polls and reads once in a period:
memory of each node, messages to the conductor, its share of a core, and those of everything else.

    python benchmarks/cluster.py [--seconds 20] [--exchanges 300]
    python benchmarks/cluster.py --overhead [--rounds 5] [--seconds 15]
    python benchmarks/cluster.py --devices 200000 [--nodes 4] [--workers 4] [--period 240] [--seconds 600]

The last two need an environment with Ray (``make cluster-test`` makes one) and nginx.

Exit codes: 0 the bars are reached (500 workers take at most half of a core; Ray takes at most 5 % of the requests of a
core and no memory of a device; every exchange of many devices is good and no second is missing), 1 one is not, 2 Ray or
nginx is missing.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._fleet_target import cores, has_nginx, machine, nginx
from simulator.fleet.engine.preflight import raise_descriptor_limit
from simulator.fleet.metrics.merging import Merger
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.report.writing import second_line
from simulator.fleet.run.messages import Measured

COUNTS = (10, 50, 100, 200, 500, 1000)
BAR = 0.5
BAR_AT = 500
BAR_OVERHEAD = 0.05
BAR_MEMORY_KB = 0.1
"""Of a device: two measurements of the same memory are as far apart."""
LOAD = Path(__file__).with_name("_cluster_load.py")
PLACES = {"2 local workers": 0, "1 Ray node, 2 workers": 1, "2 Ray nodes, 1 worker each": 2}
OVERHEAD_DEVICES = 3_000
GROUPS = ("workers", "conductor", "crews", "ray")
_KINDS = 20
_OPERATIONS = ("http.poll", "http.sensor_data", "http.report")


def message(seed: int, exchanges: int) -> Measured:
    """What a worker sends of a second."""
    recorder = Recorder(seed)
    random = np.random.Generator(np.random.PCG64(seed))
    for name in ("online", "readings_sent", "readings_accepted", "readings_unanswered"):
        recorder.gauge(name, 1000.0)
    for number, took_s in enumerate(random.lognormal(-5.0, 0.6, exchanges)):
        operation = _OPERATIONS[number % len(_OPERATIONS)]
        recorder.record(operation, OutcomeClass.OK, intended_s=1.0, sent_s=1.0, now_s=1.0 + took_s)
    return Measured(seed, 0, recorder.cut(0).delta())


def share_of_a_core(workers: int, seconds: int, kinds: Sequence[Measured]) -> tuple[float, float]:
    """What the conductor takes for so many workers, and the KB that they send it in a second."""
    merger = Merger(range(workers))
    taken_s, size = 0.0, 0
    with tempfile.TemporaryFile("w", encoding="utf-8") as file:
        for second in range(seconds):
            sent = []
            for worker in range(workers):
                one = kinds[worker % len(kinds)]
                sent.append(pickle.dumps(replace(one, delta=replace(one.delta, worker=worker, second=second))))
            size += sum(map(len, sent))
            begin_s = time.process_time()
            for text in sent:
                merger.add(pickle.loads(text).delta)
            for each in merger.ready():
                file.write(second_line(each))
            taken_s += time.process_time() - begin_s
    return taken_s / seconds, size / seconds / 1024


def run(url: str, **options: float) -> dict[str, Any]:
    """One run of :mod:`benchmarks._cluster_load`.

    Raises:
        RuntimeError: it failed, or an exchange did.
    """
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    done = subprocess.run([sys.executable, str(LOAD), url, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the run failed: {done.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["failed"]:
        raise RuntimeError(f"{found['failed']} exchanges failed: {done.stderr.strip()[-2000:]}")
    return found


def cpu_s(found: dict[str, Any], *groups: str) -> float:
    """The CPU time that groups of processes took during the measurement, seconds."""
    end, begin = found["end"], found["begin"]
    return float(sum(end[group]["cpu_s"] - begin[group]["cpu_s"] for group in groups if group in end))


def overhead(rounds: int, seconds: int) -> bool:
    """The table of local workers beside those of a cluster; whether the bars hold."""
    print(f"{OVERHEAD_DEVICES:,} devices, a poll and a reading each 2 s, {rounds} rounds of {seconds} s, interleaved\n")
    runs: dict[str, list[dict[str, Any]]] = {place: [] for place in PLACES}
    for _ in range(rounds):
        with nginx(cores()[0], raise_descriptor_limit()) as target:
            for place, nodes in PLACES.items():
                options = {"nodes": nodes, "workers": 2, "devices": OVERHEAD_DEVICES, "seconds": seconds}
                runs[place].append(run(target.url, **options))
    print("| workers | requests per CPU second of the workers | lowest to highest | of everything | KB a device |")
    print("|---|---:|---:|---:|---:|")
    costs, sizes = {}, {}
    for place, found in runs.items():
        each = [one["requests"] / cpu_s(one, "workers") for one in found]
        whole = [one["requests"] / cpu_s(one, "workers", "conductor", "crews", "ray") for one in found]
        costs[place] = statistics.median(each)
        sizes[place] = statistics.median(one["end"]["workers"]["pss_kb"] / one["devices"] for one in found)
        spread = f"{min(each):,.0f} to {max(each):,.0f}"
        print(f"| {place} | {costs[place]:,.0f} | {spread} | {statistics.median(whole):,.0f} | {sizes[place]:.2f} |")
    print()
    local, *others = PLACES
    held = True
    for place in others:
        lost, more_kb = 1 - costs[place] / costs[local], sizes[place] - sizes[local]
        held = held and lost <= BAR_OVERHEAD and more_kb <= BAR_MEMORY_KB
        print(f"{place}: {lost:+.1%} fewer requests of a core, {more_kb:+.2f} KB a device")
    return held


def many(given: argparse.Namespace) -> bool:
    """The table of many devices on nodes of a cluster; whether every exchange was good and no second is missing."""
    print(f"{given.devices:,} devices, a poll and a reading each {given.period:g} s, {given.nodes} Ray nodes\n")
    names = ("nodes", "workers", "devices", "period", "seconds", "ramp")
    with nginx(cores()[0], raise_descriptor_limit()) as target:
        found = run(target.url, **{name: getattr(given, name) for name in names})
    seconds, end = found["seconds"], found["end"]
    print("| what | |\n|---|---:|")
    for name, value in (
        ("measured", f"{seconds:.0f} s"),
        ("from the start of the workers to the load", f"{found['ready_s']:.0f} s"),
        ("exchanges", f"{found['requests'] / seconds:,.1f} a second, {found['failed']:,} failed"),
        ("messages to the conductor", f"{found['messages'] / seconds:.1f} a second"),
        ("size of them", f"{found['message_bytes'] / seconds / 1024:.1f} KB a second"),
        *((f"CPU: {group}", f"{cpu_s(found, group) / seconds:.1%} of a core") for group in GROUPS),
        *((f"memory: {group}", f"{end[group]['pss_kb'] / 1024:,.0f} MB") for group in GROUPS),
        ("memory of a device", f"{end['workers']['pss_kb'] / found['devices']:.2f} KB"),
        *((f"memory: {group}", f"{end[group]['pss_kb'] / 1024:,.0f} MB") for group in sorted(end) if "/" in group),
        ("gaps", f"{found['gaps']}"),
    ):
        print(f"| {name} | {value} |")
    return int(found["gaps"]) == 0


def conductor(seconds: int, exchanges: int) -> bool:
    """The table of stand-ins; whether the bar holds."""
    kinds = [message(seed, exchanges) for seed in range(_KINDS)]
    print(f"{exchanges} exchanges of each worker in a second, {seconds} seconds\n")
    print("| workers | the conductor's share of a core | KB in a second |\n|---:|---:|---:|")
    shares = {}
    for workers in COUNTS:
        shares[workers], kilobytes = share_of_a_core(workers, seconds, kinds)
        print(f"| {workers:,} | {shares[workers]:.1%} | {kilobytes:,.0f} |", flush=True)
    return shares[BAR_AT] <= BAR


def main() -> int:
    """The table that was asked for, and whether its bars hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--overhead", action="store_true", help="Ray beside local workers")
    parser.add_argument("--devices", type=int, default=0, help="so many on the nodes of a cluster")
    parser.add_argument("--seconds", type=int, help="of each measurement: 20, with --overhead 15, with --devices 600")
    parser.add_argument("--exchanges", type=int, default=300, help="of each stand-in in a second")
    parser.add_argument("--rounds", type=int, default=5, help="of --overhead")
    parser.add_argument("--nodes", type=int, default=4, help="of --devices")
    parser.add_argument("--workers", type=int, default=4, help="of --devices")
    parser.add_argument("--period", type=float, default=240.0, help="of --devices: a poll and a reading in it, seconds")
    parser.add_argument("--ramp", type=float, default=60.0, help="of --devices: in which they come, seconds")
    given = parser.parse_args()
    if (given.overhead or given.devices) and not (has_nginx() and find_spec("ray")):
        print(
            "Ray or nginx is missing: pip install '.[cluster]' in a clone of device-agent; apt-get install nginx-light",
            file=sys.stderr,
        )
        return 2
    print(f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {machine()}")
    if given.overhead:
        held = overhead(given.rounds, given.seconds or 15)
    elif given.devices:
        given.seconds = given.seconds or 600
        held = many(given)
    else:
        held = conductor(given.seconds or 20, given.exchanges)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
