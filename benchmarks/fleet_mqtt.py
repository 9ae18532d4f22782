"""Figure F3: QoS 1 publishes that the fleet's MQTT engine makes per core, beside paho on asyncio.

Method. mosquitto (no persistence, no bound on queues, nobody subscribed) is pinned to one core, each generator in turn
to another. Every client is a connection of its own and has so many publishes on its way; the next goes when one is
acknowledged. Each body is made anew and each latency written down, by the same code in all generators
(:mod:`benchmarks._mqtt_load`), all on uvloop. The rounds of all generators alternate; the median round counts. The
figure is acknowledgements per second of the *generator's* CPU time: what one core is good for, whatever else the
machine is doing and whether or not mosquitto keeps up. The rate on the clock stands beside it.

    python benchmarks/fleet_mqtt.py [--clients 100 4000] [--in-flight 1 8] [--seconds 5] [--rounds 3]

Exit codes: 0 within the bar, 1 not, 2 there is no mosquitto, or too few file descriptors.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._mqtt_load import GENERATORS
from tests.support.mosquitto import Mosquitto, find_mosquitto, mosquitto

BAR = 4.0
PEER = "paho"
OURS = "engine"
NAMES = {OURS: "this engine (mqtt5)", PEER: "paho on asyncio"}
SETTINGS = ("max_queued_messages 0", "max_inflight_messages 100", "persistence false")
_HERE = Path(__file__).parent
_PATIENCE_S = 300.0
# Sockets of the broker and of the generator's process beside those of the sessions.
_SPARE_FILES = 200


def child(script: str, core: int, *words: object) -> dict[str, Any]:
    """Run a script of this folder on one core; what it prints.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(
        [sys.executable, str(_HERE / script), *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    if done.returncode != 0:
        raise RuntimeError(f"{script} ended with {done.returncode}")
    return dict(json.loads(done.stdout))


def cores() -> tuple[int, int]:
    """One for the generator, another one for the broker; the same where there is only one."""
    mine = sorted(os.sched_getaffinity(0))
    return mine[0], mine[-1]


def rates(broker: Mosquitto, clients: int, in_flight: int, seconds: float, rounds: int) -> float:
    """Print a row for each generator; ours divided by the peer's."""
    core, _ = cores()
    loads: dict[str, list[dict[str, Any]]] = {name: [] for name in GENERATORS}
    for _ in range(rounds):
        for name in GENERATORS:
            words = ["--port", broker.port, "--clients", clients, "--in-flight", in_flight, "--seconds", seconds]
            loads[name].append(child("_mqtt_load.py", core, name, *words))
    per_core = {name: statistics.median(_per_cpu_s(load) for load in loads[name]) for name in GENERATORS}
    print(f"\n{clients:,} clients, {in_flight} on their way each")
    print(f"{'':22}{'per CPU second':>15}{'per second':>12}{'busy':>6}{'p50 ms':>9}{'p99 ms':>9}")
    for name in GENERATORS:
        load = sorted(loads[name], key=_per_cpu_s)[len(loads[name]) // 2]
        shown = load["latency_ms"]
        busy = load["cpu_s"] / load["seconds"]
        print(
            f"{NAMES[name]:22}{per_core[name]:>15,.0f}{load['acknowledged'] / load['seconds']:>12,.0f}{busy:>6.0%}"
            f"{shown['p50']:>9.1f}{shown['p99']:>9.1f}"
        )
    ratio = per_core[OURS] / per_core[PEER]
    print(f"{'':22}{ratio:>14.1f}x paho on asyncio (bar {BAR:g}x)")
    return ratio


def _per_cpu_s(load: dict[str, Any]) -> float:
    return float(load["acknowledged"] / load["cpu_s"])


def raise_file_limit(sessions: int) -> str | None:
    """Let this process and its children open as many files as they may; what to do when that is too few."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if sessions + _SPARE_FILES > most:
        return (
            f"{sessions} sessions need {sessions + _SPARE_FILES} file descriptors, and ulimit -Hn is {most}: raise it"
        )
    return None


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Figure F3: QoS 1 publishes per core.")
    parser.add_argument("--clients", type=int, nargs="*", default=[100, 4000])
    parser.add_argument("--in-flight", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = parsed(arguments)
    program = find_mosquitto()
    if program is None:
        print("there is no mosquitto: apt-get install mosquitto", file=sys.stderr)
        return 2
    gate = raise_file_limit(max(options.clients))
    if gate:
        print(gate, file=sys.stderr)
        return 2
    core, broker_core = cores()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.platform()}, Python {platform.python_version()}")
    print(f"generator on core {core}, mosquitto on core {broker_core}")
    with tempfile.TemporaryDirectory() as name, mosquitto(program, Path(name), SETTINGS) as broker:
        os.sched_setaffinity(broker.pid, {broker_core})
        ratios = [
            rates(broker, clients, in_flight, options.seconds, options.rounds)
            for clients in options.clients
            for in_flight in options.in_flight
        ]
    return 0 if min(ratios) >= BAR else 1


if __name__ == "__main__":
    raise SystemExit(main())
