"""Backfill: days of history at full speed (scenario kind ``backfill``), as a worker plays it.

Each device's past is lived through in virtual time and handed over in its order, as arrays with the time of each
reading. One request of a device is under way at a time; many devices are.

It can be broken off and started again: readings, their numbers and the idempotency keys depend on seed, device and the
history's two ends alone. What the service already has of a device is found by asking for its newest reading; it is
written into the ledger without being sent again, so the audit reads back all of it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import httpx

from agent.core.backoff import Backoff
from agent.core.outbox import Disposition, judge_readings
from agent.core.schedule import Schedule
from agent.errors import InvalidMessage, ServiceError, UnexpectedAnswer
from agent.wire import paths
from agent.wire.answers import Answer
from agent.wire.extensions import BATCH_SENSOR_DATA
from agent.wire.limits import PAGE_MAX
from agent.wire.lists import PageWalk
from agent.wire.models import SensorDataRecord
from agent.wire.times import to_rfc3339
from simulator.fleet.audit.digest import digest_values
from simulator.fleet.audit.ledger import NUMBERS_OF_A_RUN, SEQUENCE_NAME, Ledger, ReadingEvent, first_number_of
from simulator.fleet.device.answers import is_refused, judge, outcome_of
from simulator.fleet.device.hashed_random import HashedRandom
from simulator.fleet.device.http_messages import HttpMessages, Operation, Reading, Request, read_refusals, values_text
from simulator.fleet.device.model import DeviceModel
from simulator.fleet.device.retries import Retries
from simulator.fleet.engine.pool import HttpPool
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.plan import reading_schedule
from simulator.fleet.scenario.model import BackfillScenario
from simulator.fleet.signals import DeviceRandom, SignalSet
from simulator.fleet.target.client import Keyring
from simulator.fleet.target.target import read_keys
from simulator.fleet.workload.base import DeviceJob, Leftover, WorkloadSummary
from simulator.fleet.workload.devices import build_models
from simulator.watched import into_loop, start_task

OPERATION: Final = "http.sensor_data"
_ASKED: Final = "http.read_back"
_NAMES_SHOWN: Final = 10
_SENTENCES_KEPT: Final = 20
_BACKOFF: Final = Backoff(base_s=0.2, cap_s=10.0)
_YIELD_EVERY: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillJob(DeviceJob):
    """One worker's part of a backfill, pickled.

    Attributes:
        from_s, to_s: the history's ends, seconds since the epoch.
        ca_file: the authorities that alone are trusted at the service; None trusts the system's.
    """

    base_url: str
    from_s: float
    to_s: float
    scenario: BackfillScenario
    ca_file: Path | None = None

    def make(self, recorder: Recorder) -> BackfillWorkload:
        """Build everything; called in the running loop. Nothing is sent yet."""
        return BackfillWorkload(self, recorder)


@dataclass(slots=True)
class _Sums:
    made: int = 0
    found: int = 0
    accepted: int = 0
    refused: int = 0
    requests: int = 0
    resent: int = 0


@dataclass(frozen=True, slots=True)
class PastReading:
    """A reading of the time before the run: ``sequence`` counts from 1 without gaps; whole milliseconds."""

    sequence: int
    time_s: float
    values: Mapping[str, float]


def history_of(
    signals: SignalSet, device: DeviceRandom, schedule: Schedule, *, from_s: float, to_s: float
) -> Iterator[PastReading]:
    """Every reading that a device would have made from one instant until before another, in the order of time."""
    sequence = 0
    number = math.ceil((from_s - schedule.phase_s) / schedule.period_s)
    while (time_s := schedule.phase_s + number * schedule.period_s) < to_s:
        number += 1
        if time_s < from_s:
            continue
        # The wire has milliseconds: what is read there must be what is sent there.
        time_s = round(time_s * 1000) / 1000
        if values := signals.read(device, time_s):
            sequence += 1
            yield PastReading(sequence, time_s, values)


class _Refused(Exception):
    """The service will not have a device's readings."""


class BackfillWorkload:
    """Plays a ``backfill`` scenario: devices send readings of the past.

    Args:
        job: what is to be done.
        recorder: of the worker.
    """

    def __init__(self, job: BackfillJob, recorder: Recorder) -> None:
        self._job = job
        self._recorder = recorder
        scenario = job.scenario
        self._models = build_models(scenario, job.folder, job.to_s)
        self._first_number = first_number_of(history_name(scenario, job.from_s, job.to_s))
        self._keys = Keyring(read_keys(job.keys))
        self._pool = HttpPool(
            job.base_url,
            connections=job.connections,
            timeout_s=scenario.target.timeout_s,
            ca_file=job.ca_file,
        )
        self._file_ledger = None if job.ledger is None else job.ledger.open(into_loop(asyncio.get_running_loop()))
        self._ledger: Ledger = self._file_ledger or Ledger()
        self._waiting = iter(range(len(job.device_ids)))
        self._under_way: set[int] = set()
        self._left = len(job.device_ids)
        self._lanes: list[asyncio.Task[None]] = []
        self._sums = _Sums()
        self._sentences: dict[str, int] = {}
        self._began_s = 0.0
        self._flushed_s = 0.0

    @property
    def devices(self) -> int:
        """How many devices this worker plays. See :class:`~simulator.fleet.workload.base.Workload`."""
        return len(self._job.device_ids)

    def begin(self, at_s: float) -> None:
        """The first readings leave."""
        self._began_s = self._flushed_s = at_s
        self._lanes = [
            start_task(self._go_on(), f"backfill-{lane}") for lane in range(min(self._job.connections, self.devices))
        ]

    def enter_phase(self, index: int, at_s: float) -> None:
        """Phases mean nothing to history: it goes as fast as it can."""

    def gauges(self) -> Mapping[str, float]:
        """``waiting_readings`` is an estimate until the last device's history was lived through."""
        sums = self._sums
        done = sums.found + sums.accepted + sums.refused
        ended = self.devices - self._left
        waiting = done / ended * self._left if ended else float(sum(self._expected(n) for n in range(self.devices)))
        return {
            "online": float(len(self._under_way)),
            "waiting_readings": waiting if self._left else 0.0,
            "open_commands": 0.0,
            "readings_sent": float(sums.accepted + sums.refused),
            "readings_accepted": float(sums.accepted + sums.found),
            "readings_unanswered": 0.0,
            "commands_ordered": 0.0,
            "commands_reported": 0.0,
        }

    async def drain(self, from_s: float, until_s: float) -> Leftover:
        """Wait for the rest of the history."""
        del from_s
        if self._lanes:
            await asyncio.wait(self._lanes, timeout=max(0.0, until_s - time.monotonic()))
        names = [self._job.names[number] for number in sorted(self._under_way)]
        return Leftover(tuple(names[:_NAMES_SHOWN]), self._left)

    async def close(self) -> WorkloadSummary:
        """Close every connection and file; the last word. See :class:`~simulator.fleet.workload.base.Workload`."""
        for lane in self._lanes:
            lane.cancel()
        ended = await asyncio.gather(*self._lanes, return_exceptions=True)
        await self._pool.close()
        gaps = self._file_ledger.close() if self._file_ledger is not None else ()
        for error in ended:
            if isinstance(error, Exception):
                raise error
        sums = self._sums
        extras: dict[str, Any] = {
            "backfill": {
                "from": to_rfc3339(self._job.from_s),
                "to": to_rfc3339(self._job.to_s),
                "made": sums.made,
                "found": sums.found,
                "accepted": sums.accepted,
                "refused": sums.refused,
                "requests": sums.requests,
                "resent": sums.resent,
            }
        }
        failures = [f"{count} devices: {sentence}" for sentence, count in self._sentences.items()]
        return WorkloadSummary(failures=tuple(failures), missed=sum(gap.records for gap in gaps), extras=extras)

    # --- one device after the other ---------------------------------------------------------------------------------

    async def _go_on(self) -> None:
        for number in self._waiting:
            self._under_way.add(number)
            try:
                await self._hand_over(number)
            except _Refused as refusal:
                sentence = str(refusal)
                if sentence in self._sentences or len(self._sentences) < _SENTENCES_KEPT:
                    self._sentences[sentence] = self._sentences.get(sentence, 0) + 1
            self._under_way.discard(number)
            self._left -= 1

    async def _hand_over(self, number: int) -> None:
        job = self._job
        messages = HttpMessages(job.offers, job.scenario.target.dialect.dialect())
        telemetry = job.scenario.fleet.models[job.model_numbers[number]].telemetry
        size = telemetry.batch if BATCH_SENSOR_DATA in job.offers else 1
        history = self._history(number)
        newest = await self._newest(number)
        # The service has these from an earlier time: they are only written down.
        for reading in islice(history, newest):
            self._write(number, reading)
            self._sums.found += 1
            self._ledger.readings("accepted", job.devices.start + number, (reading.sequence,), self._run_s())
            if reading.sequence % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
        chance = HashedRandom(job.scenario.seed, job.devices.start + number)
        name = f"{history_name(job.scenario, job.from_s, job.to_s)}-{job.devices.start + number}"
        while batch := list(islice(history, size)):
            readings = [self._write(number, reading) for reading in batch]
            await self._post(number, messages.readings(job.device_ids[number], readings, name), chance)
            self._flush()

    async def _post(self, number: int, request: Request, chance: HashedRandom) -> None:
        """Send one batch until it is answered for good.

        Raises:
            _Refused: the service will not have some of it.
        """
        device, ledger, sums = self._job.devices.start + number, self._ledger, self._sums
        retries, due_s = Retries(_BACKOFF, chance), time.monotonic()
        while True:
            try:
                answer = await self._exchange(request, OPERATION, due_s, retries.attempt)
                refused = read_refusals(answer, request)
                break
            except ServiceError as error:
                if judge_readings(error) is Disposition.SET_ASIDE:
                    ledger.readings("refused", device, request.keys, self._run_s())
                    sums.refused += len(request.keys)
                    raise _Refused(str(error)) from None
                if not is_refused(error):
                    ledger.readings("unanswered", device, request.keys, self._run_s())
                pause_s = retries.failed(error)
            due_s = time.monotonic() + pause_s
            await asyncio.sleep(pause_s)
            sums.resent += len(request.keys)
            event: ReadingEvent = "resent" if retries.attempt is Attempt.AMBIGUOUS else "resent_after_refusal"
            ledger.readings(event, device, request.keys, self._run_s())
        delivered = tuple(key for key in request.keys if key not in refused)
        ledger.readings("accepted", device, delivered, self._run_s())
        sums.accepted += len(delivered)
        if refused:
            ledger.readings("refused", device, tuple(refused), self._run_s())
            sums.refused += len(refused)
            raise _Refused(next(iter(refused.values())))

    async def _newest(self, number: int) -> int:
        """The number of the newest reading of this history that the service has; 0 when it has none.

        What other runs sent in that time is passed over: their numbers begin elsewhere.
        """
        job = self._job
        query = {
            "device_id": job.device_ids[number],
            "from": to_rfc3339(job.from_s),
            "to": to_rfc3339(job.to_s),
            "order": "desc",
        }
        chance = HashedRandom(job.scenario.seed, -1 - number)
        for limit in (1, PAGE_MAX):  # mostly the newest of all is the one
            walk = PageWalk(paths.SENSOR_DATA, {**query, "limit": limit}, httpx.URL(job.base_url))
            try:
                while not walk.done:
                    answer = await self._ask_page(walk, chance)
                    page = walk.take(answer)
                    numbers = [own for own in map(self._own_number, page.items) if own]
                    if numbers or not page.items:
                        return max(numbers, default=0)
                    if limit == 1:
                        break
                    walk.proceed(answer, page)
            except (InvalidMessage, UnexpectedAnswer):
                return 0
        return 0

    async def _ask_page(self, walk: PageWalk, chance: HashedRandom) -> Answer:
        """One page of what a device has, until it is answered.

        Raises:
            _Refused: the service refuses to list it.
        """
        # A link is an absolute URL of the same origin, and the pool's targets are below the base address.
        below = httpx.URL(self._job.base_url).raw_path.decode("ascii").rstrip("/")
        path = httpx.URL(walk.target).raw_path.decode("ascii").removeprefix(below)
        request = Request(Operation.POLL, "GET", f"{path}?{urlencode(walk.params)}" if walk.params else path)
        retries, due_s = Retries(_BACKOFF, chance), time.monotonic()
        while True:
            try:
                return await self._exchange(request, _ASKED, due_s, retries.attempt)
            except ServiceError as error:
                if judge_readings(error) is Disposition.SET_ASIDE:
                    raise _Refused(f"what is there already cannot be read: {error}") from None
                pause_s = retries.failed(error)
            due_s = time.monotonic() + pause_s
            await asyncio.sleep(pause_s)

    def _own_number(self, item: Any) -> int:
        """The number of a stored reading in this history; 0 for one of another run."""
        try:
            stored = SensorDataRecord.receive(item).sensor_data.get(SEQUENCE_NAME)
        except InvalidMessage:
            return 0
        number = int(stored) - self._first_number if isinstance(stored, (int, float)) else 0
        return number if 0 < number < NUMBERS_OF_A_RUN else 0

    async def _exchange(self, request: Request, operation: str, due_s: float, attempt: Attempt) -> Answer:
        """One request, measured.

        Raises:
            ServiceError: no answer came, or no good one.
        """
        recorder, sent_s = self._recorder, time.monotonic()
        recorder.intended += 1
        recorder.sent += 1
        self._sums.requests += 1
        outcome = OutcomeClass.TIMEOUT  # unless something else is known: the run may end before the answer
        try:
            headers = {**self._keys.headers(self._sums.requests), **request.headers}
            came = await self._pool.request(request.method, request.target, body=request.body, headers=headers)
            answer = judge(came)
        except ServiceError as error:
            outcome = outcome_of(error)
            raise
        else:
            outcome = OutcomeClass.OK
            return answer
        finally:
            now_s = time.monotonic()
            recorder.record(operation, outcome, intended_s=due_s, sent_s=sent_s, now_s=now_s, attempt=attempt)

    # --- what it is made of -----------------------------------------------------------------------------------------

    def _history(self, number: int) -> Iterator[PastReading]:
        job = self._job
        index = job.devices.start + number
        telemetry = job.scenario.fleet.models[job.model_numbers[number]].telemetry
        own = reading_schedule(telemetry, job.scenario.seed, index)
        return history_of(
            self._model(number).signals,
            DeviceRandom.at(job.scenario.seed, index),
            # The plan counts from the run's begin, which is the history's end.
            Schedule(own.period_s, (job.to_s + own.phase_s) % own.period_s),
            from_s=job.from_s,
            to_s=job.to_s,
        )

    def _model(self, number: int) -> DeviceModel:
        return self._models[self._job.model_numbers[number]]

    def _expected(self, number: int) -> int:
        return round((self._job.to_s - self._job.from_s) / self._model(number).interval_s)

    def _write(self, number: int, reading: PastReading) -> Reading:
        """A reading as it goes out; written into the ledger first."""
        self._sums.made += 1
        recorded_ms = round(reading.time_s * 1000)
        at_s = self._run_s()
        device, digest = self._job.devices.start + number, digest_values(reading.values)
        self._ledger.reading_sent(device, reading.sequence, digest, recorded_ms, at_s, at_s)
        text = values_text({**reading.values, SEQUENCE_NAME: self._first_number + reading.sequence})
        return Reading(reading.sequence, text, recorded_ms)

    def _run_s(self) -> float:
        return time.monotonic() - self._began_s

    def _flush(self) -> None:
        if self._file_ledger is not None and time.monotonic() - self._flushed_s > 1.0:
            self._flushed_s = time.monotonic()
            self._file_ledger.flush()


def window_of(scenario: BackfillScenario, began_s: float) -> tuple[float, float]:
    """The history's ends, seconds since the epoch.

    Args:
        scenario: with the history.
        began_s: the run's begin, seconds since the epoch.
    """
    to_s = scenario.backfill.end_s(began_s)
    return to_s - scenario.backfill.history_s, to_s


def history_name(scenario: BackfillScenario, from_s: float, to_s: float) -> str:
    """A name that no other history of the same devices has: numbers and idempotency keys follow from it.

    Args:
        scenario: with the history.
        from_s: its begin, seconds since the epoch.
        to_s: its end.
    """
    return f"backfill-{scenario.scenario}-{scenario.seed}-{round(from_s)}-{round(to_s)}"
