"""Figure F5, the fleet's measurement: does it tell the truth, and does it merge?

Method. *Accuracy*: so many values of known distributions; percentiles of the histogram beside those of the sorted log,
which is the truth. *Merging*: the same values recorded by eight workers, second by second, through the merger, beside
one recorder that saw them all; compared as encoded text, so to the last bit.

    python -m benchmarks.fleet_measurement [--values 10000000]

Exit codes: 0 within the bars (percentiles 0.1 %, merge bit for bit), 1 not.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks._rig import judge, machine
from simulator.fleet.metrics.histogram import Histogram, rank_of
from simulator.fleet.metrics.recorder import Merger, Recorder, Totals
from simulator.fleet.outcomes import OutcomeClass

PERCENTS = (50.0, 90.0, 99.0, 99.9, 99.99)
ERROR_BAR = 0.001
WORKERS = 8


def logs(count: int, seed: int) -> dict[str, NDArray[np.float64]]:
    """Durations in seconds by what they are distributed like."""
    numbers = np.random.default_rng(seed)
    stalled = numbers.lognormal(math.log(0.004), 0.5, count)
    # A target that stood still: one request in fifty waited up to 5 s, and nothing lies between.
    where = numbers.random(count) < 0.02
    stalled[where] = numbers.uniform(1.0, 5.0, int(where.sum()))
    return {
        "log-normal": numbers.lognormal(math.log(0.01), 1.0, count),
        "exponential": numbers.exponential(0.02, count) + 1e-5,
        "Pareto": np.minimum(0.001 * (1 + numbers.pareto(1.2, count)), 3600.0),
        "stalled": stalled,
    }


def truth_of(log: NDArray[np.float64]) -> list[float]:
    """The percentiles of the sorted log."""
    ordered = np.sort(log)
    return [float(ordered[rank_of(percent, len(log)) - 1]) for percent in PERCENTS]


def accuracy(values: Mapping[str, NDArray[np.float64]]) -> float:
    """Print percentiles beside the truth; the worst relative error."""
    worst = 0.0
    print(f"{'percentiles':<16}" + "".join(f"{f'p{percent:g}':>22}" for percent in PERCENTS))
    for name, log in values.items():
        histogram = Histogram()
        histogram.record_many(log)
        errors = [got / true - 1 for got, true in zip(histogram.percentiles(PERCENTS), truth_of(log), strict=True)]
        worst = max(worst, *map(abs, errors))
        cells = zip(truth_of(log), errors, strict=True)
        print(f"{name:<16}" + "".join(f"{true * 1e3:>11.3f} ms {error:>+7.3%}" for true, error in cells), flush=True)
    return worst


def merging(log: NDArray[np.float64]) -> bool:
    """Whether eight workers, second by second, come to what one recorder saw."""
    merger, totals, one = Merger(range(WORKERS)), Totals(), Recorder()
    for second, part in enumerate(np.array_split(log, 10)):
        workers = [Recorder() for _ in range(WORKERS)]
        for number, value in enumerate(part.tolist()):
            outcome = OutcomeClass.LIMITED if number % 50 == 0 else OutcomeClass.OK
            for recorder in (workers[number % WORKERS], one):
                recorder.record("http.poll", outcome, intended_s=0.0, sent_s=value / 9, now_s=value)
        for number, recorder in enumerate(workers):
            merger.add(number, recorder.cut(second).measured())
        for merged in merger.ready():
            totals.add(merged)
    truth = one.cut(0).measured()
    return totals.operations == truth.operations and totals.health.send_lag == truth.health.send_lag


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Figure F5: does the measurement tell the truth?")
    parser.add_argument("--values", type=int, default=10_000_000, help="of each distribution (10,000,000)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(f"F5: {given.values:,} values of each distribution\n{machine()}")
    values = logs(given.values, given.seed)
    worst = accuracy(values)
    log = values["stalled"].copy()
    del values
    unlike = 0 if merging(log) else 1
    kept = [
        judge("worst error of a percentile", 100 * worst, 100 * ERROR_BAR, "%"),
        judge(f"logs of {WORKERS} workers that are not one, bit for bit", unlike, 0),
    ]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
