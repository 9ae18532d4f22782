"""The service with a large database behind it: what a device and a page ask for must not grow with what is stored.

Method: two services, each one process on a SQLite file of its own: a small one (100 devices with 10 readings each, so
that both answer pages of the same length) and a large one (100,000 devices, 10 million readings by default), filled by
SQL in the shape in which the service stores them. One connection asks one after the other: the device's poll
(``GET /devices/{id}/commands?status=open``), a device's latest readings (``GET /sensor-data?device_id=...&limit=10``)
and a page of 100 devices from the middle of the list. Runs are interleaved; the median of the runs' median latencies
counts. The plain poll is answered from memory while nothing changes; "poll, made anew" is the same poll in words that
are not kept. With ``--postgresql`` both databases lie on a PostgreSQL of their own.

    python benchmarks/service_scale.py [--postgresql] [--devices 100000] [--readings 10000000] [--seconds 2] [--runs 3]
                                       [--dir FOLDER]

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
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._load_client import load
from benchmarks.service_ingest import KEYS, SERVICE, machine, make_device, server
from tests.postgresql import cluster, find_programs

if TYPE_CHECKING:
    import psycopg

Row = tuple[Any, ...]

BAR = 3.0
SMALL_DEVICES, SMALL_READINGS = 100, 1_000
FIRST = "SELECT manufacturer_seq, product_id, seq FROM devices ORDER BY seq LIMIT 1"
DEVICE = "seq, id, manufacturer_seq, product_id, user_id, device_name, device_identifier, created_at, updated_at"
READING = "id, manufacturer_seq, device_seq, recorded_at, received_at, sensor_data"
SENSOR_DATA = '{"temperature_c":21.5,"humidity":40.25}'
_ROWS_AT_ONCE = 100_000
_PAGE = 100


def device_rows(first: Row, devices: int, now_ms: int) -> Iterator[Row]:
    """Further devices of the first one's account and product."""
    account, product_id, seq = first
    for n in range(1, devices):
        yield seq + n, f"device-{n:012d}", account, product_id, "crowd", "n", f"SN-{n:012d}", now_ms, now_ms


def reading_rows(first: Row, devices: int, readings: int, now_ms: int) -> Iterator[Row]:
    """Readings spread evenly over the devices, one a minute for each of them."""
    account, _, seq = first
    minutes = -(-readings // devices)
    for n in range(readings):
        at_ms = now_ms - (minutes - n // devices) * 60_000
        yield f"reading-{n:012d}", account, seq + n % devices, at_ms, at_ms, SENSOR_DATA


def fill(where: str, devices: int, readings: int) -> None:
    """Give an existing database these devices and readings."""
    now_ms = int(time.time() * 1000)
    if "://" not in where:
        with contextlib.closing(sqlite3.connect(Path(where) / "service.db", isolation_level=None)) as file:
            file.execute("PRAGMA synchronous = OFF")
            first = file.execute(FIRST).fetchone()
            _insert(file, "devices", DEVICE, device_rows(first, devices, now_ms))
            _insert(file, "readings", READING, reading_rows(first, devices, readings, now_ms))
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    import psycopg

    with psycopg.connect(where, autocommit=True) as connection:
        found = connection.execute(FIRST).fetchone()
        assert found is not None
        _copy(connection, "devices", DEVICE, device_rows(found, devices, now_ms))
        connection.execute("SELECT setval('devices_seq_seq', (SELECT max(seq) FROM devices))")
        _copy(connection, "readings", READING, reading_rows(found, devices, readings, now_ms))
        connection.execute("VACUUM ANALYZE")


def _insert(file: sqlite3.Connection, table: str, names: str, rows: Iterator[Row]) -> None:
    marks = ",".join("?" * len(names.split(",")))
    while some := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        file.execute("BEGIN")
        file.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", some)
        file.execute("COMMIT")


def _copy(connection: psycopg.Connection, table: str, names: str, rows: Iterator[Row]) -> None:
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def make_database(where: str, devices: int, readings: int) -> str:
    """A database of this size, made by the service itself and then filled; the id of its first device."""
    with server(SERVICE, where) as base_url:
        device_id = make_device(base_url)
    fill(where, devices, readings)
    return device_id


@contextlib.contextmanager
def two_places(folder: Path, *, on_postgresql: bool) -> Iterator[tuple[str, str]]:
    """Where the small and the large database lie: folders, or URLs."""
    if not on_postgresql:
        places = [folder / "small", folder / "large"]
        for place in places:
            place.mkdir()
        yield str(places[0]), str(places[1])
        return
    programs = find_programs()
    if programs is None:
        raise SystemExit("no PostgreSQL is installed: apt-get install postgresql")
    with cluster(programs, durable=True) as own, own.database() as small, own.database() as large:
        yield small, large


def questions(base_url: str, device_id: str, devices: int) -> dict[str, str]:
    """What is asked: name -> URL."""
    middle = _cursor_to(base_url, devices // 2 // _PAGE) if devices > 2 * _PAGE else ""
    return {
        "device poll": f"{base_url}/devices/{device_id}/commands?status=open",
        "poll, made anew": f"{base_url}/devices/{device_id}/commands?status=open&limit={_PAGE}",
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


def measure(small: str, large: str, given: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Question -> median latency with the small and with the large database, ms."""
    small_id = make_database(small, SMALL_DEVICES, SMALL_READINGS)
    begun_s = time.monotonic()
    large_id = make_database(large, given.devices, given.readings)
    print(f"filled in {time.monotonic() - begun_s:.0f} s\n")
    found: dict[str, tuple[list[float], list[float]]] = {}
    with server(SERVICE, small) as small_url, server(SERVICE, large) as large_url:
        of_small = questions(small_url, small_id, SMALL_DEVICES)
        of_large = questions(large_url, large_id, given.devices)
        for _ in range(given.runs):
            for name in of_small:
                for url, times in zip((of_small[name], of_large[name]), found.setdefault(name, ([], [])), strict=True):
                    result = load(url, headers=KEYS, body=None, connections=1, seconds=given.seconds)
                    if set(result.statuses) != {"200"}:
                        raise RuntimeError(f"{name} answered {result.statuses}")
                    times.append(result.latency_ms["p50"])
    return {name: (statistics.median(few), statistics.median(many)) for name, (few, many) in found.items()}


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="The service with a large database behind it.")
    parser.add_argument("--postgresql", action="store_true", help="on a PostgreSQL of its own instead of SQLite files")
    parser.add_argument("--devices", type=int, default=100_000)
    parser.add_argument("--readings", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=2, help="length of one run")
    parser.add_argument("--runs", type=int, default=3, help="runs of each question")
    parser.add_argument("--dir", type=Path, help="where the files lie; the large one takes some GB")
    given = parser.parse_args()
    where = "PostgreSQL" if given.postgresql else "SQLite"
    size = f"{given.devices:,} devices, {given.readings:,} readings"
    print(f"service scale, {dt.datetime.now(dt.UTC):%Y-%m-%d}: {size}, {where}")
    print(f"machine: {machine()}")
    with (
        tempfile.TemporaryDirectory(dir=given.dir) as folder,
        two_places(Path(folder), on_postgresql=given.postgresql) as (small, large),
    ):
        found = measure(small, large, given)
    print(f"{'question':<18}{'small, ms':>11}{'large, ms':>11}{'ratio':>8}")
    for name, (small_ms, large_ms) in found.items():
        print(f"{name:<18}{small_ms:>11.2f}{large_ms:>11.2f}{large_ms / small_ms:>7.2f} x")
    worst = max(large_ms / small_ms for small_ms, large_ms in found.values())
    print(f"\nbar {BAR:g} x: worst {worst:.2f} x")
    sys.exit(0 if worst <= BAR else 1)


if __name__ == "__main__":
    main()
