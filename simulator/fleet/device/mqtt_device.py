"""A virtual device over MQTT: a session, commands that are pushed, and one message under way until it is settled.

Topics and messages are those of docs/protocol.md, built by :mod:`agent.wire` as in the real agent; only readings, the
hot path, are written without the models, to the same bytes. The broker acknowledges a message (PUBACK) once it has it;
the gateway's receipt settles its contents. The device reconnects after a lost session, with growing pauses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from mqtt5 import QoS, Will

from agent.core.timekeeping import phase_s
from agent.core.values import IN_PROGRESS, CommandPoll, Moment, Report
from agent.errors import (
    InvalidMessage,
    LockedOut,
    Offline,
    RateLimited,
    Refused,
    ServiceError,
    SessionTakenOver,
    TransportError,
    UnexpectedAnswer,
)
from agent.wire import topics
from agent.wire.encoding import parse_json
from agent.wire.topics import Notice, Receipt, ResultMessage, StatusMessage, TopicKind, encode
from simulator.fleet.device.answers import Retries
from simulator.fleet.device.commands import take_in
from simulator.fleet.device.device import AT_ONCE_S, Device
from simulator.fleet.device.http_messages import HttpMessages, Reading, Request, json_name, time_text
from simulator.fleet.device.links import SESSION_ENDS
from simulator.fleet.engine.mqtt import (
    FAILURES_FROM,
    NOBODY_LISTENS,
    NOT_AUTHORIZED,
    PACKET_TOO_LARGE,
    QUOTA_EXCEEDED,
    SESSION_EXPIRY_S,
    OnAcknowledged,
    Opening,
    Session,
    class_of_reason,
)
from simulator.fleet.engine.timers import NEVER
from simulator.fleet.faults import Fate
from simulator.fleet.outcomes import OutcomeClass

if TYPE_CHECKING:  # import cycle
    from simulator.fleet.device.driver import MqttDriver

RECEIPT_TIMEOUT_S: Final = 30.0
"""How long a device waits for the gateway's receipt after the broker's PUBACK."""
STABLE_S: Final = 10.0
"""After this long the reconnect back-off starts again at its minimum."""
SPREAD_S: Final = 2.0
"""A device connects within this time after power-on, each at its own moment: the real agent's default."""
# Pushed commands are never listed, so journal entries are removed by age. The broker keeps no command longer than this.
_REMEMBERED_S: Final = 2.0 * SESSION_EXPIRY_S
_TIDY_EVERY: Final = 64
_ONLINE: Final = encode(StatusMessage(status="online", firmware_version="fleet"))
_OFFLINE: Final = encode(StatusMessage(status="offline", firmware_version="fleet"))
_NO_RECEIPT: Final = (
    "the broker took a message, but no gateway confirmed it in time: is the gateway running, and does the device have "
    "a token there?"
)
_RESULT: Final = 0
"""In place of an outbox key, which are from 1 on."""
_CONNECT_BYTES: Final = 400
"""The approximate size of CONNECT with a will, and SUBSCRIBE."""
_ROUND_TRIPS: Final = 3
"""Of a connection: TCP, CONNECT, SUBSCRIBE."""


class MqttOperation(StrEnum):
    """What is measured; the value is its name in the measurement."""

    CONNECT = "mqtt.connect"
    """From when it was due until the subscriptions were acknowledged."""
    READINGS = "mqtt.sensor_data"
    """Until the broker acknowledged."""
    REPORT = "mqtt.report"
    RECEIPT = "mqtt.receipt"
    """Until the gateway's receipt for the message."""
    RECEIVED = "mqtt.received"
    """A message to the device; not measured, only named where one is faulty."""


class MqttDevice(Device):
    """One device over MQTT; its session's :class:`~simulator.fleet.engine.mqtt.SessionListener`."""

    __slots__ = (
        "_attempt_s",
        "_awaited",
        "_began_s",
        "_connect_due_s",
        "_connect_retries",
        "_connection",
        "_is_acknowledged",
        "_is_up",
        "_refusal",
        "_refused",
        "_sent_s",
        "_session",
        "_settle_due_s",
        "_up_since_s",
    )

    driver: MqttDriver
    _session: Session

    # --- power --------------------------------------------------------------------------------------------------------

    def boot(self, now: Moment) -> None:
        member = self.member
        self._connect_retries = Retries(member.model.backoff, self.fleet.chance)
        # Infinity while there is a connection, or one is being made.
        self._connect_due_s = now.monotonic_s + phase_s(member.device_id, "first contact", SPREAD_S)
        self._connection = object()  # identifies it: timers of an earlier one do nothing
        self._attempt_s = self._began_s = self._up_since_s = self._sent_s = 0.0
        self._is_up = False  # the subscriptions are acknowledged
        self._is_acknowledged = False  # the broker acknowledged what was posted
        self._settle_due_s = NEVER  # the deadline for the PUBACK, then for the receipt
        self._awaited: dict[str, int] = {}  # keys that the receipt has to name -> outbox keys
        self._refused: dict[int, str] = {}  # outbox keys that the gateway refused -> why
        self._refusal = ""  # why the gateway refused what was posted as a whole

    def power_gone(self) -> None:
        self._went_down()
        self._connect_due_s = NEVER

    def end(self) -> None:
        if not self.is_on:
            return
        now_s = self.fleet.monotonic()
        if not self._is_up and self._connect_due_s == NEVER and self._attempt_s < self.driver.phases_end_s:
            self._measure_attempt(OutcomeClass.TIMEOUT, now_s)
        if self.posted is not None:
            self._measure(self._stage(self.posted), OutcomeClass.TIMEOUT, self.posted, now_s)

    # --- what is due --------------------------------------------------------------------------------------------------

    def turn(self, now_s: float) -> None:
        """Do what is due, and wake up for what is not."""
        if now_s >= self._settle_due_s and self.posted is not None:
            why = _NO_RECEIPT if self._is_acknowledged else "the broker did not acknowledge a message in time"
            self._fail(self.posted, OutcomeClass.TIMEOUT, TransportError(why), self.moment(now_s))
        if now_s >= self.own_due_s:
            self.advance(self.moment(now_s))
        if now_s >= self._connect_due_s:
            self._attempt_s, self._began_s, self._connect_due_s = self._connect_due_s, now_s, NEVER
            self._over_link(_CONNECT_BYTES, _ROUND_TRIPS, self._connect)
        if self._is_up and self.post_due_s <= now_s:
            self._post(self.moment(now_s))
        post_due_s = self.post_due_s if self._is_up else NEVER
        self.wait_until(min(post_due_s, self.own_due_s, self._connect_due_s, self._settle_due_s))

    def _connect(self) -> None:
        device_id, driver = self.member.device_id, self.driver
        will = Will(topics.status(device_id), payload=_OFFLINE, qos=QoS.AT_LEAST_ONCE, retain=True)
        name, subscriptions = topics.user_name(device_id), topics.subscriptions(device_id)
        opening = Opening(name, driver.tokens(self.index), subscriptions, will)
        self._session = driver.engine.open(self.index, opening, self)

    def _post(self, now: Moment) -> None:
        request = self.next_post(now)
        if request is None:
            return
        self._awaited = _awaited_keys(request, f"{self.fleet.run}-{self.index}")
        self._refused, self._refusal = {}, ""
        self._is_acknowledged = False
        self._sent_s = self.fleet.monotonic()
        self._settle_due_s = self._sent_s + self.fleet.timeout_s
        self._publish(request.target, request.body or b"", partial(self.acknowledged, request))
        for _ in range(request.copies):
            self._publish(request.target, request.body or b"", _nobody_waits)

    def _publish(self, topic: str, payload: bytes, on_acknowledged: OnAcknowledged, *, retain: bool = False) -> None:
        go = partial(self._session.publish, topic, payload, on_acknowledged, retain=retain)
        self._over_link(len(topic) + len(payload), 1, go)

    # --- faults of the link -------------------------------------------------------------------------------------------

    def _over_link(self, size_bytes: int, trips: int, go: Callable[[], object]) -> None:
        """Call ``go`` now or after the link's delay, or break the session; breaking always goes through a timer (no
        re-entrancy).

        Args:
            size_bytes: of what goes over the link.
            trips: round trips.
            go: sends it.
        """
        fleet, links, connection = self.fleet, self.driver.links, self._connection
        if not links.has_faults:
            go()
            return
        passage = links.passage(self.index, size_bytes)
        delay_s = trips * passage.delay_s
        if passage.fate is not Fate.ARRIVES:
            # A lost message is noticed at the timeout.
            delay_s = fleet.timeout_s if passage.fate is Fate.LOST else delay_s
            go = partial(self._break, passage.fate)
        elif not delay_s:
            go()
            return

        def come() -> None:
            if self._connection is connection:
                go()

        fleet.timers.at(fleet.monotonic() + delay_s, come)

    def link_lost(self, now_s: float) -> None:
        del now_s
        if self.is_on and self._connect_due_s == NEVER:
            self._break(Fate.DOWN)

    def _break(self, fate: Fate) -> None:
        self.driver.engine.cut(self.index)
        self.lost(*SESSION_ENDS[fate], self.fleet.monotonic())

    # --- the session (SessionListener) --------------------------------------------------------------------------------

    def connected(self, now_s: float) -> None:
        """The subscriptions are acknowledged: end any back-off."""
        self.driver.connections += 1
        self._is_up, self._up_since_s = True, now_s
        self._measure_attempt(OutcomeClass.OK, now_s)
        # It is published at each connection, so its end does not matter.
        self._publish(topics.status(self.member.device_id), _ONLINE, _nobody_waits, retain=True)
        now = self.moment(now_s)
        self.connection_up(now)
        self.turn(now_s)
        self.fleet.on_news()

    def arrived(self, topic: str, payload: bytes, now_s: float) -> None:
        """Take in a message. A faulty one is skipped and acknowledged: it would be no better the next time."""
        now = self.moment(now_s)
        try:
            self._take(topic, payload, now)
        except InvalidMessage as error:
            fault = f"a message on {topic[:120]} is skipped: {error}"
            self.fleet.observer.faulted(MqttOperation.RECEIVED, self.index, fault)
        if self.posted is not None and self._is_acknowledged and not self._awaited:
            self._receipted(self.posted, now)
        self.turn(now_s)

    def lost(self, error: Offline, outcome: OutcomeClass, now_s: float) -> None:
        """The connection is lost, or the attempt failed: connect again after a pause."""
        if self.posted is not None:
            self._fail(self.posted, OutcomeClass.TRANSPORT, error, self.moment(now_s))
        if not self._is_up:
            self._measure_attempt(outcome, now_s)
        # Two clients with one id disconnect each other: for them the back-off must grow.
        elif now_s - self._up_since_s >= STABLE_S and not isinstance(error, SessionTakenOver):
            self._connect_retries.succeeded()
        self.fleet.observer.faulted(MqttOperation.CONNECT, self.index, str(error))
        self._went_down()
        self._connect_due_s = now_s + self._connect_retries.failed(error)
        self.turn(now_s)
        self.fleet.on_news()

    def _went_down(self) -> None:
        if self._is_up:
            self.driver.connections -= 1
        self._is_up = False
        self._connection = object()
        self._awaited = {}
        self._settle_due_s = NEVER

    def _measure_attempt(self, outcome: OutcomeClass, now_s: float) -> None:
        """Report the end of an attempt to connect to the observer."""
        due_s, began_s = self._attempt_s, self._began_s
        self.fleet.observer.exchanged(MqttOperation.CONNECT, outcome, self.index, due_s, due_s, began_s, now_s)

    # --- messages to the device ---------------------------------------------------------------------------------------

    def _take(self, topic: str, payload: bytes, now: Moment) -> None:
        parsed = topics.parse(topic)
        if parsed.kind is TopicKind.COMMAND:
            journal = self.disk.journal
            command = topics.read_command(payload, parsed.command_id, self.member.device_id)
            take_in(self, CommandPoll((command,), pushed=True), now)
            self.own_due_s = AT_ONCE_S  # start its work at once
            if len(journal.entries) % _TIDY_EVERY == 0:
                journal.forget_before(now.monotonic_s - _REMEMBERED_S)
        elif parsed.kind is TopicKind.RECEIPTS:
            self._take_receipt(Receipt.receive(parse_json(payload)))
        elif parsed.kind is TopicKind.NOTICE:
            notice = Notice.receive(parse_json(payload))
            self.time = self.time.observe(notice.time, now)
            if notice.retry_after_s is None:
                self.wake(now)
            else:
                self.hold_readings(now.monotonic_s + notice.retry_after_s)

    def _take_receipt(self, receipt: Receipt) -> None:
        for key in receipt.stored:
            self._awaited.pop(key, None)
        for each in receipt.refused:
            why = f"{each.error}: {each.message}"
            if each.key is not None:
                outbox_key = self._awaited.pop(each.key, None)
                if outbox_key == _RESULT:
                    self._refusal = f"the result is refused: {why}"
                elif outbox_key is not None:
                    self._refused[outbox_key] = why
            elif self._awaited:  # the gateway could not read a message, which is the one under way
                self._refusal, self._awaited = f"the gateway did not understand a message: {why}", {}

    # --- the end of a message -----------------------------------------------------------------------------------------

    def acknowledged(self, request: Request, code: int, sent_s: float, now_s: float) -> None:
        """PUBACK came; the gateway's receipt may have come already."""
        if self.posted is not request:
            return
        now, error = self.moment(now_s), _error_of(code)
        self._sent_s = sent_s
        if error is not None:
            self._fail(request, class_of_reason(code), error, now)
        else:
            self._measure(request.operation, OutcomeClass.OK, request, now_s)
            self._is_acknowledged = True
            self._settle_due_s = now_s + RECEIPT_TIMEOUT_S
            if request.report is not None and request.report.status == IN_PROGRESS:  # there is no receipt for it
                self._settle(request, now)
            elif not self._awaited:
                self._receipted(request, now)
        self.turn(now_s)
        self.fleet.on_news()

    def _receipted(self, request: Request, now: Moment) -> None:
        """The receipt names everything in the message, or refuses it as a whole."""
        if self._refusal:
            error = Refused(400, "refused_by_gateway", self._refusal)
            self._fail(request, OutcomeClass.REFUSED, error, now)
        else:
            outcome = OutcomeClass.REFUSED if self._refused else OutcomeClass.OK
            self._measure(MqttOperation.RECEIPT, outcome, request, now.monotonic_s)
            self._settle(request, now)
        self.fleet.on_news()

    def _settle(self, request: Request, now: Moment) -> None:
        self._settle_due_s = NEVER
        self.settled(request, self._refused, None, now.monotonic_s, now)
        if self.fault:
            self.fleet.observer.faulted(MqttOperation.RECEIPT, self.index, self.fault)

    def _fail(self, request: Request, outcome: OutcomeClass, error: ServiceError, now: Moment) -> None:
        """No PUBACK, no receipt, no session, or a refusal of the whole message."""
        operation = self._stage(request)
        self._measure(operation, outcome, request, now.monotonic_s)
        self._settle_due_s = NEVER
        self._awaited = {}
        self.unsettled(request, error, now)
        self.fleet.observer.faulted(operation, self.index, self.fault)

    def _measure(self, operation: str, outcome: OutcomeClass, request: Request, now_s: float) -> None:
        """Report the end of an exchange to the observer."""
        self.fleet.observer.exchanged(
            operation,
            outcome,
            self.index,
            request.intended_s,
            request.ready_s,
            self._sent_s,
            now_s,
            request.attempt,
        )

    def _stage(self, request: Request) -> str:
        """The operation that the message under way waits for."""
        return MqttOperation.RECEIPT if self._is_acknowledged else request.operation


def _nobody_waits(code: int, sent_s: float, now_s: float) -> None:
    """PUBACK for a status message or a copy."""


def _error_of(code: int) -> ServiceError | None:
    """The error that a PUBACK's reason code stands for (MQTT 5.0, section 3.4.2.1); None where the message is taken."""
    if code == NOBODY_LISTENS:
        return TransportError("no gateway listens at the broker, so nobody can store what devices send: start it")
    if code < FAILURES_FROM:
        return None
    if code == QUOTA_EXCEEDED:
        return RateLimited(429, "quota_exceeded", "the broker takes no more messages now")
    if code == PACKET_TOO_LARGE:
        return Refused(413, "too_large", "the message is larger than the broker takes")
    if code == NOT_AUTHORIZED:
        return LockedOut("forbidden", "the broker does not let the device publish there: check its access rules")
    return UnexpectedAnswer(f"the broker refuses a message with reason code 0x{code:02X}")


# --- messages ---------------------------------------------------------------------------------------------------------


class MqttMessages(HttpMessages):
    """Builds messages to the gateway. They carry keys, which the gateway's receipt names."""

    def __init__(self) -> None:
        super().__init__(frozenset())
        # By the gateway's contract, whatever the service behind it takes.
        self.sends_time = self.takes_arrays = True

    def readings(self, device_id: str, batch: Sequence[Reading], name: str) -> Request:
        """One reading as an object, several as an array."""
        items = [_item(reading, name) for reading in batch]
        body = items[0] if len(items) == 1 else f"[{','.join(items)}]"
        keys = tuple([reading.key for reading in batch])
        return Request(MqttOperation.READINGS, "PUBLISH", topics.sensor_data(device_id), body.encode(), keys=keys)

    def report(self, device_id: str, product_id: str, report: Report) -> Request | None:
        key = topics.result_key(report)
        message = ResultMessage(status=report.status, result=report.result, error=report.error, key=key)  # type: ignore[arg-type]  # checked by the model
        topic = topics.result(device_id, report.command_id)
        return Request(MqttOperation.REPORT, "PUBLISH", topic, encode(message), report=report)


def _item(reading: Reading, name: str) -> str:
    """:class:`agent.wire.topics.ReadingMessage` as JSON text."""
    text = f'{{"sensor_data":{reading.text}'
    if reading.recorded_ms is not None:
        text += f',"recorded_at":"{time_text(reading.recorded_ms)}"'
    return f'{text},"key":{json_name(name)[:-1]}-{reading.key}"}}'


def _awaited_keys(request: Request, name: str) -> dict[str, int]:
    """The keys that a receipt has to name, each with its outbox key, or ``_RESULT``; empty where no receipt comes."""
    if request.report is None:
        return {f"{name}-{key}": key for key in request.keys}
    key = topics.result_key(request.report)
    return {} if key is None else {key: _RESULT}
