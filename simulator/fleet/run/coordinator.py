"""The coordinator: begins the run for all workers at once, opens the phases, merges the seconds, and ends it in order.

It decides by the workers' messages and the clock, and does no I/O of its own but through what it is given.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from agent.errors import StorageError, TransportError
from simulator.fleet.metrics.health import STOOD_STILL_S, boot_time
from simulator.fleet.metrics.merging import PATIENCE, Merger
from simulator.fleet.plan import Timeline
from simulator.fleet.record import Second, Span, WorkerGap
from simulator.fleet.run.clocks import apart
from simulator.fleet.run.messages import (
    Begin,
    Drain,
    Drained,
    EnterPhases,
    Finished,
    FromWorker,
    Heartbeat,
    Measured,
    Problem,
    Ready,
    Stop,
    ToWorker,
    on_clock,
)
from simulator.fleet.run.target_watch import TargetWatch
from simulator.fleet.run.workers import WorkerLost, Workers
from simulator.fleet.scenario.conditions import Condition, parse_condition
from simulator.fleet.scenario.model import LabelPhase, Phase
from simulator.fleet.workload.base import WorkloadSummary
from simulator.interrupts import interrupts_afterwards
from simulator.watched import describe

_log = logging.getLogger(__name__)

_LEAD_S: Final = 0.25
"""Between the word to begin and the begin: every worker has the message by then."""
_BUILT_PER_S: Final = 20_000
_LOOK_S: Final = 0.1
_BUILD_S: Final = 120.0
_DEVICES_PER_S: Final = 1000
_CLOSE_S: Final = 120.0
_HASTY_DRAIN_S: Final = 3.0
_SAME_CLOCK_S: Final = 0.1
"""Monotonic clocks that differ by less are that of one machine."""


@dataclass(frozen=True, slots=True)
class PhaseSchedule:
    """What the coordinator conducts.

    Attributes:
        phases: of the scenario.
        devices: of all workers.
        faults: when something is broken on purpose, as planned; seconds since the begin. Barriers move them.
        drain_s: how long everything may take to be handed over at the end.
    """

    phases: Sequence[Phase | LabelPhase]
    devices: int
    faults: tuple[Span, ...] = ()
    drain_s: float = 30.0


@dataclass(slots=True)
class RunOutcome:
    """What came of it.

    Attributes:
        phases: as they were, seconds since the begin.
        faults: those that had their time when the last phase began, with the time at which they are played.
        duration_s: from the begin until nothing was sent any more.
        summaries: the workers' last words, by worker.
        failures: what did not come out as the scenario says.
        problems: what workers reported, one sentence each.
        broken: which parts of the run itself an error has ended; no figure of it is whole then.
        unreachable: why the target counts as gone; None when it was there.
        interrupted: somebody ended it.
        drained_from_s: when the drain began, since the run's begin; None when there was none.
        late: devices that still held something at the end, and how many.
        stood_still_s: how long this process did nothing between the begin and the end of the drain.
        has_all_ledgers: those of every worker are here, also of workers on other machines.
    """

    phases: list[Span] = field(default_factory=list)
    faults: tuple[Span, ...] = ()
    began_s: float = 0.0
    duration_s: float = 0.0
    summaries: dict[int, WorkloadSummary] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    unreachable: str | None = None
    interrupted: bool = False
    drained_from_s: float | None = None
    late: tuple[str, ...] = ()
    late_count: int = 0
    stood_still_s: float = 0.0
    has_all_ledgers: bool = True


class RunListener(Protocol):
    """Receives what happens in a run while it goes on: the folder and the view do."""

    def second(self, second: Second, phase: Span | None, waiting_for: str, gaps: tuple[WorkerGap, ...]) -> None:
        """A second is complete; ``gaps`` are those of the run so far.

        Raises:
            StorageError: it could not be written.
        """
        ...

    def phase(self, outcome: RunOutcome) -> None:
        """A phase begins, the last one of the list."""
        ...

    def drain(self, outcome: RunOutcome) -> None:
        """The phases are over."""
        ...

    def received(self, message: FromWorker) -> None:
        """A worker sent a message."""
        ...

    def lost(self, gone: WorkerLost) -> None:
        """A worker is gone."""
        ...

    def warn(self, sentence: str) -> None:
        """Show a person this sentence at once."""
        ...


class _TargetGone(Exception):
    """Nothing answers any more."""


class Coordinator:
    """One run.

    Args:
        workers: started, and not yet listened to.
        schedule: what to conduct.
        merger: takes the workers' seconds.
        listener: receives what happens.
        now: the monotonic clock; each worker may have another one.
        boot_time: a clock that goes on while the machine sleeps.
        apart: how far the wall clock is ahead of the monotonic one; those of several machines show the same time.
    """

    def __init__(
        self,
        workers: Workers,
        schedule: PhaseSchedule,
        merger: Merger,
        listener: RunListener,
        *,
        now: Callable[[], float] = time.monotonic,
        boot_time: Callable[[], float] = boot_time,
        apart: Callable[[], float] = apart,
    ) -> None:
        self._workers = workers
        self._schedule = schedule
        self._merger = merger
        self._listener = listener
        self._now = now
        self._boot_time = boot_time
        self._apart = apart
        self._looked_s: float | None = None  # on the clock of ``boot_time``, while the load goes on
        self._watch = TargetWatch()
        self._done = RunOutcome()
        self._ahead_s: dict[int, float] = {}  # of workers that are ready: their monotonic clock, of this one
        self._drained: dict[int, Drained] = {}
        self._latest: Second | None = None
        self._waiting_for = ""
        self._full = False
        self._planned = Timeline.lasting((p.name, p.duration_s, p.until is not None) for p in schedule.phases)
        self._timeline = self._planned

    def conduct(self) -> RunOutcome:
        """The run from its begin to the workers' last words. Ctrl-C ends it early and in order; a second one at once.

        Raises:
            TransportError: no worker could begin; the text says why.
        """
        done = self._done
        try:
            self._gather()
            # Each worker builds its devices between the word and the begin.
            began_s = self._now() + _LEAD_S + self._schedule.devices / _BUILT_PER_S
            self._send(Begin(began_s))
            done.began_s = began_s
            self._looked_s = self._boot_time()
            self._play_phases()
            self._drain(self._schedule.drain_s)
        except KeyboardInterrupt:
            done.interrupted = True
            self._end_early()
        except _TargetGone:
            pass  # nobody is there to hand anything over to
        done.duration_s = max(0.0, self._now() - done.began_s) if done.began_s else 0.0
        if done.phases:
            over_s = done.duration_s if done.drained_from_s is None else done.drained_from_s
            done.phases[-1] = _ended(done.phases[-1], min(done.phases[-1].end_s, over_s))
        self._close()
        # Only now: what a worker said in time may have been on its way for longer than the drain.
        done.late = tuple(name for drained in self._drained.values() for name in drained.late)
        done.late_count = sum(drained.late_count for drained in self._drained.values())
        return done

    def _gather(self) -> None:
        """Wait until every worker has built its devices."""
        deadline_s = self._now() + _BUILD_S + self._schedule.devices / _DEVICES_PER_S
        while set(self._workers.living) - self._ahead_s.keys():
            self._receive(_LOOK_S)
            if self._now() > deadline_s:
                raise TransportError("the workers did not get ready in time: plan fewer devices, or more workers")
        if not self._workers.living:
            raise TransportError(self._done.problems[0] if self._done.problems else "no worker could begin")

    def _send(self, message: ToWorker) -> None:
        """Send a message to every living worker, with its times on the clock of each."""
        with interrupts_afterwards():
            for worker in self._workers.living:
                self._workers.send(worker, on_clock(message, self._ahead_s.get(worker, 0.0)))

    def _play_phases(self) -> None:
        done, begin_s = self._done, 0.0
        for index, phase in enumerate(self._schedule.phases):
            at_s = done.began_s + begin_s
            was_barrier = index > 0 and self._schedule.phases[index - 1].until is not None
            if was_barrier:
                self._timeline = self._timeline.entered(index, begin_s)
            done.faults = tuple(self._certain_faults(index))
            if index == 0 or was_barrier:
                # All that are certain by now, so that no later phase waits for a message.
                spans = self._timeline.spans[index : self._timeline.barrier_from(index) + 1]
                self._send(EnterPhases(index, tuple(done.began_s + span.begin_s for span in spans)))
            end_s = begin_s + phase.duration_s
            done.phases.append(Span(phase.name, phase.kind, begin_s, end_s, self._schedule.devices))
            self._listener.phase(done)
            self._play_until(at_s + phase.duration_s)
            if phase.until is not None:
                self._wait_for(phase, parse_condition(phase.until))
            begin_s = max(begin_s + phase.duration_s, self._now() - done.began_s if phase.until else 0.0)
            done.phases[-1] = _ended(done.phases[-1], begin_s)

    def _play_until(self, until_s: float) -> None:
        while (left_s := until_s - self._now()) > 0:
            if not self._workers.living:
                raise _TargetGone  # no worker is left; the gaps say so
            self._receive(min(left_s, _LOOK_S))

    def _wait_for(self, phase: Phase | LabelPhase, until: Condition) -> None:
        """Wait at a phase's end until its condition holds, for its time at most."""
        within_s = phase.until_within_s
        deadline_s = self._now() + within_s
        self._waiting_for = until.text
        while not (self._latest and until.holds(self._latest.gauges, self._schedule.devices)):
            late_s = self._now() - deadline_s
            if late_s > PATIENCE or (late_s > 0 and self._has_seen(deadline_s)):
                self._done.failures.append(
                    f"phase {phase.name}: {until.text!r} did not come true within {within_s:g} s after its end"
                )
                break
            self._play_until(self._now() + _LOOK_S)
        self._waiting_for = ""

    def _has_seen(self, at_s: float) -> bool:
        """Whether the seconds up to an instant have come: they may be on their way for a while."""
        return self._latest is not None and self._done.began_s + self._latest.second + 1 >= at_s

    def _drain(self, seconds: float) -> None:
        done, now_s = self._done, self._now()
        # The phases' end by the plan, not when it was noticed: what fell due in between is the drain's.
        from_s = min(done.began_s + done.phases[-1].end_s, now_s) if done.phases else now_s
        done.drained_from_s = max(0.0, from_s - done.began_s)
        until_s = now_s + seconds
        self._send(Drain(from_s, until_s))
        self._listener.drain(done)
        while set(self._workers.living) - self._drained.keys() and self._now() < until_s + _HASTY_DRAIN_S:
            self._receive(_LOOK_S)

    def _end_early(self) -> None:
        try:
            if self._done.began_s:
                self._listener.warn("ending: what is under way is handed over; Ctrl-C once more ends at once")
                self._drain(_HASTY_DRAIN_S)
        except (KeyboardInterrupt, _TargetGone):
            return

    def _close(self) -> None:
        """Wait for every worker's last message, and take the seconds that are left."""
        self._notice_standstill()
        self._looked_s = None
        self._send(Stop())
        deadline_s = self._now() + _CLOSE_S
        try:
            while self._workers.living and self._now() < deadline_s:
                self._receive(_LOOK_S)
        except (KeyboardInterrupt, _TargetGone):
            self._done.interrupted = self._done.interrupted or not self._done.unreachable
        for number in self._workers.living:
            self._done.problems.append(f"worker {number} did not end in time")
            self._merger.lost(number, "did not end in time")
        with contextlib.suppress(_TargetGone):
            # To the run's end, so that a worker that died last leaves its gap as well.
            self._show(self._merger.finish(math.ceil(self._done.duration_s)))

    def _receive(self, timeout_s: float) -> None:
        """Take what has come; Ctrl-C meanwhile counts when all of it is taken."""
        self._notice_standstill()
        with interrupts_afterwards():
            for message in self._workers.receive(timeout_s):
                self._take(message)
            self._show(self._merger.ready())

    def _notice_standstill(self) -> None:
        """Count the time since the last look, where nothing but a standstill makes it so long."""
        if self._looked_s is not None:
            now_s = self._boot_time()
            late_s = now_s - self._looked_s - _LOOK_S
            if late_s >= STOOD_STILL_S:
                self._done.stood_still_s += late_s
            self._looked_s = now_s

    def _take(self, message: FromWorker | WorkerLost) -> None:
        if not isinstance(message, WorkerLost):
            self._listener.received(message)
        match message:
            case Measured(worker, second):
                self._merger.add(worker, second)
            case Ready(worker, _, apart_s):
                ahead_s = self._apart() - apart_s
                self._ahead_s[worker] = 0.0 if abs(ahead_s) < _SAME_CLOCK_S else ahead_s
            case Drained(worker):
                self._drained[worker] = message
            case Finished(worker, summary):
                self._done.summaries[worker] = summary
                self._merger.ended(worker)
            case Problem(_, sentence):
                self._done.problems.append(sentence)
                self._done.broken.append(sentence)
                self._listener.warn(sentence)
            case WorkerLost(worker, reason):
                self._merger.lost(worker, reason)
                self._listener.lost(message)
            case Heartbeat():
                pass  # it only shows that the worker lives

    def _show(self, seconds: Iterable[Second]) -> None:
        for second in seconds:
            self._latest = second
            try:
                phase = self._done.phases[-1] if self._done.phases else None
                self._listener.second(second, phase, self._waiting_for, self._merger.gaps)
            except StorageError as error:
                if not self._full:
                    self._full = True
                    self._done.failures.append(f"seconds are missing in the run's folder: {error}")
                    self._listener.warn(str(error))
            except Exception as error:  # noqa: BLE001 - a mistake of this program, no reason to lose the run
                sentence = f"what shows the run ended unexpectedly: {describe(error)}"
                if sentence not in self._done.broken:
                    _log.exception("what shows the run ended unexpectedly")
                    self._done.broken.append(sentence)
            gone = self._watch.see(second, on_purpose=self._is_on_purpose(second.second))
            if gone and self._done.unreachable is None:
                self._done.unreachable = gone
                raise _TargetGone

    def _certain_faults(self, entered: int) -> Iterator[Span]:
        """The faults with the time at which they are played; without those behind a barrier that may still wait."""
        for fault in self._schedule.faults:
            begin_s = self._timeline.moved(fault.begin_s, self._planned, entered)
            if begin_s is not None:
                yield replace(fault, begin_s=begin_s, end_s=begin_s + fault.end_s - fault.begin_s)

    def _is_on_purpose(self, second: int) -> bool:
        spans: Sequence[Span] = (*self._done.faults, *(span for span in self._done.phases if span.kind == "storm"))
        return any(span.begin_s - 1 <= second <= span.end_s + 1 for span in spans)


def _ended(span: Span, end_s: float) -> Span:
    return replace(span, end_s=end_s)
