"""The last reading goes as soon as it is committed: none has to follow it. Store and uplink in their own threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent.adapters.clocks import SystemClock
from agent.adapters.store_service import StoreService
from agent.core.values import BatchKey, SendOutcome, StoredReading
from agent.runtime.health import Health
from agent.runtime.reading_uplink import ReadingUplink
from agent.runtime.retry_policy import RetryPolicy
from agent.runtime.service import ServiceThread
from agent.threads import only_logged
from tests.factories import make_reading
from tests.fakes import FakeUplink

SOON_S = 60.0
WINDOW_S = 0.05


class Uplink(FakeUplink):
    """Says when so many readings came."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()

    def send(self, readings: Sequence[StoredReading], batch: BatchKey | None = None) -> SendOutcome:
        with self.changed:
            outcome = super().send(readings, batch)
            self.changed.notify_all()
        return outcome

    def wait_for(self, count: int) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: len(self.stored) >= count, SOON_S)


class Bench:
    def __init__(self, path: Path) -> None:
        self.clock, self.uplink = SystemClock(), Uplink()
        self.store = StoreService(path, clock=self.clock, group_window_s=WINDOW_S)
        self.store.start()
        actor = ReadingUplink(
            uplink=self.uplink,
            journal=self.store.journal,
            outbox=self.store.outbox,
            clock=self.clock,
            retry_policy=RetryPolicy(lambda: 0.5),
            health=Health(self.clock),
            apart_s=WINDOW_S,
        )
        self.thread = ServiceThread(actor, self.clock, only_logged)
        self.store.on_readings = self.committed
        self.thread.start()

    def put(self, number: int) -> None:
        self.store.outbox.put(make_reading({"n": float(number)}, at=self.clock.now()))

    def committed(self) -> None:
        self.thread.post(ReadingUplink.READING)

    def close(self) -> None:
        self.thread.stop()
        assert self.thread.join(SOON_S)
        assert self.store.stop(SOON_S)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "agent.db")
    yield made
    made.close()


def test_each_reading_goes_though_none_follows_it(bench: Bench):
    for number in range(1, 11):
        bench.put(number)
        assert bench.uplink.wait_for(number)


def test_a_reading_that_comes_between_the_commit_of_another_and_its_sending_goes_too(bench: Bench):
    rest = iter(range(2, 11))

    def one_more_before_it_goes() -> None:
        if (number := next(rest, None)) is not None:
            bench.put(number)
        bench.committed()

    bench.store.on_readings = one_more_before_it_goes
    bench.put(1)
    assert bench.uplink.wait_for(10)


def test_a_commit_for_another_reason_that_takes_a_reading_along_says_so(tmp_path: Path):
    store, committed = StoreService(tmp_path / "agent.db", clock=SystemClock(), group_window_s=1e9), threading.Event()
    store.on_readings = committed.set
    store.start()
    store.outbox.put(make_reading({"n": 1.0}))
    assert not committed.is_set()
    store.journal.put_setting("name", "value")
    assert committed.wait(SOON_S)
    assert len(store.outbox.next_batch(10)) == 1
    assert store.stop(SOON_S)
