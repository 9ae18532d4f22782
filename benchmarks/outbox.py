"""Figure A4: how fast the agent's store takes readings, and how fast a backlog leaves it.

Method: the store is the agent's own (``Store``: one writer thread, SQLite, every commit flushed with ``fsync``),
on the disk of ``--dir``; the service is ``fleet-simulator service``'s library in a process of its own, with SQLite.

=====================  =====================================================================================
accepted, grouped      one thread hands over readings as fast as it can; the clock stops when the last one is on
                       the disk. The window is the default, 1 s; a commit also comes when 5,000 wait
drained, arrays        a backlog over HTTP with the extension batch-sensor-data, until the store is empty
drained, one by one    the same with one request for each reading, as a plain server takes them
=====================  =====================================================================================

    python -m benchmarks.outbox [--readings 200000] [--backlog 20000] [--dir FOLDER]

Exit codes: 0 the bars of the figure are reached, 1 they are not.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from agent.core.values import Moment, Reading
from agent.runtime.clocks import SystemClock
from agent.store.store import Store
from agent.transports.http import Discovery, HttpDevice
from agent.wire.client import DeviceClient
from agent.wire.secret import KeyPair, Secret
from agent.wire.server import BATCH_SENSOR_DATA
from benchmarks._rig import KEYS, judge, machine, make_devices, service

BAR_ACCEPTED, BAR_DRAINED = 20_000, 500
BATCH = 500


def reading(number: int, at: Moment) -> Reading:
    """Three named numbers, 60 bytes of JSON."""
    return Reading({"n": number, "temperature_c": 21.5, "pressure_hpa": 1013.25}, at)


@contextlib.contextmanager
def opened(folder: Path, clock: SystemClock) -> Iterator[Store]:
    """A store of its own, removed at the end."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        store = Store(Path(own, "agent.db"), clock=clock)
        store.start()
        try:
            yield store
        finally:
            store.stop(30.0)


def fill(store: Store, count: int, at: Moment) -> None:
    """Hand over readings as fast as they are taken, and wait until all are on the disk."""
    for number in range(count):
        store.outbox.put(reading(number, at))
    while store.outbox.stats().rows < count:
        # A commit takes what waits along, a part at a time.
        store.journal.put_setting("benchmark", str(time.perf_counter()))


def accepted_grouped(folder: Path, count: int) -> float:
    """Readings a second."""
    clock = SystemClock()
    with opened(folder, clock) as store:
        begun_s = time.perf_counter()
        fill(store, count, clock.now())
        return count / (time.perf_counter() - begun_s)


class NoArrays(Discovery):
    """As if the service did not take arrays."""

    def offers(self, extension: str) -> bool:
        """As the service says, but for arrays."""
        return extension != BATCH_SENSOR_DATA and super().offers(extension)


def drained(folder: Path, base_url: str, device_id: str, count: int, make: Callable[..., Discovery]) -> float:
    """Readings a second out of a backlog and into the service."""
    clock = SystemClock()
    with (
        opened(folder, clock) as store,
        DeviceClient(base_url, KeyPair(KEYS["x-api-key"], Secret(KEYS["x-secret-key"]))) as client,
    ):
        now = clock.now()
        old = Moment(now.monotonic_s - 3600.0, now.wall_s - 3600.0, now.boot_id)
        fill(store, count, old)
        uplink = HttpDevice(client, device_id, make(client, clock))
        begun_s = time.perf_counter()
        while batch := store.outbox.next_batch(BATCH):
            outcome = uplink.send(batch)
            if outcome.refused:
                raise RuntimeError(f"the service refused readings: {next(iter(outcome.refused.values()))}")
            store.outbox.settle(outcome)
        return count / (time.perf_counter() - begun_s)


def main() -> int:
    """Measure, print the table; 1 when a bar is missed."""
    logging.disable(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readings", type=int, default=200_000, help="accepted in the grouped run")
    parser.add_argument("--backlog", type=int, default=20_000, help="drained with arrays; a tenth one by one")
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="on the disk to measure")
    given = parser.parse_args()
    print(f"A4: the agent's store\n{machine()}\n")
    grouped = max(accepted_grouped(given.dir, given.readings) for _ in range(3))
    with tempfile.TemporaryDirectory(dir=given.dir) as folder, service(Path(folder)) as own:
        [device_id] = make_devices(own.url)
        arrays = drained(given.dir, own.url, device_id, given.backlog, Discovery)
        singly = drained(given.dir, own.url, device_id, given.backlog // 10, NoArrays)
    print(f"     drained over HTTP, one by one: {singly:,.0f}/s")
    kept = [
        judge("accepted, grouped, the best of 3", grouped, BAR_ACCEPTED, "/s", is_least=True),
        judge("drained over HTTP, arrays", arrays, BAR_DRAINED, "/s", is_least=True),
    ]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
