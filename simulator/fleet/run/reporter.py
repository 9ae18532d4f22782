"""Writes what happens in a run to its folder, and shows it in its view; progress of registering its devices."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from agent.errors import StorageError
from agent.wire.times import to_rfc3339
from simulator.fleet.forecast import clock
from simulator.fleet.metrics.merging import Totals
from simulator.fleet.metrics.saturation import Saturation
from simulator.fleet.record import RunRecord, Second, Span, WorkerGap
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.live import RunView
from simulator.fleet.report.run_status import (
    RunStatus,
    StreamSoFar,
    WorkerState,
    WorkerStatus,
    phase_under_way,
    spans_under_way,
)
from simulator.fleet.run.coordinator import RunOutcome
from simulator.fleet.run.messages import Drained, Finished, FromWorker, Measured, Ready
from simulator.fleet.run.preparing import Prepared
from simulator.fleet.run.workers import WorkerLost
from simulator.fleet.scenario.model import REGISTERED_PER_S, Scenario
from simulator.report_parts.values import Tone

_DRAIN: Final = "drain"
_MEASURED_AFTER_S: Final = 5.0
_STAGE: Final = "preparing devices"


@dataclass(slots=True)
class RunReporter:
    """Writes a run to its folder and shows it (a :class:`~simulator.fleet.run.coordinator.RunListener`)."""

    folder: RunFolder
    view: RunView
    record: RunRecord
    prepared: Prepared
    scenario: Scenario
    totals: Totals = field(default_factory=Totals)
    saturation: Saturation = field(default_factory=Saturation)
    workers: dict[int, WorkerStatus] = field(default_factory=dict)

    def second(self, second: Second, phase: Span | None, waiting_for: str, gaps: tuple[WorkerGap, ...]) -> None:
        """A second is complete; ``gaps`` are those of the run so far."""
        self.saturation.add(second)
        self.totals.add(second)
        try:
            # A second comes when the next phase may have begun: it belongs to the one that it was measured in.
            now = self._after_phases(second) or phase_under_way(self.record.phases, second.second) or phase
            self.view.show(second, self._standing(second, now, waiting_for, gaps))
        finally:
            self.folder.append(second)

    def phase(self, outcome: RunOutcome) -> None:
        """A phase begins, the last one of the list. See :class:`~simulator.fleet.run.coordinator.RunListener`."""
        began_at = self.record.load_began_at or to_rfc3339(time.time() - time.monotonic() + outcome.began_s)
        self.record = replace(self.record, phases=tuple(outcome.phases), faults=outcome.faults, load_began_at=began_at)
        self._keep()

    def drain(self, outcome: RunOutcome) -> None:
        """The phases are over. See :class:`~simulator.fleet.run.coordinator.RunListener`."""
        self.record = replace(self.record, phases=tuple(outcome.phases), drained_from_s=outcome.drained_from_s)
        self._keep()

    def _keep(self) -> None:
        try:
            self.folder.keep(self.record)
        except StorageError as error:
            # The file still says what it said, and the run has another chance to write it at its end.
            self.view.note(str(error), Tone.WARN)

    def lost(self, gone: WorkerLost) -> None:
        """A worker is gone. See :class:`~simulator.fleet.run.coordinator.RunListener`."""
        self.workers[gone.worker] = replace(self._worker(gone.worker), state=WorkerState.DEAD)
        self.view.note(f"worker {gone.worker}: {gone.reason}", Tone.BAD)

    def received(self, message: FromWorker) -> None:
        """A worker sent a message. See :class:`~simulator.fleet.run.coordinator.RunListener`."""
        standing = self._worker(message.worker)
        match message:
            case Ready(_, devices):
                standing = replace(standing, state=WorkerState.RUNNING, devices=devices)
            case Measured(_, second):
                standing = replace(standing, cpu_percent=second.health.cpu_percent)
            case Drained():
                standing = replace(standing, state=WorkerState.DRAINING)
            case Finished():
                standing = replace(standing, state=WorkerState.DONE)
        self.workers[message.worker] = standing

    def _after_phases(self, second: Second) -> Span | None:
        """What comes after the phases, as one of them: devices hand over what they still hold."""
        begin_s = self.record.drained_from_s
        if begin_s is None or second.second + 1 <= begin_s:
            return None
        return Span(_DRAIN, _DRAIN, begin_s, begin_s + self.scenario.drain_s)

    def _worker(self, number: int) -> WorkerStatus:
        return self.workers.get(number) or WorkerStatus(number, WorkerState.STARTING)

    def warn(self, sentence: str) -> None:
        """Show a person this sentence at once. See :class:`~simulator.fleet.run.coordinator.RunListener`."""
        self.view.note(sentence, Tone.WARN)

    def _standing(self, second: Second, phase: Span | None, waiting_for: str, gaps: tuple[WorkerGap, ...]) -> RunStatus:
        gauges = second.gauges
        workers = tuple(map(self._worker, range(len(self.prepared.jobs))))
        audit = {}
        if "readings_sent" in gauges:
            audit["readings"] = StreamSoFar(
                int(gauges["readings_sent"]), int(gauges["readings_accepted"]), int(gauges["readings_unanswered"])
            )
            ordered, reported = int(gauges["commands_ordered"]), int(gauges["commands_reported"])
            audit["commands"] = StreamSoFar(ordered, reported, ordered - reported)
        faults = spans_under_way(self.record.faults, second.second)
        return RunStatus(phase, waiting_for, faults, workers, audit, gaps)


class Registering:
    """Called with the number of registered and of wanted devices, first when nothing is registered yet by this run.

    Args:
        view: shows it.
        now: monotonic seconds.
    """

    def __init__(self, view: RunView, now: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._now = now
        self._first: tuple[float, int] | None = None
        self._is_measured = False
        self.done = self.whole = 0
        """How many are registered at least, and how many are wanted."""

    def __call__(self, done: int, whole: int) -> None:
        """Show it."""
        now_s, missing = self._now(), whole - done
        self.done, self.whole = done, whole
        if self._first is None:
            self._first = now_s, done
            if missing:
                about = clock(math.ceil(missing / REGISTERED_PER_S))
                self._view.note(f"registering {missing:,} devices: about {about} at {REGISTERED_PER_S:g}/s")
        elif not self._is_measured and missing:
            since_s, before = self._first
            if now_s - since_s >= _MEASURED_AFTER_S and done > before:
                self._is_measured = True
                rate = (done - before) / (now_s - since_s)
                left = clock(math.ceil(missing / rate))
                self._view.note(f"the service registers {rate:.0f} devices/s: about {left} to go")
        self._view.stage(_STAGE, done, whole)
