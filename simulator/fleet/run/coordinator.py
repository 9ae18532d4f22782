"""Begins a run for all workers at once, opens the phases, merges the seconds, and ends it in order."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from agent.errors import StorageError, TransportError
from agent.wire.times import to_rfc3339
from simulator.fleet.metrics.health import STOOD_STILL_S, boot_time
from simulator.fleet.metrics.judging import Alarm
from simulator.fleet.metrics.merging import PATIENCE
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.plan import Timeline
from simulator.fleet.record import Second, Span
from simulator.fleet.run.cluster.ray_workers import RayWorkers
from simulator.fleet.run.local_workers import LocalWorkers
from simulator.fleet.run.messages import (
    Begin,
    Drain,
    Drained,
    EnterPhases,
    Finished,
    FromWorker,
    Measured,
    Problem,
    Ready,
    Stop,
    ToWorker,
    WorkerLost,
)
from simulator.fleet.run.run import Run
from simulator.fleet.run.search import SearchUnderWay
from simulator.fleet.scenario.conditions import Condition, parse_condition
from simulator.fleet.scenario.model import LabelPhase, Phase, StepPhase, StepsPhase
from simulator.interrupts import interrupts_afterwards
from simulator.watched import describe

_log = logging.getLogger(__name__)

GONE_AFTER_S: Final = 15
"""So many seconds in a row in which requests were made and none was answered: the target went away."""
_LEAD_S: Final = 0.25
"""Between the order to begin and the begin: every worker has the message by then."""
_BUILT_PER_S: Final = 20_000
_WAIT_S: Final = 0.1
_BUILD_S: Final = 120.0
_DEVICES_PER_S: Final = 1000
_CLOSE_S: Final = 120.0
_HASTY_DRAIN_S: Final = 3.0
_NO_ANSWER: Final = frozenset({OutcomeClass.TRANSPORT, OutcomeClass.TIMEOUT})


class _TargetGone(Exception):
    """Nothing answers any more."""


class _Aborted(Exception):
    """A threshold of ``abort_on`` broke."""


class Coordinator:
    """Conducts one run.

    Args:
        run: what it is, and what comes of it.
        workers: started, and not yet listened to.
        now: the monotonic clock.
        boot_time: a clock that goes on while the machine sleeps.
    """

    def __init__(
        self,
        run: Run,
        workers: LocalWorkers | RayWorkers,
        *,
        now: Callable[[], float] = time.monotonic,
        boot_time: Callable[[], float] = boot_time,
    ) -> None:
        self._run = run
        self._workers = workers
        self._now = now
        self._boot_time = boot_time
        self._checked_s: float | None = None  # on the clock of ``boot_time``, while the load goes on
        self._began_s: float | None = None
        self._ready: set[int] = set()
        self._drained: dict[int, Drained] = {}
        self._latest: Second | None = None
        self._waiting_for = ""
        self._is_full = False
        self._silent_since: int | None = None
        self._last_loss = ""
        self._planned_faults = run.record.faults
        self._planned = self._timeline = Timeline.of(run.scenario)
        self._phases: list[Span] = []
        settings: StepsPhase | None = getattr(run.scenario, "search", None)
        self._search = SearchUnderWay(run, settings) if settings else None
        self._alarm = Alarm(run.scenario.abort_on)

    def conduct(self) -> None:
        """The run from its begin to the workers' last messages.

        Ctrl-C ends it early and in order; a second one at once.

        Raises:
            TransportError: no worker could begin; the text says why.
        """
        run = self._run
        try:
            self._wait_until_ready()
            # Each worker builds its devices between the order and the begin.
            after_s = _LEAD_S + run.record.devices / _BUILT_PER_S
            self._began_s = self._now() + after_s
            self._send(Begin(after_s))
            self._checked_s = self._boot_time()
            with contextlib.suppress(_Aborted):
                self._play_phases(run.scenario.phases)
            self._drain(run.scenario.drain_s)
        except KeyboardInterrupt:
            run.interrupted = True
            self._end_early()
        except _TargetGone:
            pass  # nobody is there to hand anything over to
        duration_s = max(0.0, self._since_begin_s()) if self._began_s is not None else 0.0
        run.record = replace(run.record, duration_s=duration_s)
        if self._phases:
            last = self._phases[-1]
            self._phases[-1] = replace(last, end_s=min(last.end_s, run.played_s))
        run.record = replace(run.record, phases=tuple(self._phases))
        self._close()
        # Only now: what a worker said in time may have been on its way for longer than the drain.
        run.late = tuple(name for drained in self._drained.values() for name in drained.late)
        run.late_count = sum(drained.late_count for drained in self._drained.values())

    def _since_begin_s(self) -> float:
        return self._now() - (self._began_s or 0.0)

    def _wait_until_ready(self) -> None:
        deadline_s = self._now() + _BUILD_S + self._run.record.devices / _DEVICES_PER_S
        while set(self._workers.living) - self._ready:
            self._receive(_WAIT_S)
            if self._now() > deadline_s:
                raise TransportError("the workers did not get ready in time: plan fewer devices, or more workers")
        if not self._workers.living:
            raise TransportError([*self._run.problems, f"no worker could begin: {self._last_loss}"][0])

    def _send(self, message: ToWorker) -> None:
        """Send a message to every living worker."""
        with interrupts_afterwards():
            for worker in self._workers.living:
                self._workers.send(worker, message)

    def _play_phases(self, phases: Iterable[Phase | LabelPhase]) -> None:
        begin_s, was_barrier = 0.0, True
        for index, phase in enumerate(phases):
            if was_barrier:
                if index:
                    self._timeline = self._timeline.entered(index, begin_s)
                # All that are certain by now, so that no later phase waits for a message.
                spans = self._timeline.spans[index : self._timeline.barrier_from(index) + 1]
                self._send(EnterPhases(index, tuple(span.begin_s for span in spans)))
            end_s = begin_s + phase.duration_s
            self._phases.append(Span(phase.name, phase.kind, begin_s, end_s, self._run.record.devices))
            began_at = time.time() - self._since_begin_s()
            self._run.update(
                phases=tuple(self._phases),
                faults=tuple(self._certain_faults(index)),
                load_began_at=self._run.record.load_began_at or to_rfc3339(began_at),
            )
            if isinstance(phase, StepPhase) and self._search is not None:
                self._search.begin_step()
            self._play_until((self._began_s or 0.0) + end_s)
            was_barrier = phase.waits
            if phase.until is not None:
                self._wait_for(phase, parse_condition(phase.until))
                end_s = max(end_s, self._since_begin_s())
            if isinstance(phase, StepPhase) and self._search is not None:
                if not self._holds(self._search, phase):
                    return
                end_s = max(end_s, self._since_begin_s())
            begin_s = end_s
            self._phases[-1] = replace(self._phases[-1], end_s=end_s)

    def _holds(self, search: SearchUnderWay, step: StepPhase) -> bool:
        """Whether the step of a search that has just been held did hold, once its whole seconds are here."""
        span, began_s = self._phases[-1], self._began_s or 0.0
        while not self._has_seen(began_s + math.floor(span.end_s)):
            if self._now() - began_s - span.end_s > PATIENCE:
                break
            self._play_until(self._now() + _WAIT_S)
        return search.end_step(step.level, span)

    def _play_until(self, until_s: float) -> None:
        while (left_s := until_s - self._now()) > 0:
            if not self._workers.living:
                raise _TargetGone  # no worker is left; the gaps say so
            self._receive(min(left_s, _WAIT_S))
            if self._run.aborted:
                raise _Aborted

    def _wait_for(self, phase: Phase | LabelPhase, until: Condition) -> None:
        """Wait at a phase's end until its condition holds, for its time at most."""
        within_s = phase.until_within_s
        deadline_s = self._now() + within_s
        self._waiting_for = until.text
        while not (self._latest and until.holds(self._latest.gauges, self._run.record.devices)):
            late_s = self._now() - deadline_s
            if late_s > PATIENCE or (late_s > 0 and self._has_seen(deadline_s)):
                self._run.failures.append(
                    f"phase {phase.name}: {until.text!r} did not come true within {within_s:g} s after its end"
                )
                break
            self._play_until(self._now() + _WAIT_S)
        self._waiting_for = ""

    def _has_seen(self, at_s: float) -> bool:
        """Whether the seconds up to an instant have come: they may be on their way for a while."""
        return self._latest is not None and (self._began_s or 0.0) + self._latest.second + 1 >= at_s

    def _drain(self, seconds: float) -> None:
        since_begin_s = self._since_begin_s()
        # The phases' end by the plan, not when it was noticed: what fell due in between is the drain's.
        from_s = max(0.0, min(self._phases[-1].end_s, since_begin_s)) if self._phases else max(0.0, since_begin_s)
        until_s = self._now() + seconds
        self._send(Drain(from_s, since_begin_s + seconds))
        self._run.update(phases=tuple(self._phases), drained_from_s=from_s)
        while set(self._workers.living) - self._drained.keys() and self._now() < until_s + _HASTY_DRAIN_S:
            self._receive(_WAIT_S)

    def _end_early(self) -> None:
        try:
            if self._began_s is not None:
                self._run.warn("ending: what is under way is handed over; Ctrl-C once more ends at once")
                self._drain(_HASTY_DRAIN_S)
        except (KeyboardInterrupt, _TargetGone):
            return

    def _close(self) -> None:
        """Wait for every worker's last message, and take the seconds that are left."""
        run = self._run
        self._notice_standstill()
        self._checked_s = None
        self._send(Stop())
        deadline_s = self._now() + _CLOSE_S
        try:
            while self._workers.living and self._now() < deadline_s:
                self._receive(_WAIT_S)
        except (KeyboardInterrupt, _TargetGone):
            run.interrupted = run.interrupted or not run.unreachable
        for number in self._workers.living:
            run.problems.append(f"worker {number} did not end in time")
            run.merger.lost(number, "did not end in time")
        with contextlib.suppress(_TargetGone):
            # To the run's end, so that a worker that died last leaves its gap as well.
            self._show(run.merger.finish(math.ceil(run.record.duration_s)))

    def _receive(self, timeout_s: float) -> None:
        """Take what has come; Ctrl-C meanwhile counts when all of it is taken."""
        self._notice_standstill()
        with interrupts_afterwards():
            for message in self._workers.receive(timeout_s):
                self._take(message)
            self._show(self._run.merger.ready())

    def _notice_standstill(self) -> None:
        """Count the time since the last call, where nothing but a standstill makes it so long."""
        if self._checked_s is not None:
            now_s = self._boot_time()
            late_s = now_s - self._checked_s - _WAIT_S
            if late_s >= STOOD_STILL_S:
                self._run.stood_still_s += late_s
            self._checked_s = now_s

    def _take(self, message: FromWorker) -> None:
        run = self._run
        run.receive(message)
        match message:
            case Measured(worker, second):
                run.merger.add(worker, second)
            case Ready(worker):
                self._ready.add(worker)
            case Drained(worker):
                self._drained[worker] = message
            case Finished(worker, summary):
                run.summaries[worker] = summary
                run.merger.ended(worker)
            case Problem(_, sentence):
                run.problems.append(sentence)
                run.broken.append(sentence)
                run.warn(sentence)
            case WorkerLost(worker, reason):
                run.merger.lost(worker, reason)
                self._last_loss = f"worker {worker}: {reason}"

    def _show(self, seconds: Iterable[Second]) -> None:
        run = self._run
        for second in seconds:
            self._latest = second
            if self._search is not None:
                self._search.take(second)
            if run.record.drained_from_s is None and not run.aborted and (why := self._alarm.take(second)):
                run.aborted = True
                run.failures.append(f"ended early: {why}")
                run.warn(run.failures[-1])
            try:
                run.take(second, self._waiting_for)
            except StorageError as error:
                if not self._is_full:
                    self._is_full = True
                    run.failures.append(f"seconds are missing in the run's folder: {error}")
                    run.warn(str(error))
            except Exception as error:  # noqa: BLE001 - a mistake of this program, no reason to lose the run
                sentence = f"what shows the run ended unexpectedly: {describe(error)}"
                if sentence not in run.broken:
                    _log.exception("what shows the run ended unexpectedly")
                    run.broken.append(sentence)
            self._check_target(second)

    def _check_target(self, second: Second) -> None:
        """End the run when nothing is answered any more.

        A second without any request proves nothing: perhaps nobody is left to make one.
        """
        counts = [(kind, tally.count) for kinds in second.operations.values() for kind, tally in kinds.items()]
        made, answered = sum(count for _, count in counts), any(kind not in _NO_ANSWER for kind, _ in counts)
        if answered or self._is_broken_on_purpose(second.second):
            self._silent_since = None
        elif made and self._silent_since is None:
            self._silent_since = second.second
        since = self._silent_since
        if made and since is not None and second.second - since >= GONE_AFTER_S and not self._run.unreachable:
            self._run.unreachable = f"the target went away: nothing was answered from second {since} on"
            raise _TargetGone

    def _is_broken_on_purpose(self, second: int) -> bool:
        spans = (*self._run.record.faults, *(span for span in self._phases if span.kind == "storm"))
        return any(span.begin_s - 1 <= second <= span.end_s + 1 for span in spans)

    def _certain_faults(self, entered: int) -> Iterator[Span]:
        """The faults with the time at which they are played; without those behind a barrier that may still wait."""
        for fault in self._planned_faults:
            begin_s = self._timeline.moved(fault.begin_s, self._planned, entered)
            if begin_s is not None:
                yield replace(fault, begin_s=begin_s, end_s=begin_s + fault.end_s - fault.begin_s)
