"""One run of devices that poll and read, on workers of this machine or of a Ray cluster on it, and what it takes.

The devices are a fleet's own (``agent.core``), the coordinator is a run's own. Their ids are made up, since the target
is nginx with constant answers: nothing has to be registered. Prints one line of JSON.

    python benchmarks/_cluster_load.py URL --nodes 2 --workers 2 --devices 2000 --period 2 --seconds 20
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent.wire.extensions import IDEMPOTENCY_KEY
from simulator.fleet.engine.preflight import raise_descriptor_limit
from simulator.fleet.metrics.merging import Merger
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.plan.shares import deal
from simulator.fleet.record import Second, Span, WorkerGap
from simulator.fleet.report.writing import second_line
from simulator.fleet.run.coordinator import Coordinator, PhaseSchedule, RunOutcome
from simulator.fleet.run.local_workers import LocalWorkers
from simulator.fleet.run.messages import FromWorker
from simulator.fleet.run.worker import work
from simulator.fleet.run.workers import WorkerLost, Workers
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.target.target import KeyPairFile
from simulator.fleet.workload.devices import Address
from simulator.fleet.workload.fleet import FleetJob
from tests.cluster_running import running_cluster

POOL = 64
_FIRST_ID = 0x019B76DA_A8007000_80000000_00000000
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_WEIGHED = 16
"""One message in so many is pickled once more for its size."""
_SETTLE_S = 5
_DRAIN_S = 10.0


@dataclass(slots=True)
class Taken:
    """CPU time and memory of one group of processes.

    Attributes:
        processes: how many.
        cpu_s: CPU time since they began.
        pss_kb: memory, pages that are shared counted by their part.
    """

    processes: int = 0
    cpu_s: float = 0.0
    pss_kb: int = 0


Groups = dict[str, Taken]
"""By what they are: ``workers``, ``conductor``, ``crews`` and ``ray``; of each node under ``node N/`` before that."""


@dataclass(slots=True)
class Measurement:
    """One run.

    Attributes:
        devices, workers, nodes: as asked; no node is this machine without Ray.
        seconds: measured.
        requests: answered as they should within them.
        failed: all others.
        messages, message_bytes: that came to the conductor within them.
        begin, end: the processes at both ends of the measurement.
        ready_s: from the start of the workers until the load began.
        gaps: declared ones, of the whole run.
    """

    devices: int
    workers: int
    nodes: int
    seconds: float = 0.0
    requests: int = 0
    failed: int = 0
    messages: int = 0
    message_bytes: float = 0.0
    begin: Groups = field(default_factory=dict)
    end: Groups = field(default_factory=dict)
    ready_s: float = 0.0
    gaps: int = 0


def scenario_of(devices: int, workers: int, period_s: float, ramp_s: float, seconds: float) -> Scenario:
    """Devices that poll and read once in a period, switched on one after the other."""
    model = {"name": "polling", "telemetry": {"every_s": period_s}, "poll": {"every_s": period_s}}
    document = {
        "scenario": "cluster",
        "seed": 7,
        "workers": workers,
        "target": {"transport": "http_poll", "pool": POOL},
        "fleet": {"devices": devices, "models": [model]},
        "phases": [
            {"name": "ramp", "kind": "ramp", "duration_s": ramp_s},
            {"name": "hold", "kind": "hold", "duration_s": seconds + _SETTLE_S + 2},
        ],
        "drain_s": _DRAIN_S,
    }
    return Scenario.model_validate_json(json.dumps(document), strict=True)


def jobs_of(scenario: Scenario, url: str, folder: Path) -> list[FleetJob]:
    """Each worker's part; what they talk to takes every device."""
    secret = folder / "secret"
    secret.write_text("msk_benchmark", encoding="ascii")
    secret.chmod(0o600)
    keys = (KeyPairFile("mk_benchmark", secret),)
    workers = int(scenario.workers)
    jobs = []
    for worker, devices in enumerate(deal(scenario.fleet.devices, workers)):
        names = tuple(str(UUID(int=_FIRST_ID + number)) for number in devices)
        job = FleetJob(
            scenario=scenario,
            address=Address(url, keys),
            keys=keys,
            operator_url=url,
            worker=worker,
            devices=devices,
            device_ids=names,
            names=names,
            product_id="product",
            folder=folder,
            origin_s=time.time(),
            model_numbers=(0,) * len(devices),
            offers=frozenset({IDEMPOTENCY_KEY}),
            device_offers=frozenset({IDEMPOTENCY_KEY}),
            run="benchmark",
            connections=max(1, POOL // workers),
        )
        jobs.append(job)
    return jobs


class Meter:
    """The run's listener: writes the seconds as a run does, and takes stock at both ends of the measurement.

    Args:
        found: is filled.
        file: for the seconds.
        from_second: the first one that is measured.
        seconds: how many.
    """

    def __init__(self, found: Measurement, file: Any, from_second: int, seconds: int) -> None:
        self._found = found
        self._file = file
        self._from = from_second
        self._to = from_second + seconds
        self._is_counting = False
        self._began_s = 0.0
        self._sizes: list[int] = []

    def second(self, second: Second, phase: Span | None, waiting_for: str, gaps: tuple[WorkerGap, ...]) -> None:
        """A second is complete."""
        del phase, waiting_for
        self._file.write(second_line(second))
        found = self._found
        found.gaps = len(gaps)
        if self._from <= second.second < self._to:
            for outcomes in second.operations.values():
                for outcome, tally in outcomes.items():
                    found.requests += tally.count if outcome is OutcomeClass.OK else 0
                    found.failed += tally.count if outcome is not OutcomeClass.OK else 0
        if second.second == self._from - 1:
            found.begin, self._began_s, self._is_counting = take_stock(), time.monotonic(), True
        if second.second == self._to - 1:
            found.seconds, self._is_counting = time.monotonic() - self._began_s, False
            found.end = take_stock()
            found.message_bytes = found.messages * sum(self._sizes) / max(len(self._sizes), 1)

    def received(self, message: FromWorker) -> None:
        """A worker sent a message."""
        if not self._is_counting:
            return
        self._found.messages += 1
        if self._found.messages % _WEIGHED == 1:
            self._sizes.append(len(pickle.dumps(message)))

    def phase(self, outcome: RunOutcome) -> None:
        """A phase begins."""
        if len(outcome.phases) == 1:
            self._found.ready_s = time.monotonic() - self._found.ready_s

    def drain(self, outcome: RunOutcome) -> None:
        """The phases are over."""

    def lost(self, gone: WorkerLost) -> None:
        """A worker is gone."""
        print(gone.reason, file=sys.stderr)

    def warn(self, sentence: str) -> None:
        """Show it."""
        print(sentence, file=sys.stderr)


def take_stock() -> Groups:
    """Measure CPU time and memory of this process and all its descendants, summed by group."""
    table = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            table[int(path.name)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICKS_PER_S, words
    own = os.getpid()
    raylets = sorted(pid for pid, (_, _, words) in table.items() if "raylet/raylet" in words.split(" ")[0])
    groups: Groups = {}
    for pid, (_, cpu_s, words) in table.items():
        line = list(_ancestors(pid, {at: parent for at, (parent, _, _) in table.items()}))
        if own not in line and "fleet-crew-" not in words:
            continue
        group = "conductor" if pid == own else "ray"
        if "spawn_main" in words:
            group = "workers"
        elif "NodeCrew" in words or "fleet-crew-" in words:
            group = "crews"
        names = [group] + [f"node {number}/{group}" for number, raylet in enumerate(raylets) if raylet in line]
        pss_kb = _pss_kb(pid)
        for name in names:
            taken = groups.setdefault(name, Taken())
            taken.processes += 1
            taken.cpu_s += cpu_s
            taken.pss_kb += pss_kb
    return groups


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid in parents:
        yield pid
        pid = parents[pid]


def _pss_kb(pid: int) -> int:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return 0


@contextlib.contextmanager
def workers_on(nodes: int, workers: int) -> Iterator[Workers]:
    """Workers of this machine, or spread over so many nodes of a cluster that is made for them."""
    if not nodes:
        yield LocalWorkers(work)
        return
    from simulator.fleet.run.cluster.connection import connected
    from simulator.fleet.run.cluster.placement import place_workers
    from simulator.fleet.run.cluster.ray_workers import RayWorkers

    cores = [len(part) for part in deal(workers, nodes)]
    with running_cluster(*cores) as running, connected(running.address) as found:
        yield RayWorkers(work, place_workers(workers, found))


def measure(url: str, nodes: int, workers: int, scenario: Scenario, seconds: int) -> Measurement:
    """One run from its begin to its end."""
    found = Measurement(scenario.fleet.devices, workers, nodes)
    ramp_s = scenario.phases[0].duration_s
    with (
        tempfile.TemporaryDirectory() as folder,
        (Path(folder) / "seconds.jsonl").open("w", encoding="utf-8") as file,
        workers_on(nodes, workers) as started,
        started,
    ):
        jobs: Sequence[FleetJob] = jobs_of(scenario, url, Path(folder))
        meter = Meter(found, file, int(ramp_s) + _SETTLE_S, seconds)
        found.ready_s = time.monotonic()
        started.start(jobs)
        schedule = PhaseSchedule(scenario.phases, scenario.fleet.devices, drain_s=_DRAIN_S)
        Coordinator(started, schedule, Merger(range(workers)), meter).conduct()
    return found


def main() -> None:
    """The program: one line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--nodes", type=int, default=0, help="of a Ray cluster; 0 has no Ray")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--devices", type=int, default=2_000)
    parser.add_argument("--period", type=float, default=2.0, help="each device polls and reads once in it, seconds")
    parser.add_argument("--ramp", type=float, default=2.0, help="in which they are switched on, seconds")
    parser.add_argument("--seconds", type=int, default=20, help="that are measured")
    given = parser.parse_args()
    raise_descriptor_limit()
    scenario = scenario_of(given.devices, given.workers, given.period, given.ramp, given.seconds)
    print(json.dumps(asdict(measure(given.url, given.nodes, given.workers, scenario, given.seconds))))


if __name__ == "__main__":
    main()
