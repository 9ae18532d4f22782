"""Figure A4: how fast the agent's store takes readings, and how fast a backlog leaves it.

Method: the store is the agent's own (``Store``: one writer thread, SQLite, every commit flushed with ``fsync``),
on the disk of ``--dir``; the service is ``fleet-simulator service``'s library in a process of its own, with SQLite.

=====================  =====================================================================================
accepted, grouped      one thread hands over readings as fast as it can; the clock stops when the last one is on
                       the disk. The window is the default, 1 s; a commit also comes when 5,000 wait
accepted, each alone   window 0: every call returns after the commit that holds its reading; 1 and 16 threads
drained, arrays        a backlog over HTTP with the extension batch-sensor-data, until the store is empty
drained, one by one    the same with one request for each reading, as a plain server takes them
=====================  =====================================================================================

    python benchmarks/outbox.py [--readings 200000] [--backlog 20000] [--dir FOLDER]

Exit codes: 0 the bars of the figure are reached, 1 they are not.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import logging
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from agent.core.values import Moment, Reading  # noqa: E402
from agent.runtime.clocks import SystemClock  # noqa: E402 - after the path
from agent.store.store import Store  # noqa: E402
from agent.transports.http import Discovery, HttpDevice  # noqa: E402
from agent.wire.client import DeviceClient  # noqa: E402
from agent.wire.secret import KeyPair, Secret  # noqa: E402
from agent.wire.server import BATCH_SENSOR_DATA  # noqa: E402
from benchmarks.service import make_device, service  # noqa: E402

BAR_ACCEPTED, BAR_DRAINED = 20_000, 500
BATCH = 500


def reading(number: int, at: Moment) -> Reading:
    """Three named numbers, 60 bytes of JSON."""
    return Reading({"n": number, "temperature_c": 21.5, "pressure_hpa": 1013.25}, at)


@contextlib.contextmanager
def opened(folder: Path, clock: SystemClock, window_s: float = 1.0) -> Iterator[Store]:
    """A store of its own, removed at the end."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        store = Store(Path(own, "agent.db"), clock=clock, group_window_s=window_s)
        store.start()
        try:
            yield store
        finally:
            store.stop(30.0)


def accepted_grouped(folder: Path, count: int) -> float:
    """Readings a second."""
    clock = SystemClock()
    with opened(folder, clock) as store:
        begun_s = time.perf_counter()
        for number in range(count):
            store.outbox.put(reading(number, clock.now()))
        while store.outbox.stats().rows < count:
            # A commit takes what waits along, a part at a time.
            store.journal.put_setting("benchmark", str(time.perf_counter()))
        return count / (time.perf_counter() - begun_s)


def accepted_alone(folder: Path, count: int, threads: int) -> float:
    """Readings a second, each on the disk when its call returned."""
    clock = SystemClock()
    with opened(folder, clock, 0.0) as store:

        def work() -> None:
            for number in range(count // threads):
                store.outbox.put(reading(number, clock.now()), wait=True)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        begun_s = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        taken_s = time.perf_counter() - begun_s
        assert store.outbox.stats().rows == count // threads * threads
        return count / taken_s


class NoArrays(Discovery):
    """As if the service did not take arrays."""

    def offers(self, extension: str) -> bool:
        """As the service says, but for arrays."""
        return extension != BATCH_SENSOR_DATA and super().offers(extension)


def drained(folder: Path, base_url: str, device_id: str, count: int, make: Callable[..., Discovery]) -> float:
    """Readings a second out of a backlog and into the service."""
    clock = SystemClock()
    with opened(folder, clock) as store, DeviceClient(base_url, keys()) as client:
        now = clock.now()
        old = Moment(now.monotonic_s - 3600.0, now.wall_s - 3600.0, now.boot_id)
        for number in range(count):
            store.outbox.put(reading(number, old))
        while store.outbox.stats().rows < count:
            store.journal.put_setting("benchmark", str(time.perf_counter()))
        uplink = HttpDevice(client, device_id, make(client, clock))
        begun_s = time.perf_counter()
        while batch := store.outbox.next_batch(BATCH):
            outcome = uplink.send(batch)
            if outcome.refused:
                raise RuntimeError(f"the service refused readings: {next(iter(outcome.refused.values()))}")
            store.outbox.settle(outcome)
        return count / (time.perf_counter() - begun_s)


def keys() -> KeyPair:
    """Of the service in the other process."""
    return KeyPair("mk_benchmark", Secret("msk_benchmark"))


def main() -> int:
    """Measure, print the table; 1 when a bar is missed."""
    logging.disable(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readings", type=int, default=200_000, help="accepted in the grouped run")
    parser.add_argument("--backlog", type=int, default=20_000, help="drained with arrays; a tenth one by one")
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="on the disk to measure")
    options = parser.parse_args()
    grouped = max(accepted_grouped(options.dir, options.readings) for _ in range(3))
    alone = {threads: accepted_alone(options.dir, 2_000, threads) for threads in (1, 16)}
    with tempfile.TemporaryDirectory(dir=options.dir) as folder, service(Path(folder)) as own:
        device_id = make_device(own.url)
        arrays = drained(options.dir, own.url, device_id, options.backlog, Discovery)
        singly = drained(options.dir, own.url, device_id, options.backlog // 10, NoArrays)
    rows = [
        ("accepted, grouped, the best of 3", f"{grouped:,.0f}/s", f">= {BAR_ACCEPTED:,}/s"),
        ("accepted, each alone, 1 thread", f"{alone[1]:,.0f}/s", ""),
        ("accepted, each alone, 16 threads", f"{alone[16]:,.0f}/s", ""),
        ("drained over HTTP, arrays", f"{arrays:,.0f}/s", f">= {BAR_DRAINED}/s"),
        ("drained over HTTP, one by one", f"{singly:,.0f}/s", ""),
    ]
    today = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {today}\n")
    for name, found, bar in rows:
        print(f"{name:<36} {found:>14}   {bar}")
    return 0 if grouped >= BAR_ACCEPTED and arrays >= BAR_DRAINED else 1


if __name__ == "__main__":
    sys.exit(main())
