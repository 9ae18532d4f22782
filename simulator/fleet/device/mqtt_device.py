"""A virtual device over MQTT: a session, commands that are pushed, and one message under way until it is settled.

The broker acknowledges a message (PUBACK) once it has it; the gateway's receipt settles what is in it. A lost session
is made again by the device, with growing pauses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent.core.schedule import phase_s
from agent.core.values import CommandPoll, Moment
from agent.errors import (
    InvalidMessage,
    LockedOut,
    Offline,
    RateLimited,
    Refused,
    ServiceError,
    TransportError,
    UnexpectedAnswer,
)
from agent.wire import topics
from agent.wire.mqtt_messages import Receipt, read_notice, read_receipt
from agent.wire.topics import TopicKind
from simulator.fleet.device.commands import take_in
from simulator.fleet.device.device import Device
from simulator.fleet.device.http_messages import Request
from simulator.fleet.device.model import Exchange
from simulator.fleet.device.mqtt_messages import (
    OPERATIONS,
    MqttOperation,
    awaited_keys,
    opening_of,
    read_command,
    renamed,
    status_of,
)
from simulator.fleet.device.retries import Retries
from simulator.fleet.device.unwaited import Unwaited, send_copies
from simulator.fleet.engine.mqtt import (
    FAILURES_FROM,
    NOBODY_LISTENS,
    NOT_AUTHORIZED,
    QUOTA_EXCEEDED,
    Arrival,
    Established,
    class_of_reason,
)
from simulator.fleet.engine.wheel import NEVER
from simulator.fleet.outcomes import OutcomeClass

if TYPE_CHECKING:  # a driver has devices, which are a driver's
    from simulator.fleet.device.driver import MqttDriver

STABLE_S: Final = 10.0
"""A connection that lasted this long shows that all is well: the next failure is the first of its row."""
SPREAD_S: Final = 2.0
"""After the power came a device connects within this, each at its own place: the real agent's default."""
# Commands are not listed here, so their entries go by age; the broker keeps a session for an hour.
_REMEMBERED_S: Final = 2 * 3600.0
_TIDY_EVERY: Final = 64
_LIMITED: Final = 429
_NOT_UNDERSTOOD: Final = 400
_TOO_LARGE: Final = 413
_LONG_AGO_S: Final = float("-inf")


class MqttDevice(Device):
    """One device over MQTT; its engine's session listener."""

    __slots__ = (
        "_attempt_s",
        "_awaited",
        "_busy",
        "_confirmed",
        "_connect_due_s",
        "_connect_retries",
        "_copies",
        "_copies_not_understood",
        "_is_up",
        "_not_understood",
        "_readings_after_s",
        "_receipt_due_s",
        "_sent_s",
        "_taken",
        "_up_since_s",
    )

    driver: MqttDriver

    # --- power --------------------------------------------------------------------------------------------------------

    def boot(self, now: Moment) -> None:
        member = self.member
        self._connect_retries = Retries(member.model.backoff, self.chance)
        # Infinity while there is a connection, or one is being made.
        self._connect_due_s = now.monotonic_s + phase_s(member.device_id, "first contact", SPREAD_S)
        self._attempt_s = self._up_since_s = self._sent_s = 0.0
        self._is_up = False  # the subscriptions are acknowledged
        self._busy: Request | None = None  # what was published and is not settled
        self._receipt_due_s = NEVER
        self._readings_after_s = _LONG_AGO_S  # the gateway asked for no readings before this
        self._awaited: dict[str, int] = {}  # what the gateway has to confirm: key -> outbox key
        self._confirmed: dict[int, str | None] = {}  # outbox key -> None for stored, or why it was refused
        self._not_understood = ""  # why the gateway could not read the message under way at all
        self._copies = self._copies_not_understood = 0
        self._taken = 0

    def power_gone(self) -> None:
        self._went_down()
        self._connect_due_s = NEVER

    def end(self) -> None:
        if not self.is_on:
            return
        now_s = self.driver.clocks.monotonic()
        if not self._is_up and self._connect_due_s == NEVER and self._attempt_s < self.driver.phases_end_s:
            self._count_attempt(OutcomeClass.TIMEOUT, self._attempt_s, now_s)
        request = self._busy
        if request is not None:
            operation = OPERATIONS[request.operation] if self._receipt_due_s == NEVER else MqttOperation.RECEIPT
            self.measure(operation, OutcomeClass.TIMEOUT, request, self._sent_s, now_s)

    # --- what is due --------------------------------------------------------------------------------------------------

    def turn(self, now: Moment) -> None:
        """Do what is due, and wake up for what is not."""
        now_s, driver = now.monotonic_s, self.driver
        if self._busy is not None and now_s >= self._receipt_due_s:
            self.measure(MqttOperation.RECEIPT, OutcomeClass.TIMEOUT, self._busy, self._sent_s, now_s)
            self._failed(self._busy, _no_receipt(driver.receipt_timeout_s), now)
            self._settle(MqttOperation.RECEIPT)
        if now_s >= self.own_due_s:
            self.advance(now)
        if now_s >= self._connect_due_s:
            self._attempt_s, self._connect_due_s = self._connect_due_s, NEVER
            driver.engine.open(self.index, opening_of(self.member.device_id, driver.tokens(self.index)), self)
        if self._is_up and self._busy is None and self._out_due_s <= now_s:
            self._publish_next(now)
        out_s = self._out_due_s if self._is_up and self._busy is None else NEVER
        self.wait_until(min(out_s, self.own_due_s, self._connect_due_s, self._receipt_due_s))

    @property
    def _reports_due_s(self) -> float:
        return NEVER if self.commands is None else self.commands.reports_due_s

    @property
    def _out_due_s(self) -> float:
        """When something is to be published; results never wait for the gateway's hint."""
        return max(self.uplink.due_s, min(self._readings_after_s, self._reports_due_s))

    def _publish_next(self, now: Moment) -> None:
        driver, uplink = self.driver, self.uplink
        if self._reports_due_s > now.monotonic_s:
            uplink.not_before_s = max(uplink.not_before_s, self._readings_after_s)
        request = uplink.next_request(now)
        if request is None:
            return
        self._awaited = awaited_keys(request, f"{self.fleet.run}-{self.index}")
        self._confirmed, self._not_understood = {}, ""
        self._copies = len(request.copies)
        self._busy = request
        self._sent_s = driver.clocks.monotonic()
        body, caller = request.body or b"", _Publication(self, request)
        driver.engine.publish(self.index, request.target, body, caller, driver.timeout_s)
        if request.copies:
            send_copies(self, request, renamed, self._publish_copy)

    def _publish_copy(self, copy: Request, due_s: float) -> None:
        caller = Unwaited(self.driver.observer, MqttOperation.READINGS, self.index, due_s)
        self.driver.engine.publish(self.index, copy.target, copy.body or b"", caller, self.driver.timeout_s)

    # --- the session (SessionListener) --------------------------------------------------------------------------------

    def connected(self, established: Established, now_s: float) -> None:
        """The broker took the device, and the subscriptions are acknowledged: end any back-off."""
        if not self.is_on:
            return
        driver = self.driver
        driver.connections += 1
        self._is_up, self._up_since_s = True, now_s
        self._count_attempt(OutcomeClass.OK, established.began_s, now_s)
        status = status_of(self.member.device_id, online=True)
        # It is said again at the next connection, so nobody waits for its end.
        greeting = Unwaited(driver.observer, MqttOperation.STATUS, self.index, None)
        driver.engine.publish(self.index, status.topic, status.payload, greeting, driver.timeout_s, retain=True)
        now = self.moment(now_s)
        self.uplink.begin(now)
        self.turn(now)
        driver.on_news()

    def arrived(self, arrival: Arrival, now_s: float) -> None:
        """A message came: taken, and then acknowledged; what is wrong with it will not get better."""
        if not self.is_on:
            return
        driver, now = self.driver, self.moment(now_s)
        try:
            fault = self._take(arrival.topic, arrival.payload, now)
        except InvalidMessage as error:
            fault = f"a message on {arrival.topic[:120]} is skipped: {error}"
        driver.engine.acknowledge(self.index, arrival)
        if fault:
            driver.observer.faulted(MqttOperation.RECEIPT, self.index, fault)
        if self._busy is not None and self._receipt_due_s != NEVER and not self._awaited:
            self._receipted(self._busy, now)
        self.turn(now)

    def lost(self, error: Offline, outcome: OutcomeClass, began_s: float | None, now_s: float) -> None:
        """Note that there is no connection any more, or that it was never made."""
        if not self.is_on:
            return
        driver, now, request = self.driver, self.moment(now_s), self._busy
        if request is not None:
            is_acknowledged = self._receipt_due_s != NEVER
            operation = MqttOperation.RECEIPT if is_acknowledged else OPERATIONS[request.operation]
            self.measure(operation, OutcomeClass.TRANSPORT, request, self._sent_s, now_s)
            self._failed(request, error, now)
        if not self._is_up:
            self._count_attempt(outcome, began_s, now_s)
        elif now_s - self._up_since_s >= STABLE_S:
            self._connect_retries.succeeded()
        driver.observer.faulted(MqttOperation.CONNECT, self.index, str(error))
        self._went_down()
        self._connect_due_s = now_s + self._connect_retries.failed(error)
        self.turn(now)
        driver.on_news()

    def _went_down(self) -> None:
        if self._is_up:
            self.driver.connections -= 1
        self._is_up = False
        self._busy = None
        self._receipt_due_s = NEVER

    def _count_attempt(self, outcome: OutcomeClass, began_s: float | None, now_s: float) -> None:
        due_s = self._attempt_s
        self.driver.observer.exchanged(
            Exchange(MqttOperation.CONNECT, outcome, self.index, due_s, due_s, began_s, now_s)
        )

    # --- what comes ---------------------------------------------------------------------------------------------------

    def _take(self, topic: str, payload: bytes, now: Moment) -> str:
        """Take a message; what was wrong with it, for a person, or an empty text."""
        parsed = topics.parse(topic)
        if parsed.kind is TopicKind.COMMAND:
            command = read_command(parsed.command_id or "", payload, self.member.device_id)
            take_in(self, CommandPoll((command,), pushed=True), now)
            self.own_due_s = _LONG_AGO_S  # its work begins at once
            self._taken += 1
            if self._taken % _TIDY_EVERY == 0:
                self.disk.journal.forget_before(now.monotonic_s - _REMEMBERED_S)
        elif parsed.kind is TopicKind.RECEIPTS:
            return self._take_receipt(read_receipt(payload))
        elif parsed.kind is TopicKind.NOTICE:
            notice = read_notice(payload)
            self.time = self.time.observe(notice.time, now)
            if notice.retry_after_s is None:
                self.uplink.wake(now)
            elif not self.member.model.ignores_limit:
                self._readings_after_s = now.monotonic_s + notice.retry_after_s
        return ""

    def _take_receipt(self, receipt: Receipt) -> str:
        answers: list[tuple[str | None, str | None]] = [(key, None) for key in receipt.stored]
        answers += [(each.key, f"{each.error}: {each.message}") for each in receipt.refused]
        nameless = ""
        for key, refusal in answers:
            if key is None:
                nameless = refusal or ""
                self._take_unnamed_refusal(nameless)
            elif (outbox_key := self._awaited.pop(key, None)) is not None:
                self._confirmed[outbox_key] = refusal
        return f"the gateway did not understand a message: {nameless}" if nameless else ""

    def _take_unnamed_refusal(self, why: str) -> None:
        """The gateway could not read a message, so it names no key: it is that under way, or a copy of one before."""
        if self._copies_not_understood:
            self._copies_not_understood -= 1
        elif self._awaited:
            self._not_understood, self._awaited = why, {}
            self._copies_not_understood = self._copies

    # --- the end of a message (through _Publication) ------------------------------------------------------------------

    def acknowledged(self, request: Request, code: int, sent_s: float, now_s: float) -> None:
        """PUBACK came; the gateway's receipt may have come already."""
        if self._busy is not request or not self.is_on:
            return
        now, operation = self.moment(now_s), OPERATIONS[request.operation]
        self.measure(operation, class_of_reason(code), request, sent_s, now_s)
        error = _error_of(code)
        if error is not None:
            self._failed(request, error, now)
            self._settle(operation)
        elif self._awaited or self._confirmed or self._not_understood:
            self._sent_s = sent_s
            self._receipt_due_s = now_s + self.driver.receipt_timeout_s
            if not self._awaited:
                self._receipted(request, now)
        else:
            self.uplink.settled(request, {}, None, now_s, now)
            self._settle(operation)
        self.turn(now)
        self.driver.on_news()

    def unacknowledged(
        self, request: Request, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float
    ) -> None:
        """No PUBACK came; what is beyond the broker's limits will never get out."""
        if self._busy is not request or not self.is_on:
            return
        now, operation = self.moment(now_s), OPERATIONS[request.operation]
        self.measure(operation, outcome, request, sent_s, now_s)
        is_too_large = outcome is OutcomeClass.REFUSED
        error = Refused(_TOO_LARGE, "too_large", reason) if is_too_large else TransportError(reason)
        self._failed(request, error, now, left=sent_s is not None)
        self._settle(operation)
        if outcome is not OutcomeClass.TRANSPORT:  # else the session is over, and the next call says so
            self.turn(now)
            self.driver.on_news()

    def _receipted(self, request: Request, now: Moment) -> None:
        """Everything in the message is confirmed, or none of it was understood."""
        refused = {key: why for key, why in self._confirmed.items() if why is not None}
        outcome = OutcomeClass.REFUSED if self._not_understood or refused else OutcomeClass.OK
        self.measure(MqttOperation.RECEIPT, outcome, request, self._sent_s, now.monotonic_s)
        if self._not_understood:
            self._failed(request, Refused(_NOT_UNDERSTOOD, "not_understood", self._not_understood), now)
        else:
            self._confirmed = {}
            self.uplink.settled(request, refused, None, now.monotonic_s, now)
        self._settle(MqttOperation.RECEIPT)
        self.driver.on_news()

    def _failed(self, request: Request, error: ServiceError, now: Moment, *, left: bool = True) -> None:
        """No acknowledgement, or no receipt: the same goes again after a while, with the same keys."""
        self._awaited, self._confirmed, self._not_understood = {}, {}, ""
        self.uplink.failed(request, error, now, left=left)

    def _settle(self, operation: MqttOperation) -> None:
        """End the message under way, and tell what was wrong with it."""
        self._busy = None
        self._receipt_due_s = NEVER
        if self.uplink.fault:
            self.driver.observer.faulted(operation, self.index, self.uplink.fault)


class _Publication:
    """A message on its way: the engine's :class:`~simulator.fleet.engine.mqtt.Publisher`."""

    __slots__ = ("_device", "_request")

    def __init__(self, device: MqttDevice, request: Request) -> None:
        self._device = device
        self._request = request

    def acknowledged(self, code: int, sent_s: float, now_s: float) -> None:
        """See :class:`~simulator.fleet.engine.mqtt.Publisher`."""
        self._device.acknowledged(self._request, code, sent_s, now_s)

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """See :class:`~simulator.fleet.engine.mqtt.Publisher`."""
        self._device.unacknowledged(self._request, outcome, reason, sent_s, now_s)


def _no_receipt(timeout_s: float) -> TransportError:
    return TransportError(
        f"the broker took a message, but no gateway confirmed it within {timeout_s:g} s: is the gateway running, and "
        "does the device have a token there?"
    )


def _error_of(code: int) -> ServiceError | None:
    """What a PUBACK's reason code (MQTT 5.0, section 3.4.2.1) means; None where somebody will get the message."""
    if code == NOBODY_LISTENS:
        return TransportError("no gateway listens at the broker, so nobody can store what devices send: start it")
    if code < FAILURES_FROM:
        return None
    if code == QUOTA_EXCEEDED:
        return RateLimited(_LIMITED, "quota_exceeded", "the broker takes no more messages now")
    if code == NOT_AUTHORIZED:
        return LockedOut("forbidden", "the broker does not let the device publish there: check its access rules")
    return UnexpectedAnswer(f"the broker refuses a message with reason code 0x{code:02X}")
