"""Figure F3: QoS 1 publishes that the fleet's MQTT engine makes per core, beside paho on asyncio.

Method. mosquitto (no persistence, no bound on queues, nobody subscribed) is pinned to one core, each generator in turn
to another. Every client is a connection of its own and has so many publishes on its way; the next goes when one is
acknowledged. Each body is made anew and each latency written down, by the same code in all generators
(:mod:`benchmarks._mqtt_load`), all on uvloop. The rounds of all generators alternate; the median round counts. The
figure is acknowledgements per second of the *generator's* CPU time: what one core is good for, whatever else the
machine is doing and whether or not mosquitto keeps up. The rate on the clock stands beside it.

    python -m benchmarks.fleet_mqtt [--clients 100 4000] [--in-flight 1 8] [--seconds 5] [--rounds 3]

Exit codes: 0 within the bar, 1 not, 2 there is no mosquitto, or too few file descriptors.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks._mqtt_load import GENERATORS
from benchmarks._peers import Load, show
from benchmarks._rig import cores, judge, machine, run
from simulator.fleet.engine.preflight import raise_descriptor_limit
from tests.support.mosquitto import Mosquitto, find_mosquitto, mosquitto

BAR = 4.0
SETTINGS = ("max_queued_messages 0", "max_inflight_messages 100", "persistence false")
# Sockets of the broker and of the generator's process beside those of the sessions.
_SPARE_FILES = 200


def measure(broker: Mosquitto, clients: int, in_flight: int, seconds: float, rounds: int) -> bool:
    """Print a row for each generator, and ours divided by the peer's; whether that is within the bar."""
    core, _ = cores()
    results: dict[str, list[Load]] = {name: [] for name in GENERATORS}
    for _ in range(rounds):
        for name, loads in results.items():
            words = ["--port", broker.port, "--clients", clients, "--in-flight", in_flight, "--seconds", seconds]
            done = run(["benchmarks._mqtt_load", name, *words], core=core, target_pid=broker.pid)
            target_cpu = done.target_cpu_s / done.seconds
            loads += [Load(**load, users=clients, target_cpu=target_cpu) for load in done.lines]
    print(f"\n{clients:,} clients, {in_flight} on their way each")
    show(results)
    ours, peer = (statistics.median(load.per_cpu_s for load in results[name]) for name in ("engine", "paho"))
    return judge("x paho on asyncio, for each second of CPU", ours / peer, BAR, is_least=True)


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Figure F3: QoS 1 publishes per core.")
    parser.add_argument("--clients", type=int, nargs="*", default=[100, 4000])
    parser.add_argument("--in-flight", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    program, needed, files = find_mosquitto(), max(given.clients) + _SPARE_FILES, raise_descriptor_limit()
    if program is None or needed > files:
        print(f"this needs mosquitto, and {needed} file descriptors of the {files} of ulimit -Hn", file=sys.stderr)
        return 2
    core, broker_core = cores()
    print(f"F3: generator on core {core}, mosquitto on core {broker_core}\n{machine()}")
    with tempfile.TemporaryDirectory() as name, mosquitto(program, Path(name), SETTINGS) as broker:
        os.sched_setaffinity(broker.pid, {broker_core})
        kept = [
            measure(broker, clients, in_flight, given.seconds, given.rounds)
            for clients in given.clients
            for in_flight in given.in_flight
        ]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
