"""What all kinds of workload have: a job, one interface, and what they measure of devices, commands and requests."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from agent.core.values import OutcomeStatus
from agent.errors import ErrorAnswer, ServiceError
from simulator.fleet.audit.ledger import CommandEvent, Ledger, LedgerTarget
from simulator.fleet.device.answers import Retries, outcome_of
from simulator.fleet.device.http_messages import Request
from simulator.fleet.device.model import RUN_OVER, Observer
from simulator.fleet.engine.http_answers import HttpAnswer
from simulator.fleet.engine.pool import HttpPool, NoAnswerInTime
from simulator.fleet.metrics.ages import READING_AGE, CommandTracker, EndState, Stage
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.record import AuditRecord, CommandEnds, Span
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.settings import KeyPairFile
from simulator.fleet.target.client import Keyring, TargetClient
from simulator.fleet.target.target import read_keys

Result = TypeVar("Result")

_LATE_SHOWN: Final = 10
_SENTENCES_KEPT: Final = 50
_SENTENCE_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One worker's part of a run, pickled; of secrets it has the paths.

    Attributes:
        workload_class: of the scenario's kind.
        scenario: the whole one.
        run: identifies this run.
        began_s: when the run was prepared, seconds since the epoch.
        base_url: of the service.
        ca_file: the authorities that alone are trusted over TLS; None trusts the system's.
        keys: those of the run. Each device uses one of them; other requests rotate through all.
        offers: the service's extensions.
        device_url: what the devices talk to: the service, or the gateway in front of it.
        device_offers: the extensions there.
        tokens: file with the device tokens by device id, JSON; None where devices use keys.
        broker_url: where devices speak MQTT.
        devices: the range of this worker, in the fleet.
        device_ids: of those devices; of an onboarding what identifies them on their labels.
        model_numbers: the model of each of them.
        folder: of the scenario's file: relative paths in it start there.
        ledger: where this worker's ledger goes; None keeps none.
        connections: requests under way at once, where devices share connections.
    """

    workload_class: Callable[[Job, Recorder], Workload]
    scenario: Scenario
    run: str
    base_url: str
    keys: tuple[KeyPairFile, ...]
    product_id: str
    offers: frozenset[str]
    device_url: str
    device_offers: frozenset[str]
    devices: range
    device_ids: tuple[str, ...]
    model_numbers: tuple[int, ...]
    folder: Path
    began_s: float = 0.0
    ca_file: Path | None = None
    tokens: Path | None = None
    broker_url: str | None = None
    ledger: LedgerTarget | None = None
    connections: int = 16

    def make(self, recorder: Recorder) -> Workload:
        """Build everything; called in the running loop. Nothing is sent yet.

        Raises:
            AgentError: this job cannot be played here; the text goes to the coordinator.
        """
        return self.workload_class(self, recorder)


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """What a worker's part of a run adds to the run's record.

    Attributes:
        faults: what was broken on purpose, and when.
        failures: what did not end as the scenario demands, one sentence each.
        missed: ledger entries that could not be written; the audit is incomplete then.
        audit: of a workload that reads back by itself; None where the coordinator does.
        commands: how commands ended, one entry for each of the scenario's and one for all that it did not send.
        extras: further results of this kind of workload, by name.
        success_note: what a passed run has proved, for its verdict; empty for nothing.
    """

    faults: tuple[Span, ...] = ()
    failures: tuple[str, ...] = ()
    missed: int = 0
    audit: AuditRecord | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[CommandEnds, ...] = ()
    success_note: str = ""


@dataclass(frozen=True, slots=True)
class Leftover:
    """Devices that still had something to send when the time for draining was over.

    Attributes:
        names: of devices, a few.
        count: how many there are.
    """

    names: tuple[str, ...] = ()
    count: int = 0

    @classmethod
    def of(cls, names: Sequence[str]) -> Leftover:
        """Build it from the names of all these devices."""
        return cls(tuple(names[:_LATE_SHOWN]), len(names))


class Workload(Protocol):
    """One worker's part of a run. All calls come from the worker's loop; times are on its monotonic clock."""

    def begin(self, at_s: float) -> None:
        """The run begins at this instant, which may be a moment ahead."""
        ...

    def enter_phase(self, index: int, at_s: float) -> None:
        """This phase of the scenario begins."""
        ...

    def gauges(self) -> Mapping[str, float]:
        """Current values, such as ``online``; called once a second."""
        ...

    async def drain(self, from_s: float, until_s: float) -> Leftover:
        """Start nothing new, and return when nothing waits any more, or at ``until_s``.

        Args:
            from_s: when the phases were over: what fell due before is not new.
            until_s: the deadline.
        """
        ...

    async def close(self) -> WorkloadSummary:
        """Close every connection and file, and sum up."""
        ...


_STAGES: Final[Mapping[str, Stage]] = {
    "ordered": Stage.SENT,
    "received": Stage.DELIVERED,
    "started": Stage.STARTED,
    "finished": Stage.FINISHED,
    "reported": Stage.REPORTED,
}


class Measurement(Observer):
    """A worker's observer (:class:`~simulator.fleet.device.model.Observer`): passes everything to the recorder.

    Attributes:
        is_excused: whether a device's link, and not the generator, is the reason that it cannot send now.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.is_excused: Callable[[int], bool] = lambda _device: False
        self._sentences: Counter[str] = Counter()

    @property
    def errors(self) -> Mapping[str, Any]:
        """Why exchanges failed, for :class:`WorkloadSummary`'s extras."""
        return {"errors": dict(self._sentences)} if self._sentences else {}

    def exchanged(
        self,
        operation: str,
        outcome: OutcomeClass,
        device: int,
        intended_s: float,
        ready_s: float,
        sent_s: float | None,
        now_s: float,
        attempt: Attempt = Attempt.FIRST,
    ) -> None:
        """See :meth:`Observer.exchanged`."""
        recorder = self.recorder
        if sent_s is not None:
            recorder.intended += 1
            recorder.sent += 1
        elif not self.is_excused(device):
            recorder.intended += 1
        recorder.record(
            operation, outcome, intended_s=intended_s, sent_s=sent_s, now_s=now_s, ready_s=ready_s, attempt=attempt
        )

    def faulted(self, operation: str, device: int, sentence: str) -> None:
        """See :meth:`Observer.faulted`."""
        del device
        text = f"{operation}: {sentence}"[:_SENTENCE_CHARACTERS]
        if text in self._sentences or len(self._sentences) < _SENTENCES_KEPT:
            self._sentences[text] += 1

    def readings_ended(self, taken_s: Iterable[float], outcome: OutcomeClass, now_s: float) -> None:
        """See :meth:`Observer.readings_ended`."""
        record = self.recorder.record
        for at_s in taken_s:
            # This is no sending of its own, so it has no part in the send lag.
            record(READING_AGE, outcome, intended_s=at_s, sent_s=None, now_s=now_s)

    def readings_missed(self, count: int) -> None:
        """See :meth:`Observer.readings_missed`: the plan asked for them, so they count as intended."""
        self.recorder.intended += count


class TrackedLedger(Ledger):
    """A ledger that also tells the command tracker how far each command has come.

    Args:
        ledger: keeps everything.
        commands: the tracker.

    Attributes:
        began_s: the run's begin on the monotonic clock: the ledger's times count from it.
    """

    began_s = 0.0

    def __init__(self, ledger: Ledger, commands: CommandTracker) -> None:
        self._ledger = ledger
        self._commands = commands
        # The ledger's own methods, without a call in between: they run for each reading.
        self.digest = ledger.digest  # type: ignore[method-assign]
        self.reading_sent = ledger.reading_sent  # type: ignore[method-assign]
        self.readings = ledger.readings  # type: ignore[method-assign]

    def command(self, event: CommandEvent, device: int, command_id: str, at_s: float, **facts: Any) -> None:
        """See :meth:`Ledger.command`."""
        self._ledger.command(event, device, command_id, at_s, **facts)
        stage = _STAGES.get(event)
        if stage is not None:
            state = _end_state(facts["detail"], facts["error"]) if stage is Stage.FINISHED else None
            self._commands.mark(command_id, stage, at_s + self.began_s, state)
        elif event == "undeliverable":
            self._commands.end(command_id)


def _end_state(status: str, error: str | None) -> EndState:
    """The end state as the sender sees it: a command that reached its device too late has expired."""
    is_late = status == OutcomeStatus.REJECTED and error is not None and error.partition(":")[0] == "expired"
    return EndState.EXPIRED if is_late else EndState(status)


class MeasuredRequests:
    """Sends requests to the service and measures each sending. Rotates key pairs; retries until a final answer.

    Args:
        job: of the worker.
        connections: how many may be open at once.
        measurement: of the worker.

    Attributes:
        count: how many requests went out.
    """

    def __init__(self, job: Job, connections: int, measurement: Measurement) -> None:
        self.count = 0
        self._keys = Keyring(read_keys(job.keys))
        timeout_s = job.scenario.target.timeout_s
        self._pool = HttpPool(job.base_url, connections=connections, timeout_s=timeout_s, ca_file=job.ca_file)
        self._measurement = measurement

    def client(self, offers: frozenset[str]) -> TargetClient:
        """A client for requests beside the load, which are not measured."""
        return TargetClient(self._pool, self._keys, offers)

    async def ask(
        self,
        request: Request,
        read: Callable[[HttpAnswer], Result],
        goes_again: Callable[[ServiceError], bool],
        retries: Retries,
        device: int = 0,
    ) -> Result:
        """Send a request until a final answer; one that the end of the run cuts off counts as undelivered.

        Args:
            request: due at its ``intended_s``.
            read: reads an answer; raises for one that is not good.
            goes_again: whether to retry after this error, which is counted in ``retries`` already.
            retries: of this request: its pauses, and whether the service may have it.
            device: that it is about, by its index in the fleet.

        Raises:
            ServiceError: the last one.
        """
        due_s = request.intended_s
        try:
            while True:
                ended, has_left = await self._send(request, read, retries, due_s, device)
                if not isinstance(ended, ServiceError):
                    return ended
                pause_s = retries.failed(ended, left=has_left)
                if not goes_again(ended):
                    raise ended
                due_s = time.monotonic() + pause_s
                await asyncio.sleep(pause_s)
        except asyncio.CancelledError:
            self._measurement.recorder.undelivered += 1
            raise

    async def _send(
        self, request: Request, read: Callable[[HttpAnswer], Result], retries: Retries, due_s: float, device: int
    ) -> tuple[Result | ServiceError, bool]:
        """Send it once; the result, and whether it left."""
        self.count += 1
        headers = {**self._keys.headers(self.count), **request.headers}
        attempt, begun_s, cut_off = retries.attempt, time.monotonic(), None
        sent = self._pool.send(request.method, request.target, request.body, headers)
        ended: Result | ServiceError
        try:
            ended = read(await sent.answer)
        except ServiceError as error:
            ended = error
        except asyncio.CancelledError as cancelled:
            ended, sent.sent_s, cut_off = NoAnswerInTime(RUN_OVER), begun_s, cancelled
            retries.failed(ended)
        outcome, now_s = OutcomeClass.OK, time.monotonic()
        if isinstance(ended, ServiceError):
            outcome = outcome_of(ended)
            if not isinstance(ended, ErrorAnswer):
                self._measurement.faulted(request.operation, device, str(ended))
        self._measurement.exchanged(request.operation, outcome, device, due_s, due_s, sent.sent_s, now_s, attempt)
        if cut_off is not None:
            raise cut_off
        return ended, sent.sent_s is not None

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()
