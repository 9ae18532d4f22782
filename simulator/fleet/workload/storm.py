"""The onboarding storm (scenario kind ``onboarding``): labels arrive at a planned rate, one coroutine for each."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, cast

import numpy as np

from agent.errors import Advice, AgentError, NotFound, ServiceError, TransportError
from agent.health import Backoff
from agent.wire.answers import Answer
from agent.wire.encoding import encode_json
from agent.wire.models import Device
from gateway.client import RegisterDevice
from simulator.fleet.device.answers import Retries, judge, read_written
from simulator.fleet.device.http_messages import Operation, Request
from simulator.fleet.engine.http_answers import HttpAnswer
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import Attempt
from simulator.fleet.record import STORM, AuditRecord, DeviceFinding, StreamAudit
from simulator.fleet.scenario.model import OnboardingScenario
from simulator.fleet.signals import DeviceRandom, salt_of
from simulator.fleet.target.provisioning import MARK
from simulator.fleet.workload.base import Job, Leftover, MeasuredRequests, Measurement, Result, WorkloadSummary
from simulator.watched import start_task
from simulator.wire import paths
from simulator.wire.models import ScanAnswer, ScanQr
from simulator.wire.qr import LabelText, encode_label

_TRIES: Final = 6
_BACKOFF: Final = Backoff(base_s=0.2, cap_s=5.0)
_CONFLICT: Final = 409
_FAULT_CHARACTERS: Final = 200
_FINDINGS_KEPT: Final = 100
_RACE: Final = salt_of("storm", "race")
_SECOND_PERSON: Final = "-2"


@dataclass(slots=True)
class Journey:
    """One label's course.

    Attributes:
        raced: two people register it at the same moment.
        winners: the users whose registration was accepted, each once.
        device_id: as the registration answered it.
        unsure: a request went out and no attempt had an answer, so that the label may be registered or not.
        faults: why a step failed, one sentence each.
    """

    number: int
    identifier: str
    raced: bool = False
    winners: list[str] = field(default_factory=list)
    device_id: str = ""
    unsure: bool = False
    faults: list[str] = field(default_factory=list)


class StormWorkload:
    """Plays an ``onboarding`` scenario: registrations from labels at a planned rate.

    Args:
        job: what is to be done.
        recorder: of the worker.
    """

    def __init__(self, job: Job, recorder: Recorder) -> None:
        self._job = job
        self._recorder = recorder
        scenario = cast("OnboardingScenario", job.scenario)
        self._settings = scenario.onboarding
        target, user = scenario.target, scenario.fleet.user_id
        self._users = (user, f"{user}{_SECOND_PERSON}")
        self._measurement = Measurement(recorder)
        self._requests = MeasuredRequests(job, target.pool, self._measurement)
        self._journeys: list[Journey] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrivals: asyncio.Task[None] | None = None
        phases, rate_per_s = scenario.phases, self._settings.rate_per_s
        bounds_s = [0.0, *accumulate(phase.duration_s for phase in phases)]
        counts = [0.0, *accumulate(rate_per_s * phase.rate_factor * phase.duration_s for phase in phases)]
        self._due_s = np.interp(range(len(job.device_ids)), counts, bounds_s)  # of each label, since the run's begin
        self._began_s = 0.0

    def begin(self, at_s: float) -> None:
        """Start the arrivals."""
        self._began_s = at_s
        self._arrivals = start_task(self._arrive(), "arrivals")

    def enter_phase(self, index: int, at_s: float) -> None:
        """No-op: arrivals are planned for all phases, and no barrier moves them."""

    def gauges(self) -> Mapping[str, float]:
        """The number of labels begun, under way, and registered."""
        return {
            "labels": len(self._journeys),
            "under_way": len(self._tasks),
            "registered": sum(1 for journey in self._journeys if journey.winners),
        }

    async def drain(self, from_s: float, until_s: float) -> Leftover:
        """Start no new label, and wait for those under way. Scans that were due and not begun count as undelivered."""
        if self._arrivals is not None:
            self._arrivals.cancel()
            await asyncio.wait([self._arrivals])
            due = int(np.count_nonzero(self._due_s < from_s - self._began_s))
            unbegun = max(0, due - len(self._journeys))
            self._recorder.intended += unbegun
            self._recorder.undelivered += unbegun
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=max(0.0, until_s - time.monotonic()))
        return Leftover.of(sorted(task.get_name() for task in self._tasks))

    async def close(self) -> WorkloadSummary:
        """Read back what is listed for both people, judge it, and close the connections."""
        # Without a drain, since the target is gone, arrivals still run as well.
        unfinished = [*self._tasks, *([self._arrivals] if self._arrivals is not None else [])]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        try:
            listed, complete = await self._listed()
        finally:
            await self._requests.close()
        journeys = self._journeys
        races = [journey for journey in journeys if journey.raced and not journey.unsure]
        decided = sum(len(set(journey.winners)) == 1 for journey in races)
        faults = Counter(sentence for journey in journeys for sentence in journey.faults)
        failures = [f"{sentence}: {count} times" for sentence, count in faults.most_common()]
        if decided < len(races):
            failures.append(f"{len(races) - decided} of {len(races)} races were won by nobody or by both")
        numbers = {"labels": len(journeys), "races": len(races), "races_decided": decided}
        note = f"of {len(races):,} labels that two people wanted, each went to exactly one" if races else ""
        audit = judge_storm(journeys, listed, complete=complete)
        extras = {STORM: numbers, **self._measurement.errors}
        return WorkloadSummary(failures=tuple(failures), audit=audit, extras=extras, success_note=note)

    async def _arrive(self) -> None:
        """Start labels at the scenario's rate, whatever the target does."""
        for number, identifier in enumerate(self._job.device_ids):
            due_s = self._began_s + float(self._due_s[number])
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            chance = DeviceRandom(self._job.scenario.seed, identifier).uniform(_RACE, number)
            journey = Journey(number, identifier, raced=chance < self._settings.races)
            self._journeys.append(journey)
            task = start_task(self._go(journey, due_s), identifier)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # --- a label's journey --------------------------------------------------------------------------------------------

    async def _go(self, journey: Journey, due_s: float) -> None:
        """Scan and register."""
        label = encode_label(LabelText(self._job.product_id, journey.identifier))
        body = encode_json(ScanQr(qr_data=label).to_wire())
        request = Request(Operation.SCAN, "POST", paths.SCAN_QR, body, intended_s=due_s)
        answer = await self._ask(journey, request, judge, Retries(_BACKOFF, random.random))
        if answer is None:
            return
        found = read_written(ScanAnswer, answer, "scan", {})
        if found.device_identifier not in {None, journey.identifier}:
            journey.faults.append("scan-qr named another device than the label")
        people = self._users if journey.raced else self._users[journey.number % 2 :][:1]
        due_s = time.monotonic()
        await asyncio.gather(*(self._register(journey, user, found.qr_info, due_s) for user in people))

    async def _register(self, journey: Journey, user: str, qr_info: dict[str, Any], due_s: float) -> None:
        body = RegisterDevice(
            user_id=user,
            product_id=self._job.product_id,
            device_name=f"{MARK} {self._job.scenario.scenario} {journey.number:06d}",
            device_identifier=journey.identifier,
            qr_info=qr_info,
        )
        path, content = paths.ONBOARDING_DEVICES, encode_json(body.to_wire())
        request = Request(Operation.REGISTER, "POST", path, content, intended_s=due_s)
        retries = Retries(_BACKOFF, random.random)

        def registered(answer: HttpAnswer) -> Answer | None:
            """None for a label that is taken: by the other person, or by an earlier attempt that got no answer."""
            is_taken = answer.status == _CONFLICT and (journey.raced or retries.attempt is Attempt.AMBIGUOUS)
            return None if is_taken else judge(answer)

        answer = await self._ask(journey, request, registered, retries)
        if answer is not None:
            journey.winners.append(user)
            journey.device_id = read_written(Device, answer, "device", {}).device_id or journey.device_id
        elif retries.attempt is Attempt.AMBIGUOUS:
            journey.unsure = True

    async def _ask(
        self, journey: Journey, request: Request, read: Callable[[HttpAnswer], Result], retries: Retries
    ) -> Result | None:
        """One step until its final answer; None after a failure, which is noted in the journey."""

        def goes_again(error: ServiceError) -> bool:
            return error.advice is Advice.RETRY and retries.failures < _TRIES

        try:
            return await self._requests.ask(request, read, goes_again, retries)
        except ServiceError as error:
            if isinstance(error, TransportError) and retries.attempt is Attempt.AMBIGUOUS:
                journey.unsure = True
            else:
                journey.faults.append(f"{request.operation}: {error}"[:_FAULT_CHARACTERS])
        return None

    async def _listed(self) -> tuple[list[tuple[str, str]], bool]:
        """(User, identifier) of each label's device that the service lists; and whether all lists could be read."""
        client, wanted = self._requests.client(self._job.offers), set(self._job.device_ids)
        found: list[tuple[str, str]] = []
        for user in self._users:
            try:
                async for items in client.pages(paths.user_devices(user), client.paging):
                    names = [Device.receive(item).device_identifier for item in items]
                    found += [(user, name) for name in names if name in wanted]
            except NotFound:
                continue  # nobody was registered for this user
            except AgentError:
                return found, False
        return found, True


def judge_storm(
    journeys: Sequence[Journey], listed: Iterable[tuple[str, str]], *, complete: bool = True
) -> AuditRecord:
    """Compare what the service lists in the end with what it answered before.

    Args:
        journeys: those that were begun.
        listed: user and identifier of each device that the service lists, as often as it is listed.
        complete: every list was read to its end.
    """
    there = Counter(listed)
    times = Counter(name for _, name in there.elements())
    findings: list[DeviceFinding] = []
    counts: Counter[str] = Counter()
    for journey in journeys:
        name, kind = journey.identifier, ""
        if len(set(journey.winners)) > 1 or times[name] > 1:
            kind = "doubled"
        elif journey.unsure:
            counts["ambiguous"] += 1
        elif journey.winners and not there[journey.winners[0], name]:
            kind = "altered" if times[name] else "lost"
        elif not journey.winners and times[name]:
            kind = "unknown"
        if kind:
            counts[kind] += 1
            findings.append(DeviceFinding(journey.device_id, name, kind, 1))
    begun = {journey.identifier for journey in journeys}
    counts["unknown"] += sum(1 for name in times if name not in begun)
    stream = StreamAudit(
        sent=len(journeys),
        accepted=sum(1 for journey in journeys if journey.winners),
        stored=times.total(),
        lost=counts["lost"],
        doubled=counts["doubled"],
        altered=counts["altered"],
        unknown=counts["unknown"],
        ambiguous=counts["ambiguous"],
    )
    sentence = (
        f"{stream.sent:,} labels: {stream.accepted:,} registered, {stream.stored:,} listed in the end; {stream.lost:,} "
        f"lost, {stream.doubled:,} doubled, {stream.altered:,} with the wrong user, {stream.unknown:,} that should not "
        f"be there, {stream.ambiguous:,} without an answer"
    )
    return AuditRecord(None, None, complete, (sentence,), tuple(findings[:_FINDINGS_KEPT]), registrations=stream)
