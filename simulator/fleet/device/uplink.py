"""The uplink of a virtual device: results first, then progress, then readings; kept until the service has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from agent.core.outbox import is_refused_for_good
from agent.core.values import Moment
from agent.errors import Advice, ServiceError
from simulator.fleet.audit.ledger import ReadingEvent
from simulator.fleet.device.answers import is_refused, judge, outcome_of, stamps_of
from simulator.fleet.device.disk import Row
from simulator.fleet.device.http_messages import Request, read_refusals
from simulator.fleet.device.retries import Retries
from simulator.fleet.engine.ports import HttpAnswer
from simulator.fleet.engine.wheel import NEVER
from simulator.fleet.outcomes import Attempt, OutcomeClass

if TYPE_CHECKING:  # a device has an uplink, which is a device's
    from simulator.fleet.device.device import Device

_LONG_AGO_S: Final = float("-inf")


class Uplink:
    """The channel over which results and readings leave: one request at a time.

    Args:
        device: whose.

    Attributes:
        not_before_s: nothing goes out before this, on the monotonic clock.
        is_waiting: a request is on its way, and neither its answer nor its end is known.
        fault: why the last answer was no good one, for a person.
    """

    __slots__ = (
        "_apart",
        "_batch",
        "_device",
        "_held_until_s",
        "_ready_s",
        "_retries",
        "fault",
        "is_waiting",
        "not_before_s",
    )

    def __init__(self, device: Device) -> None:
        model = device.member.model
        self._device = device
        self._batch = model.batch
        self._retries = Retries(model.backoff, device.chance, ignores_limit=model.ignores_limit)
        # Nothing falls due before the boot: a device without power keeps nobody waiting, least of all the generator.
        self._ready_s = device.began_s
        self._held_until_s = _LONG_AGO_S
        self._apart = Attempt.AMBIGUOUS  # what sending the readings of a refused batch one by one is; not known yet
        self.not_before_s = _LONG_AGO_S
        self.is_waiting = False
        self.fault = ""

    @property
    def due_s(self) -> float:
        """When to hand over next, on the monotonic clock; infinity while a request is on its way or nothing waits."""
        if self.is_waiting:
            return NEVER
        device = self._device
        disk = device.disk
        free_s = max(self._held_until_s, self.not_before_s)
        if disk.outbox.rows or disk.in_flight is not None:
            return free_s
        return NEVER if device.commands is None else max(free_s, device.commands.reports_due_s)

    def has_work(self) -> bool:
        """Whether something waits to be handed over."""
        device = self._device
        disk, commands = device.disk, device.commands
        has_reports = commands is not None and commands.reports_due_s != NEVER
        return has_reports or bool(disk.outbox.rows) or disk.in_flight is not None

    def next_request(self, now: Moment) -> Request | None:
        """What to hand over next; None when nothing waits, or only results that are to wait."""
        device = self._device
        request: Request | None = None
        if device.commands is not None and (found := device.commands.next_report(now)) is not None:
            request, since = found
            intended_s = max(since.monotonic_s, self._ready_s)
            request = request._replace(intended_s=intended_s, ready_s=max(intended_s, self._free_s))
        elif device.disk.in_flight is not None:
            request = self._again(device.disk.in_flight, now)
        elif device.disk.outbox.rows:
            request = self._next_readings(now)
        self.is_waiting = request is not None
        return request

    def answered(self, request: Request, answer: HttpAnswer, sent_s: float, now: Moment) -> OutcomeClass:
        """Take the answer to what was sent at ``sent_s``, good or not; the class that it counts in."""
        known, count = self._device.driver.known_answers, len(request.keys)
        stamps = stamps_of(answer.headers) if count and known.are_taken(answer, count) else None
        if stamps is not None:
            self.settled(request, {}, stamps[0], sent_s, now)
            return OutcomeClass.OK
        try:
            good = judge(answer)
            refused = read_refusals(good, request) if count else {}
        except ServiceError as error:
            self.failed(request, error, now)
            return outcome_of(error)
        if count and not refused:
            known.learn_taken(answer.body, count)
        self.settled(request, refused, good.server_time, sent_s, now)
        return OutcomeClass.OK

    def settled(
        self, request: Request, refused: dict[int, str], server_time: float | None, sent_s: float, now: Moment
    ) -> None:
        """All of it is stored, but for the refused readings.

        Args:
            request: what was sent.
            refused: why, by the reading's key.
            server_time: epoch seconds, where the other side said it.
            sent_s: when the request went out, on the monotonic clock.
            now: this instant.
        """
        self.is_waiting = False
        self.fault = ""
        if self._retries.failures:
            self._retries.succeeded()
        self.not_before_s = now.monotonic_s
        if request.report is None:
            self._remove_readings(request, refused, now)
        elif self._device.commands is not None:
            self._device.commands.reported(request.report, now)
        self._device.time = self._device.time.observe(server_time, now, now.monotonic_s - sent_s)

    def failed(self, request: Request, error: ServiceError, now: Moment, *, left: bool = True) -> None:
        """No good answer came: what the service will never take is put away, the rest goes again later.

        Args:
            request: what was sent.
            error: what came instead.
            now: this instant.
            left: the request went out, so that the service may have seen it.
        """
        self.is_waiting = False
        self.fault = str(error)
        report, commands = request.report, self._device.commands
        self.not_before_s = now.monotonic_s
        if report is None or commands is None:
            if is_refused_for_good(error):
                self._put_away(request, str(error), now)
                return
            if left:
                self._keep(request, now, refused=is_refused(error))
        elif commands.is_not_taken(request, report, error, now):
            return
        elif error.advice is Advice.DROP:
            commands.reported(report, now)
            return
        elif left:
            commands.note_failure(request, report, error)
        self.not_before_s = self._ready_s = now.monotonic_s + self._retries.failed(error)

    def hold(self, until_s: float) -> None:
        """Hand over nothing before this, on the monotonic clock, whatever comes: waiting begins then."""
        self._held_until_s = max(self._held_until_s, until_s)
        self._ready_s = max(self._ready_s, until_s)

    def wake(self, now: Moment) -> None:
        """End a back-off: the other side answers again."""
        self.not_before_s = min(self.not_before_s, now.monotonic_s)

    def begin(self, now: Moment) -> None:
        """A connection is up: until now it was not the generator that kept anything waiting."""
        self.not_before_s = now.monotonic_s
        self._ready_s = max(now.monotonic_s, self._held_until_s)

    def power_lost(self, now: Moment) -> None:
        """What is on its way may have arrived or not."""
        device = self._device
        in_flight = device.disk.in_flight
        if self.is_waiting and in_flight is not None:
            device.disk.in_flight = in_flight._replace(attempt=Attempt.AMBIGUOUS)
            device.fleet.ledger.readings("unanswered", device.index, in_flight.keys, device.run_s(now))

    @property
    def _free_s(self) -> float:
        """When something may go out, on the monotonic clock."""
        return max(self._held_until_s, self.not_before_s)

    # --- readings -----------------------------------------------------------------------------------------------------

    def _next_readings(self, now: Moment) -> Request:
        device = self._device
        fleet, ready_s = device.fleet, self._ready_s
        batch = device.disk.outbox.next_batch(self._batch if device.messages.takes_arrays else 1, now)
        intended_s = batch[0].due_s
        again: list[int] = []
        for row in batch:
            intended_s = min(intended_s, row.due_s)
            if row.recorded_ms is None:
                self._date(row, now)
            else:
                again.append(row.key)
        attempt = Attempt.FIRST
        if again:
            attempt = self._apart
            self._write_resent(again, attempt, now)
        intended_s = max(intended_s, ready_s)
        name = f"{fleet.run}-{device.index}"
        ready_s = max(intended_s, self._held_until_s, self.not_before_s)
        request = device.messages.readings(device.member.device_id, batch, name, intended_s, ready_s, attempt)
        device.disk.in_flight = request
        if fleet.faults is not None and request.body is not None:
            first, *copies = fleet.faults.bodies(device.random, now, request.body)
            # What is sent again is sent once.
            device.disk.in_flight = request = request._replace(body=first.content)
            request = request._replace(copies=tuple(copies))
        return request

    def _date(self, row: Row, now: Moment) -> None:
        """Give a reading the millisecond that it carries from now on, and write down that it goes out."""
        device = self._device
        fleet = device.fleet
        recorded_s = device.time.recorded_at(row.at)
        recorded_ms = round((row.at.wall_s if recorded_s is None else recorded_s) * 1000)
        if fleet.numbered:
            row.recorded_ms = recorded_ms  # the audit identifies readings by their numbers
        else:
            recorded_ms = device.disk.outbox.date(row, recorded_ms)
        carried_ms = recorded_ms if device.messages.sends_time else None
        made_s, at_s = row.at.monotonic_s - fleet.began_s, now.monotonic_s - fleet.began_s
        fleet.ledger.reading_sent(device.index, row.key, row.digest, carried_ms, made_s, at_s)

    def _again(self, request: Request, now: Moment) -> Request:
        """The readings that were not answered for good, in the same request."""
        due_s = max(self._free_s, self._device.began_s)
        self._write_resent(request.keys, request.attempt, now)
        self._device.disk.in_flight = request = request._replace(intended_s=due_s, ready_s=due_s)
        return request

    def _write_resent(self, keys: Sequence[int], attempt: Attempt, now: Moment) -> None:
        """Write down that these go out again, unless they never left before."""
        device = self._device
        if attempt is not Attempt.FIRST:
            event: ReadingEvent = "resent" if attempt is Attempt.AMBIGUOUS else "resent_after_refusal"
            device.fleet.ledger.readings(event, device.index, keys, device.run_s(now))

    def _keep(self, request: Request, now: Moment, *, refused: bool) -> None:
        """These readings went out, and the same request goes again."""
        device = self._device
        in_flight = device.disk.in_flight
        if in_flight is not None:
            device.disk.in_flight = in_flight._replace(attempt=in_flight.attempt.again(refused=refused))
        if not refused:
            device.fleet.ledger.readings("unanswered", device.index, request.keys, device.run_s(now))

    def _remove_readings(self, request: Request, refused: dict[int, str], now: Moment) -> None:
        device = self._device
        fleet, outbox, index = device.fleet, device.disk.outbox, device.index
        at_s = now.monotonic_s - fleet.began_s
        delivered: Sequence[int] = request.keys
        if refused:
            delivered = [key for key in request.keys if key not in refused]
            taken_s = outbox.remove(refused)
            fleet.ages.given_up(taken_s, OutcomeClass.REFUSED, now.monotonic_s)
            fleet.gauges.waiting_readings -= len(taken_s)
            fleet.ledger.readings("refused", index, tuple(refused), at_s)
            self.fault = next(iter(refused.values()))
        if delivered:
            taken_s = outbox.remove(delivered)
            fleet.ages.accepted(taken_s, now.monotonic_s)
            fleet.gauges.waiting_readings -= len(taken_s)
            fleet.ledger.readings("accepted", index, delivered, at_s)
        device.disk.in_flight = None
        self._batch = device.member.model.batch

    def _put_away(self, request: Request, reason: str, now: Moment) -> None:
        """The service refused these for good. Of several, one is to blame: they go one by one, and none is lost."""
        if len(request.keys) == 1:
            self._remove_readings(request, {request.keys[0]: reason}, now)
        else:
            self._batch = 1
            self._apart = request.attempt.again(refused=True)
            self._device.disk.in_flight = None
