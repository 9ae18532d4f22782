"""A run while it goes on: its record so far, its sums, what its workers said, and whom all of it is shown to."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import replace
from enum import StrEnum
from importlib.metadata import version
from typing import Any, Final

from agent.errors import StorageError
from agent.wire.times import to_rfc3339
from simulator.fleet.forecast import planned_faults
from simulator.fleet.metrics.merging import Merger, Totals
from simulator.fleet.metrics.saturation import Saturation
from simulator.fleet.plan import Plan
from simulator.fleet.record import (
    GeneratorHealth,
    RunRecord,
    Second,
    Span,
    ThresholdResult,
    Verdict,
    VerdictStatus,
)
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.formatting import Tone
from simulator.fleet.report.views import RunStatus, RunView, phase_under_way, spans_under_way
from simulator.fleet.run.messages import Drained, Finished, FromWorker, Ready, WorkerLost
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.workload.base import WorkloadSummary

_NOT_YET: Final = Verdict(VerdictStatus.INTERRUPTED, 130, ("the run has not ended",))
_DRAIN: Final = "drain"


class WorkerState(StrEnum):
    """What a worker is doing."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    DONE = "done"
    DEAD = "dead"


_STATES: Final[dict[type, WorkerState]] = {
    Ready: WorkerState.RUNNING,
    Drained: WorkerState.DRAINING,
    Finished: WorkerState.DONE,
    WorkerLost: WorkerState.DEAD,
}


def first_record(file: ScenarioFile, target: str, plan: Plan, workers: int, machines: str = "") -> RunRecord:
    """What is known before the first second.

    Args:
        file: the scenario.
        target: its address.
        plan: of the scenario.
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
        digest=plan.digest,
        transport="http" if scenario.kind == "onboarding" else scenario.target.transport,
        workers=workers,
        devices=devices,
        began_at=to_rfc3339(time.time()),
        ended_at="",
        duration_s=0.0,
        machine="; ".join(filter(None, (here, machines))),
        version=version("device-agent"),
        target=target,
        verdict=_NOT_YET,
        phases=tuple(
            Span(span.name, phase.kind, span.begin_s, span.end_s, devices)
            for span, phase in zip(plan.timeline.spans, scenario.phases, strict=True)
        ),
        faults=planned_faults(scenario),
        operations={},
        health=GeneratorHealth(),
        thresholds=tuple(
            ThresholdResult(expression, held=False, observed=None, reason=_NOT_YET.sentences[0], judged=False)
            for expression in scenario.thresholds
        ),
        scenario_text=file.text,
    )


class Run:
    """A run that goes on.

    Attributes:
        record: what is known of it.
        merger, totals, saturation: of the workers' seconds.
        summaries: the workers' last messages, by worker.
        failures: what did not come out as the scenario says.
        problems: what workers reported, one sentence each.
        broken: which parts of the run itself an error has ended; no figure of it is whole then.
        unreachable: why the target counts as gone; empty when it was there.
        interrupted: somebody ended it.
        aborted: a threshold of ``abort_on`` broke, and ended it.
        late: devices that still held something at the end, a few; ``late_count`` are all.
        stood_still_s: how long this process did nothing between the begin and the end of the drain.
        has_all_ledgers: those of every worker are here, also of workers on other machines.
    """

    def __init__(self, scenario: Scenario, folder: RunFolder, record: RunRecord, view: RunView | None = None) -> None:
        self.scenario = scenario
        self.folder = folder
        self.record = record
        self.view = view or RunView()
        self.merger = Merger(range(record.workers))
        self.totals = Totals()
        self.saturation = Saturation()
        self.summaries: dict[int, WorkloadSummary] = {}
        self.failures: list[str] = []
        self.problems: list[str] = []
        self.broken: list[str] = []
        self.unreachable = ""
        self.interrupted = False
        self.aborted = False
        self.late: tuple[str, ...] = ()
        self.late_count = 0
        self.stood_still_s = 0.0
        self.has_all_ledgers = True
        self._workers = dict.fromkeys(range(record.workers), WorkerState.STARTING)

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
            # The file still says what it said, and the run has another chance to write it at its end.
            self.view.note(str(error), Tone.WARN)

    def warn(self, sentence: str) -> None:
        """Show a person this sentence at once."""
        self.view.note(sentence, Tone.WARN)

    def receive(self, message: FromWorker) -> None:
        """A worker sent a message, or is lost."""
        self._workers[message.worker] = _STATES.get(type(message), self._workers[message.worker])
        if isinstance(message, WorkerLost):
            self.view.note(f"worker {message.worker}: {message.reason}", Tone.BAD)

    def take(self, second: Second, waiting_for: str = "") -> None:
        """A second is complete: it is added up, shown and written down.

        Args:
            second: the next one.
            waiting_for: the condition that the phase waits for; empty when it waits for none.

        Raises:
            StorageError: it could not be written down.
        """
        self.totals.add(second)
        self.saturation.add(second)
        try:
            faults = spans_under_way(self.record.faults, second.second)
            status = RunStatus(self._phase_of(second), waiting_for, faults, dict(self._workers), self.merger.gaps)
            self.view.second(second, status)
        finally:
            self.folder.append(second)

    def _phase_of(self, second: Second) -> Span | None:
        """The phase of a second; after the phases devices hand over what they still hold, as one of them."""
        begin_s = self.record.drained_from_s
        if begin_s is not None and second.second + 1 > begin_s:
            return Span(_DRAIN, _DRAIN, begin_s, begin_s + self.scenario.drain_s)
        return phase_under_way(self.record.phases, second.second)
