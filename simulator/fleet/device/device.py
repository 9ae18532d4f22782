"""A virtual device: the agent's own core between sensors and channels, with a disk that survives power loss.

One object and one timer per device for the whole run. Power loss erases everything except ``disk``. Commands come
through one channel; reports and readings leave through another: results first, then progress, then readings, one
request at a time, each kept until the service has it. The channels do not wait for each other. The transports are in
:mod:`~simulator.fleet.device.http_device` and :mod:`~simulator.fleet.device.mqtt_device`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from agent.core.outbox import is_refused_for_good
from agent.core.timekeeping import Schedule, ServiceTime
from agent.core.values import Moment
from agent.errors import ServiceError
from simulator.fleet.audit.ledger import SEQUENCE_NAME, ReadingEvent
from simulator.fleet.device.answers import Retries, is_refused
from simulator.fleet.device.commands import Commands
from simulator.fleet.device.disk import Disk
from simulator.fleet.device.http_messages import HttpMessages, Request, values_text
from simulator.fleet.device.model import Member
from simulator.fleet.engine.timers import NEVER, Timer
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.signals import DeviceRandom

if TYPE_CHECKING:  # import cycle
    from simulator.fleet.device.driver import DeviceDriver

AT_ONCE_S: Final = float("-inf")
# Looking up the member of an enumeration takes longer than comparing with it, and each reading needs these.
_FIRST: Final = Attempt.FIRST
_OK: Final = OutcomeClass.OK


class Device(Timer, ABC):
    """One device of a driver, over one transport.

    Args:
        driver: of this and other devices.
        messages: builds what it sends.
        index: in the fleet.
        member: its ids and model.

    Attributes:
        fleet: shared by all devices of the worker.
        disk: what survives power loss.
        random: the source of chance for its signals and faults.
        is_on: it has power.
        time: its estimate of the service's clock.
        commands: None before the first command.
        own_due_s: when the sensor is read or a command's work ends, whichever is next, on the monotonic clock.
        posted: the report or readings under way.
        fault: why the last of these failed, for a person.
    """

    __slots__ = (
        "_batch",
        "_not_before_s",
        "_readings_after_s",
        "_ready_s",
        "_retries",
        "_sample_due_s",
        "_schedule",
        "_single_attempt",
        "_suspects",
        "commands",
        "disk",
        "driver",
        "fault",
        "fleet",
        "index",
        "is_on",
        "member",
        "messages",
        "own_due_s",
        "posted",
        "random",
        "time",
    )

    time: ServiceTime
    _schedule: Schedule
    _sample_due_s: float

    def __init__(self, driver: DeviceDriver, messages: HttpMessages, index: int, member: Member) -> None:
        super().__init__()
        self.driver = driver
        self.fleet = driver.fleet
        self.messages = messages
        self.index = index
        self.member = member
        self.disk = Disk()
        self.random = DeviceRandom(self.fleet.seed, index)
        self.is_on = False
        self.commands: Commands | None = None
        self.own_due_s = NEVER
        self.posted: Request | None = None

    # --- power --------------------------------------------------------------------------------------------------------

    def switch_on(self) -> None:
        """Power on; no-op when it is on."""
        if self.is_on:
            return
        now, model = self.now(), self.member.model
        self.is_on = True
        self.time = ServiceTime(trust_wall=True)
        self.fault = ""
        self._retries: Retries | None = None  # of reports and readings; None after a success
        self._batch = model.batch
        self._suspects: frozenset[int] = frozenset()  # keys of a refused batch; until all are settled, batches have one
        self._single_attempt = Attempt.AMBIGUOUS  # of readings that go again in another request
        # Latency and generator lag are measured from power-on at the earliest.
        self._ready_s = now.monotonic_s
        self._not_before_s = AT_ONCE_S  # no post before this
        self._readings_after_s = AT_ONCE_S  # no readings before this
        self._set_interval(now)
        self.own_due_s = AT_ONCE_S
        if self.disk.journal.entries:
            self.commands = Commands(self)
            self.commands.resume(now)
        self.boot(now)
        self.fleet.online += 1
        self.turn(now.monotonic_s)

    def switch_off(self) -> None:
        """Power loss: what is in flight is cut off, and only the disk remains; no-op when it is off."""
        if not self.is_on:
            return
        self.driver.engine.cut(self.index)
        self.stop()
        in_flight = self.disk.in_flight
        report = None if self.posted is None else self.posted.report
        # What is under way may have arrived or not.
        if report is not None:
            self.disk.report_sent = (report.command_id, report.status, Attempt.AMBIGUOUS)
        elif self.posted is not None and in_flight is not None:
            self.disk.in_flight = replace(in_flight, attempt=Attempt.AMBIGUOUS)
            self.write_readings("unanswered", in_flight.keys, self.now())
        self.is_on = False
        self.posted = self.commands = None
        self.power_gone()
        self.fleet.online -= 1

    @abstractmethod
    def boot(self, now: Moment) -> None:
        """Prepare the transport after power-on."""

    @abstractmethod
    def power_gone(self) -> None:
        """Forget what the transport had under way."""

    @abstractmethod
    def link_lost(self, now_s: float) -> None:
        """The connection broke: what is under way may have arrived, and no answer comes."""

    @abstractmethod
    def turn(self, now_s: float) -> None:
        """Do what is due, and set the timer for what comes next."""

    @abstractmethod
    def end(self) -> None:
        """The run is over and the engine closed: count what is still under way."""

    def drain(self) -> None:
        """Sensors are no longer read: send what is left."""
        if self.is_on:
            self.own_due_s = AT_ONCE_S
            if self.commands is not None:
                self.commands.results_after_s = AT_ONCE_S  # retry failed results now
            self.turn(self.fleet.monotonic())

    def fire(self) -> None:
        if self.is_on:
            self.turn(self.fleet.monotonic())

    def wait_until(self, due_s: float) -> None:
        """Set the timer, at the end of each turn."""
        if due_s != self.due_s:
            self.fleet.timers.at(due_s, self)
        if not self.driver.is_sampling:
            self.driver.note(self.index, settled=self.is_settled)
            self.fleet.on_news()

    @property
    def is_settled(self) -> bool:
        """Whether the drain need not wait for this device; also true without power."""
        return not self.holds_something

    @property
    def holds_something(self) -> bool:
        """Whether a command runs, or something waits to be sent; false without power."""
        commands, disk = self.commands, self.disk
        is_busy = commands is not None and (commands.is_busy or commands.reports_due_s != NEVER)
        return self.is_on and (is_busy or bool(disk.outbox.rows) or disk.in_flight is not None)

    # --- time ---------------------------------------------------------------------------------------------------------

    def now(self) -> Moment:
        """The current time by the device's clocks."""
        return self.moment(self.fleet.monotonic())

    def moment(self, now_s: float) -> Moment:
        """A time of the monotonic clock by the device's clocks."""
        fleet = self.fleet
        moment = Moment(now_s, fleet.wall(), fleet.boot_id)
        return moment if fleet.faults is None else fleet.faults.moment(self.random, moment)

    def run_s(self, now: Moment) -> float:
        """Seconds since the run's begin, the time in the audit's ledger."""
        return now.monotonic_s - self.fleet.began_s

    # --- sensors and commands -----------------------------------------------------------------------------------------

    def advance(self, now: Moment) -> None:
        """Read the sensor if it is due, and start and end the work of commands."""
        commands = self.commands
        if commands is not None and commands.is_busy:
            for work in commands.advance(now):
                if work.interval_s is not None:
                    self.disk.interval_s = work.interval_s
                    self._set_interval(now)
        due_s = NEVER
        if self.driver.is_sampling:
            if now.monotonic_s >= self._sample_due_s:
                self._read_sensor(now)
            due_s = self._sample_due_s
        self.own_due_s = due_s if commands is None else min(due_s, commands.due_s)

    def values(self, now: Moment) -> dict[str, float]:
        """The current values of its sensors, by reading name."""
        signals, faults = self.member.model.signals, self.fleet.faults
        return signals.read(self.random, now.wall_s) if faults is None else faults.read(self.random, signals, now)

    def _read_sensor(self, now: Moment) -> None:
        fleet, outbox, due_s = self.fleet, self.disk.outbox, self._sample_due_s
        missed = int((now.monotonic_s - due_s) / self._schedule.period_s)
        if missed > 0:
            fleet.observer.readings_missed(missed)
        self._sample_due_s = self._schedule.next_after(now.monotonic_s)
        values = self.values(now)
        if not values:  # none of its sensors has a value
            return
        digest = fleet.ledger.digest(values)
        if fleet.numbered:
            values[SEQUENCE_NAME] = fleet.first_number + outbox.next_key
        dropped = outbox.put(values_text(values), digest, now, due_s)
        fleet.waiting_readings += 1 - len(dropped)
        if dropped:
            fleet.observer.readings_ended(dropped, OutcomeClass.TIMEOUT, now.monotonic_s)
        if fleet.faults is not None:
            self.hold_readings(fleet.faults.held_until_s(self.random, now))

    def _set_interval(self, now: Moment) -> None:
        """Read the sensor from now on at the model's interval, or at the one that a command has set."""
        model = self.member.model
        interval_s = self.disk.interval_s or model.interval_s
        # The plan counts from the run's begin, the schedule on the machine's clock.
        phase_s = (model.place_s(self.random, interval_s) + self.fleet.began_s) % interval_s
        self._schedule = Schedule(interval_s, phase_s)
        self._sample_due_s = self._schedule.next_after(now.monotonic_s)

    # --- reports and readings -----------------------------------------------------------------------------------------

    @property
    def post_due_s(self) -> float:
        """When the next post is due; infinity while one is under way, or nothing waits."""
        if self.posted is not None:
            return NEVER
        disk, commands, due_s = self.disk, self.commands, NEVER
        if disk.outbox.rows or disk.in_flight is not None:
            due_s = self._readings_after_s
        if commands is not None:
            due_s = min(due_s, commands.reports_due_s)
        return due_s if due_s > self._not_before_s else self._not_before_s

    def next_post(self, now: Moment) -> Request | None:
        """The next post, which counts as under way from now on; None when nothing is due."""
        request, disk = None, self.disk
        found = None if self.commands is None else self.commands.next_report(now)
        if found is not None:
            request, since = found
            request.intended_s = max(since.monotonic_s, self._ready_s)
            request.ready_s = max(request.intended_s, self._not_before_s)
        elif now.monotonic_s >= self._readings_after_s:
            if disk.in_flight is not None:
                request = self._readings_again(disk.in_flight, now)
            elif disk.outbox.rows:
                request = self._next_readings(now)
        self.posted = request
        return request

    def settled(
        self, request: Request, refused: dict[int, str], server_time: float | None, sent_s: float, now: Moment
    ) -> None:
        """The service stored everything but the refused readings.

        Args:
            request: what was sent.
            refused: the reason by reading key.
            server_time: epoch seconds, where the answer has it.
            sent_s: when the request went out, on the monotonic clock.
            now: the current time.
        """
        self.posted = None
        self.fault = ""
        self._retries = None
        self._not_before_s = now.monotonic_s
        if request.report is None:
            self._remove_readings(request, refused, now)
        elif self.commands is not None:
            self.commands.reported(request.report, now)
        self.time = self.time.observe(server_time, now, now.monotonic_s - sent_s)

    def unsettled(self, request: Request, error: ServiceError, now: Moment, *, left: bool = True) -> None:
        """The request failed: drop what the service will never take, retry everything else later.

        Args:
            request: what was sent.
            error: why.
            now: the current time.
            left: the request went out, so that the service may have seen it.
        """
        self.posted = None
        self.fault = str(error)
        report, commands = request.report, self.commands
        self._not_before_s = now.monotonic_s
        if report is None:
            if is_refused_for_good(error):
                self._put_away(request, str(error), now)
                return
            in_flight, refused = self.disk.in_flight, is_refused(error)
            if left and in_flight is not None:
                self.disk.in_flight = replace(in_flight, attempt=in_flight.attempt.again(refused=refused))
            if left and not refused:
                self.write_readings("unanswered", request.keys, now)
        elif commands is not None:
            if commands.handle_refused_result(request, report, error, now):
                return
            if left:
                commands.note_failure(request, report, error)
        self._retries = self._retries or Retries(self.member.model.backoff, self.fleet.chance)
        self._not_before_s = self._ready_s = now.monotonic_s + self._retries.failed(error)

    def hold_readings(self, until_s: float) -> None:
        """Send no readings before ``until_s``, on the monotonic clock; their latency counts from then."""
        self._readings_after_s = max(self._readings_after_s, until_s)

    def connection_up(self, now: Moment) -> None:
        """Restart lag measurement now: the delay before was the connection's."""
        self._not_before_s = self._ready_s = now.monotonic_s

    def wake(self, now: Moment) -> None:
        """End a back-off: the gateway says that the service answers again."""
        self._not_before_s = min(self._not_before_s, now.monotonic_s)
        self._ready_s = min(self._ready_s, now.monotonic_s)

    def write_readings(self, event: ReadingEvent, keys: Sequence[int], now: Moment) -> None:
        """Record an event of readings in the audit's ledger."""
        self.fleet.ledger.readings(event, self.index, keys, self.run_s(now))

    def _next_readings(self, now: Moment) -> Request:
        fleet, outbox, messages, index = self.fleet, self.disk.outbox, self.messages, self.index
        batch = outbox.next_batch(self._batch if messages.takes_arrays else 1, now)
        intended_s, at_s = batch[0].due_s, now.monotonic_s - fleet.began_s
        again: list[int] = []
        for row in batch:
            if row.due_s < intended_s:
                intended_s = row.due_s
            if row.recorded_ms is not None:
                again.append(row.key)
                continue
            # It keeps this time in every further sending.
            recorded_s = self.time.recorded_at(row.at)
            recorded_ms = round((row.at.wall_s if recorded_s is None else recorded_s) * 1000)
            # The audit identifies readings by their numbers, or by their milliseconds.
            row.recorded_ms = recorded_ms if fleet.numbered else outbox.free_millisecond(recorded_ms)
            carried_ms = row.recorded_ms if messages.sends_time else None
            made_s = row.at.monotonic_s - fleet.began_s
            fleet.ledger.reading_sent(index, row.key, row.digest, carried_ms, made_s, at_s)
        request = messages.readings(self.member.device_id, batch, f"{fleet.run}-{index}")
        if again:
            request.attempt = self._single_attempt
            self._write_resent(again, request.attempt, now)
        request.intended_s = due_s = max(intended_s, self._ready_s, self._readings_after_s)
        request.ready_s = due_s if due_s > self._not_before_s else self._not_before_s
        self.disk.in_flight = request
        if fleet.faults is not None and request.body is not None:
            request.body, request.copies = fleet.faults.outgoing(self.random, now, request.body)
            for _ in range(request.copies):
                self.write_readings("resent", request.keys, now)
        return request

    def _readings_again(self, request: Request, now: Moment) -> Request:
        """The same request again, after a failure."""
        due_s = max(self._ready_s, self._not_before_s, self._readings_after_s)
        self._write_resent(request.keys, request.attempt, now)
        # The copies of a fault went out the first time.
        again = replace(request, intended_s=due_s, ready_s=due_s, copies=0)
        self.disk.in_flight = again
        return again

    def _write_resent(self, keys: Sequence[int], attempt: Attempt, now: Moment) -> None:
        """Record that these are sent again, unless they never left before."""
        if attempt is not _FIRST:
            self.write_readings("resent" if attempt is Attempt.AMBIGUOUS else "resent_after_refusal", keys, now)

    def _remove_readings(self, request: Request, refused: dict[int, str], now: Moment) -> None:
        fleet, outbox = self.fleet, self.disk.outbox
        delivered: Sequence[int] = request.keys
        if refused:
            delivered = [key for key in request.keys if key not in refused]
            taken_s = outbox.remove(refused)
            fleet.observer.readings_ended(taken_s, OutcomeClass.REFUSED, now.monotonic_s)
            fleet.waiting_readings -= len(taken_s)
            self.write_readings("refused", tuple(refused), now)
            self.fault = next(iter(refused.values()))
        if delivered:
            taken_s = outbox.remove(delivered)
            fleet.observer.readings_ended(taken_s, _OK, now.monotonic_s)
            fleet.waiting_readings -= len(taken_s)
            fleet.ledger.readings("accepted", self.index, delivered, now.monotonic_s - fleet.began_s)
        self.disk.in_flight = None
        if self._suspects and not (self._suspects & outbox.rows.keys()):
            self._batch, self._suspects = self.member.model.batch, frozenset()

    def _put_away(self, request: Request, reason: str, now: Moment) -> None:
        """The service refused these for good: drop a single reading; of several, find the bad one by one."""
        if len(request.keys) == 1:
            self._remove_readings(request, {request.keys[0]: reason}, now)
        else:
            self._batch, self._suspects = 1, frozenset(request.keys)
            self._single_attempt = request.attempt.again(refused=True)
            self.disk.in_flight = None
