"""A thousand devices after an outage, on virtual time: they come back without a second outage of their own making.

All thousand of them where each reading is a request; where many go in one, fewer devices show the same.
"""

from __future__ import annotations

import heapq
import logging
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from agent.core.poll_interval import PollIntervals
from agent.core.values import CommandPoll, Report, SendOutcome, StoredReading
from agent.errors import RateLimited, TransportError
from agent.runtime.service_clock import ServiceClock
from tests.fakes import START_WALL_S, FakeClock, FakeJournal, FakeOutbox
from tests.fault.virtual_device import VirtualDevice, first_contact_s

pytestmark = pytest.mark.long

INTERVAL_S = 60.0
OUTAGE_S = (240.0, 840.0)
END_S = 1800.0
# As a fleet that has been quiet for a while polls.
QUIET = PollIntervals(INTERVAL_S, INTERVAL_S, INTERVAL_S)
# Each device polls and sends a reading once a minute.
STEADY_PER_DEVICE = 2 * 60.0 / INTERVAL_S


class _Quota:
    """A service as seen from the network: reachable or not, with a quota in calendar minutes for everybody together."""

    def __init__(self, clock: FakeClock, per_minute: float) -> None:
        self._clock = clock
        self._per_minute = per_minute
        self._begin_s = clock.now().monotonic_s
        self.is_down = False
        self._in_minute: Counter[int] = Counter()
        self.asked: Counter[int] = Counter()
        self.refused: Counter[int] = Counter()
        self.stored: Counter[str] = Counter()

    @property
    def now_s(self) -> float:
        return self._clock.now().monotonic_s - self._begin_s

    def ask(self) -> None:
        """One request.

        Raises:
            TransportError, RateLimited: as a client does.
        """
        if self.is_down:
            raise TransportError("nobody answers")
        second = int(self.now_s)
        self.asked[second] += 1
        minute = second // 60
        self._in_minute[minute] += 1
        if self._in_minute[minute] > self._per_minute:
            self.refused[second] += 1
            raise RateLimited(429, "rate_limited", "", retry_after_s=(minute + 1) * 60 - self.now_s)

    def per_s(self, begin_s: float, end_s: float, window_s: int) -> list[float]:
        """Requests per second in each window."""
        return [
            sum(self.asked[each] for each in range(begin, begin + window_s)) / window_s
            for begin in range(int(begin_s), int(end_s), window_s)
        ]


class _Way:
    """One device's source and uplink."""

    def __init__(self, quota: _Quota, device_id: str, *, arrays: bool) -> None:
        self._quota = quota
        self._device_id = device_id
        self._arrays = arrays

    def poll(self, wait_s: float) -> CommandPoll:
        self._quota.ask()
        return CommandPoll(unchanged=True)

    def acknowledge(self, command_ids: Sequence[str]) -> None: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...

    def send(self, readings: Sequence[StoredReading]) -> SendOutcome:
        delivered: list[int] = []
        requests = [readings] if self._arrays else [[each] for each in readings]
        try:
            for request in requests:
                self._quota.ask()
                delivered += [each.key for each in request]
                self._quota.stored.update(f"{self._device_id}/{each.key}" for each in request)
        except (TransportError, RateLimited):
            if not delivered:
                raise
        return SendOutcome(tuple(delivered))

    def report(self, report: Report) -> float | None:
        self._quota.ask()
        return None


class _Fleet:
    def __init__(self, devices: int, *, arrays: bool, quota_per_minute: float, seed: int = 1) -> None:
        self.clock = FakeClock(monotonic_s=0.0)
        self.quota = _Quota(self.clock, quota_per_minute)
        self.read: dict[str, list[float]] = {}
        self.devices: list[VirtualDevice] = []
        for number in range(devices):
            device_id = f"device-{number:04d}"
            way = _Way(self.quota, device_id, arrays=arrays)
            self.read[device_id] = []
            self.devices.append(
                VirtualDevice(
                    device_id,
                    clock=self.clock,
                    journal=FakeJournal(),
                    outbox=FakeOutbox(self.clock),
                    source=way,
                    uplink=way,
                    service_clock=ServiceClock(self.clock, trust_wall=True),
                    fraction=random.Random(f"{seed} {device_id}").random,
                    true_s=lambda: START_WALL_S + self.clock.now().monotonic_s,
                    effects=[],
                    numbers=self.read[device_id],
                    intervals=QUIET,
                    interval_s=INTERVAL_S,
                    first_s=first_contact_s(device_id, 60.0),
                    takes_arrays=lambda: arrays,
                )
            )
        self._dues = [(device.due_at(), number) for number, device in enumerate(self.devices)]
        heapq.heapify(self._dues)

    def run_until(self, end_s: float) -> None:
        while self._dues[0][0] <= end_s:
            due_s, number = heapq.heappop(self._dues)
            self.clock.advance(max(0.0, due_s - self.clock.now().monotonic_s))
            device = self.devices[number]
            device.process_all()
            heapq.heappush(self._dues, (device.due_at(), number))
        self.clock.advance(max(0.0, end_s - self.clock.now().monotonic_s))


@pytest.fixture(autouse=True)
def _silent():
    """A thousand devices complain; conftest.py switches it on again."""
    logging.disable(logging.CRITICAL)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("arrays", "devices"), [(True, 250), (False, 1000)], ids=["arrays", "one by one"])
def test_devices_come_back_from_ten_minutes_without_the_service_and_cause_no_second_outage(arrays, devices):
    steady_per_minute = devices * STEADY_PER_DEVICE
    fleet = _Fleet(devices, arrays=arrays, quota_per_minute=2 * steady_per_minute)
    quota = fleet.quota
    fleet.run_until(OUTAGE_S[0])
    steady = quota.per_s(OUTAGE_S[0] - 120, OUTAGE_S[0], 60)
    assert sum(steady) / len(steady) == pytest.approx(steady_per_minute / 60, rel=0.05)
    quota.is_down = True
    fleet.run_until(OUTAGE_S[1])
    quota.is_down = False
    fleet.run_until(END_S)

    after = quota.per_s(OUTAGE_S[1], END_S, 10)
    peak = max(after) / (steady_per_minute / 60)
    asked = sum(count for second, count in quota.asked.items() if second >= OUTAGE_S[1])
    refused = sum(quota.refused.values())
    assert peak <= 2.0
    assert refused < 0.01 * asked
    # Everything that was read is stored once, the newest perhaps not yet.
    counts = Counter(quota.stored.values())
    assert set(counts) == {1}
    assert sum(len(numbers) for numbers in fleet.read.values()) - quota.stored.total() <= devices
