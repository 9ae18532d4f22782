"""The way out of a virtual device: results first, then progress, then readings; kept until the service has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from agent.core.backoff import Backoff
from agent.core.outbox import Disposition, judge_readings, judge_report
from agent.core.values import CommandState, JournalEntry, Moment, Report, SendOutcome, StoredReading
from agent.errors import ServiceError
from simulator.fleet.audit.readings import ReadingFact
from simulator.fleet.device.exchange import IN_PROGRESS, Ask, Operation, Speaker, TimedReading, judge, read_refusals
from simulator.fleet.device.known_time import KnownTime
from simulator.fleet.device.lanes import Lanes
from simulator.fleet.device.ledger import DeviceLedger
from simulator.fleet.device.patience import Patience
from simulator.fleet.device.store import Disk
from simulator.fleet.engine.pool import HttpAnswer

_ONE: Final = 1


class HandingOver:
    """The uplink's channel.

    Args:
        speaker: builds the requests.
        disk, lanes, ledger: the device's.
        batch: how many readings go at once where the service takes arrays.
        backoff: the pace of retries.
        fraction: random numbers in [0, 1).
        time: what the device knows of the service's clock.
    """

    def __init__(
        self,
        speaker: Speaker,
        disk: Disk,
        lanes: Lanes,
        ledger: DeviceLedger,
        *,
        batch: int,
        backoff: Backoff,
        fraction: Callable[[], float],
        time: KnownTime,
    ) -> None:
        self._speaker = speaker
        self._disk = disk
        self._lanes = lanes
        self._ledger = ledger
        self._batch = batch
        self._limit = batch
        self._patience = Patience(backoff, fraction)
        self._time = time
        self.not_before_s = float("-inf")

    @property
    def has_work(self) -> bool:
        """Whether something waits to be handed over."""
        disk = self._disk
        return bool(
            disk.in_flight
            or len(disk.outbox)
            or self._lanes.has_progress
            or disk.journal.in_state(CommandState.FINISHED)
        )

    def ask(self, now: Moment) -> Ask | None:
        """What to hand over next; None when nothing waits or a back-off is not over."""
        if now.monotonic_s < self.not_before_s:
            return None
        finished = self._disk.journal.in_state(CommandState.FINISHED)
        if finished:
            return self._speaker.report(_as_report(finished[0]))
        while (progress := self._lanes.next_progress()) is not None:
            ask = self._speaker.report(progress)
            if ask is not None:
                return ask
        return self._disk.in_flight or self._next_readings(now)

    def answered(self, ask: Ask, answer: HttpAnswer, now: Moment) -> None:
        """Take an answer, good or not."""
        try:
            good = judge(answer)
            if ask.operation is Operation.READINGS:
                self._take_readings(ask, read_refusals(good, ask))
            else:
                self._take_report(ask)
        except ServiceError as error:
            self.failed(ask, error, now)
        else:
            self._patience.succeeded()
            self.not_before_s = now.monotonic_s
            self._time.observe(good.server_time, now)

    def failed(self, ask: Ask, error: ServiceError, now: Moment) -> None:
        """No good answer came: what the service will never take is put away, the rest goes again later."""
        self._ledger.fault(f"{ask.operation.name.lower()}: {error}")
        if ask.operation is Operation.READINGS:
            settled = judge_readings(error) is Disposition.SET_ASIDE
            if settled:
                self._put_away(ask, str(error))
        else:
            settled = judge_report(error) is Disposition.SET_ASIDE
            if settled:
                self._take_report(ask)
        self.not_before_s = now.monotonic_s + (0.0 if settled else self._patience.failed(error))

    def _take_report(self, ask: Ask) -> None:
        if ask.report is not None and ask.report.status != IN_PROGRESS:
            self._disk.journal.reported(ask.report.command_id)

    def _next_readings(self, now: Moment) -> Ask | None:
        batch = self._disk.outbox.next_batch(self._limit, now)
        if not batch:
            return None
        ask = self._speaker.readings(self._dated(batch))
        self._disk.in_flight = ask
        return ask

    def _dated(self, batch: Sequence[StoredReading]) -> list[TimedReading]:
        """Readings with the millisecond that they carry from now on, no two of one device the same."""
        dated = []
        for stored in batch:
            recorded_ms = self._ledger.recorded_ms(stored.key)
            if recorded_ms is None:
                at = stored.reading.at
                recorded_s = self._time.recorded_at(at)
                recorded_ms = round((at.wall_s if recorded_s is None else recorded_s) * 1000)
                recorded_ms = self._ledger.take(stored.key, ReadingFact(recorded_ms, stored.reading.values))
            dated.append(TimedReading(stored.key, stored.idempotency_key, stored.reading.values, recorded_ms))
        return dated

    def _take_readings(self, ask: Ask, refused: dict[int, str]) -> None:
        delivered = tuple(key for key in ask.keys if key not in refused)
        self._disk.outbox.settle(SendOutcome(delivered, refused))
        self._disk.in_flight = None
        self._limit = self._batch
        self._ledger.settle(delivered, refused)

    def _put_away(self, ask: Ask, reason: str) -> None:
        """The service refused these for good. Of several, one is to blame: they go one by one, and none is lost."""
        if len(ask.keys) == _ONE:
            self._take_readings(ask, {ask.keys[0]: reason})
        else:
            self._limit = _ONE
            self._disk.in_flight = None


def _as_report(entry: JournalEntry) -> Report:
    outcome = entry.outcome
    if outcome is None:
        raise AssertionError("the core puts an outcome on every finished entry")
    return Report(
        command_id=entry.command.id,
        status=str(outcome.status),
        result=outcome.result,
        error=outcome.error,
        started_at=entry.started.wall_s if entry.started else None,
        finished_at=entry.finished.wall_s if entry.finished else None,
    )
