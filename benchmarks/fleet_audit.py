"""The audit of a fleet: does it find all that went wrong, does it stay silent when nothing did, and what does it cost?

Method. *Proof*: a local service in a process of its own, data in a SQLite file. Devices send readings in batches, write
them down in a ledger, and everything is audited through the service's plain interface: there must be no finding. Then
the service's file is changed behind its back: readings are deleted, doubled, given another value, and the times of
arrival of two neighbours are exchanged, ``--planted`` of each on as many devices. The audit must name exactly these
readings of exactly these devices. Service and audit are pinned to a core each where the machine has two.

*Cost*: writing down is timed with one reading for each record, what a device without batches does; reading back and
judging with the service's pages as they come over the socket. *Scale*: ``--scale`` readings of 100,000 devices, written
into a ledger and given back by a made-up service in this process, since a real one would need hours for so many; what
is shown is the memory of this process at its highest, and the time for each reading.

    python benchmarks/fleet_audit.py [--devices 1000] [--readings 50] [--planted 100] [--scale 5000000]

0 leaves a part out.

Exit codes: 0 everything planted was found and nothing else, 1 not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import random
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent.wire import paths
from agent.wire.registration import RegisterDevice
from agent.wire.secret import Secret
from agent.wire.times import to_rfc3339
from simulator.fleet.audit.digest import digest_values
from simulator.fleet.audit.file_ledger import FileLedger
from simulator.fleet.audit.fleet_ledger import with_sequence
from simulator.fleet.audit.folder import AuditedDevice, ledger_path, write_devices
from simulator.fleet.audit.ledger_format import LedgerHeader
from simulator.fleet.audit.run_audit import AuditSettings, audit_run
from simulator.fleet.record import AuditRecord
from simulator.fleet.target.client import Keyring, TargetClient, for_each, open_client
from simulator.fleet.target.local import LocalService, running_local
from simulator.keys import Keys
from simulator.wire.products import NewProduct

BATCH = 2
PAUSE_S = 0.004
"""Between two batches of a device: their times of arrival, in milliseconds, must differ for an order to exist."""
KINDS = ("lost", "doubled", "altered", "reordered")
OFFERS = ("batch-sensor-data", "command-results", "command-status", "idempotency-key", "list-parameters", "recorded-at")
SCALE_DEVICES = 100_000


@dataclass(frozen=True, slots=True)
class Plant:
    """One thing that was made wrong.

    Attributes:
        sequence: of the reading that the audit has to name.
    """

    kind: str
    device_id: str
    sequence: int


async def register(desk: TargetClient, count: int) -> list[AuditedDevice]:
    """So many devices of a new product."""
    body = NewProduct(name="Audit benchmark").to_wire()
    product_id = (await desk.ask("POST", paths.PRODUCTS, body)).json()["product_id"]
    found: dict[int, AuditedDevice] = {}

    async def one(number: int) -> None:
        wanted = RegisterDevice(user_id="audit", product_id=product_id, device_identifier=f"AUDIT-{number:06d}")
        answer = await desk.ask("POST", paths.ONBOARDING_DEVICES, wanted.to_wire())
        found[number] = AuditedDevice(number, answer.json()["device_id"], f"audit-{number:06d}")

    await for_each(range(count), one)
    return [found[number] for number in range(count)]


async def send_all(desk: TargetClient, run: Path, devices: Sequence[AuditedDevice], readings: int) -> None:
    """Every device sends its readings in batches, one after the other, and writes them down."""
    began_s, began_ms = time.monotonic(), round(time.time() * 1000)
    write_devices(run, devices)
    header = LedgerHeader(0, 0, len(devices), began_ms, offers=OFFERS)

    def now_s() -> float:
        return time.monotonic() - began_s

    with FileLedger(ledger_path(run, 0), header) as ledger:

        async def one(device: AuditedDevice) -> None:
            draw = random.Random(device.device)
            for first in range(1, readings + 1, BATCH):
                sequences = range(first, min(first + BATCH, readings + 1))
                body = []
                for sequence in sequences:
                    values = {"temperature_celsius": round(draw.gauss(21, 2), 3), "battery_volts": 3.3}
                    recorded_ms = began_ms + round(now_s() * 1000)
                    digest, made_s = digest_values(values), now_s()
                    ledger.reading_made(device.device)
                    ledger.reading_sent(
                        device.device, sequence, digest, recorded_ms=recorded_ms, made_s=made_s, at_s=now_s()
                    )
                    body.append(
                        {
                            "device_id": device.device_id,
                            "sensor_data": with_sequence(values, sequence),
                            "recorded_at": to_rfc3339(recorded_ms / 1000),
                        }
                    )
                await desk.ask("POST", paths.SENSOR_DATA, body)
                ledger.readings_accepted(device.device, sequences, now_s())
                await asyncio.sleep(PAUSE_S)

        await for_each(devices, one)


def plant(database: Path, devices: Sequence[AuditedDevice], readings: int, each: int, seed: int) -> set[Plant]:
    """Change the service's file: ``each`` losses, doubles, alterations and reorders.

    A device gets one of each kind at most, in batches of its own.
    """
    draw = random.Random(seed)
    planted: set[Plant] = set()
    batches = readings // BATCH
    with contextlib.closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        rows: dict[tuple[str, int], tuple[int, int]] = {}
        found = "SELECT d.id, json_extract(r.sensor_data, '$.fleet_sequence'), r.seq, r.received_at"
        for device_id, sequence, row, received in connection.execute(
            f"{found} FROM readings r JOIN devices d ON d.seq = r.device_seq"
        ):
            rows[device_id, int(sequence)] = (row, received)
        chosen = draw.sample(devices, each)
        for device in chosen:
            swapped = draw.randrange(batches - 1)
            others = [number for number in range(batches) if number not in {swapped, swapped + 1}]
            lost, doubled, altered = (_one_of(draw, number) for number in draw.sample(others, 3))
            early, late = _one_of(draw, swapped), _one_of(draw, swapped + 1)
            _delete(connection, rows[device.device_id, lost][0])
            _double(connection, rows[device.device_id, doubled][0])
            _alter(connection, rows[device.device_id, altered][0])
            _swap(connection, rows[device.device_id, early], rows[device.device_id, late])
            named = zip(KINDS, (lost, doubled, altered, early), strict=True)
            planted |= {Plant(kind, device.device_id, sequence) for kind, sequence in named}
    return planted


def _one_of(draw: random.Random, batch: int) -> int:
    return 1 + batch * BATCH + draw.randrange(BATCH)


def _delete(connection: sqlite3.Connection, row: int) -> None:
    connection.execute("DELETE FROM readings WHERE seq = ?", (row,))


def _double(connection: sqlite3.Connection, row: int) -> None:
    columns = "id, manufacturer_seq, device_seq, recorded_at, received_at, sensor_data"
    connection.execute(f"INSERT INTO readings ({columns}) SELECT {columns} FROM readings WHERE seq = ?", (row,))


def _alter(connection: sqlite3.Connection, row: int) -> None:
    changed = (
        "json_set(sensor_data, '$.temperature_celsius', json_extract(sensor_data, '$.temperature_celsius') + 1e-6)"
    )
    connection.execute(f"UPDATE readings SET sensor_data = {changed} WHERE seq = ?", (row,))


def _swap(connection: sqlite3.Connection, early: tuple[int, int], late: tuple[int, int]) -> None:
    if early[1] >= late[1]:
        raise AssertionError("the two readings arrived in the same millisecond: there is no order to exchange")
    for (row, _), (_, received) in ((early, late), (late, early)):
        connection.execute("UPDATE readings SET received_at = ? WHERE seq = ?", (received, row))


def named_by(audit: AuditRecord) -> set[Plant]:
    """What the audit found, in the words of what was planted."""
    return {Plant(each.kind, each.device_id, int(key)) for each in audit.findings for key in each.keys}


async def audit(desk: TargetClient, run: Path, settings: AuditSettings | None = None) -> AuditRecord:
    """Audit through the plain interface."""
    return await audit_run(run, desk.pages, settings or AuditSettings(), lambda _done, _total: None)


@dataclass(frozen=True, slots=True)
class Proof:
    """What came of it.

    Attributes:
        clean: the audit before anything was changed.
        found: the audit afterwards.
        planted: what was changed.
        audit_s: how long the first audit took.
    """

    clean: AuditRecord
    found: AuditRecord
    planted: set[Plant]
    audit_s: float

    @property
    def held(self) -> bool:
        """Everything planted was named, and nothing else, and nothing on the clean run."""
        return self.clean.complete and not self.clean.findings and named_by(self.found) == self.planted


async def prove(
    base_url: str, keys: Keys, database: Path, run: Path, *, devices: int, readings: int, planted: int, seed: int
) -> Proof:
    """Send, audit, plant, audit."""
    async with open_client(base_url, Keyring((keys,)), timeout_s=60) as desk:
        fleet = await register(desk, devices)
        await send_all(desk, run, fleet, readings)
        began_s = time.monotonic()
        clean = await audit(desk, run)
        audit_s = time.monotonic() - began_s
        plants = plant(database, fleet, readings, planted, seed)
        return Proof(clean, await audit(desk, run), plants, audit_s)


def database_in(folder: Path) -> Path:
    """The one SQLite file below a service's folder."""
    (found,) = (path for path in folder.rglob("*") if path.suffix in {".db", ".sqlite", ".sqlite3"})
    return found


def run_proof(devices: int, readings: int, planted: int, seed: int) -> bool:
    """The proof against a service process, printed; whether it held."""
    with tempfile.TemporaryDirectory() as folder, _service_apart(Path(folder) / "up") as standing:
        root = Path(folder)
        api_key, secret = ((standing.key_folder / name).read_text().strip() for name in ("api_key", "secret_key"))
        keys = Keys(api_key, Secret(secret))
        proof = asyncio.run(
            prove(
                standing.base_url,
                keys,
                database_in(root / "up"),
                root / "run",
                devices=devices,
                readings=readings,
                planted=planted,
                seed=seed,
            )
        )
        size = ledger_path(root / "run", 0).stat().st_size
    total = devices * readings
    told = "nothing" if not proof.clean.findings else f"{len(proof.clean.findings)} FINDINGS"
    print(f"clean run, {total:,} readings of {devices:,} devices: {told} found")
    found = named_by(proof.found)
    for kind in KINDS:
        wanted = {each for each in proof.planted if each.kind == kind}
        print(f"planted {kind:9} {len(wanted):5,}, found {len(wanted & found):5,}, missed {len(wanted - found):,}")
    print(f"named although nothing was planted: {len(found - proof.planted)}")
    print(f"ledger: {size / total:.1f} bytes a reading")
    print(f"read back and judged: {proof.audit_s / total * 1e6:.0f} us a reading ({total / proof.audit_s:,.0f}/s)")
    return proof.held


@contextlib.contextmanager
def _service_apart(folder: Path) -> Iterator[LocalService]:
    """A service on the first core; this process on the last one meanwhile."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    _pin(cores[:1])
    with running_local(folder, rate_limit=0, gateway=False) as standing, contextlib.ExitStack() as stack:
        stack.callback(_pin, cores)
        _pin(cores[-1:])
        yield standing


def _pin(cores: Sequence[int]) -> None:
    if cores:
        os.sched_setaffinity(0, set(cores))


def time_writing(count: int = 200_000) -> None:
    """What a reading costs the device that writes it down, printed."""
    values = {"temperature_celsius": 21.53, "relative_humidity_percent": 44.2}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        with FileLedger(path, LedgerHeader(0, 0, SCALE_DEVICES, 0)) as ledger:
            began = time.perf_counter()
            for number in range(count):
                device, sequence, at_s = number % SCALE_DEVICES, 1 + number // SCALE_DEVICES, number / 30_000
                digest = digest_values(values)
                ledger.reading_made(device)
                ledger.reading_sent(device, sequence, digest, recorded_ms=number, made_s=at_s, at_s=at_s)
                ledger.readings_accepted(device, (sequence,), at_s)
            took_s = time.perf_counter() - began
        size = path.stat().st_size
    print(f"written down: {took_s / count * 1e6:.2f} us and {size / count:.1f} bytes a reading, one to a record")


def run_scale(readings: int) -> bool:
    """A ledger of so many readings against a made-up service, printed; whether the one planted loss was found."""
    each = max(1, readings // SCALE_DEVICES)
    total = each * SCALE_DEVICES
    values = {"temperature_celsius": 21.53}
    digest, step_ms = digest_values(values), 60_000
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        devices = [AuditedDevice(number, f"d-{number}", f"scale-{number}") for number in range(SCALE_DEVICES)]
        write_devices(run, devices)
        began = time.monotonic()
        with FileLedger(ledger_path(run, 0), LedgerHeader(0, 0, SCALE_DEVICES, 0, offers=OFFERS)) as ledger:
            for sequence in range(1, each + 1):
                for device in range(SCALE_DEVICES):
                    at_s = sequence * step_ms / 1000 + device / SCALE_DEVICES
                    ledger.reading_sent(
                        device, sequence, digest, recorded_ms=round(at_s * 1000), made_s=at_s, at_s=at_s
                    )
                    ledger.readings_accepted(device, (sequence,), at_s + 0.01)
                ledger.flush()
        written_s, size = time.monotonic() - began, ledger_path(run, 0).stat().st_size
        before_mb = _peak_mb()

        async def pages(path: str, query: Mapping[str, str | int]) -> AsyncIterator[list[Any]]:
            del path
            device = int(str(query["device_id"])[2:])
            yield [
                {
                    "sensor_data": with_sequence(values, sequence),
                    "recorded_at": to_rfc3339(at := sequence * 60 + device / SCALE_DEVICES),
                    "received_at": to_rfc3339(at + 0.005),
                }
                for sequence in range(1, each + 1)
                if (device, sequence) != (SCALE_DEVICES // 2, each)
            ]

        began = time.monotonic()
        found = asyncio.run(audit_run(run, pages, AuditSettings(), lambda _done, _total: None))
        took_s = time.monotonic() - began
    print(f"{total:,} readings: ledger {size / total:.1f} bytes a reading, written at {total / written_s:,.0f}/s")
    print(f"judged at {total / took_s:,.0f}/s; peak memory {_peak_mb():.0f} MB (before the audit {before_mb:.0f} MB)")
    return [(each.kind, each.name) for each in found.findings] == [("lost", f"scale-{SCALE_DEVICES // 2}")]


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """The parts that were asked for; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--readings", type=int, default=50, help="of each device; at least 10")
    parser.add_argument("--planted", type=int, default=100, help="of each kind")
    parser.add_argument("--scale", type=int, default=5_000_000, help="readings against a made-up service")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}, {datetime.now(UTC):%Y-%m-%d}")
    held = True
    time_writing()
    if asked.devices:
        held = run_proof(asked.devices, asked.readings, asked.planted, asked.seed)
    if asked.scale:
        held = run_scale(asked.scale) and held
    print("everything planted was found, and nothing else" if held else "THE AUDIT IS WRONG")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
