"""Three days without a network at one reading a second, on virtual time and a real file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.adapters.store_service import StoreService
from agent.core.outbox import Bounds
from agent.core.values import Priority, Report, SendOutcome, StoredReading
from agent.errors import TransportError
from agent.runtime.health import Health
from agent.runtime.reading_uplink import ReadingUplink
from agent.runtime.retry_policy import RetryPolicy
from tests.factories import make_reading
from tests.fakes import FakeClock
from tests.threadless import ThreadlessService

pytestmark = pytest.mark.long

HOURS = 72
READINGS = HOURS * 3600
MIB = 1024**2
# What a backlog of 30 MB may cost in memory; the readings themselves would be some 100 MB of objects.
GROWTH_MAX_BYTES = 24 * MIB


class Service:
    """The other side: away at first; then it takes everything and looks only at the order and at repeats."""

    def __init__(self) -> None:
        self.is_away = True
        self.received = bytearray(READINGS)
        self.taken = 0
        self.last = -1
        self.is_ordered = True
        self.attempts = 0

    def send(self, readings: Sequence[StoredReading]) -> SendOutcome:
        self.attempts += 1
        if self.is_away:
            raise TransportError("no network")
        self.taken += 1
        for stored in readings:
            number = int(stored.reading.values["n"])
            self.received[number] += 1
            # The first batch is the last one that failed, as it was: with what was live then in front.
            if self.taken > 1:
                self.is_ordered = self.is_ordered and number > self.last
                self.last = number
        return SendOutcome(tuple(stored.key for stored in readings))

    def report(self, report: Report) -> float | None:
        raise AssertionError(report)

    def close(self) -> None:
        pass


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_three_days_offline_lose_nothing_come_in_order_and_cost_no_memory(tmp_path):
    clock, service = FakeClock(), Service()
    store = StoreService(tmp_path / "agent.db", clock=clock, bounds=Bounds())
    store.start()
    try:
        uplink = ReadingUplink(
            uplink=service,
            journal=store.journal,
            outbox=store.outbox,
            clock=clock,
            retry_policy=RetryPolicy(lambda: 0.99),
            health=Health(clock),
        )
        driven = ThreadlessService(uplink, clock)
        rss_before, rss_most = 0, 0
        for number in range(READINGS):
            store.outbox.put(make_reading({"n": number, "temperature": 21.5, "pressure": 1013.25}, clock.now()))
            clock.advance(1.0)
            if number % 100 == 0:
                driven.process_all()
            if number % 20_000 == 0:
                # The first 20,000 warm caches and allocator up.
                rss_before = rss_bytes() if number == 20_000 else rss_before
                rss_most = rss_bytes()
        store.journal.put_setting("everything before this", "is on the disk")
        assert store.outbox.stats().rows == READINGS
        assert 100 < service.attempts < HOURS * 60
        clock.advance(400.0)
        service.is_away = False
        while store.outbox.stats().rows:
            clock.advance(1.0)
            assert driven.process_all()
            rss_most = max(rss_most, rss_bytes())
        assert rss_most - rss_before < GROWTH_MAX_BYTES
        assert service.received == b"\1" * READINGS
        assert service.is_ordered
        stats = store.outbox.stats()
        assert (stats.accepted, stats.delivered, stats.dropped) == (READINGS, READINGS, 0)
    finally:
        store.stop(60)


def test_the_most_important_readings_of_a_long_outage_come_first(tmp_path):
    clock = FakeClock()
    store = StoreService(tmp_path / "agent.db", clock=clock, bounds=Bounds(max_rows=3000))
    store.start()
    try:
        for number in range(9000):
            priority = Priority.HIGH if number % 10 == 0 else Priority.LOW
            store.outbox.put(make_reading({"n": number}, clock.now(), priority))
            clock.advance(1.0)
        store.journal.put_setting("everything before this", "is on the disk")
        clock.advance(400.0)
        numbers: list[int] = []
        gaps = 0
        while batch := store.outbox.next_batch(500):
            for stored in batch:
                if stored.reading.priority is Priority.GAP:
                    gaps += int(stored.reading.values["agent_gap_rows"])
                else:
                    numbers.append(int(stored.reading.values["n"]))
            store.outbox.settle(SendOutcome(delivered=tuple(stored.key for stored in batch)))
        assert numbers[:900] == list(range(0, 9000, 10))
        assert numbers[900:] == [number for number in range(6667, 9000) if number % 10][-2100:]
        assert gaps == 6000
    finally:
        store.stop(60)
