"""The coordinator of a run: begins it for all workers at once, opens phases, merges seconds, and ends it in order."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Final

from agent.errors import StorageError, TransportError
from agent.wire.encoding import to_rfc3339
from simulator.fleet.forecast import planned_faults
from simulator.fleet.metrics.health import Saturation
from simulator.fleet.metrics.recorder import PATIENCE, Merger, Totals
from simulator.fleet.metrics.thresholds import Alarm
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.plan import Timeline, digest_of
from simulator.fleet.record import (
    NOT_ENDED,
    RunRecord,
    Second,
    Span,
    ThresholdResult,
)
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.formatting import Tone
from simulator.fleet.report.progress import Progress
from simulator.fleet.run.limit_search import LimitSearch
from simulator.fleet.run.local_workers import LocalWorkers
from simulator.fleet.run.ray_workers import RayWorkers
from simulator.fleet.run.worker import Begin, Drain, EnterPhases, FromWorker, Lost, Problem, Sign, Stop, ToWorker
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.phases import LabelPhase, Phase, StepPhase, StepsPhase, holds
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.workload.base import Leftover, WorkloadSummary
from simulator.interrupts import interrupts_afterwards
from simulator.watched import describe

_log = logging.getLogger(__name__)

GONE_AFTER_S: Final = 15
"""The target counts as gone after so many seconds in a row with requests and without an answer."""
_LEAD_S: Final = 0.25
"""From the message Begin to the begin of the load: every worker has the message by then."""
_WAIT_S: Final = 0.1
_BUILD_S: Final = 120.0
_BUILT_PER_S_AT_LEAST: Final = 1000
"""Workers that are not ready after ``_BUILD_S``, and the time that their devices take at this pace, are given up."""
_CLOSE_S: Final = 120.0
_HASTY_DRAIN_S: Final = 3.0
_NO_ANSWER: Final = frozenset({OutcomeClass.TRANSPORT, OutcomeClass.TIMEOUT})
_DRAIN: Final = "drain"


def first_record(file: ScenarioFile, target: str, workers: int, machines: str = "") -> RunRecord:
    """The record of a run before its first second.

    Args:
        file: the scenario.
        target: its address.
        workers: processes.
        machines: of a cluster, with their workers; empty for this machine alone.
    """
    scenario = file.scenario
    here = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    devices = scenario.fleet.devices
    return RunRecord(
        name=scenario.scenario,
        kind=scenario.kind,
        seed=scenario.seed,
        digest=digest_of(scenario),
        transport="http" if scenario.kind == "onboarding" else scenario.target.transport,
        workers=workers,
        devices=devices,
        began_at=to_rfc3339(time.time()),
        machine="; ".join(filter(None, (here, machines))),
        version=version("device-agent"),
        target=target,
        phases=tuple(
            Span(phase.name, phase.kind, span.begin_s, span.end_s, devices)
            for span, phase in zip(Timeline.of(scenario).spans, scenario.phases, strict=True)
        ),
        faults=planned_faults(scenario),
        thresholds=tuple(
            ThresholdResult(expression, held=False, observed=None, reason=NOT_ENDED.sentences[0], judged=False)
            for expression in scenario.thresholds
        ),
        scenario_text=file.text,
    )


class Run:
    """A run in progress.

    Args:
        scenario: what is run.
        folder: where it is written down.
        record: what is known of it.
        progress: shows it to people.
        workers: make the load.
        now: the monotonic clock.

    Attributes:
        record: what is known of it by now.
        merger, totals, saturation: computed from what the workers measured in each second.
        summaries: the workers' last messages, by worker.
        failures: what did not come out as the scenario says, one sentence each.
        internal_errors: what went wrong in the run itself, one sentence each; its figures are not complete then.
        unreachable: why the target counts as gone; empty when it was there.
        interrupted: it was ended by hand.
        aborted: a threshold of ``abort_on`` broke, and ended it.
        leftovers: what each worker still held when the drain ended, by worker.
    """

    def __init__(
        self,
        scenario: Scenario,
        folder: RunFolder,
        record: RunRecord,
        progress: Progress,
        workers: LocalWorkers | RayWorkers,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scenario = scenario
        self.folder = folder
        self.record = record
        self.progress = progress
        self.merger = Merger(range(record.workers))
        self.totals = Totals()
        self.saturation = Saturation()
        self.summaries: dict[int, WorkloadSummary] = {}
        self.leftovers: dict[int, Leftover] = {}
        self.failures: list[str] = []
        self.internal_errors: list[str] = []
        self.unreachable = ""
        self.interrupted = self.aborted = False
        self._workers = workers
        self._states = dict.fromkeys(range(record.workers), "starting")
        self._now = now
        self._began_s = math.inf  # on the monotonic clock
        self._latest: Second | None = None
        self._waiting_for = ""
        self._lacks_seconds = False
        self._silent_since: int | None = None
        self._last_loss = ""
        self._planned_faults = record.faults
        self._planned = self._timeline = Timeline.of(scenario)
        self._phases: list[Span] = []
        self._alarm = Alarm(scenario.abort_on)
        phase: StepsPhase | None = getattr(scenario, "search", None)
        self._search = None if phase is None else LimitSearch(scenario, phase)
        if self._search is not None:
            self.update(search=self._search.found)

    @property
    def played_s(self) -> float:
        """How long the phases lasted."""
        drained_from_s = self.record.drained_from_s
        return self.record.duration_s if drained_from_s is None else drained_from_s

    def update(self, **changes: Any) -> None:
        """Change the record, and write it down."""
        self.record = replace(self.record, **changes)
        try:
            self.folder.keep(self.record)
        except StorageError as error:
            # The file is still as it was before, and is written again at the end of the run.
            self._warn(str(error))

    def _warn(self, sentence: str) -> None:
        self.progress.note(sentence, Tone.WARN)

    def wait_until_ready(self) -> None:
        """Wait until every worker that was started is ready to begin.

        Raises:
            TransportError: they take too long, or none is left; the text says why.
        """
        deadline_s = self._now() + _BUILD_S + self.record.devices / _BUILT_PER_S_AT_LEAST
        while any(self._states[worker] == "starting" for worker in self._workers.living):
            self._receive(_WAIT_S)
            if self._now() > deadline_s:
                raise TransportError("the workers did not get ready in time: plan fewer devices, or more workers")
        if not self._workers.living:
            raise TransportError([*self.internal_errors, f"no worker could begin: {self._last_loss}"][0])

    def conduct(self) -> None:
        """Lead the run from its begin to the workers' last messages; all workers are ready.

        Ctrl-C ends it early and in order; a second one at once.
        """
        try:
            self._began_s = self._now() + _LEAD_S
            self._send(Begin(_LEAD_S))
            self._play_phases(self.scenario.phases)
            if self._workers.living and not self.unreachable:
                self._drain(self.scenario.drain_s)
        except KeyboardInterrupt:
            self.interrupted = True
            self._warn("ending: what is under way is handed over; Ctrl-C once more ends at once")
            with contextlib.suppress(KeyboardInterrupt):
                # The end of a drain that goes on already cannot be changed: it is cut off after these seconds.
                self._drain(_HASTY_DRAIN_S if self.record.drained_from_s is None else 0.0)
        self.record = replace(self.record, duration_s=max(0.0, self._since_begin_s()))
        if self._phases:
            self._end_phase(min(self._phases[-1].end_s, self.played_s))
        self.record = replace(self.record, phases=tuple(self._phases))
        self._close()

    def _since_begin_s(self) -> float:
        return self._now() - self._began_s

    @property
    def _is_over(self) -> bool:
        """Whether the phases end before their time; where no worker is left the gaps say so."""
        return self.aborted or bool(self.unreachable) or not self._workers.living

    def _send(self, message: ToWorker) -> None:
        with interrupts_afterwards():
            for worker in self._workers.living:
                self._workers.send(worker, message)

    # --- phases -------------------------------------------------------------------------------------------------------

    def _play_phases(self, phases: Iterable[Phase | LabelPhase]) -> None:
        begin_s, was_barrier = 0.0, True
        for index, phase in enumerate(phases):
            if was_barrier:
                if index:
                    self._timeline = self._timeline.entered(index, begin_s)
                # The begins of all phases up to the next of unknown length, so that none of them waits for a message.
                spans = self._timeline.spans[index : self._timeline.barrier_from(index) + 1]
                self._send(EnterPhases(index, tuple(span.begin_s for span in spans)))
            end_s = begin_s + phase.duration_s
            self._phases.append(Span(phase.name, phase.kind, begin_s, end_s, self.record.devices))
            began_at = time.time() - self._since_begin_s()
            self.update(
                phases=tuple(self._phases),
                faults=tuple(self._certain_faults(index)),
                load_began_at=self.record.load_began_at or to_rfc3339(began_at),
            )
            if self._search is not None:
                self._search.seconds.clear()
            self._play_until(end_s)
            was_barrier = self._timeline.spans[index].waits
            if phase.until is not None:
                self._wait_for(phase, phase.until)
            if self._is_over:
                return
            if isinstance(phase, StepPhase) and self._search is not None and not self._holds(phase, self._search):
                return
            # A barrier, and a step that is judged, may take longer.
            begin_s = max(end_s, self._since_begin_s()) if was_barrier else end_s
            self._end_phase(begin_s)

    def _end_phase(self, end_s: float) -> None:
        self._phases[-1] = replace(self._phases[-1], end_s=end_s)

    def _certain_faults(self, entered: int) -> Iterator[Span]:
        """The faults whose time is known by now: none after a barrier that may still wait."""
        for fault in self._planned_faults:
            begin_s = self._timeline.moved(fault.begin_s, self._planned, entered)
            if begin_s is not None:
                yield replace(fault, begin_s=begin_s, end_s=begin_s + fault.end_s - fault.begin_s)

    def _play_until(self, until_s: float) -> None:
        while not self._is_over and (left_s := until_s - self._since_begin_s()) > 0:
            self._receive(min(left_s, _WAIT_S))

    def _wait_for(self, phase: Phase | LabelPhase, until: str) -> None:
        """Wait at a phase's end until its condition holds, for ``until_within_s`` at most."""
        within_s, devices = phase.until_within_s, self.record.devices
        self._waiting_for = until
        if (
            not self._wait(
                lambda: self._latest is not None and holds(until, self._latest.gauges, devices),
                self._since_begin_s() + within_s,
            )
            and not self._is_over
        ):
            self.failures.append(f"phase {phase.name}: {until!r} did not come true within {within_s:g} s after its end")
        self._waiting_for = ""

    def _wait(self, is_so: Callable[[], bool], until_s: float) -> bool:
        """Poll ``is_so`` until ``until_s``, plus :data:`PATIENCE` seconds for late messages about earlier seconds."""
        while not self._is_over and not is_so():
            late_s = self._since_begin_s() - until_s
            if late_s > PATIENCE or (late_s > 0 and self._has_seconds_up_to(until_s)):
                break
            self._receive(_WAIT_S)
        return is_so()

    def _has_seconds_up_to(self, at_s: float) -> bool:
        """Whether all seconds before ``at_s`` were received."""
        return self._latest is not None and self._latest.second + 1 >= at_s

    def _holds(self, step: StepPhase, search: LimitSearch) -> bool:
        """Whether the step that was just played met its thresholds; waits until all its seconds were received."""
        end_s = self._phases[-1].end_s
        if not self._wait(lambda: self._has_seconds_up_to(math.floor(end_s)), end_s) and self._is_over:
            return False
        missing = [f"worker {gap.worker} did not report: {gap.reason}" for gap in self.merger.gaps]
        holds = search.judge(step.level, self.record, (*self.internal_errors, *missing))
        self.update(search=search.found)
        return holds

    # --- the end ------------------------------------------------------------------------------------------------------

    def _drain(self, drain_s: float) -> None:
        since_begin_s = self._since_begin_s()
        # The planned end of the phases, not when it was noticed: what fell due in between is the drain's.
        from_s = max(0.0, min(self._phases[-1].end_s, since_begin_s)) if self._phases else max(0.0, since_begin_s)
        until_s = since_begin_s + drain_s
        self._send(Drain(from_s, until_s))
        self.update(phases=tuple(self._phases), drained_from_s=from_s)
        while set(self._workers.living) - self.leftovers.keys() and not self.unreachable:
            if self._since_begin_s() > until_s + _HASTY_DRAIN_S:
                break
            self._receive(_WAIT_S)

    def _close(self) -> None:
        """Wait for every worker's last message, and take the seconds that are left."""
        self._send(Stop())
        deadline_s = self._now() + _CLOSE_S
        try:
            while self._workers.living and self._now() < deadline_s:
                self._receive(_WAIT_S)
        except KeyboardInterrupt:
            self.interrupted = True
        for number in self._workers.living:
            self.merger.lost(number, "did not end in time")
        # Up to the run's end: a worker that died in the last seconds has its gap there.
        self._take_seconds(self.merger.finish(math.ceil(self.record.duration_s)))

    # --- what workers say ---------------------------------------------------------------------------------------------

    def _receive(self, timeout_s: float) -> None:
        """Take all messages that have come; Ctrl-C in the meantime is raised afterwards."""
        with interrupts_afterwards():
            for worker, message in self._workers.receive(timeout_s):
                self._take(worker, message)
            self._take_seconds(self.merger.ready())

    def _take(self, worker: int, message: FromWorker) -> None:
        match message:
            case Second():
                self.merger.add(worker, message)
            case Sign.READY:
                self._states[worker] = "running"
            case Leftover():
                self._states[worker] = "draining"
                self.leftovers[worker] = message
            case WorkloadSummary():
                self._states[worker] = "done"
                self.summaries[worker] = message
                self.merger.ended(worker)
            case Problem(sentence):
                text = f"worker {worker}: {sentence}"
                self.internal_errors.append(text)
                self._warn(text)
            case Lost(reason):
                self._states[worker] = "dead"
                self.merger.lost(worker, reason)
                self._last_loss = f"worker {worker}: {reason}"
                self.progress.note(self._last_loss, Tone.BAD)

    def _take_seconds(self, seconds: Iterable[Second]) -> None:
        """Add up, write down and show the next seconds; end the run when ``abort_on`` breaks or the target is gone."""
        for second in seconds:
            self._latest = second
            self.totals.add(second)
            self.saturation.add(second)
            if self._search is not None:
                self._search.seconds.append(second)
            if self.record.drained_from_s is None and not self.aborted and (why := self._alarm.take(second)):
                self.aborted = True
                self.failures.append(f"ended early: {why}")
                self._warn(self.failures[-1])
            try:
                self.folder.append(second)
            except StorageError as error:
                if not self._lacks_seconds:
                    self._lacks_seconds = True
                    self.failures.append(f"seconds are missing in the run's folder: {error}")
                    self._warn(str(error))
            try:
                self._show(second)
            except Exception as error:  # noqa: BLE001 - a bug in a view must not end the run
                sentence = f"what shows the run ended unexpectedly: {describe(error)}"
                if sentence not in self.internal_errors:
                    _log.exception("what shows the run ended unexpectedly")
                    self.internal_errors.append(sentence)
            self._check_target(second)

    def _show(self, second: Second) -> None:
        begin_s, number = self.record.drained_from_s, second.second
        if begin_s is not None and number + 1 > begin_s:
            # After the phases devices hand over what they still hold, as one more of them.
            phase: Span | None = Span(_DRAIN, _DRAIN, begin_s, begin_s + self.scenario.drain_s)
        else:  # the one that the second ended in: where two share it, the later one
            phase = next((span for span in reversed(self.record.phases) if span.begin_s < number + 1), None)
        self.progress.second(
            second,
            phase=phase,
            waiting_for=self._waiting_for,
            faults=[fault for fault in self.record.faults if fault.begin_s <= number < fault.end_s],
            workers=self._states,
            gaps=self.merger.gaps,
        )

    def _check_target(self, second: Second) -> None:
        """End the run when nothing is answered any more.

        A second without any request proves nothing: perhaps no device is online.
        """
        outcomes = {kind for kinds in second.operations.values() for kind, tally in kinds.items() if tally.count}
        if outcomes - _NO_ANSWER or self._is_fault_under_way(second.second):
            self._silent_since = None
        elif outcomes:
            since = self._silent_since = second.second if self._silent_since is None else self._silent_since
            if second.second - since >= GONE_AFTER_S:
                self.unreachable = f"the target went away: nothing was answered from second {since} on"

    def _is_fault_under_way(self, second: int) -> bool:
        return any(span.begin_s - 1 <= second <= span.end_s + 1 for span in self.record.faults)
