"""What a signal costs: one value of each kind, a reading of a climate node, and history in virtual time.

Method. One process, pinned to one core where the system can. Each line calls the signal at instants that are 60 s
apart, as a device does, and counts the process's own CPU time; the fastest of five counts stands there, since other
processes only make it slower. *Reading*: the climate node's four readings as one ``sensor_data`` object. *History*: one
day of a device that reads once a minute, with a state machine and a battery, lived through in virtual time.

Beside it, as the plain way to the same thing: a random walk by halving its span with one normal number for each halving
(fourteen of them down to a quarter of a second), which is how the textbooks build it.

    python benchmarks/fleet_signals.py [--calls 20000]

Exit codes: 0 a reading takes at most 10 microseconds, 1 it takes longer.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pydantic import TypeAdapter

from agent.core.schedule import Schedule
from simulator.fleet.models.build import ModelParts, build_model
from simulator.fleet.models.history import history_of
from simulator.fleet.models.settings import BatterySettings, StateSettings
from simulator.fleet.signals.base import Individual
from simulator.fleet.signals.build import build_signals
from simulator.fleet.signals.climate import CLIMATE
from simulator.fleet.signals.registry import SignalMap

BAR_US = 10.0
BEGIN_S = 1_767_225_600.0
STEP_S = 60.0
ROUNDS = 5
KINDS = {
    "constant": {"kind": "constant", "value": 3.5},
    "sine": {"kind": "sine", "mean": 10, "amplitude": 3, "period_s": 600},
    "diurnal": {"kind": "diurnal", "mean": 12, "amplitude": 8, "noise": 0.2},
    "random_walk": {"kind": "random_walk", "start": 21, "step": 0.09},
    "noise": {"kind": "noise", "mean": 5, "deviation": 2},
    "steps": {"kind": "steps", "steps": [{"value": 1, "for_s": 60}, {"value": 2, "for_s": 30}]},
    "markov": {"kind": "markov", "states": {"no": {"value": 0, "stay_s": 600}, "yes": {"value": 1, "stay_s": 60}}},
    "csv": {"kind": "csv", "file": "values.csv", "column": "value", "every_s": 60},
    "formula": {"kind": "formula", "expression": "random_walk * 1.8 + 32"},
    "correlated": {"kind": "correlated", "follows": "random_walk", "factor": -2, "offset": 90, "lag_s": 600},
    "battery": {"kind": "battery", "spread": 0.2},
}
ROUTE = {"route": {"kind": "gps_route", "file": "route.csv"}}


def microseconds(call: Callable[[float], object], calls: int) -> float:
    """CPU time of one call: the fastest of five counts."""
    counts = []
    for _ in range(ROUNDS):
        begin_s = time.process_time()
        for number in range(calls):
            call(BEGIN_S + number * STEP_S)
        counts.append(time.process_time() - begin_s)
    return min(counts) / calls * 1e6


def halved_walk(time_s: float) -> float:
    """The walk of a textbook: a Brownian bridge by halving, one normal number out of two hashes at each level."""
    span, offset = divmod(time_s, 3600.0)
    left_s, right_s, left, right, level = 0.0, 3600.0, 0.0, 0.0, 0
    while right_s - left_s > 0.25:
        middle_s = (left_s + right_s) / 2
        numbers = []
        for part in ("radius", "angle"):
            text = f"1\x1fa\x1fwalk\x1f{span}\x1f{level}\x1f{middle_s}\x1f{part}"
            numbers.append((int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) + 0.5) / 2.0**64)
        bell = math.sqrt(-2 * math.log(numbers[0])) * math.cos(math.tau * numbers[1])
        middle = (left + right) / 2 + 0.09 * math.sqrt((right_s - left_s) / 4) * bell
        if offset < middle_s:
            right_s, right = middle_s, middle
        else:
            left_s, left = middle_s, middle
        level += 1
    return left + (right - left) * (offset - left_s) / (right_s - left_s)


def history_rate(folder: Path) -> tuple[int, float]:
    """Readings of one day, and how many are lived through in a second."""
    reader = TypeAdapter(SignalMap)
    states = {
        "idle": StateSettings(stay_s=3600, next={"busy": 1}),
        "busy": StateSettings(stay_s=600, telemetry_every_s=10, next={"idle": 1}),
    }
    climate = dict.fromkeys(("temperature", "humidity", "signal"), KINDS["random_walk"])
    parts = ModelParts("m", reader.validate_python(climate), states=states, battery=BatterySettings())
    model = build_model(parts, folder=folder)
    begin_s = time.process_time()
    count = sum(
        1
        for number in range(10)
        for _ in history_of(
            model, Individual.at(1, number), Schedule(60.0, 7.5), from_s=BEGIN_S, to_s=BEGIN_S + 86_400.0
        )
    )
    return count, count / (time.process_time() - begin_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=20_000, help="calls in each count")
    calls = parser.parse_args(arguments).calls
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(f"{platform.machine()}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}, {calls} calls\n")
    device = Individual.at(1, 7)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "values.csv").write_text("value\n" + "\n".join(map(str, range(1440))), encoding="utf-8")
        points = "\n".join(f"{52 + n / 1000},{13 + n * n / 1e6}" for n in range(200))
        (folder / "route.csv").write_text(f"latitude,longitude\n{points}\n", encoding="utf-8")
        reader = TypeAdapter(SignalMap)
        signals = build_signals(reader.validate_python(KINDS), folder=folder)
        for kind, signal in signals.items():
            print(f"{kind:<24}{microseconds(partial(signal.value_at, device), calls):8.2f} us")
        route = build_signals(reader.validate_python(ROUTE), folder=folder)
        print(f"{'gps_route (4 readings)':<24}{microseconds(partial(route.read, device), calls):8.2f} us")
        print(f"{'walk by halving':<24}{microseconds(halved_walk, max(1, calls // 10)):8.2f} us")
        count, rate = history_rate(folder)
    reading_us = microseconds(partial(CLIMATE.read, device), calls)
    print(f"{'climate reading (4)':<24}{reading_us:8.2f} us   at most {BAR_US:g}")
    print(f"{'history':<24}{rate:8,.0f} readings/s of virtual time ({count:,} made)")
    return 0 if reading_us <= BAR_US else 1


if __name__ == "__main__":
    sys.exit(main())
