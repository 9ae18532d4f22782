"""Figure A4: how fast the agent's store takes readings, and how fast a backlog leaves it; and three days offline.

Method: the store is the agent's own (``Store``: one writer thread, SQLite, every commit flushed with ``fsync``),
on the disk of ``--dir``; the service is ``fleet-simulator service``'s library in a process of its own, with SQLite.

=====================  =====================================================================================
accepted, grouped      one thread hands over readings as fast as it can; the clock stops when the last one is on
                       the disk. The window is the default, 1 s; a commit also comes when 5,000 wait
accepted, each alone   window 0: every call returns after the commit that holds its reading; 1 and 16 threads
drained, arrays        a backlog over HTTP with the extension batch-sensor-data, until the store is empty
drained, one by one    the same with one request for each reading, as a plain server takes them
72 hours offline       one reading a second on virtual time into a real file, a try to send every 300 s; then the
                       drain into a service that only counts. Memory is the resident set, against after the first hour
=====================  =====================================================================================

    python benchmarks/outbox.py [--readings 200000] [--backlog 20000] [--hours 72] [--dir FOLDER]

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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from agent.core.values import BatchKey, Moment, Reading, Report, SendOutcome, StoredReading  # noqa: E402
from agent.errors import TransportError  # noqa: E402
from agent.runtime.clocks import SystemClock  # noqa: E402 - after the path
from agent.runtime.health import Health  # noqa: E402
from agent.runtime.sending import ReadingStream, SendParts  # noqa: E402
from agent.store.store import Store  # noqa: E402
from agent.transports.discovery import Discovery  # noqa: E402
from agent.transports.http_uplink import HttpUplink  # noqa: E402
from agent.wire.auth import KeyPair  # noqa: E402
from agent.wire.client import DeviceClient  # noqa: E402
from agent.wire.extensions import BATCH_SENSOR_DATA  # noqa: E402
from agent.wire.secret import Secret  # noqa: E402
from benchmarks.service import make_device, service  # noqa: E402
from tests.support.threadless import ThreadlessService  # noqa: E402

BAR_ACCEPTED, BAR_DRAINED = 20_000, 500
BATCH = 500
MIB = 1024**2


class VirtualClock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.moment = Moment(1000.0, time.time(), "benchmark")

    def now(self) -> Moment:
        """See :class:`agent.ports.Clock`."""
        return self.moment

    def advance(self, seconds: float) -> None:
        """Both clocks go on."""
        now = self.moment
        self.moment = Moment(now.monotonic_s + seconds, now.wall_s + seconds, now.boot_id)


class CountingService:
    """Away at first; then it takes everything and counts."""

    def __init__(self) -> None:
        self.is_away = True
        self.taken = 0

    def send(self, readings: Sequence[StoredReading], batch: BatchKey | None = None) -> SendOutcome:
        """See :meth:`agent.ports.Uplink.send`."""
        if self.is_away:
            raise TransportError("no network")
        self.taken += len(readings)
        return SendOutcome(tuple(stored.key for stored in readings))

    def report(self, report: Report) -> None:
        """There are no commands here."""
        raise AssertionError(report)


def reading(number: int, at: Moment) -> Reading:
    """Three named numbers, 60 bytes of JSON."""
    return Reading({"n": number, "temperature_c": 21.5, "pressure_hpa": 1013.25}, at)


@contextlib.contextmanager
def opened(folder: Path, clock: SystemClock | VirtualClock, window_s: float = 1.0) -> Iterator[Store]:
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
        uplink = HttpUplink(client, device_id, None, make(client, clock))
        begun_s = time.perf_counter()
        while batch := store.outbox.next_batch(BATCH):
            outcome = uplink.send(batch)
            if outcome.refused:
                raise RuntimeError(f"the service refused readings: {next(iter(outcome.refused.values()))}")
            store.outbox.settle(outcome)
        return count / (time.perf_counter() - begun_s)


def three_days(folder: Path, hours: int) -> tuple[float, float, float, int]:
    """Growth of memory in MiB while offline and at the most, MiB on the disk, readings a second while draining."""
    clock, service = VirtualClock(), CountingService()
    with opened(folder, clock) as store:
        parts = SendParts(service, store.journal, clock, Health(clock), lambda: 0.99)
        driven = ThreadlessService(ReadingStream(parts, store.outbox), clock)
        begin_bytes = most_bytes = 0
        for number in range(hours * 3600):
            store.outbox.put(reading(number, clock.now()))
            clock.advance(1.0)
            if number % 300 == 0:
                driven.process_all()
            if number == 3600:
                begin_bytes = rss_bytes()
        store.journal.put_setting("benchmark", "all")
        offline_bytes = rss_bytes()
        disk_bytes = sum(each.stat().st_size for each in store.path.parent.iterdir())
        service.is_away = False
        clock.advance(400.0)
        begun_s = time.perf_counter()
        while store.outbox.stats().rows:
            clock.advance(1.0)
            driven.process_all()
            most_bytes = max(most_bytes, rss_bytes())
        rate = service.taken / (time.perf_counter() - begun_s)
    if service.taken != hours * 3600:
        raise RuntimeError(f"{service.taken} of {hours * 3600} readings came")
    return (offline_bytes - begin_bytes) / MIB, (most_bytes - begin_bytes) / MIB, disk_bytes / MIB, round(rate)


def rss_bytes() -> int:
    """The resident set of this process."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def keys() -> KeyPair:
    """Of the service in the other process."""
    return KeyPair("mk_benchmark", Secret("msk_benchmark"))


def main() -> int:
    """Measure, print the table; 1 when a bar is missed."""
    logging.disable(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readings", type=int, default=200_000, help="accepted in the grouped run")
    parser.add_argument("--backlog", type=int, default=20_000, help="drained with arrays; a tenth one by one")
    parser.add_argument("--hours", type=int, default=72, help="offline")
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="on the disk to measure")
    options = parser.parse_args()
    grouped = max(accepted_grouped(options.dir, options.readings) for _ in range(3))
    alone = {threads: accepted_alone(options.dir, 2_000, threads) for threads in (1, 16)}
    with tempfile.TemporaryDirectory(dir=options.dir) as folder, service(Path(folder)) as own:
        device_id = make_device(own.url)
        arrays = drained(options.dir, own.url, device_id, options.backlog, Discovery)
        singly = drained(options.dir, own.url, device_id, options.backlog // 10, NoArrays)
    offline_mib, draining_mib, disk_mib, rate = three_days(options.dir, options.hours)
    rows = [
        ("accepted, grouped, the best of 3", f"{grouped:,.0f}/s", f">= {BAR_ACCEPTED:,}/s"),
        ("accepted, each alone, 1 thread", f"{alone[1]:,.0f}/s", ""),
        ("accepted, each alone, 16 threads", f"{alone[16]:,.0f}/s", ""),
        ("drained over HTTP, arrays", f"{arrays:,.0f}/s", f">= {BAR_DRAINED}/s"),
        ("drained over HTTP, one by one", f"{singly:,.0f}/s", ""),
        (f"{options.hours} h offline: on the disk", f"{disk_mib:.1f} MiB", ""),
        (f"{options.hours} h offline: memory grew by", f"{offline_mib:.1f} MiB", ""),
        ("while draining: memory grew by", f"{draining_mib:.1f} MiB", ""),
        ("draining, without a network", f"{rate:,}/s", ""),
    ]
    today = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {today}\n")
    for name, found, bar in rows:
        print(f"{name:<36} {found:>14}   {bar}")
    return 0 if grouped >= BAR_ACCEPTED and arrays >= BAR_DRAINED else 1


if __name__ == "__main__":
    sys.exit(main())
