"""Figure F3: QoS 1 publishes that the fleet's MQTT engine makes per core, beside paho on asyncio; and sessions held.

Method. mosquitto (no persistence, no bound on queues, nobody subscribed) is pinned to one core, each generator in turn
to another. Every client is a connection of its own and has so many publishes on its way; the next goes when one is
acknowledged. Each body is made anew and each latency written down, by the same code in all generators
(:mod:`benchmarks._mqtt_load`), all on uvloop. The rounds of all generators alternate; the median round counts. The
figure is acknowledgements per second of the *generator's* CPU time: what one core is good for, whatever else the
machine is doing and whether or not mosquitto keeps up. The rate on the clock stands beside it.

aiomqtt takes part where it is installed, with up to 1,000 messages on their way. gmqtt does not: its wheel brings
packages named ``tests`` and ``examples``, which would hide ours.

*Sessions*: one process opens as many sessions as are asked for, 64 at a time (mosquitto's backlog is 100), each with
the subscriptions and the will of a device, holds them over several keep-alives and lets each publish once.

    python benchmarks/fleet_mqtt.py [--clients 100 4000] [--in-flight 1 8] [--seconds 5] [--rounds 3]
        [--hold 18000] [--hold-s 60] [--tls]

0 leaves a part out; ``--tls`` holds the sessions over TLS.

Exit codes: 0 within the bar and nothing lost, 1 not, 2 there is no mosquitto, or too few file descriptors.
"""

from __future__ import annotations

import argparse
import importlib.util
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

from benchmarks._mqtt_load import GENERATORS, LIMITS
from tests.support.certificates import Authority
from tests.support.mosquitto import Mosquitto, find_mosquitto, mosquitto

BAR = 4.0
PEER = "paho"
OURS = "engine"
NAMES = {OURS: "this engine (mqtt5)", PEER: "paho on asyncio", "aiomqtt": "aiomqtt"}
SETTINGS = ("max_queued_messages 0", "max_inflight_messages 100", "persistence false")
_HERE = Path(__file__).parent
_PATIENCE_S = 300.0
# Sockets of the broker and of the generator's process beside those of the sessions.
_SPARE_FILES = 200
_KEEP_ALIVE_S = 20


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
    names = [
        name
        for name, (module, _) in GENERATORS.items()
        if importlib.util.find_spec(module.partition(".")[0])
        and clients * in_flight <= LIMITS.get(name, clients * in_flight)
    ]
    loads: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            words = ["--port", broker.port, "--clients", clients, "--in-flight", in_flight, "--seconds", seconds]
            loads[name].append(child("_mqtt_load.py", core, name, *words))
    per_core = {name: statistics.median(_per_cpu_s(load) for load in loads[name]) for name in names}
    print(f"\n{clients:,} clients, {in_flight} on their way each")
    print(f"{'':22}{'per CPU second':>15}{'per second':>12}{'busy':>6}{'p50 ms':>9}{'p99 ms':>9}")
    for name in names:
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


def hold(broker: Mosquitto, sessions: int, seconds: float, authority: Path | None) -> bool:
    """Print what holding sessions takes; whether all were held."""
    core, _ = cores()
    before_kb = _resident_kb(broker.pid)
    words = ["--port", broker.port, "--sessions", sessions, "--seconds", seconds, "--keep-alive", _KEEP_ALIVE_S]
    held = child("_mqtt_hold.py", core, *words, *(["--ca-file", authority] if authority else []))
    broker_kb = (_resident_kb(broker.pid) - before_kb) / sessions
    rate, cpu_ms = sessions / held["connect_s"], 1000 * held["connect_cpu_s"] / sessions
    print(f"\n{sessions:,} sessions in one process{', TLS' if authority else ''}, keep-alive {_KEEP_ALIVE_S} s")
    print(f"  connected   {rate:,.0f} per second, {cpu_ms:.2f} ms of CPU each")
    print(f"  memory      {held['session_kb']:.1f} KB each (mosquitto {broker_kb:.1f} KB)")
    busy = held["hold_cpu_s"] / held["hold_s"]
    print(f"  held        {held['hold_s']:.0f} s, {held['lost']} lost, {busy:.1%} of a core")
    print(
        f"  then        one publish each in {held['publish_s']:.2f} s: {sessions / held['publish_s']:,.0f} per second"
    )
    return bool(held["lost"] == 0)


def _resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


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
    parser = argparse.ArgumentParser(description="Figure F3: QoS 1 publishes per core, and sessions held.")
    parser.add_argument("--clients", type=int, nargs="*", default=[100, 4000])
    parser.add_argument("--in-flight", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each round; 0 leaves this part out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hold", type=int, default=0, help="so many sessions in one process; 0 leaves this part out")
    parser.add_argument("--hold-s", type=float, default=60.0)
    parser.add_argument("--tls", action="store_true", help="hold them over TLS")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = parsed(arguments)
    program = find_mosquitto()
    if program is None:
        print("there is no mosquitto: apt-get install mosquitto", file=sys.stderr)
        return 2
    gate = raise_file_limit(max([options.hold, *options.clients]))
    if gate:
        print(gate, file=sys.stderr)
        return 2
    core, broker_core = cores()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.platform()}, Python {platform.python_version()}")
    print(f"generator on core {core}, mosquitto on core {broker_core}")
    ratios: list[float] = []
    is_held = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.seconds:
            with mosquitto(program, folder / "plain", SETTINGS) as broker:
                os.sched_setaffinity(broker.pid, {broker_core})
                ratios += [
                    rates(broker, clients, in_flight, options.seconds, options.rounds)
                    for clients in options.clients
                    for in_flight in options.in_flight
                ]
        if options.hold:
            authority = Authority(folder / "tls") if options.tls else None
            with mosquitto(program, folder / "held", (*SETTINGS, *tls_lines(authority))) as broker:
                os.sched_setaffinity(broker.pid, {broker_core})
                is_held = hold(broker, options.hold, options.hold_s, authority.certificate if authority else None)
    return 0 if is_held and min(ratios, default=BAR) >= BAR else 1


def tls_lines(authority: Authority | None) -> list[str]:
    """The lines of the configuration for TLS with a certificate for ``localhost``."""
    if authority is None:
        return []
    pair = authority.issue("server")
    return [f"cafile {authority.certificate}", f"certfile {pair.certificate}", f"keyfile {pair.key}"]


if __name__ == "__main__":
    raise SystemExit(main())
