"""The service with a large database behind it: what a device and a page ask for must not grow with what is stored.

Method: two services, each one process on a SQLite file of its own: a small one (100 devices with 10 readings each, so
that both answer pages of the same length) and a large one (100,000 devices, 10 million readings by default), filled by
SQL in the shape in which the service stores them. One connection asks one after the other: the device's poll
(``GET /devices/{id}/commands?status=open``), a device's latest readings (``GET /sensor-data?device_id=...&limit=10``)
and a page of 100 devices from the middle of the list. Runs are interleaved; the median of the runs' median latencies
counts.

    python benchmarks/service_scale.py [--devices 100000] [--readings 10000000] [--seconds 2] [--runs 3] [--dir FOLDER]

Exit codes: 0 each within 3 x the small database's time, 1 not.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import itertools
import json
import sqlite3
import statistics
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.load_client import load
from benchmarks.service_ingest import KEYS, SERVICE, machine, make_device, server

BAR = 3.0
SMALL_DEVICES, SMALL_READINGS = 100, 1_000
_ROWS_AT_ONCE = 100_000
_PAGE = 100


def fill(folder: Path, devices: int, readings: int) -> None:
    """Give an existing database devices, and readings spread evenly over them, one a minute for each device."""
    now_ms = int(time.time() * 1000)
    with contextlib.closing(sqlite3.connect(folder / "service.db", isolation_level=None)) as file:
        file.execute("PRAGMA synchronous = OFF")
        account, product_id, first = file.execute(
            "SELECT manufacturer_seq, product_id, seq FROM devices ORDER BY seq LIMIT 1"
        ).fetchone()
        names = "seq, id, manufacturer_seq, product_id, user_id, device_name, device_identifier, created_at, updated_at"
        rows: Iterator[tuple[object, ...]] = (
            (first + n, f"device-{n:012d}", account, product_id, "crowd", "n", f"SN-{n:012d}", now_ms, now_ms)
            for n in range(1, devices)
        )
        _insert(file, f"INSERT INTO devices ({names}) VALUES (?,?,?,?,?,?,?,?,?)", rows)
        names = "id, manufacturer_seq, device_seq, recorded_at, received_at, sensor_data"
        minutes = -(-readings // devices)
        rows = (
            (f"reading-{n:012d}", account, first + n % devices, at_ms, at_ms, '{"temperature_c":21.5,"humidity":40.25}')
            for n in range(readings)
            for at_ms in [now_ms - (minutes - n // devices) * 60_000]
        )
        _insert(file, f"INSERT INTO readings ({names}) VALUES (?,?,?,?,?,?)", rows)
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _insert(file: sqlite3.Connection, sql: str, rows: Iterator[tuple[object, ...]]) -> None:
    while True:
        some = list(itertools.islice(rows, _ROWS_AT_ONCE))
        if not some:
            return
        file.execute("BEGIN")
        file.executemany(sql, some)
        file.execute("COMMIT")


def make_database(folder: Path, devices: int, readings: int) -> str:
    """A database of this size, made by the service itself and then filled; the id of its first device."""
    folder.mkdir()
    with server(SERVICE, str(folder)) as base_url:
        device_id = make_device(base_url)
    fill(folder, devices, readings)
    return device_id


def questions(base_url: str, device_id: str, devices: int) -> dict[str, str]:
    """What is asked: name -> URL."""
    middle = _cursor_to(base_url, devices // 2 // _PAGE) if devices > 2 * _PAGE else ""
    return {
        "device poll": f"{base_url}/devices/{device_id}/commands?status=open",
        "latest readings": f"{base_url}/sensor-data?device_id={device_id}&limit=10",
        "page of devices": f"{base_url}/devices?limit={_PAGE}{middle}",
    }


def _cursor_to(base_url: str, pages: int) -> str:
    cursor = ""
    for _ in range(max(1, pages // 10)):  # pages of a thousand
        request = urllib.request.Request(f"{base_url}/devices?limit=1000{cursor}", headers=KEYS)
        with urllib.request.urlopen(request, timeout=30) as answer:
            cursor = f"&cursor={urllib.parse.quote(json.load(answer)['next_cursor'])}"
    return cursor


def measure(folder: Path, devices: int, readings: int, seconds: float, runs: int) -> dict[str, tuple[float, float]]:
    """Question -> median latency with the small and with the large database, ms."""
    small_id = make_database(folder / "small", SMALL_DEVICES, SMALL_READINGS)
    begun_s = time.monotonic()
    large_id = make_database(folder / "large", devices, readings)
    size_gb = (folder / "large" / "service.db").stat().st_size / 1e9
    print(f"filled in {time.monotonic() - begun_s:.0f} s, {size_gb:.1f} GB\n")
    found: dict[str, tuple[list[float], list[float]]] = {}
    with server(SERVICE, str(folder / "small")) as small, server(SERVICE, str(folder / "large")) as large:
        asked = list(
            zip(
                questions(small, small_id, SMALL_DEVICES).items(),
                questions(large, large_id, devices).values(),
                strict=True,
            )
        )
        for _ in range(runs):
            for (name, small_url), large_url in asked:
                for url, times in zip((small_url, large_url), found.setdefault(name, ([], [])), strict=True):
                    result = load(url, headers=KEYS, body=None, connections=1, seconds=seconds)
                    if set(result.statuses) != {"200"}:
                        raise RuntimeError(f"{name} answered {result.statuses}")
                    times.append(result.latency_ms["p50"])
    return {name: (statistics.median(few), statistics.median(many)) for name, (few, many) in found.items()}


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="The service with a large database behind it.")
    parser.add_argument("--devices", type=int, default=100_000)
    parser.add_argument("--readings", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=2, help="length of one run")
    parser.add_argument("--runs", type=int, default=3, help="runs of each question")
    parser.add_argument("--dir", type=Path, help="where the files lie; the large one takes some GB")
    given = parser.parse_args()
    print(f"service scale, {dt.datetime.now(dt.UTC):%Y-%m-%d}: {given.devices:,} devices, {given.readings:,} readings")
    print(f"machine: {machine()}")
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        found = measure(Path(folder), given.devices, given.readings, given.seconds, given.runs)
    print(f"{'question':<18}{'small, ms':>11}{'large, ms':>11}{'ratio':>8}")
    for name, (small_ms, large_ms) in found.items():
        print(f"{name:<18}{small_ms:>11.2f}{large_ms:>11.2f}{large_ms / small_ms:>7.2f} x")
    worst = max(large_ms / small_ms for small_ms, large_ms in found.values())
    print(f"\nbar {BAR:g} x: worst {worst:.2f} x")
    sys.exit(0 if worst <= BAR else 1)


if __name__ == "__main__":
    main()
