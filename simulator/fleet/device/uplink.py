"""The uplink of a virtual device: results first, then progress, then readings; kept until the service has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from agent.core.outbox import Disposition, judge_readings, judge_report
from agent.core.unreported import REASON_MAX, FailureStreak, ReportFault, fault_of
from agent.core.values import JournalEntry, Moment, Report
from agent.errors import ErrorAnswer, ServiceError
from agent.wire.extensions import BATCH_SENSOR_DATA
from simulator.fleet.audit.ledger import ReadingEvent
from simulator.fleet.device.answers import is_refused, judge, outcome_of
from simulator.fleet.device.fast_path import stamps_of
from simulator.fleet.device.http_codec import IN_PROGRESS, Operation, Request, read_refusals
from simulator.fleet.device.retry_policy import RetryPolicy
from simulator.fleet.device.store import Row
from simulator.fleet.engine.ports import HttpAnswer
from simulator.fleet.outcomes import Attempt, OutcomeClass

if TYPE_CHECKING:
    from simulator.fleet.device.device import VirtualDevice

_ONE: Final = 1
# So often a result is tried when the run drains: what nothing takes is not waited for until the agent's own limits.
_TRIES_IN_DRAIN: Final = 5
_UNHOUSED: Final = frozenset({ReportFault.NO_PLACE, ReportFault.FAILING, ReportFault.CONTENT})
_NOWHERE: Final = "the scenario says that the service has no place for results"
_NEVER_S: Final = float("-inf")
_IDLE_S: Final = float("inf")


class DeviceUplink:
    """The channel over which results and readings leave.

    Args:
        device: whose.

    Attributes:
        not_before_s: nothing goes out before this, on the monotonic clock.
        is_waiting: a request is on its way, and neither its answer nor its end is known.
        is_draining: the run comes to its end: a result that nothing takes is put aside after a few tries.
        fault: why the last answer was no good one, for a person.
    """

    __slots__ = (
        "_apart",
        "_backed_off_s",
        "_device",
        "_held_until_s",
        "_is_dated",
        "_limit",
        "_limit_max",
        "_place_is_missing",
        "_report_after_s",
        "_report_backoff",
        "_reported_before",
        "_retry_policy",
        "_row",
        "_shortened",
        "_tries",
        "_tries_of",
        "fault",
        "is_draining",
        "is_waiting",
        "not_before_s",
    )

    def __init__(self, device: VirtualDevice) -> None:
        self._device = device
        self._limit = self._limit_max = device.model.batch if BATCH_SENSOR_DATA in device.fleet.offers else _ONE
        self._retry_policy = RetryPolicy(device.model.backoff, device.chance, defies_limit=device.model.defies_limit)
        # Nothing falls due before the boot: a device without power keeps nobody waiting, least of all the generator.
        self._backed_off_s = device.began_s
        self._held_until_s = _NEVER_S
        self.not_before_s = _NEVER_S
        self.is_waiting = False
        self.fault = ""
        # The report that went out and was not answered for good: command and status, and what sending it again is.
        self._report_after_s = _NEVER_S  # results alone wait until then: what nobody takes holds no reading back
        self._report_backoff = device.model.backoff
        self._tries = self._row = FailureStreak()  # of the oldest result, and of any of them, since one was taken
        self._tries_of = self._shortened = ""
        self._place_is_missing = False
        self.is_draining = False
        self._is_dated = device.codec.sends_time
        self._reported_before = ("", "", Attempt.FIRST)
        self._apart = Attempt.AMBIGUOUS  # what sending the readings of a refused batch one by one is; not known yet

    @property
    def has_work(self) -> bool:
        """Whether something waits to be handed over."""
        journal = self._device.disk.journal
        return self._has_other_work() or (journal.entries is not None and journal.first_finished() is not None)

    def _has_other_work(self) -> bool:
        """Whether something waits that is no result."""
        disk, lanes = self._device.disk, self._device.lanes
        if disk.outbox.rows is not None or disk.in_flight is not None:
            return True
        return lanes is not None and lanes.has_progress

    @property
    def due_s(self) -> float:
        """When to hand over next, on the monotonic clock; infinity while a request is on its way or nothing waits."""
        if self.is_waiting:
            return _IDLE_S
        is_other = self._has_other_work()
        journal = self._device.disk.journal
        if not is_other and (journal.entries is None or journal.first_finished() is None):
            return _IDLE_S
        free_s = max(self._held_until_s, self.not_before_s)
        return free_s if is_other else max(free_s, self._report_after_s)

    def next_request(self, now: Moment) -> Request | None:
        """What to hand over next; None when nothing waits, a back-off is not over, or a request is on its way."""
        now_s = now.monotonic_s
        if self.is_waiting or now_s < self.not_before_s or now_s < self._held_until_s:
            return None
        request = self._next(now)
        self.is_waiting = request is not None
        return request

    def _next(self, now: Moment) -> Request | None:
        device = self._device
        disk = device.disk
        if disk.journal.entries is not None and now.monotonic_s >= self._report_after_s:
            while (finished := disk.journal.first_finished()) is not None:
                report = _as_report(finished)
                request = self._report(self._short(report), finished.finished or now)
                if request is not None:
                    return request
                self._put_result_aside(finished.command.id, _NOWHERE, now)
        if device.lanes is not None:
            while (progress := device.lanes.next_progress()) is not None:
                request = self._report(progress, now)
                if request is not None:
                    return request
        if disk.in_flight is not None:
            return self._again(disk.in_flight, now)
        return None if disk.outbox.rows is None else self._next_readings(now)

    def answered(self, request: Request, answer: HttpAnswer, sent_s: float, now: Moment) -> OutcomeClass:
        """Take the answer to what was sent at ``sent_s``, good or not; the class that it counts in."""
        self.is_waiting = False
        known_answers = self._device.known_answers
        if request.operation is Operation.READINGS and known_answers.taken(answer, len(request.keys)):
            stamps = stamps_of(answer.headers)
            if stamps is not None:
                self._take_readings(request, {}, now)
                self._succeeded(stamps.server_time, now, now.monotonic_s - sent_s)
                return OutcomeClass.OK
        try:
            good = judge(answer)
            if request.operation is Operation.READINGS:
                refused = read_refusals(good, request)
                if not refused:
                    known_answers.learn_taken(answer.body, len(request.keys))
                self._take_readings(request, refused, now)
            else:
                self._take_report(request, now)
        except ServiceError as error:
            self.failed(request, error, now)
            return outcome_of(error)
        self._succeeded(good.server_time, now, now.monotonic_s - sent_s)
        return OutcomeClass.OK

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
        if request.operation is Operation.READINGS:
            settled = judge_readings(error) is Disposition.SET_ASIDE
            if settled:
                self._put_away(request, str(error), now)
            elif left:
                self._keep(request, now, refused=is_refused(error))
        elif (fault := fault_of(error)) in _UNHOUSED:
            self._result_not_taken(request, error, fault, now)
            return
        else:
            settled = judge_report(error) is Disposition.SET_ASIDE
            if settled:
                self._take_report(request, now)
            elif left and request.report is not None:
                again = request.attempt.again(refused=is_refused(error))
                self._reported_before = (request.report.command_id, request.report.status, again)
        if settled:
            self.not_before_s = now.monotonic_s
        else:
            self.not_before_s = self._backed_off_s = now.monotonic_s + self._retry_policy.failed(error)

    def settled(self, request: Request, refused: dict[int, str], now: Moment) -> None:
        """Settle a request without an HTTP answer: all of it is stored, but for the refused readings."""
        self.is_waiting = False
        if request.operation is Operation.READINGS:
            self._take_readings(request, refused, now)
        else:
            self._take_report(request, now)
        fault = self.fault if refused else ""
        self._succeeded(None, now)
        self.fault = fault

    def hold(self, until_s: float) -> None:
        """Hand over nothing before this, on the monotonic clock, whatever comes: waiting begins then."""
        self._held_until_s = max(self._held_until_s, until_s)
        self._backed_off_s = max(self._backed_off_s, until_s)

    def wake(self, now: Moment) -> None:
        """End a back-off: the other side answers again."""
        self.not_before_s = min(self.not_before_s, now.monotonic_s)

    def begin(self, now: Moment) -> None:
        """A connection stands: until now it was not the generator that kept anything waiting."""
        self.not_before_s = now.monotonic_s
        self._backed_off_s = max(now.monotonic_s, self._held_until_s)

    @property
    def _free_s(self) -> float:
        """When something may go out, on the monotonic clock."""
        return max(self._held_until_s, self.not_before_s)

    def _succeeded(self, server_time: float | None, now: Moment, round_trip_s: float = 0.0) -> None:
        self.fault = ""
        self._retry_policy.succeeded()
        self.not_before_s = now.monotonic_s
        self._device.time = self._device.time.observe(server_time, now, round_trip_s)

    # --- commands -----------------------------------------------------------------------------------------------------

    def _report(self, report: Report, since: Moment) -> Request | None:
        intended_s = max(since.monotonic_s, self._backed_off_s)
        request = self._device.codec.report(report, intended_s, max(intended_s, self._free_s))
        command_id, status, attempt = self._reported_before
        if request is not None and (report.command_id, report.status) == (command_id, status):
            request = request._replace(attempt=attempt)
        return request

    def _short(self, report: Report) -> Report:
        """The report without the result itself, where that is what the service refused."""
        if report.command_id != self._shortened:
            return report
        why = f"result_refused: {self.fault}"
        return replace(report, result=None, error=why if report.error is None else f"{report.error} ({why})")

    def _take_report(self, request: Request, now: Moment) -> None:
        if request.report is None or request.report.status == IN_PROGRESS:
            return
        device = self._device
        self._tries = self._row = FailureStreak()
        self._place_is_missing = False
        self._report_backoff = device.model.backoff
        device.disk.journal.reported(request.report.command_id)
        device.fleet.gauges.open_commands -= 1
        device.fleet.ledger.command("reported", device.index, request.report.command_id, device.run_s(now))

    def _result_not_taken(self, request: Request, error: ServiceError, fault: ReportFault, now: Moment) -> None:
        """A result is put aside by the limits of :mod:`agent.core.unreported`, and so are all when no place is there.

        The oldest is tried; those behind it wait with it, and nothing else does.
        """
        now_s = self.not_before_s = now.monotonic_s
        report = request.report
        if report is None or report.status == IN_PROGRESS:
            return
        if fault is ReportFault.CONTENT:
            if self._shortened != report.command_id and report.result is not None:
                self._shortened = report.command_id
            else:
                self._put_result_aside(report.command_id, str(error), now)
            return
        if self._tries_of != report.command_id:
            self._tries_of, self._tries = report.command_id, FailureStreak()
        self._tries, self._row = self._tries.failed(now_s), self._row.failed(now_s)
        is_second = self._row.times > self._tries.times  # two results failed: the place is in doubt, not the result
        is_enough = self._tries.are_enough(fault, now_s) or (is_second and self._row.are_enough(fault, now_s))
        if self._place_is_missing or is_enough or (self.is_draining and self._row.times >= _TRIES_IN_DRAIN):
            self._place_is_missing = self._place_is_missing or is_second or fault is ReportFault.NO_PLACE
            self._put_result_aside(report.command_id, str(error), now)
            return
        retry_after_s = error.retry_after_s if isinstance(error, ErrorAnswer) else None
        self._report_backoff, wait_s = self._report_backoff.failed(self._device.chance(), retry_after_s)
        self._report_after_s = now_s + wait_s
        again = request.attempt.again(refused=is_refused(error))
        self._reported_before = (report.command_id, report.status, again)

    def drain(self, *, on: bool) -> None:
        """The run comes to its end, or goes on: results that were not taken are tried now."""
        self.is_draining = on
        if on:
            self._report_after_s = _NEVER_S

    def _put_result_aside(self, command_id: str, reason: str, now: Moment) -> None:
        """Nothing takes this result: it stays in the journal, and holds nothing else back."""
        device = self._device
        device.disk.journal.undeliverable(command_id, reason[:REASON_MAX])
        device.fleet.gauges.open_commands -= 1
        device.fleet.gauges.results_put_aside += 1
        device.fleet.ledger.command("undeliverable", device.index, command_id, device.run_s(now))

    # --- readings -----------------------------------------------------------------------------------------------------

    def _again(self, request: Request, now: Moment) -> Request:
        """The readings that were not answered for good, in the same request."""
        device = self._device
        due_s = max(self._free_s, device.began_s)
        request = request._replace(intended_s=due_s, ready_s=due_s)
        self._write_resent(request.keys, request.attempt, now)
        device.disk.in_flight = request
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

    def _next_readings(self, now: Moment) -> Request:
        device = self._device
        batch = device.disk.outbox.next_batch(self._limit, now)
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
        intended_s = max(intended_s, self._backed_off_s)
        free_s = self._free_s
        request = device.codec.readings(
            batch,
            f"{device.fleet.run}-{device.index}",
            intended_s,
            max(intended_s, free_s),
            attempt=attempt,
        )
        faults = device.fleet.faults
        if faults is not None and request.body is not None:
            first, *copies = faults.bodies(device.individual, now, request.body)
            request = request._replace(body=first.content, copies=tuple(copies))
        # What is sent again is sent once.
        device.disk.in_flight = request._replace(copies=()) if request.copies else request
        return request

    def _date(self, row: Row, now: Moment) -> None:
        """Give a reading the millisecond that it carries from now on, and write down that it goes out."""
        device = self._device
        recorded_s = device.time.recorded_at(row.at)
        recorded_ms = round((row.at.wall_s if recorded_s is None else recorded_s) * 1000)
        if device.fleet.numbered:
            row.recorded_ms = recorded_ms  # the audit identifies readings by their numbers
        else:
            recorded_ms = device.disk.outbox.date(row, recorded_ms)
        began_s = device.fleet.began_s
        device.fleet.ledger.reading_sent(
            device.index,
            row.key,
            row.digest,
            recorded_ms if self._is_dated else None,
            row.at.monotonic_s - began_s,
            now.monotonic_s - began_s,
        )

    def _take_readings(self, request: Request, refused: dict[int, str], now: Moment) -> None:
        device = self._device
        outbox, ledger, ages = device.disk.outbox, device.fleet.ledger, device.fleet.ages
        delivered = request.keys if not refused else tuple([key for key in request.keys if key not in refused])
        if delivered:
            ages.accepted(outbox.taken_s(delivered), now.monotonic_s)
            device.fleet.gauges.waiting_readings -= outbox.delivered(delivered)
            ledger.readings("accepted", device.index, delivered, device.run_s(now))
        if refused:
            ages.given_up(outbox.taken_s(refused), OutcomeClass.REFUSED, now.monotonic_s)
            device.fleet.gauges.waiting_readings -= outbox.delivered(refused)
            ledger.readings("refused", device.index, tuple(refused), device.run_s(now))
            self.fault = next(iter(refused.values()))
        device.disk.in_flight = None
        self._limit = self._limit_max

    def _put_away(self, request: Request, reason: str, now: Moment) -> None:
        """The service refused these for good. Of several, one is to blame: they go one by one, and none is lost."""
        if len(request.keys) == _ONE:
            self._take_readings(request, {request.keys[0]: reason}, now)
        else:
            self._limit = _ONE
            self._apart = request.attempt.again(refused=True)
            self._device.disk.in_flight = None


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
