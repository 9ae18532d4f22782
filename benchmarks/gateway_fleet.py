"""A real gateway between a fleet and a real service with a quota, beside what the simulation says of the same fleet.

Method: the service (``fleet-simulator service --rate-limit``) and the gateway run as processes, data on the disk. All
devices have tokens, and send a reading every five minutes to the gateway over HTTP; commands are sent to random devices
at random moments, with the same key, as the manufacturer's own software would. The gateway does not use the stream of
events unless ``--events`` is given: polling is the hard case. Beforehand the devices are registered with the quota off.
How long a command took stands in the service's own records (``delivered_at`` minus ``created_at``). The simulation
(:mod:`benchmarks._gateway_model`) gets the same numbers, and its longest time is the bound for the real one.

    python benchmarks/gateway_fleet.py [--devices 5000] [--quota 1000] [--minutes 20] [--events]

Exit codes: 0 at most 1 % of the requests got 429 and commands kept to the bound, 1 not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import secrets
import socket
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent.core.schedule import phase_s
from benchmarks._gateway_model import Outcome, Scenario, simulate
from gateway.core.fair_polling import FairIntervals
from gateway.devices.token_file import FILE_NAME as TOKENS
from gateway.devices.token_file import DeviceTokenFile
from gateway.devices.tokens import make_token
from simulator.children import ChildProcess, program_path

REFUSED_BAR = 0.01
MEASURED_PART = 0.4
READING_EVERY_S = 300.0
KEYS = {"x-api-key": "mk_benchmark", "x-secret-key": "msk_benchmark"}
# What the simulation does not know: threads, a disk, a machine with other work.
SLACK_S, SLACK = 5.0, 1.25
_READY_S = 60.0
_ADDRESS = re.compile(r"https?://[^\s]+")


@dataclass(frozen=True, slots=True)
class Proof:
    """What came of it; durations in seconds, ascending.

    Attributes:
        commands_s: of the commands that could be expected to have arrived by the end, how long they took; infinite for
            one that had not come.
        readings_s: from reading to the service.
        requests: that the gateway made; ``refused`` of them got 429.
        predicted: by the simulation.
    """

    commands_s: tuple[float, ...]
    readings_s: tuple[float, ...]
    requests: int
    refused: int
    predicted: Outcome

    @property
    def refused_share(self) -> float:
        """429s among the gateway's requests."""
        return self.refused / max(1, self.requests)

    @property
    def bound_s(self) -> float:
        """No command may take longer."""
        return SLACK * self.predicted.commands.max_s + SLACK_S

    @property
    def holds(self) -> bool:
        """Few enough 429s, and commands within the bound."""
        return self.refused_share <= REFUSED_BAR and bool(self.commands_s) and self.commands_s[-1] <= self.bound_s


def prove(
    devices: int,
    quota: int,
    run_s: float,
    *,
    folder: Path,
    events: bool = False,
    commands_per_min: float = 20.0,
    idle_s: float = 60.0,
    reading_every_s: float = READING_EVERY_S,
    ports: tuple[int, int] | None = None,
) -> Proof:
    """Run it.

    Args:
        devices: in the fleet.
        quota: requests a minute.
        run_s: how long; commands sent in the first part of it count, and have the rest to arrive.
        folder: for data and logs.
        events: the gateway takes the service's stream of commands.
        commands_per_min: sent to the whole fleet.
        idle_s: the gateway's ``commands.idle_s``.
        reading_every_s: of each device.
        ports: of the gateway's front and metrics; by default any that nobody listens on.
    """
    measured_s = MEASURED_PART * run_s
    per_day = commands_per_min * 1440 / devices
    scenario = Scenario(
        devices,
        quota,
        events=events,
        batches=True,
        commands_per_device_day=per_day,
        reading_every_s=reading_every_s,
        warm_up_s=0.0,
        # A few hundred commands even where the real run has a few: a bound is a rare thing.
        measured_s=max(measured_s, 300 * 60 / commands_per_min),
        drain_s=run_s - measured_s,
        others_per_s=commands_per_min / 60,
        intervals=FairIntervals(idle_s=idle_s),
    )
    predicted = simulate(scenario)
    with service(folder, rate_limit=0) as base_url:
        ids = register(base_url, devices)
    commands: dict[str, object] = {"events": "auto" if events else "off", "idle_s": idle_s}
    with (
        service(folder, rate_limit=quota) as base_url,
        gateway(folder, base_url, ids, ports, commands=commands) as addresses,
    ):
        began_s = time.time()
        use(base_url, addresses, run_s, commands_per_min, reading_every_s)
        requests, refused = read_metrics(addresses.metrics)
    commands_s, readings_s = measured(folder, began_s * 1000, (began_s + measured_s) * 1000)
    return Proof(commands_s, readings_s, requests, refused, predicted)


# --- processes --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def service(folder: Path, *, rate_limit: int) -> Iterator[str]:
    """The service on data in this folder; its base URL."""
    secret = folder / "secret_key"
    secret.write_text(KEYS["x-secret-key"])
    secret.chmod(0o600)
    output = folder / "service.out"
    child = ChildProcess("service", folder / "service.log", output)
    options = ["--port=0", f"--data={folder / 'data'}", f"--api-key={KEYS['x-api-key']}", f"--rate-limit={rate_limit}"]
    child.start(
        [
            str(program_path("fleet-simulator")),
            "service",
            *options,
            f"--secret-key-file={secret}",
            "--log-level=warning",
        ]
    )
    try:
        child.wait_until(lambda: _ADDRESS.search(output.read_text()) is not None, "it printed its address", _READY_S)
        found = _ADDRESS.search(output.read_text())
        assert found is not None
        yield found.group().rstrip("/")
    finally:
        child.end()


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the gateway is, the devices' tokens, and its process."""

    front: str
    metrics: str
    tokens: dict[str, str]
    pid: int


@contextlib.contextmanager
def gateway(
    folder: Path,
    base_url: str,
    ids: Sequence[str],
    ports: tuple[int, int] | None = None,
    **sections: dict[str, object],
) -> Iterator[Addresses]:
    """The gateway, serving these devices; ``sections`` go into its configuration."""
    state = folder / "gateway"
    state.mkdir(mode=0o700)
    new = {device_id: make_token(secrets.token_bytes) for device_id in ids}
    with DeviceTokenFile(state / TOKENS) as file:
        file.issue(new, time.time())
    for name in ("api", "secret"):
        path = folder / f"{name}_key"
        path.write_text(KEYS[f"x-{name}-key"])
        path.chmod(0o600)
    front, metrics = ports or (free_port(), free_port())
    config = {
        "service": {"base_url": base_url},
        "auth": {f"{name}_key_file": str(folder / f"{name}_key") for name in ("api", "secret")},
        "state_dir": str(state),
        "http": {"port": front},
        "metrics": {"port": metrics},
        **sections,
    }
    (folder / "gateway.yaml").write_text(json.dumps(config))
    child = ChildProcess("gateway", folder / "gateway.log")
    child.start([str(program_path("device-gateway")), "run", "--config", str(folder / "gateway.yaml")])
    try:
        child.wait_until(lambda: _listens(front) and _listens(metrics), "it served", _READY_S)
        tokens = {device_id: each.token.reveal() for device_id, each in new.items()}
        yield Addresses(f"http://127.0.0.1:{front}", f"http://127.0.0.1:{metrics}/metrics", tokens, child.pid or 0)
    finally:
        child.end()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# --- the fleet and the manufacturer -----------------------------------------------------------------------------------


def _post(url: str, body: object, headers: dict[str, str]) -> dict[str, str]:
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {**headers, "content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, str] = json.load(answer)
        return found


def register(base_url: str, devices: int) -> list[str]:
    """So many new devices of a new product; their ids."""
    product_id = _post(f"{base_url}/products", {"name": "benchmark"}, KEYS)["product_id"]
    body = {"user_id": "benchmark", "product_id": product_id}
    names = (f"SN-{number:06d}" for number in range(devices))
    return [
        _post(
            f"{base_url}/onboarding/device",
            {**body, "device_identifier": name, "device_name": name, "qr_info": {}},
            KEYS,
        )["device_id"]
        for name in names
    ]


def use(base_url: str, at: Addresses, run_s: float, commands_per_min: float, reading_every_s: float) -> None:
    """Readings and commands for so long."""
    front, tokens = at.front, at.tokens
    began_s = time.monotonic()
    stop = threading.Event()

    def read() -> None:
        due = sorted((phase_s(device_id, "reading", reading_every_s), device_id) for device_id in tokens)
        for round_s in range(0, int(run_s) + 1, int(reading_every_s)):
            for at_s, device_id in due:
                if stop.wait(max(0.0, began_s + round_s + at_s - time.monotonic())):
                    return
                body = {"device_id": device_id, "sensor_data": {"temperature_c": 21.5}}
                _post(f"{front}/sensor-data", body, {"authorization": f"Bearer {tokens[device_id]}"})

    reader = threading.Thread(target=read, name="readings")
    reader.start()
    try:
        rng, ids = random.Random(1), list(tokens)
        while True:
            pause_s = rng.expovariate(commands_per_min / 60)
            left_s = began_s + run_s - time.monotonic()
            time.sleep(max(0.0, min(pause_s, left_s)))
            if pause_s >= left_s:
                return
            body = {"device_id": rng.choice(ids), "command_payload": {"command": "ping"}, "ttl_seconds": 86_400}
            with contextlib.suppress(urllib.error.HTTPError):  # the manufacturer's own request may be one too many
                _post(f"{base_url}/commands/send", body, KEYS)
    finally:
        stop.set()
        reader.join()


# --- what came of it --------------------------------------------------------------------------------------------------


def read_metrics(url: str) -> tuple[int, int]:
    """The gateway's requests, and how many of them got 429."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    requests = sum(float(line.split()[1]) for line in lines if line.startswith("device_gateway_requests_total{"))
    refused = sum(float(line.split()[1]) for line in lines if line.startswith("device_gateway_requests_refused_total "))
    return int(requests), int(refused)


def measured(folder: Path, from_ms: float, until_ms: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """How long commands sent in this time took, and readings, out of the service's database."""
    [path] = (folder / "data").glob("*.db")
    with contextlib.closing(sqlite3.connect(path)) as database:
        commands = database.execute(
            "SELECT created_at, delivered_at FROM commands WHERE created_at BETWEEN ? AND ?", (from_ms, until_ms)
        ).fetchall()
        readings = database.execute("SELECT recorded_at, received_at FROM readings").fetchall()
    took = sorted(float("inf") if came is None else (came - sent) / 1000 for sent, came in commands)
    return tuple(took), tuple(sorted((received - recorded) / 1000 for recorded, received in readings))


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--devices", type=int, default=5_000)
    parser.add_argument("--quota", type=int, default=1_000)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--commands-per-min", type=float, default=20.0)
    parser.add_argument("--events", action="store_true", help="let the gateway use the service's stream of commands")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        proof = prove(
            given.devices,
            given.quota,
            60 * given.minutes,
            events=given.events,
            commands_per_min=given.commands_per_min,
            folder=Path(folder),
        )
    predicted = proof.predicted.commands
    print(f"{given.devices:,} devices, quota {given.quota:,} a minute, {'events' if given.events else 'polling'}")
    print(f"requests {proof.requests:,}, of them 429: {proof.refused} ({100 * proof.refused_share:.2f} %, bar 1 %)")
    print(f"{'command':>12} {'p50':>9} {'p99':>9} {'longest':>9}   seconds, {len(proof.commands_s)} commands")
    for name, values in (
        ("measured", (percentile(proof.commands_s, 0.5), percentile(proof.commands_s, 0.99), proof.commands_s[-1])),
        ("simulated", (predicted.at(0.5), predicted.at(0.99), predicted.max_s)),
    ):
        print(f"{name:>12} {values[0]:9.1f} {values[1]:9.1f} {values[2]:9.1f}")
    late_s = (statistics.median(proof.readings_s), percentile(proof.readings_s, 0.99))
    print(f"readings p50 {late_s[0]:.1f} s, p99 {late_s[1]:.1f} s, {len(proof.readings_s):,} stored")
    print("holds" if proof.holds else f"FAILED: the bound for a command is {proof.bound_s:.1f} s")
    return 0 if proof.holds else 1


def percentile(ascending: Sequence[float], part: float) -> float:
    """What this part of them do not exceed."""
    return ascending[min(len(ascending) - 1, int(part * len(ascending)))]


if __name__ == "__main__":
    raise SystemExit(main())
