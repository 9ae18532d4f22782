"""From the seconds of several workers to those of the run, and from seconds to sums.

Everything is added up by the same functions: workers into a second, seconds into a phase or a run. Counts are added,
histograms merged, gauges of workers added, and of the generator's health the worst counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from simulator.fleet.metrics.histogram import Histogram, merged
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import GeneratorHealth, Operations, Second, Tally, WorkerGap

CUMULATIVE: Final = ("readings", "commands")
"""First words of gauges that count since the run's begin, such as ``readings_sent``: they never fall."""
PATIENCE: Final = 10
"""Seconds that a worker may be behind the foremost one before a second goes out without it."""
_TOO_LATE: Final = "they came too late, if at all, and are in no figure"


def is_cumulative(gauge: str) -> bool:
    """Whether a gauge counts since the run's begin."""
    family, _, rest = gauge.partition("_")
    return bool(rest) and family in CUMULATIVE


def merge_operations(parts: Iterable[Operations]) -> Operations:
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
        merged(tally.response for tally in tallies).encode(),
        merged(tally.service for tally in tallies).encode(),
        sum(tally.resends_ambiguous for tally in tallies),
    )


def merge_health(parts: Sequence[GeneratorHealth]) -> GeneratorHealth:
    """The worst of each figure; requests are added up, and the lag is that of all of them together."""
    if not parts:
        return GeneratorHealth()
    lag = merged(part.send_lag for part in parts)
    return GeneratorHealth(
        send_lag_p99_s=lag.percentile(99) if lag.count else max(part.send_lag_p99_s for part in parts),
        send_lag_max_s=max(part.send_lag_max_s for part in parts),
        loop_lag_max_s=max(part.loop_lag_max_s for part in parts),
        gc_pause_max_s=max(part.gc_pause_max_s for part in parts),
        steal_percent=max(part.steal_percent for part in parts),
        cpu_percent=max(part.cpu_percent for part in parts),
        intended=sum(part.intended for part in parts),
        sent=sum(part.sent for part in parts),
        send_lag=lag.encode(),
        undelivered=sum(part.undelivered for part in parts),
        stood_still_s=max(part.stood_still_s for part in parts),
    )


def merge_workers(number: int, parts: Sequence[Second]) -> Second:
    """One second of the run out of the parts of its workers."""
    gauges: dict[str, float] = defaultdict(float)
    for part in parts:
        for name, value in part.gauges.items():
            gauges[name] += value
    return Second(
        number,
        merge_operations(part.operations for part in parts),
        dict(gauges),
        merge_health([part.health for part in parts]),
        merge_operations(part.late for part in parts),
    )


class _TallySum:
    """One operation and outcome over many seconds."""

    __slots__ = ("count", "first_attempts", "resends_ambiguous", "response", "service")

    def __init__(self) -> None:
        self.count = self.first_attempts = self.resends_ambiguous = 0
        self.response, self.service = Histogram(), Histogram()

    def add(self, tally: Tally) -> None:
        self.count += tally.count
        self.first_attempts += tally.first_attempts
        self.resends_ambiguous += tally.resends_ambiguous
        self.response.add_encoded(tally.response)
        self.service.add_encoded(tally.service)

    def tally(self) -> Tally:
        response, service = self.response.encode(), self.service.encode()
        return Tally(self.count, self.first_attempts, response, service, self.resends_ambiguous)


class Totals:
    """The sums of many seconds, in memory that does not grow with them.

    Attributes:
        seconds: how many there were.
        last: number of the last one; -1 before the first.
    """

    def __init__(self) -> None:
        self.seconds = 0
        self.last = -1
        self._sums: dict[str, dict[OutcomeClass, _TallySum]] = {}
        self._lag = Histogram()
        self._health = GeneratorHealth()
        self._cpu = self._steal = 0.0

    def add(self, second: Second) -> None:
        """Add a second; they come in order."""
        self.seconds += 1
        self.last = second.second
        for name, outcomes in second.operations.items():
            sums = self._sums.setdefault(name, {})
            for outcome, tally in outcomes.items():
                if outcome not in sums:
                    sums[outcome] = _TallySum()
                sums[outcome].add(tally)
        health = second.health
        self._lag.add_encoded(health.send_lag)
        self._cpu += health.cpu_percent
        self._steal += health.steal_percent
        stood_still_s = self._health.stood_still_s + health.stood_still_s
        self._health = replace(merge_health([self._health, replace(health, send_lag="")]), stood_still_s=stood_still_s)

    @property
    def operations(self) -> Operations:
        """The sums of each operation."""
        return {name: {outcome: each.tally() for outcome, each in sums.items()} for name, sums in self._sums.items()}

    @property
    def health(self) -> GeneratorHealth:
        """The worst of each figure; of the processor the mean over the seconds of each one's busiest worker."""
        seconds = max(self.seconds, 1)
        found = replace(self._health, cpu_percent=self._cpu / seconds, steal_percent=self._steal / seconds)
        if not self._lag.count:
            return found
        return replace(found, send_lag_p99_s=self._lag.percentile(99), send_lag=self._lag.encode())


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


class Merger:
    """Merges the workers' seconds into those of the run; what a worker did not send in time is a declared gap.

    A second is handed out as soon as every worker has reported it, or when it has waited for :data:`PATIENCE` more.

    Args:
        workers: their numbers. A worker's seconds come in ascending order, as a pipe gives them.
        patience: see :data:`PATIENCE`.
    """

    def __init__(self, workers: Iterable[int], patience: int = PATIENCE) -> None:
        self._workers = {worker: _Worker() for worker in workers}
        self._patience = patience
        self._open: dict[int, dict[int, Second]] = {}
        self._next = 0
        self._newest = -1
        self._gaps: list[WorkerGap] = []

    def add(self, number: int, second: Second) -> bool:
        """Take in a worker's second; False when it came before, too late, or from a worker that was lost meanwhile."""
        worker = self._workers[number]
        if second.second <= worker.reported or worker.silent_because is not None:
            return False
        worker.reported = second.second
        self._newest = max(self._newest, second.second)
        if second.second < self._next:
            return False
        self._open.setdefault(second.second, {})[number] = second
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
    def gaps(self) -> tuple[WorkerGap, ...]:
        """What is missing in the seconds, by time."""
        return tuple(sorted(self._gaps, key=lambda gap: (gap.from_s, gap.worker)))

    def _is_complete(self) -> bool:
        return all(worker.reported >= self._next for worker in self._workers.values() if worker.silent_because is None)

    def _take_next(self) -> Second:
        number = self._next
        self._next += 1
        parts = self._open.pop(number, {})
        counted: dict[str, float] = defaultdict(float)
        for each, worker in self._workers.items():
            if each in parts:
                gauges = parts[each].gauges
                worker.counted = {name: value for name, value in gauges.items() if is_cumulative(name)}
            elif worker.reported > number:
                self._note_gap(each, number, "did not report")
            elif worker.silent_because != "":
                self._note_gap(each, number, worker.silent_because or _TOO_LATE)
            for name, value in worker.counted.items():  # what a worker had counted stays counted when it dies
                counted[name] += value
        found = merge_workers(number, list(parts.values()))
        return replace(found, gauges={**found.gauges, **counted})

    def _note_gap(self, worker: int, second: int, reason: str) -> None:
        for at, gap in enumerate(self._gaps):
            if (gap.worker, gap.reason, gap.to_s) == (worker, reason, second):
                self._gaps[at] = replace(gap, to_s=second + 1)
                return
        self._gaps.append(WorkerGap(worker, second, second + 1, reason))
