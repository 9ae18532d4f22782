"""How many workers one conductor can have: its own share of a core, for 10 to 1,000 stand-ins for workers.

Method. A stand-in sends what a worker sends: each second the pickled message of its counts, with histograms of as many
exchanges as were asked for, three operations, their values drawn anew for each of twenty stand-ins. The conductor does
what it does in a run: unpickles, merges, writes the second to the run's folder, once a second. Its CPU time is measured
with the process's own clock, without what makes the messages. Neither Ray's share nor the view is in it.

    python benchmarks/cluster.py [--seconds 20] [--exchanges 300]

Exit codes: 0 500 workers take at most half of a core, 1 they take more.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._fleet_target import machine
from simulator.fleet.metrics.merging import Merger
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.report.writing import second_line
from simulator.fleet.run.messages import Measured

COUNTS = (10, 50, 100, 200, 500, 1000)
BAR = 0.5
BAR_AT = 500
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


def main() -> int:
    """The table, and whether the bar holds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--exchanges", type=int, default=300)
    given = parser.parse_args()
    kinds = [message(seed, given.exchanges) for seed in range(_KINDS)]
    print(machine())
    print(f"{given.exchanges} exchanges of each worker in a second, {given.seconds} seconds\n")
    print("| workers | the conductor's share of a core | KB in a second |\n|---:|---:|---:|")
    shares = {}
    for workers in COUNTS:
        shares[workers], kilobytes = share_of_a_core(workers, given.seconds, kinds)
        print(f"| {workers:,} | {shares[workers]:.1%} | {kilobytes:,.0f} |", flush=True)
    return 0 if shares[BAR_AT] <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
