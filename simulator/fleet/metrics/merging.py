"""From the seconds of several workers to the seconds and totals of the run.

What a worker sends is keyed by (worker, second): nothing counts twice, whatever is sent again. What a worker did not
send is a declared gap. Memory grows neither with the number of exchanges nor with the length of the run: a second is
handed out as soon as every worker has reported it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from simulator.fleet.metrics.histogram import Histogram, merged
from simulator.fleet.metrics.recorder import Delta, WorkerHealth
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import GeneratorHealth, Operations, Second, Tally, WorkerGap

CUMULATIVE: Final = ("readings", "commands", "results")
"""First words of gauges that count since the run's begin, such as ``readings_sent``: they never fall."""
PATIENCE: Final = 10
"""Seconds that a worker may be behind the foremost one before a second goes out without it."""


def is_cumulative(gauge: str) -> bool:
    """Whether a gauge counts since the run's begin."""
    family, _, rest = gauge.partition("_")
    return bool(rest) and family in CUMULATIVE


class TallySum:
    """One operation and outcome over many seconds."""

    __slots__ = ("count", "first_attempts", "resends_ambiguous", "response", "service")

    def __init__(self) -> None:
        self.count = self.first_attempts = self.resends_ambiguous = 0
        self.response, self.service = Histogram(), Histogram()

    def add(self, tally: Tally) -> None:
        """Add those of a second."""
        self.count += tally.count
        self.first_attempts += tally.first_attempts
        self.resends_ambiguous += tally.resends_ambiguous
        self.response.add_encoded(tally.response)
        self.service.add_encoded(tally.service)

    def tally(self) -> Tally:
        """The sum so far."""
        response, service = self.response.encode(), self.service.encode()
        return Tally(self.count, self.first_attempts, response, service, self.resends_ambiguous)


class _TotalHealth:
    """The error bars over the whole run."""

    def __init__(self) -> None:
        self.send_lag = Histogram()
        self.loop_lag_max_s = self.gc_pause_max_s = 0.0
        self.requests = (0, 0, 0)
        self._shares: dict[int, _Shares] = defaultdict(_Shares)

    def add(self, worker: int, health: WorkerHealth) -> None:
        self.send_lag.add_encoded(health.send_lag)
        self.loop_lag_max_s = max(self.loop_lag_max_s, health.process.loop_lag_max_s)
        self.gc_pause_max_s = max(self.gc_pause_max_s, health.process.gc_pause_max_s)
        intended, sent, undelivered = self.requests
        self.requests = (
            intended + health.intended,
            sent + health.sent,
            undelivered + health.undelivered,
        )
        self._shares[worker].add(health)

    def health(self) -> GeneratorHealth:
        steal, cpu = (
            zip(*(each.means() for each in self._shares.values()), strict=True) if self._shares else ((0,), (0,))
        )
        return _health_of(
            self.send_lag,
            self.loop_lag_max_s,
            self.gc_pause_max_s,
            steal_percent=max(steal),
            cpu_percent=max(cpu),
            requests=self.requests,
            stood_still_s=max((each.stood_still_s for each in self._shares.values()), default=0.0),
        )


@dataclass(slots=True)
class _Shares:
    """A worker's shares of the CPU, to be averaged over its seconds, and how long it stood still in all of them."""

    seconds: int = 0
    stood_still_s: float = 0.0
    steal: float = 0.0
    cpu: float = 0.0

    def add(self, health: WorkerHealth) -> None:
        self.seconds += 1
        self.stood_still_s += health.process.stood_still_s
        self.steal += health.process.steal_percent
        self.cpu += health.process.cpu_percent

    def means(self) -> tuple[float, float]:
        return self.steal / self.seconds, self.cpu / self.seconds


@dataclass(slots=True)
class _Worker:
    """State of one worker.

    Attributes:
        reported: the last second that it sent.
        silent_because: why it sends no more; None as long as it does. Empty: it ended as it should.
        counted: its cumulative gauges at the end of the last second that was handed out.
    """

    reported: int = -1
    silent_because: str | None = None
    counted: Mapping[str, float] = field(default_factory=dict)

    def count(self, delta: Delta | None) -> Mapping[str, float]:
        """The cumulative gauges of a worker after its second; unchanged by a second that it did not report."""
        if delta is not None:
            self.counted = {name: value for name, value in delta.gauges.items() if is_cumulative(name)}
        return self.counted


class Merger:
    """Merges what workers send.

    Args:
        workers: their numbers. A worker's seconds come in ascending order, as a pipe gives them.
        patience: see :data:`PATIENCE`.
    """

    def __init__(self, workers: Iterable[int], patience: int = PATIENCE) -> None:
        self._workers = {worker: _Worker() for worker in workers}
        self._patience = patience
        self._open: dict[int, list[Delta]] = {}
        self._next = 0
        self._newest = -1
        self._totals: dict[str, dict[OutcomeClass, TallySum]] = {}
        self._health = _TotalHealth()
        self._gaps: list[WorkerGap] = []
        self.left_out = 0
        """Deltas that counted nowhere: sent twice, or by a worker that was given up before."""

    def add(self, delta: Delta) -> bool:
        """Take in a worker's second.

        Returns:
            Whether it counts; False when it came before, or from a worker that was lost meanwhile.
        """
        worker = self._workers[delta.worker]
        if delta.second <= worker.reported or worker.silent_because is not None:
            self.left_out += 1
            return False
        if delta.second > worker.reported + 1:
            self._note_gap(delta.worker, max(worker.reported + 1, self._next), delta.second, "did not report")
        worker.reported = delta.second
        self._newest = max(self._newest, delta.second)
        if delta.second >= self._next:
            self._open.setdefault(delta.second, []).append(delta)
        self._add_to_totals(delta)
        return True

    def ended(self, worker: int) -> None:
        """A worker has sent its last second, as it should."""
        self._workers[worker].silent_because = ""

    def lost(self, worker: int, reason: str) -> None:
        """A worker will not send any more: nobody waits for it, and what is missing becomes a gap."""
        self._workers[worker].silent_because = reason

    def ready(self) -> list[Second]:
        """The seconds, each once and in order, that are complete or have waited long enough."""
        seconds = []
        while self._next <= self._newest and (self._is_complete() or self._newest - self._next >= self._patience):
            seconds.append(self._take_next())
        return seconds

    def finish(self, seconds: int = 0) -> list[Second]:
        """The run is over: the seconds that are left.

        Args:
            seconds: how long it was. Seconds up to there that no worker reported are empty, with their gaps.
        """
        self._newest = max(self._newest, seconds - 1)
        left = []
        while self._next <= self._newest:
            left.append(self._take_next())
        return left

    @property
    def given(self) -> int:
        """How many seconds were handed out, from 0 on without a hole."""
        return self._next

    @property
    def totals(self) -> Operations:
        """The run so far."""
        return {
            operation: {outcome: total.tally() for outcome, total in outcomes.items()}
            for operation, outcomes in self._totals.items()
        }

    @property
    def health(self) -> GeneratorHealth:
        """The error bars of the run so far; shares of the CPU are the mean of the busiest worker."""
        return self._health.health()

    @property
    def gaps(self) -> tuple[WorkerGap, ...]:
        """What is missing in the seconds, by time."""
        return tuple(sorted(self._gaps, key=lambda gap: (gap.from_s, gap.worker)))

    def _is_complete(self) -> bool:
        return all(worker.reported >= self._next for worker in self._workers.values() if worker.silent_because is None)

    def _take_next(self) -> Second:
        second = self._next
        self._next += 1
        for number, worker in self._workers.items():
            if worker.reported < second and worker.silent_because is None:
                self._note_gap(
                    number,
                    second,
                    self._next,
                    "they came too late for the time line, if at all; the totals have what came",
                )
            elif worker.reported < second and worker.silent_because:
                self._note_gap(number, second, self._next, worker.silent_because)
        deltas = self._open.pop(second, [])
        by_worker = {delta.worker: delta for delta in deltas}
        counted: dict[str, float] = defaultdict(float)
        for number, worker in self._workers.items():
            for name, value in worker.count(by_worker.get(number)).items():
                counted[name] += value
        found = second_of(second, deltas)
        # What a worker had counted stays counted when it dies.
        return replace(found, gauges={**found.gauges, **counted})

    def _note_gap(self, worker: int, begin: int, end: int, reason: str) -> None:
        if begin >= end:
            return
        for at, gap in enumerate(self._gaps):
            if (gap.worker, gap.reason, gap.to_s) == (worker, reason, begin):
                self._gaps[at] = WorkerGap(worker, gap.from_s, end, reason)
                return
        self._gaps.append(WorkerGap(worker, begin, end, reason))

    def _add_to_totals(self, delta: Delta) -> None:
        for operation, tallies in delta.operations.items():
            totals = self._totals.setdefault(operation, {})
            for outcome, tally in tallies.items():
                if outcome not in totals:
                    totals[outcome] = TallySum()
                totals[outcome].add(tally)
        self._health.add(delta.worker, delta.health)


def second_of(second: int, deltas: Sequence[Delta]) -> Second:
    """One second of the run out of the parts of its workers; gauges are added up."""
    gauges: dict[str, float] = defaultdict(float)
    for delta in deltas:
        for name, value in delta.gauges.items():
            gauges[name] += value
    operations = merge_operations([delta.operations for delta in deltas])
    health = _health_of_second([delta.health for delta in deltas])
    return Second(second, operations, dict(gauges), health, merge_operations([delta.late for delta in deltas]))


def merge_operations(parts: Sequence[Operations]) -> Operations:
    """Several measurements as one: of workers, or of seconds."""
    found: dict[str, dict[OutcomeClass, list[Tally]]] = {}
    for part in parts:
        for operation, tallies in part.items():
            for outcome, tally in tallies.items():
                found.setdefault(operation, {}).setdefault(outcome, []).append(tally)
    return {
        operation: {outcome: _merge_tallies(tallies) for outcome, tallies in outcomes.items()}
        for operation, outcomes in found.items()
    }


def _merge_tallies(tallies: Sequence[Tally]) -> Tally:
    if len(tallies) == 1:
        return tallies[0]
    return Tally(
        sum(tally.count for tally in tallies),
        sum(tally.first_attempts for tally in tallies),
        merged([tally.response for tally in tallies]).encode(),
        merged([tally.service for tally in tallies]).encode(),
        sum(tally.resends_ambiguous for tally in tallies),
    )


def _health_of_second(parts: Sequence[WorkerHealth]) -> GeneratorHealth:
    return _health_of(
        merged([part.send_lag for part in parts]),
        max((part.process.loop_lag_max_s for part in parts), default=0.0),
        max((part.process.gc_pause_max_s for part in parts), default=0.0),
        steal_percent=max((part.process.steal_percent for part in parts), default=0.0),
        cpu_percent=max((part.process.cpu_percent for part in parts), default=0.0),
        requests=(
            sum(part.intended for part in parts),
            sum(part.sent for part in parts),
            sum(part.undelivered for part in parts),
        ),
        stood_still_s=max((part.process.stood_still_s for part in parts), default=0.0),
    )


def _health_of(
    send_lag: Histogram,
    loop_lag_max_s: float,
    gc_pause_max_s: float,
    *,
    steal_percent: float,
    cpu_percent: float,
    requests: tuple[int, int, int],
    stood_still_s: float,
) -> GeneratorHealth:
    is_known = send_lag.count > 0
    intended, sent, undelivered = requests
    return GeneratorHealth(
        send_lag.percentile(99) if is_known else 0.0,
        send_lag.max_s if is_known else 0.0,
        loop_lag_max_s,
        gc_pause_max_s,
        steal_percent,
        cpu_percent,
        intended,
        sent,
        send_lag=send_lag.encode(),
        undelivered=undelivered,
        stood_still_s=stood_still_s,
    )
