"""A gateway, its fleet and the service's limiter on virtual time: hours in seconds.

What decides is the real thing: the gateway's budget, poll order and thinning (:mod:`agent.core`) against the service's
own limiter (:class:`simulator.service.quota.Quota`). What is modelled: requests take ``round_trip_s``, four of each
kind may be under way, commands come at random moments to random devices, a device runs one in a second, and each device
is read once in ``reading_every_s``. Events of the stream arrive after half a round trip.

The same scenario with the same seed gives the same figures on every machine.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from agent.core.schedule import phase_s
from agent.wire.rate_limit import RateLimit, read_rate_limit
from gateway.core.budget import Budget, Grant, Kind, Shares, Wait
from gateway.core.fair_polling import FairIntervals, FairPolling
from gateway.core.thinning import BATCH_MAX, ThinningPolicy, Waiting, thin
from simulator.service.quota import Quota

LANES: Final = 4
GATHER_S: Final = 1.0
_RUNS_FOR_S: Final = 1.0
# Two percent from one count to the next.
_STEP: Final = math.log(1.02)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated.

    Attributes:
        devices: behind one gateway.
        quota: requests a minute for the one key; 0 is none.
        events: the service offers ``command-events``, so that polling only reconciles.
        batches: it offers ``batch-sensor-data``.
        commands_per_device_day: sent to each device, on average.
        reading_every_s: each device is read so often.
        warm_up_s: nothing is measured before.
        measured_s: commands sent and readings taken in this time count.
        drain_s: goes on for so long afterwards, so that what was sent late in the measured time can arrive.
        round_trip_s: of one request.
        others_per_s: requests that others make with the same key.
        offset_s: the service's clock minus the gateway's.
    """

    devices: int
    quota: int
    events: bool = False
    batches: bool = False
    commands_per_device_day: float = 4.0
    reading_every_s: float = 300.0
    warm_up_s: float = 600.0
    measured_s: float = 1800.0
    drain_s: float = 0.0
    round_trip_s: float = 0.05
    others_per_s: float = 0.0
    offset_s: float = 17.3
    seed: int = 1
    shares: Shares = field(default_factory=Shares)
    intervals: FairIntervals = field(default_factory=FairIntervals)
    thinning: ThinningPolicy = field(default_factory=ThinningPolicy)


class Spread:
    """Durations counted in steps of 2 %, so that a million of them cost nothing."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.count = 0
        self.max_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self._counts[math.ceil(math.log(max(seconds, 1e-3)) / _STEP)] += 1
        self.count += 1
        self.max_s = max(self.max_s, seconds)

    def at(self, part: float) -> float:
        """What this part of them do not exceed, seconds; NaN when there are none."""
        wanted = math.ceil(part * self.count)
        for step, seen in sorted(self._counts.items()):
            wanted -= seen
            if wanted <= 0:
                return min(math.exp(step * _STEP), self.max_s)
        return math.nan


@dataclass(slots=True)
class Outcome:
    """What came of it.

    Attributes:
        commands: from sending a command to the gateway's having it.
        results: from a result's arrival at the gateway to the service's having it.
        readings: from reading a sensor to the service's having it, those within merged records too.
        undelivered: commands of the measured time that had not come at the end.
        merged: readings that were joined with another into one record.
        kept: readings that the service got as records of their own, merged ones counted once.
        waiting: readings left in the gateway at the end.
        requests: that the service counted; ``refused`` of them got 429.
    """

    commands: Spread = field(default_factory=Spread)
    results: Spread = field(default_factory=Spread)
    readings: Spread = field(default_factory=Spread)
    undelivered: int = 0
    merged: int = 0
    kept: int = 0
    waiting: int = 0
    requests: int = 0
    refused: int = 0

    @property
    def refused_share(self) -> float:
        """429s among all requests."""
        return self.refused / max(1, self.requests)

    @property
    def merged_share(self) -> float:
        """Readings that did not become records of their own, among those that the service got."""
        return self.merged / max(1, self.merged + self.kept)


def simulate(scenario: Scenario) -> Outcome:
    """Run a scenario to its end."""
    return _Run(scenario).run()


@dataclass(frozen=True, slots=True)
class _Request:
    """A request under way: what happens at the service, and at the gateway when it was answered or got 429."""

    grant: Grant
    end: Callable[[], None]
    fail: Callable[[], None]
    arrive: Callable[[], None] = lambda: None


class _Run:
    """One gateway's hours. Times are seconds on the gateway's clock, from its start."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.outcome = Outcome()
        self._rng = random.Random(scenario.seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._now_s = 0.0
        self._measured_until_s = scenario.warm_up_s + scenario.measured_s
        self._ends_s = self._measured_until_s + scenario.drain_s
        self._quota = Quota(scenario.quota) if scenario.quota else None
        self._budget = Budget(scenario.shares)
        self._ids = [f"device-{number:06d}" for number in range(scenario.devices)]
        self._polling = FairPolling(scenario.intervals)
        self._open: dict[str, list[float]] = {}
        self._results: deque[float] = deque()
        self._readings = _Readings(scenario, self._ids)
        self._under_way = dict.fromkeys(Kind, 0)
        self._wakes: dict[Kind, float] = {}

    def run(self) -> Outcome:
        for device_id in self._ids:
            self._polling.add(device_id, 0.0)
        if self.scenario.events:
            self._polling.stream_changed(0.0, is_connected=True)
        self._at(self._pause_between_commands(), self._send_command)
        if self.scenario.others_per_s:
            self._at(0.0, self._others_ask)
        for kind in (Kind.COMMANDS, Kind.READINGS):
            self._wake(kind, 0.0)
        while self._events:
            self._now_s, _, happen = heapq.heappop(self._events)
            if self._now_s > self._ends_s:
                break
            happen()
        waiting = (sent for commands in self._open.values() for sent in commands)
        self.outcome.undelivered = sum(1 for sent_s in waiting if self._counts(sent_s))
        self.outcome.waiting = self._readings.waiting(self._ends_s)
        return self.outcome

    def _counts(self, at_s: float) -> bool:
        return self.scenario.warm_up_s <= at_s < self._measured_until_s

    def _at(self, at_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), happen))

    # --- the world ----------------------------------------------------------------------------------------------------

    def _pause_between_commands(self) -> float:
        return self._rng.expovariate(self.scenario.devices * self.scenario.commands_per_device_day / 86_400)

    def _send_command(self) -> None:
        device_id = self._rng.choice(self._ids)
        self._open.setdefault(device_id, []).append(self._now_s)
        if self.scenario.events:
            self._at(self._now_s + self.scenario.round_trip_s / 2, lambda: self._hint(device_id))
        self._at(self._now_s + self._pause_between_commands(), self._send_command)

    def _hint(self, device_id: str) -> None:
        self._polling.mark_active(device_id, self._now_s)
        self._wake(Kind.COMMANDS, self._now_s)

    def _others_ask(self) -> None:
        self._count()
        self._at(self._now_s + 1 / self.scenario.others_per_s, self._others_ask)

    def _result_comes(self) -> None:
        self._results.append(self._now_s)
        self._wake(Kind.RESULTS, self._now_s)

    def _count(self) -> tuple[bool, float, RateLimit | None]:
        """One request at the limiter: refused? for how long? what do the headers tell?"""
        if self._quota is None:
            return False, 0.0, None
        state = self._quota.count("key", int((self._now_s + self.scenario.offset_s) * 1000))
        headers = {name.decode(): value.decode() for name, value in state.headers}
        return state.exceeded, float(state.reset_s), read_rate_limit(headers)

    # --- the gateway --------------------------------------------------------------------------------------------------

    def _wake(self, kind: Kind, at_s: float) -> None:
        """Look at this kind's work then, unless that is planned for earlier anyway."""
        planned_s = self._wakes.get(kind)
        if planned_s is not None and planned_s <= at_s:
            return
        self._wakes[kind] = at_s
        self._at(at_s, lambda: self._look(kind, at_s))

    def _look(self, kind: Kind, planned_s: float) -> None:
        if self._wakes.get(kind) != planned_s:
            return
        del self._wakes[kind]
        while self._under_way[kind] < LANES:
            due_s = self._due_s(kind)
            if due_s is None:
                return
            if due_s > self._now_s:
                self._wake(kind, due_s)
                return
            answer = self._budget.ask(kind, self._now_s)
            if isinstance(answer, Wait):
                self._wake(kind, answer.until_s)
                return
            self._begin(kind, answer)

    def _due_s(self, kind: Kind) -> float | None:
        if kind is Kind.COMMANDS:
            return self._polling.next_due_s()
        if kind is Kind.RESULTS:
            return self._now_s if self._results else None
        return self._readings.due_s(self._now_s)

    def _begin(self, kind: Kind, grant: Grant) -> None:
        if kind is Kind.COMMANDS:
            request = self._poll(grant)
        elif kind is Kind.RESULTS:
            request = self._send_result(grant)
        else:
            request = self._send_readings(grant)
        self._under_way[kind] += 1
        self._at(self._now_s + self.scenario.round_trip_s / 2, lambda: self._serve(request))

    def _poll(self, grant: Grant) -> _Request:
        device_id = self._polling.next_due(self._now_s)[0]
        listed: list[float] = []

        def end() -> None:
            for sent_s in listed:
                if self._counts(sent_s):
                    self.outcome.commands.add(self._now_s - sent_s)
                self._at(self._now_s + _RUNS_FOR_S, self._result_comes)
            self._polling.poll_succeeded(device_id, self._now_s, news=bool(listed))

        return _Request(
            grant,
            arrive=lambda: listed.extend(self._open.pop(device_id, [])),
            end=end,
            fail=lambda: self._polling.poll_failed(device_id, self._now_s),
        )

    def _send_result(self, grant: Grant) -> _Request:
        came_s = self._results.popleft()

        def end() -> None:
            if self._counts(came_s):
                self.outcome.results.add(self._now_s - came_s)

        return _Request(grant, end=end, fail=lambda: self._results.appendleft(came_s))

    def _send_readings(self, grant: Grant) -> _Request:
        records = self._readings.take(self._now_s, self._budget.pace_per_s(Kind.READINGS))

        def end() -> None:
            for record in records:
                taken = [at_s for at_s in record if self._counts(at_s)]
                self.outcome.kept += bool(taken)
                self.outcome.merged += max(0, len(taken) - 1)
                for at_s in taken:
                    self.outcome.readings.add(self._now_s - at_s)

        return _Request(grant, end=end, fail=lambda: self._readings.again.append(records))

    def _serve(self, request: _Request) -> None:
        grant = request.grant
        is_refused, retry_after_s, told = self._count()
        self.outcome.requests += 1
        self.outcome.refused += is_refused
        if not is_refused:
            request.arrive()

        def answer() -> None:
            is_full = self._under_way[grant.kind] >= LANES
            self._under_way[grant.kind] -= 1
            if is_refused:
                self._budget.refused(grant, self._now_s, retry_after_s, told)
                request.fail()
            else:
                self._budget.answered(grant, self._now_s, told)
                request.end()
            if is_full or grant.kind not in self._wakes:
                self._wake(grant.kind, self._now_s)

        self._at(self._now_s + self.scenario.round_trip_s / 2, answer)


class _Readings:
    """Readings that wait in the gateway, the device whose oldest has waited longest first."""

    def __init__(self, scenario: Scenario, ids: list[str]) -> None:
        self._scenario = scenario
        self._every_s = scenario.reading_every_s
        # Devices are named by their place in the order of their first readings from here on.
        self._phases = sorted(phase_s(device_id, "reading", self._every_s) for device_id in ids)
        self._arrived = 0
        self._sent = [0] * len(ids)
        self._queued = bytearray(len(ids))
        self._queue: deque[int] = deque()
        self.again: list[list[tuple[float, ...]]] = []

    def _at_s(self, device: int, number: int) -> float:
        return self._phases[device] + number * self._every_s

    def _arrive(self, now_s: float) -> None:
        while True:
            number, device = divmod(self._arrived, len(self._phases))
            if self._at_s(device, number) > now_s:
                return
            self._arrived += 1
            if not self._queued[device]:
                self._queued[device] = True
                self._queue.append(device)

    def waiting(self, now_s: float) -> int:
        self._arrive(now_s)
        return self._arrived - sum(self._sent)

    def due_s(self, now_s: float) -> float:
        """When the next request with readings is due."""
        self._arrive(now_s)
        if self.again:
            return now_s
        gather_s = GATHER_S if self._scenario.batches else 0.0
        if not self._queue:
            number, device = divmod(self._arrived, len(self._phases))
            return self._at_s(device, number) + gather_s
        if len(self._queue) >= BATCH_MAX:
            return now_s
        return self._at_s(self._queue[0], self._sent[self._queue[0]]) + gather_s

    def take(self, now_s: float, pace_per_s: float | None) -> list[tuple[float, ...]]:
        """The next request: for each record the times of the readings that it stands for."""
        if self.again:
            return self.again.pop()
        if not self._scenario.batches:
            return [self._take_record(now_s, pace_per_s)]
        batch: list[tuple[float, ...]] = []
        while self._queue and len(batch) < BATCH_MAX:
            device = self._queue.popleft()
            batch.append((self._at_s(device, self._sent[device]),))
            self._took(device, 1, now_s)
        return batch

    def _take_record(self, now_s: float, pace_per_s: float | None) -> tuple[float, ...]:
        waits = len(self._queue)
        device = self._queue.popleft()
        oldest = self._sent[device]
        if not self._scenario.thinning.is_short(now_s - self._at_s(device, oldest)):
            self._took(device, 1, now_s)
            return (self._at_s(device, oldest),)
        newest = int((now_s - self._phases[device]) // self._every_s)
        waiting = [Waiting(n, {"temperature_c": 21.5}, self._at_s(device, n)) for n in range(oldest, newest + 1)]
        thinned = thin(waiting, self._scenario.thinning.for_fleet(waits, pace_per_s))
        keys = thinned.records[0].keys
        self._took(device, len(keys), now_s)
        return tuple(self._at_s(device, number) for number in keys)

    def _took(self, device: int, count: int, now_s: float) -> None:
        self._sent[device] += count
        if self._at_s(device, self._sent[device]) <= now_s:
            self._queue.append(device)
        else:
            self._queued[device] = False
