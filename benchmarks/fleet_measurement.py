"""The fleet's measurement: does it tell the truth, does it merge, does its memory stay flat, what does a record cost.

Method. *Accuracy*: so many values of known distributions; percentiles of the histogram beside those of the sorted log,
which is the truth. *Merging*: the same values recorded by eight workers, second by second, through the merger, beside
one recorder that saw them all; compared as encoded text, so to the last bit. *Memory*: records through recorder and
merger, a cut every 100,000; the process's resident memory after the first million and at the end. *Cost*: a ``record``
call, which counts a response time, a service time and a send lag, without and with making histograms of them once in
100,000; the empty loop is subtracted, and the fastest of five counts, since other processes only make it slower.

    python benchmarks/fleet_measurement.py [--values 10000000] [--records 100000000]

Exit codes: 0 within the bars (percentiles 0.1 %, merge bit for bit, memory flat within 1 MiB), 1 not.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from numpy.typing import NDArray

from simulator.fleet.metrics.histogram import Histogram, rank_of
from simulator.fleet.metrics.recorder import Merger, Recorder, Totals
from simulator.fleet.outcomes import OutcomeClass

PERCENTS = (50.0, 90.0, 99.0, 99.9, 99.99)
ERROR_BAR = 0.001
MEMORY_BAR_KIB = 1024
WORKERS = 8
CUT_EVERY = 100_000
SETTLED = 1_000_000


@dataclass(frozen=True, slots=True)
class Bars:
    """What was found, against the bars."""

    worst_error: float
    is_merge_exact: bool
    growth_kib: int

    def are_kept(self) -> bool:
        """Everything is within its bar."""
        return self.worst_error <= ERROR_BAR and self.is_merge_exact and self.growth_kib <= MEMORY_BAR_KIB


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


def accuracy(values: dict[str, NDArray[np.float64]]) -> float:
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


def resident_kib() -> int:
    """Resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def memory(log: NDArray[np.float64], records: int) -> int:
    """Print and return how much the process grew after the first million records, KiB."""
    values = log[: min(len(log), SETTLED)].tolist()
    recorder, merger, totals = Recorder(), Merger((0,)), Totals()
    before, done, settled = resident_kib(), 0, 0
    began_s = time.perf_counter()
    while done < records:
        record = recorder.record
        for value in values[:CUT_EVERY]:
            record("http.poll", OutcomeClass.OK, intended_s=0.0, sent_s=0.0, now_s=value)
        values = values[CUT_EVERY:] + values[:CUT_EVERY]
        merger.add(0, recorder.cut(done // CUT_EVERY).measured())
        for merged in merger.ready():
            totals.add(merged)
        done += min(CUT_EVERY, len(values))
        if done >= min(SETTLED, records) and not settled:
            settled = resident_kib()
            print(f"memory: {settled / 1024:.1f} MiB after {done:,} records ({before / 1024:.1f} before)", flush=True)
    took_s = time.perf_counter() - began_s
    after = resident_kib()
    count = totals.operations["http.poll"][OutcomeClass.OK].count
    print(f"memory: {after / 1024:.1f} MiB after {count:,} records, {took_s / done * 1e6:.2f} µs each with merging")
    return max(0, after - settled)


def record_ns(count: int) -> tuple[float, float]:
    """What one ``record`` costs, nanoseconds: alone, and with its part of making the histograms."""
    alone = whole = math.inf
    for _ in range(5):
        recorder = Recorder()
        record = recorder.record
        began_s = time.perf_counter()
        for _ in range(count):
            record("http.poll", OutcomeClass.OK, intended_s=1.0, sent_s=1.001, now_s=1.25)
        recorded_s = time.perf_counter()
        recorder.cut(0).measured()
        made_s = time.perf_counter()
        for _ in range(count):
            pass
        empty_s = time.perf_counter() - made_s
        alone, whole = min(alone, recorded_s - began_s - empty_s), min(whole, made_s - began_s - empty_s)
    return alone / count * 1e9, whole / count * 1e9


def main(arguments: Sequence[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--values", type=int, default=10_000_000, help="of each distribution (10,000,000)")
    parser.add_argument("--records", type=int, default=5_000_000, help="through recorder and merger (5,000,000)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{time.strftime('%Y-%m-%d')}, {machine}, load {os.getloadavg()[0]:.1f}, {given.values:,} values each")
    values = logs(given.values, given.seed)
    worst = accuracy(values)
    log = values["stalled"].copy()
    del values
    is_exact = merging(log)
    print(f"merge: {WORKERS} workers over 10 s are one log, bit for bit: {'yes' if is_exact else 'NO'}", flush=True)
    alone, whole = record_ns(CUT_EVERY)
    print(f"cost: a record {alone:.0f} ns, with its part of making histograms {whole:.0f} ns")
    bars = Bars(worst, is_exact, memory(log, given.records))
    error, merge = f"{bars.worst_error:.3%} (bar {ERROR_BAR:.1%})", "exact" if is_exact else "NOT exact"
    growth = f"{bars.growth_kib:+,} KiB (bar {MEMORY_BAR_KIB:,})"
    kept = "ok" if bars.are_kept() else "NOT REACHED"
    print(f"F5: worst percentile error {error}, merge {merge}, memory {growth}: {kept}")
    return 0 if bars.are_kept() else 1


if __name__ == "__main__":
    raise SystemExit(main())
