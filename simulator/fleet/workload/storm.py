"""The onboarding storm (scenario kind ``onboarding``): labels arrive at a planned rate, one coroutine for each."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx

from agent.errors import AgentError, NotFound, ServiceError, TransportError
from agent.health import Backoff
from agent.wire.answers import Answer
from agent.wire.encoding import encode_json
from agent.wire.models import Device
from agent.wire.server import NO_EXTENSIONS
from gateway.client import RegisterDevice
from simulator.fleet.device.answers import Retries, outcome_of, read_written
from simulator.fleet.engine.http_answers import HttpAnswer
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import STORM, AuditRecord, DeviceFinding, StreamAudit
from simulator.fleet.scenario.model import OnboardingScenario
from simulator.fleet.signals import DeviceRandom, salt_of
from simulator.fleet.target.provisioning import MARK
from simulator.fleet.target.target import KeyPairFile
from simulator.fleet.workload.base import Leftover, MeasuredRequests, WorkloadSummary
from simulator.watched import start_task
from simulator.wire import paths
from simulator.wire.models import ScanAnswer, ScanQr
from simulator.wire.qr import LabelText, encode_label

SCAN: Final = "http.scan_qr"
REGISTER: Final = "http.register"
REMOVE: Final = "http.remove"
_TRIES: Final = 6
_BACKOFF: Final = Backoff(base_s=0.2, cap_s=5.0)
_CONFLICT: Final = 409
_GONE: Final = 404
_LATER: Final = frozenset({OutcomeClass.LIMITED, OutcomeClass.SERVER_ERROR})
_FAULT_CHARACTERS: Final = 200
_FINDINGS_KEPT: Final = 100
_RACE: Final = salt_of("storm", "race")
_REMOVE: Final = salt_of("storm", "remove")
_SECOND_PERSON: Final = "-2"

Record = TypeVar("Record", ScanAnswer, Device)


@dataclass(frozen=True, slots=True, kw_only=True)
class StormJob:
    """What a storm needs, pickled.

    Attributes:
        keys: they take turns.
        identifiers: one for each label; none of them is registered before.
        offers: the service's extensions.
        ca_file: the authorities that alone are trusted there; None trusts the system's.
    """

    scenario: OnboardingScenario
    base_url: str
    keys: tuple[KeyPairFile, ...]
    product_id: str
    identifiers: tuple[str, ...]
    offers: frozenset[str] = NO_EXTENSIONS
    ca_file: Path | None = None

    def make(self, recorder: Recorder) -> StormWorkload:
        """Build everything; called in the running loop. Nothing is sent yet."""
        return StormWorkload(self, recorder)


@dataclass(slots=True)
class Journey:
    """One label's course: what is planned, a function of seed and number alone, and how it went.

    Attributes:
        raced: two people register it at the same moment.
        removed: its device is removed again, by two requests at once where it was raced for.
        winners: the users whose registration was answered as theirs, each once.
        device_id: as the registration answered it.
        removals: how many removals were answered as done.
        unsure: a request got no answer through all tries, so what is there may be either.
        faults: what the service answered that it must not, one sentence each.
    """

    number: int
    identifier: str
    raced: bool = False
    removed: bool = False
    winners: list[str] = field(default_factory=list)
    device_id: str = ""
    removals: int = 0
    unsure: bool = False
    faults: list[str] = field(default_factory=list)

    @property
    def is_expected_in_list(self) -> bool:
        """Whether its device must be listed in the end."""
        return bool(self.winners) and not self.removals


class StormWorkload:
    """Plays an ``onboarding`` scenario: registrations from labels at a planned rate.

    Args:
        job: what is to be done.
        recorder: of the worker.
    """

    def __init__(self, job: StormJob, recorder: Recorder) -> None:
        self._job = job
        self._recorder = recorder
        self._settings = job.scenario.onboarding
        target, user = job.scenario.target, job.scenario.fleet.identities.user_id
        self._users = (user, f"{user}{_SECOND_PERSON}")
        self._requests = MeasuredRequests(job.base_url, job.keys, target.pool, target.timeout_s, job.ca_file, recorder)
        self._journeys: list[Journey] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrivals: asyncio.Task[None] | None = None
        self._factor = 1.0
        self._due_s = 0.0

    @property
    def devices(self) -> int:
        """One label for each device."""
        return len(self._job.identifiers)

    def begin(self, at_s: float) -> None:
        """Labels begin to arrive."""
        self._arrivals = start_task(self._arrive(at_s), "arrivals")

    def enter_phase(self, index: int, at_s: float) -> None:
        """Let labels arrive at the rate of this phase."""
        del at_s
        self._factor = self._job.scenario.phases[index].rate_factor

    def gauges(self) -> Mapping[str, float]:
        """Labels that were begun, are under way, and are registered."""
        return {
            "labels": len(self._journeys),
            "under_way": len(self._tasks),
            "registered": sum(1 for journey in self._journeys if journey.is_expected_in_list),
        }

    async def drain(self, from_s: float, until_s: float) -> Leftover:
        """No new label; those under way come to their end. Scans that were due and never begun are counted."""
        if self._arrivals is not None:
            self._arrivals.cancel()
            await asyncio.wait([self._arrivals])
            due = int(max(0.0, from_s - self._due_s) * self._settings.rate_per_s * self._factor)
            unbegun = min(due, self.devices - len(self._journeys))
            self._recorder.intended += unbegun
            self._recorder.undelivered += unbegun
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=max(0.0, until_s - time.monotonic()))
        return Leftover(tuple(sorted(task.get_name() for task in self._tasks)[:10]), len(self._tasks))

    async def close(self) -> WorkloadSummary:
        """Read back what is listed for both people, judge it, and close the connections."""
        # A run that was not drained, since the target is gone, has labels to come as well.
        unfinished = [*self._tasks, *([self._arrivals] if self._arrivals is not None else [])]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        try:
            listed, complete = await self._listed()
        finally:
            await self._requests.close()
        journeys = self._journeys
        races = [journey for journey in journeys if journey.raced]
        decided = sum(len(set(journey.winners)) == 1 for journey in races)
        faults = Counter(sentence for journey in journeys for sentence in journey.faults)
        failures = [f"{sentence}: {count} times" for sentence, count in faults.most_common()]
        if decided < len(races):
            failures.append(f"{len(races) - decided} of {len(races)} races were won by nobody or by both")
        numbers = {
            "labels": len(journeys),
            "races": len(races),
            "races_decided": decided,
            "removed": sum(1 for journey in journeys if journey.removals),
        }
        held = f"of {len(races):,} labels that two people wanted, each went to exactly one" if races else ""
        audit = judge_storm(journeys, listed, complete=complete)
        return WorkloadSummary(failures=tuple(failures), audit=audit, extras={STORM: numbers}, held=held)

    async def _arrive(self, at_s: float) -> None:
        """Labels at the scenario's rate, whatever the target does."""
        settings, self._due_s = self._settings, at_s
        for number, identifier in enumerate(self._job.identifiers):
            await asyncio.sleep(max(0.0, self._due_s - time.monotonic()))
            chance = DeviceRandom(self._job.scenario.seed, identifier).uniform
            raced, removed = chance(_RACE, number) < settings.races, chance(_REMOVE, number) < settings.remove
            journey = Journey(number, identifier, raced, removed)
            self._journeys.append(journey)
            task = start_task(self._go(journey, self._due_s), identifier)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._due_s += 1.0 / (settings.rate_per_s * self._factor)

    # --- a label's journey --------------------------------------------------------------------------------------------

    async def _go(self, journey: Journey, due_s: float) -> None:
        """Scan, register, and for some: remove."""
        label = encode_label(LabelText(self._job.product_id, journey.identifier))
        answer = await self._ask(journey, SCAN, "POST", paths.SCAN_QR, ScanQr(qr_data=label).to_wire(), due_s)
        if answer is None:
            return
        found = _read(ScanAnswer, answer, "scan")
        if found.device_identifier not in {None, journey.identifier}:
            journey.faults.append("scan-qr named another device than the label")
        people = self._users if journey.raced else self._users[journey.number % 2 :][:1]
        due_s = time.monotonic()
        await asyncio.gather(*(self._register(journey, user, found.qr_info, due_s) for user in people))
        if journey.removed and journey.device_id:
            due_s = time.monotonic()
            await asyncio.gather(*(self._remove(journey, due_s) for _ in people))
            if journey.removals > 1:
                journey.faults.append("a removed device was removed once more")

    async def _register(self, journey: Journey, user: str, qr_info: dict[str, Any], due_s: float) -> None:
        body = RegisterDevice(
            user_id=user,
            product_id=self._job.product_id,
            device_name=f"{MARK} {self._job.scenario.scenario} {journey.number:06d}",
            device_identifier=journey.identifier,
            qr_info=qr_info,
        )
        also_good = _CONFLICT if journey.raced else None  # somebody else was first
        answer = await self._ask(journey, REGISTER, "POST", paths.ONBOARDING_DEVICES, body.to_wire(), due_s, also_good)
        if answer is not None and answer.status != _CONFLICT:
            journey.winners.append(user)
            named = _read(Device, answer, "device").device_id
            journey.device_id = named or journey.device_id or await self._listed_id(user, journey.identifier)

    async def _remove(self, journey: Journey, due_s: float) -> None:
        path = paths.onboarding_device(journey.device_id)
        # 404: the other one's removal, or the first try of this one, which got no answer, was carried out.
        answer = await self._ask(journey, REMOVE, "DELETE", path, None, due_s, _GONE)
        if answer is not None and answer.status != _GONE:
            journey.removals += 1

    async def _ask(
        self,
        journey: Journey,
        operation: str,
        method: str,
        target: str,
        body: Any,
        due_s: float,
        also_good: int | None = None,
    ) -> HttpAnswer | None:
        """One step until it is answered for good; None when it never was, or was refused, which the journey notes."""
        retries, unanswered = Retries(_BACKOFF, random.random), 0
        text = None if body is None else encode_json(body)
        for _ in range(_TRIES):
            try:
                answer = await self._requests.send(
                    operation, method, target, text, due_s=due_s, attempt=retries.attempt, also_good=also_good
                )
            except ServiceError as error:
                is_unanswered = isinstance(error, TransportError)
                if not is_unanswered and outcome_of(error) not in _LATER:
                    journey.faults.append(f"{operation}: {error}"[:_FAULT_CHARACTERS])
                    return None
                unanswered += is_unanswered
                pause_s = retries.failed(error)
            else:
                is_gone = answer.status == also_good == _GONE
                journey.unsure = journey.unsure or (is_gone and bool(unanswered))
                return answer
            due_s = time.monotonic() + pause_s
            await asyncio.sleep(pause_s)
        journey.unsure = True
        return None

    # --- what is listed -----------------------------------------------------------------------------------------------

    async def _devices_of(self, user: str) -> list[Device]:
        """What the service lists for one of the two people; nothing before the first registration."""
        client, found = self._requests.client(self._job.offers), []
        with contextlib.suppress(NotFound):
            async for items in client.pages(paths.user_devices(user), client.paging):
                found += [Device.receive(item) for item in items]
        return found

    async def _listed_id(self, user: str, identifier: str) -> str:
        """The id of a device by the list of devices, where its registration did not name it; empty without one."""
        with contextlib.suppress(AgentError):
            for device in await self._devices_of(user):
                if device.device_identifier == identifier:
                    return device.device_id
        return ""

    async def _listed(self) -> tuple[dict[str, list[str]], bool]:
        """The identifiers that the service lists for each of the two; False when it could not be read to the end."""
        wanted = set(self._job.identifiers)
        listed: dict[str, list[str]] = {}
        for user in self._users:
            try:
                names = [device.device_identifier for device in await self._devices_of(user)]
            except AgentError:
                return listed, False
            listed[user] = [name for name in names if name in wanted]
        return listed, True


def _read(model: type[Record], answer: HttpAnswer, word: str) -> Record:
    return read_written(model, Answer(answer.status, httpx.Headers(), answer.body, "the service"), word, {})


def judge_storm(
    journeys: Sequence[Journey], listed: Mapping[str, Iterable[str]], *, complete: bool = True
) -> AuditRecord:
    """Hold what the service lists in the end against what it answered on the way.

    Args:
        journeys: those that were begun.
        listed: user -> identifiers of the devices that the service lists for that user, each as often as it is listed.
        complete: every list was read to its end.
    """
    there = Counter((user, name) for user, names in listed.items() for name in names)
    times = Counter(name for names in listed.values() for name in names)
    findings: list[DeviceFinding] = []
    counts: Counter[str] = Counter()
    for journey in journeys:
        name, kind = journey.identifier, ""
        if len(set(journey.winners)) > 1 or times[name] > 1:
            kind = "doubled"
        elif journey.unsure:
            counts["ambiguous"] += 1
        elif journey.is_expected_in_list and not there[journey.winners[0], name]:
            kind = "altered" if times[name] else "lost"
        elif not journey.is_expected_in_list and times[name]:
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
