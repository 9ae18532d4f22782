"""Backfill: days of history at full speed (scenario kind ``backfill``), as a worker plays it.

The readings of each device's past are made in the order of time and sent as arrays, each with its time. A device has
one request under way at a time; many devices send at once.

Each run sends a history of its own, with its own numbers and idempotency keys.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, cast

from agent.core.outbox import is_refused_for_good
from agent.errors import ServiceError
from agent.health import Backoff
from agent.wire.encoding import to_rfc3339
from agent.wire.server import BATCH_SENSOR_DATA
from simulator.fleet.audit.ledger import (
    SEQUENCE_NAME,
    Ledger,
    ReadingEvent,
    SqliteLedger,
    digest_values,
    first_number_of,
)
from simulator.fleet.device.answers import Retries, is_refused
from simulator.fleet.device.http_messages import HttpMessages, Reading, Request, read_settled, values_text
from simulator.fleet.engine.http_answers import HttpAnswer
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import Attempt
from simulator.fleet.scenario.model import BackfillScenario
from simulator.fleet.signals import DeviceRandom, SignalSet
from simulator.fleet.workload.base import Job, Leftover, MeasuredRequests, Measurement, WorkloadSummary
from simulator.fleet.workload.devices import build_models
from simulator.watched import into_loop, start_task

_SENTENCES_KEPT: Final = 20
_BACKOFF: Final = Backoff(base_s=0.2, cap_s=10.0)
_HOUR_S: Final = 3600.0


def history_of(
    signals: SignalSet, device: DeviceRandom, period_s: float, first_s: float, to_s: float
) -> Iterator[tuple[int, int, Mapping[str, float]]]:
    """Every reading that a device would have made from ``first_s`` until before ``to_s``, in the order of time.

    Yields:
        Its number, from 1 without gaps; its time, epoch milliseconds; its values.
    """
    sequence = itertools.count(1)
    for number in itertools.count():
        recorded_ms = round((first_s + number * period_s) * 1000)
        if recorded_ms >= to_s * 1000:
            return
        if values := signals.read(device, recorded_ms / 1000):
            yield next(sequence), recorded_ms, values


class BackfillWorkload:
    """Plays a ``backfill`` scenario: devices send readings of the past.

    Args:
        job: what is to be done.
        recorder: of the worker.
    """

    def __init__(self, job: Job, recorder: Recorder) -> None:
        self._job = job
        history_s = cast("BackfillScenario", job.scenario).backfill.history_s
        self._to_s = job.began_s // _HOUR_S * _HOUR_S  # the last full hour before the run
        self._from_s = self._to_s - history_s
        self._first_number = first_number_of(job.run)
        self._models = build_models(job.scenario, job.folder)
        self._measurement = Measurement(recorder)
        self._requests = MeasuredRequests(job, job.connections, self._measurement)
        self._messages = HttpMessages(job.offers, job.scenario.target.dialect.dialect())
        on_failure = into_loop(asyncio.get_running_loop())
        self._file_ledger = None if job.ledger is None else SqliteLedger(job.ledger, on_failure)
        self._ledger: Ledger = self._file_ledger or Ledger()
        self._waiting = iter(range(len(job.device_ids)))
        self._under_way = 0
        self._left = dict.fromkeys(range(len(job.device_ids)))  # devices whose history is not sent yet
        self._lanes: list[asyncio.Task[None]] = []
        self._sums: Counter[str] = Counter()  # of readings
        self._refusals: Counter[str] = Counter()  # devices, by what the service said
        intervals = (self._models[number].interval_s for number in job.model_numbers)
        self._expected = sum(round(history_s / interval_s) for interval_s in intervals)
        self._began_s = self._flushed_s = 0.0

    def begin(self, at_s: float) -> None:
        """Start sending."""
        self._began_s = self._flushed_s = at_s
        lanes = range(min(self._job.connections, len(self._left)))
        self._lanes = [start_task(self._go_on(), f"backfill-{lane}") for lane in lanes]

    def enter_phase(self, index: int, at_s: float) -> None:
        """No-op: history is sent as fast as possible, whatever the phase."""

    def gauges(self) -> Mapping[str, float]:
        """``waiting_readings`` is an estimate until the last device has finished."""
        sums = self._sums
        answered = sums["accepted"] + sums["refused"]
        return {
            "online": float(self._under_way),
            "waiting_readings": max(self._expected - answered, 1.0) if self._left else 0.0,
            "readings_sent": float(answered),
            "readings_accepted": float(sums["accepted"]),
        }

    async def drain(self, from_s: float, until_s: float) -> Leftover:
        """Wait for the rest of the history."""
        del from_s
        if self._lanes:
            await asyncio.wait(self._lanes, timeout=max(0.0, until_s - time.monotonic()))
        name_of, first = self._job.scenario.fleet.identifier, self._job.devices.start
        return Leftover.of([name_of(first + number) for number in self._left])

    async def close(self) -> WorkloadSummary:
        """Close every connection and file, and sum up this worker's part."""
        for lane in self._lanes:
            lane.cancel()
        await asyncio.gather(*self._lanes, return_exceptions=True)
        await self._requests.close()
        missed = self._file_ledger.close() if self._file_ledger is not None else 0
        extras: dict[str, Any] = {
            "backfill": {
                "from": to_rfc3339(self._from_s),
                "to": to_rfc3339(self._to_s),
                **{name: self._sums[name] for name in ("made", "accepted", "refused")},
                "requests": self._requests.count,
                "resent": self._sums["resent"],
            },
            **self._measurement.errors,
        }
        refusals = self._refusals.most_common(_SENTENCES_KEPT)
        failures = [f"{count} devices: {sentence}" for sentence, count in refusals]
        return WorkloadSummary(failures=tuple(failures), missed=missed, extras=extras)

    # --- one device after the other ---------------------------------------------------------------------------------

    async def _go_on(self) -> None:
        for number in self._waiting:
            self._under_way += 1
            if refusal := await self._hand_over(number):
                self._refusals[refusal] += 1
            self._under_way -= 1
            del self._left[number]

    async def _hand_over(self, number: int) -> str:
        """Send a device's history. A refusal ends it; its reason is returned, or nothing."""
        job, device = self._job, self._job.devices.start + number
        random, model = DeviceRandom(job.scenario.seed, device), self._models[job.model_numbers[number]]
        size = model.batch if BATCH_SENSOR_DATA in job.offers else 1
        # The plan counts from the run's begin, which is the history's end.
        first_s = (
            self._from_s + (self._to_s + model.place_s(random, model.interval_s) - self._from_s) % model.interval_s
        )
        history = history_of(model.signals, random, model.interval_s, first_s, self._to_s)
        while batch := list(islice(history, size)):
            readings = [self._write(device, *reading) for reading in batch]
            request = self._messages.readings(job.device_ids[number], readings, f"{job.run}-{device}")
            request.intended_s = time.monotonic()
            if refused := await self._post(device, request):
                return next(iter(refused.values()))
            if self._file_ledger is not None and time.monotonic() - self._flushed_s > 1.0:
                self._flushed_s = time.monotonic()
                self._file_ledger.flush()
        return ""

    async def _post(self, device: int, request: Request) -> dict[int, str]:
        """Send one batch until it is answered for good; which of its readings the service refused, and why."""
        retries = Retries(_BACKOFF, random.random)

        def goes_again(error: ServiceError) -> bool:
            if is_refused_for_good(error):
                return False
            if retries.attempt is Attempt.FIRST:
                return True  # it never left
            is_in_doubt = retries.attempt is Attempt.AMBIGUOUS
            if is_in_doubt and not is_refused(error):
                self._ledger.readings("unanswered", device, request.keys, self._run_s())
            self._note("resent", "resent" if is_in_doubt else "resent_after_refusal", device, request.keys)
            return True

        def read(answer: HttpAnswer) -> dict[int, str]:
            return read_settled(answer, request.keys)[0]

        try:
            refused = await self._requests.ask(request, read, goes_again, retries)
        except ServiceError as error:
            refused = dict.fromkeys(request.keys, str(error))
        self._note("accepted", "accepted", device, tuple(key for key in request.keys if key not in refused))
        self._note("refused", "refused", device, tuple(refused))
        return refused

    def _write(self, device: int, sequence: int, recorded_ms: int, values: Mapping[str, float]) -> Reading:
        """A reading as it goes out; written into the ledger first."""
        self._sums["made"] += 1
        at_s = self._run_s()
        self._ledger.reading_sent(device, sequence, digest_values(values), recorded_ms, at_s, at_s)
        text = values_text({**values, SEQUENCE_NAME: self._first_number + sequence})
        return Reading(sequence, text, recorded_ms)

    def _note(self, sum_name: str, event: ReadingEvent, device: int, keys: tuple[int, ...]) -> None:
        """Something happened to readings: count it and write it down."""
        self._sums[sum_name] += len(keys)
        self._ledger.readings(event, device, keys, self._run_s())

    def _run_s(self) -> float:
        return time.monotonic() - self._began_s
