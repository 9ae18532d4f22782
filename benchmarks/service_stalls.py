"""An expensive query and everybody else: what a request waits for while others add up a whole database.

Method: one service process with a database of 100 devices and 80,000 readings, filled by SQL. Four kinds of request are
sent one after the other, each 20 ms after the one before: a device's poll that is made anew, a device's latest
readings, a page of devices, and a reading to store. Beside them 0, 1 and 4 clients ask without a pause for the sum of
all readings in intervals of a minute (``GET /sensor-data?agg=avg&interval=60``). The longest time of each kind is
compared with that of a run without such clients, right before. ``--postgresql`` takes a PostgreSQL of its own.

    python benchmarks/service_stalls.py [--postgresql] [--seconds 10] [--runs 3]

Exit codes: 0 nobody waits more than 50 ms longer, by the median of the runs; 1 somebody does.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import http.client
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.service_ingest import KEYS, SERVICE, machine, server
from benchmarks.service_scale import make_database
from tests.postgresql import cluster, find_programs

BAR_MS = 50.0
DEVICES, READINGS = 100, 80_000
CLIENTS = (0, 1, 4)
PAUSE_S = 0.02
SUMMARY = "/sensor-data?agg=avg&interval=60&limit=1000"


def main() -> int:
    """The benchmark."""
    parser = argparse.ArgumentParser(description="What others wait for while somebody asks for sums.")
    parser.add_argument("--postgresql", action="store_true", help="on a PostgreSQL of its own")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run (default 10)")
    parser.add_argument("--runs", type=int, default=3, help="so often, in turns (default 3)")
    options = parser.parse_args()
    found: dict[int, dict[str, list[float]]] = {count: {} for count in CLIENTS}
    with place(on_postgresql=options.postgresql) as where:
        device_id = make_database(where, DEVICES, READINGS)
        with server(SERVICE, where) as base_url:
            for _ in range(options.runs):
                for count in CLIENTS:
                    for kind, longest_ms in run(base_url, device_id, count, options.seconds).items():
                        found[count].setdefault(kind, []).append(longest_ms)
    kind_of_store = "PostgreSQL" if options.postgresql else "SQLite on disk"
    print(f"{kind_of_store}, {READINGS:,} readings; {machine()}; {dt.datetime.now(dt.UTC).date()}")
    print(f"{'longest of a run, ms; median of the runs':<42}" + "".join(f"{f'{n} clients':>12}" for n in CLIENTS))
    held = True
    for kind, alone in found[0].items():
        middles = [statistics.median(found[count][kind]) for count in CLIENTS]
        held = held and max(middles) <= statistics.median(alone) + BAR_MS
        print(f"{kind:<42}" + "".join(f"{middle:>12.1f}" for middle in middles))
    print(f"bar: {BAR_MS:g} ms more than without such clients: {'held' if held else 'MISSED'}")
    return 0 if held else 1


@contextlib.contextmanager
def place(*, on_postgresql: bool) -> Iterator[str]:
    """Where the database lies: a folder, or a URL."""
    if not on_postgresql:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    programs = find_programs()
    if programs is None:
        raise SystemExit("no PostgreSQL is installed: apt-get install postgresql")
    with cluster(programs, durable=True) as own, own.database() as url:
        yield url


def run(base_url: str, device_id: str, clients: int, seconds: float) -> dict[str, float]:
    """The longest time of each kind of request, ms, beside so many clients that ask for sums."""
    context = multiprocessing.get_context("spawn")
    ended = context.Event()
    askers = [context.Process(target=ask_for_sums, args=(base_url, ended)) for _ in range(clients)]
    for asker in askers:
        asker.start()
    try:
        time.sleep(1.0)
        return measure(base_url, device_id, seconds)
    finally:
        ended.set()
        for asker in askers:
            asker.join()


def ask_for_sums(base_url: str, ended: Event) -> None:
    """Ask for sums without a pause, until the end."""
    connection = http.client.HTTPConnection(urlsplit(base_url).netloc)
    while not ended.is_set():
        connection.request("GET", SUMMARY, headers=KEYS)
        answer = connection.getresponse()
        answer.read()
        if answer.status != http.client.OK:
            raise RuntimeError(f"GET {SUMMARY}: {answer.status}")


def measure(base_url: str, device_id: str, seconds: float) -> dict[str, float]:
    """Send one kind after the other; the longest time of each, ms."""
    reading = json.dumps({"device_id": device_id, "sensor_data": {"temperature_c": 21.5}})
    kinds = {
        "a device's poll, made anew": ("GET", f"/devices/{device_id}/commands?status=open&limit=100", None),
        "a device's latest readings": ("GET", f"/sensor-data?device_id={device_id}&limit=10", None),
        "a page of devices": ("GET", "/devices?limit=100", None),
        "a reading to store": ("POST", "/sensor-data", reading),
    }
    longest = dict.fromkeys(kinds, 0.0)
    connection = http.client.HTTPConnection(urlsplit(base_url).netloc)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for kind, (method, path, body) in kinds.items():
            began = time.perf_counter()
            connection.request(method, path, body, {**KEYS, "content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            longest[kind] = max(longest[kind], (time.perf_counter() - began) * 1000)
            if answer.status >= http.client.BAD_REQUEST:
                raise RuntimeError(f"{method} {path}: {answer.status}")
            time.sleep(PAUSE_S)
    return longest


if __name__ == "__main__":
    sys.exit(main())
