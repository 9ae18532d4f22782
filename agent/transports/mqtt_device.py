"""The device's side of docs/protocol.md: commands in, readings and results out, over one connection to a broker.

A command is acknowledged to the broker once the journal has it. After a crash before that the broker delivers it again,
and the gateway sends what is open at each connection besides. Readings and results count as delivered once the
gateway's receipt names their keys.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import ValidationError

from agent.core.timekeeping import marked_time_unknown
from agent.core.values import BatchKey, Command, CommandPoll, Moment, Report, SendOutcome, StoredReading
from agent.errors import InvalidMessage, Offline, RateLimited, Refused, ServiceError, TransportError, Unanswered
from agent.health import HOURLY_S, REPEAT_AFTER_S, FailureLog, Health, OnCrash, RetryPolicy, describe, only_logged
from agent.ports import Clock, CommandSource
from agent.transports.mqtt_connection import (
    NOBODY_LISTENS,
    Arrival,
    Broker,
    Message,
    MqttConnection,
    Role,
    Session,
)
from agent.wire import topics
from agent.wire.encoding import parse_json, to_rfc3339
from agent.wire.limits import BATCH_MAX, BODY_BYTES
from agent.wire.models import describe_faults
from agent.wire.secret import Secret
from agent.wire.topics import (
    Notice,
    ReadingMessage,
    Receipt,
    Refusal,
    ResultMessage,
    StatusMessage,
    TopicKind,
    encode,
    encode_readings,
)

_log = logging.getLogger(__name__)

PART: Final = "broker"
"""The part's name in health and log."""
NOTICE_WITHIN_S: Final = 10.0
"""A gateway sends each device that comes online a notice, which has the time. The first one is waited for so long,
seconds: without the time commands cannot be told from history, nor readings be dated."""
# What a packet has beside its payload: topic, lengths, properties.
_PACKET_HEAD_BYTES: Final = 1024
# Receipts that came too late for the call that waited for them count for the next one.
_RECEIPTS_KEPT: Final = 4 * BATCH_MAX


@dataclass(eq=False)
class MqttDevice:
    """A :class:`~agent.ports.CommandSource` and an :class:`~agent.ports.Uplink` on one connection.

    Attributes:
        broker: its client id is :func:`agent.wire.topics.user_name` of the device.
        firmware_version: sent with ``online`` and ``offline``.
        token: the device token as it is now.
        health: takes the state of the connection.
        waits: between two attempts to connect.
        first_s: how long after the start the first attempt comes, seconds.
        receipt_timeout_s: how long to wait for a PUBACK, and then for the receipt.
        recorded_at: when a moment was, epoch seconds; None when nobody can say: then the gateway takes the time of
            arrival, and the reading says so.
        on_time: called with the gateway's clock, epoch seconds, in the connection's thread.
        on_ready: the connection stands, or the gateway sent a notice: what failed may be tried again; likewise.
        on_crash: see :class:`~agent.health.WatchedThread`.
    """

    broker: Broker
    device_id: str
    firmware_version: str
    token: Callable[[], Secret]
    clock: Clock
    health: Health
    waits: RetryPolicy
    first_s: float = 0.0
    receipt_timeout_s: float = 10.0
    recorded_at: Callable[[Moment], float | None] = lambda moment: moment.wall_s
    on_time: Callable[[float], object] = lambda _time: None
    on_ready: Callable[[], object] = lambda: None
    on_crash: OnCrash = only_logged

    def __post_init__(self) -> None:
        self._failure_log = FailureLog(_log, self._now_s, REPEAT_AFTER_S)
        self._changed = threading.Condition()
        self._up_at_s = math.inf
        self._has_notice = False
        self._is_interrupted = False
        # Commands that wait for the journal, with the last message that brought each; what the last poll handed out.
        self._pending: dict[str, tuple[Command, Arrival]] = {}
        self._polled: dict[str, tuple[Command, Arrival]] = {}
        self._receipts: dict[str, Refusal | None] = {}
        self._readings_from_s = 0.0
        self._offline = self._status("offline")
        self.connection = MqttConnection(
            self.broker,
            self.token,
            Role(topics.subscriptions(self.device_id), self._arrived, self._came_up, will=self._offline),
            self.waits,
            first_s=self.first_s,
            on_down=self._went_down,
            on_crash=self.on_crash,
        )

    def start(self) -> None:
        """Begin to connect to the broker; returns at once."""
        self.connection.start()

    def stop(self) -> None:
        """Say that this device goes, and disconnect. The broker keeps what comes meanwhile."""
        self.connection.stop(self._offline)
        self.interrupt()

    @property
    def is_up(self) -> bool:
        """Whether commands can arrive."""
        return self.connection.is_up

    # --- commands -----------------------------------------------------------------------------------------------------

    def poll(self, wait_s: float) -> CommandPoll:
        """The commands that wait for the journal; waits until one comes, or the connection goes.

        Raises:
            Offline: there is no connection, and nothing waits.
        """
        self._await_notice()
        with self._changed:
            self._changed.wait_for(lambda: self._is_interrupted or self._pending or not self.is_up, wait_s)
            self._is_interrupted = False
            if not (self._pending or self.is_up):
                raise self.connection.trouble
            self._polled = dict(self._pending)
        commands = sorted((command for command, _ in self._polled.values()), key=lambda each: each.created_at or 0.0)
        return CommandPoll(tuple(commands), pushed=True)

    def acknowledge(self, command_ids: Sequence[str]) -> None:
        """The journal has these as the last :meth:`poll` gave them: the broker may forget them."""
        safe = []
        with self._changed:
            for command_id in command_ids:
                polled = self._polled.get(command_id)
                # A later message may have come meanwhile, which takes the command back.
                if polled is not None and self._pending.get(command_id) is polled:
                    safe.append(self._pending.pop(command_id)[1])
        for arrival in safe:
            arrival.acknowledge()

    def canceled(self, command_ids: Sequence[str]) -> frozenset[str]:
        """None: a command that was taken back is pushed again, with that status."""
        del command_ids
        return frozenset()

    def interrupt(self) -> None:
        """End a :meth:`poll` that waits."""
        with self._changed:
            self._is_interrupted = True
            self._changed.notify_all()

    # --- readings and results -----------------------------------------------------------------------------------------

    def send(self, readings: Sequence[StoredReading], batch: BatchKey | None = None) -> SendOutcome:
        """Hand over readings; what comes back as delivered is stored on the other side.

        See :meth:`agent.ports.Uplink.send`. Several readings go as one array, each under its own key.
        """
        del batch
        left_s = self._readings_from_s - self._now_s()
        if left_s > 0:
            raise RateLimited(429, "quota", "the gateway asks to hold readings back", retry_after_s=left_s)
        self._await_notice()
        fates: dict[int, str | None] = {}
        messages: list[tuple[int, ReadingMessage]] = []
        for stored in readings:
            try:
                messages.append((stored.key, self._message(stored)))
            except (ValidationError, InvalidMessage) as error:
                fates[stored.key] = f"invalid_reading: {describe_faults(error)}"
        try:
            self._send(messages, fates)
        except ServiceError:
            # What was stored before is known and must be returned; the next call meets the same trouble at once.
            if not fates:
                raise
        return SendOutcome.of(fates)

    def report(self, report: Report) -> None:
        """Send the service how a command goes or ended.

        See :meth:`agent.ports.Uplink.report`. Progress needs no receipt: the next one replaces it.
        """
        key = topics.result_key(report)
        try:
            message = ResultMessage(status=report.status, result=report.result, error=report.error, key=key)  # type: ignore[arg-type]  # checked by the model
            payload = encode(message)
        except (ValidationError, InvalidMessage) as error:
            raise Refused(400, "invalid_result", describe_faults(error)) from error
        if len(payload) > self._room_bytes():
            text = f"{len(payload)} bytes are more than the {self._room_bytes()} that one message may have"
            raise Refused(413, "result_too_large", text)
        answered = self._publish(topics.result(self.device_id, report.command_id), payload, [key] if key else [])
        for refusal in filter(None, answered.values()):
            raise Refused(400, refusal.error, refusal.message)

    def _await_notice(self) -> None:
        def is_over() -> bool:
            is_late = self._now_s() > self._up_at_s + NOTICE_WITHIN_S
            return self._has_notice or is_late or self._is_interrupted or not self.is_up

        with self._changed:
            self._changed.wait_for(is_over, NOTICE_WITHIN_S)

    def _message(self, stored: StoredReading) -> ReadingMessage:
        values, at = stored.reading.values, stored.reading.at
        recorded_at = self.recorded_at(at)
        return ReadingMessage(
            sensor_data=dict(values) if recorded_at is not None else marked_time_unknown(values, at),
            recorded_at=None if recorded_at is None else to_rfc3339(recorded_at),
            key=stored.idempotency_key,
        )

    def _send(self, messages: list[tuple[int, ReadingMessage]], fates: dict[int, str | None]) -> None:
        """Send these in as few messages as number and size allow."""
        if not messages:
            return
        payload, half = encode_readings([message for _, message in messages]), len(messages) // 2
        if half and (len(payload) > self._room_bytes() or len(messages) > BATCH_MAX):
            self._send(messages[:half], fates)
            self._send(messages[half:], fates)
            return
        if len(payload) > self._room_bytes():
            text = f"{len(payload)} bytes are more than the {self._room_bytes()} that one message may have"
            fates[messages[0][0]] = f"too_large: {text}"
            return
        rows = {message.key or "": row for row, message in messages}
        for key, refusal in self._publish(topics.sensor_data(self.device_id), payload, list(rows)).items():
            fates[rows[key]] = None if refusal is None else f"{refusal.error}: {refusal.message}"

    def _publish(self, topic: str, payload: bytes, keys: Sequence[str]) -> dict[str, Refusal | None]:
        """Publish a message, and wait for the gateway's receipt: by key None for stored, else why it was refused.

        Raises:
            ServiceError: the broker has no acknowledgement for it.
            Unanswered: no receipt in time, or before the connection ended, for any of the keys.
        """
        code = self.connection.session.publish(Message(topic, payload), self.receipt_timeout_s)
        if code == NOBODY_LISTENS:
            # The subscription of a gateway that is away for a moment is kept by the broker: nobody at all is a fault.
            raise TransportError(
                "no gateway listens at the broker, so nobody can store what this device sends: start device-gateway"
            )
        with self._changed:
            self._changed.wait_for(
                lambda: all(key in self._receipts for key in keys) or not self.is_up, self.receipt_timeout_s
            )
            answered = {key: self._receipts.pop(key) for key in keys if key in self._receipts}
        if answered or not keys:
            return answered
        if not self.is_up:
            raise Unanswered(f"the connection ended before a gateway confirmed a message: {self.connection.trouble}")
        raise Unanswered(
            f"the broker took a message, but no gateway confirmed it within {self.receipt_timeout_s:g} s: is "
            "device-gateway running?"
        )

    def _room_bytes(self) -> int:
        return min(BODY_BYTES, self.connection.session.max_packet_bytes or BODY_BYTES) - _PACKET_HEAD_BYTES

    # --- the connection's thread --------------------------------------------------------------------------------------

    def _came_up(self, session: Session) -> None:
        session.post(self._status("online"))
        text = f"connected to {self.broker} with MQTT {self.broker.version}"
        self._failure_log.report("ok", f"broker=ok: {text}", level=logging.INFO)
        self.health.put(PART, "ok", text)
        self._up_at_s = self._now_s()
        self.on_ready()

    def _went_down(self, error: Offline, wait_s: float) -> None:
        self._up_at_s = math.inf
        with self._changed:
            self._changed.notify_all()
        state, text, every_s = describe(error)
        self._failure_log.report(state, f"broker={state}: {text}; next try in {wait_s:.0f} s", every_s=every_s)
        self.health.put(PART, state, text)

    def _arrived(self, arrival: Arrival) -> None:
        try:
            topic = topics.parse(arrival.topic)
            if topic.kind is TopicKind.COMMAND:
                command = topics.read_command(arrival.payload, topic.command_id, self.device_id)
                self._take_command(command, arrival)
                return
            if topic.kind is TopicKind.RECEIPTS:
                self._take_receipt(Receipt.receive(parse_json(arrival.payload)))
            elif topic.kind is TopicKind.NOTICE:
                self._take_notice(Notice.receive(parse_json(arrival.payload)))
        except InvalidMessage as error:
            # It will not get better: were it not acknowledged, it would come again for ever.
            where = arrival.topic[:120]
            text = f"broker=malformed a message on {where} is skipped: {error}"
            self._failure_log.report(f"malformed {where}", text, every_s=HOURLY_S)
        arrival.acknowledge()

    def _take_command(self, command: Command, arrival: Arrival) -> None:
        """Keep the latest message of a command; while that is unacknowledged it comes again, and no other need to."""
        with self._changed:
            before = self._pending.get(command.id)
            self._pending[command.id] = (command, arrival)
            self._changed.notify_all()
        if before is not None and (before[1].session, before[1].mid) != (arrival.session, arrival.mid):
            before[1].acknowledge()

    def _take_receipt(self, receipt: Receipt) -> None:
        with self._changed:
            self._receipts.update(dict.fromkeys(receipt.stored))
            self._receipts.update({refusal.key: refusal for refusal in receipt.refused if refusal.key is not None})
            while len(self._receipts) > _RECEIPTS_KEPT:
                del self._receipts[next(iter(self._receipts))]
            self._changed.notify_all()
        for refusal in receipt.refused:
            if refusal.key is None:
                text = f"broker=refused the gateway did not understand a message: {refusal.error}: {refusal.message}"
                self._failure_log.report(f"refused {refusal.error}", text)

    def _take_notice(self, notice: Notice) -> None:
        if notice.time is not None:
            self.on_time(notice.time)
        if notice.retry_after_s is not None:
            self._readings_from_s = self._now_s() + notice.retry_after_s
        self._has_notice = True
        self.interrupt()  # the first contact is now
        self.on_ready()

    def _status(self, status: Literal["online", "offline"]) -> Message:
        payload = encode(StatusMessage(status=status, firmware_version=self.firmware_version))
        return Message(topics.status(self.device_id), payload, retain=True)

    def _now_s(self) -> float:
        return self.clock.now().monotonic_s


# --- beside a list over HTTP ------------------------------------------------------------------------------------------

# How long one wait for a push lasts; the next one follows at once.
_PUSH_WAIT_S: Final = 25.0
# When a list that could not be had is asked for again, while pushes arrive.
_LIST_AGAIN_S: Final = 60.0


@dataclass(eq=False)
class HybridSource:
    """A :class:`~agent.ports.CommandSource` out of two.

    While pushes can arrive, the list is asked for every ``list_every_s``, and each time they can again: whatever was
    lost in between is found. While they cannot, the list is polled as if there were no push.

    At first contact the list comes first: a push must not make the history of a plain server look like news.

    Attributes:
        is_first_contact: the journal has never seen a list.
    """

    pushes: MqttDevice
    lists: CommandSource
    clock: Clock
    list_every_s: float
    is_first_contact: Callable[[], bool]

    def __post_init__(self) -> None:
        self._was_up = False
        self._polled: CommandSource = self.lists
        self._list_at_s = self._now_s()

    def poll(self, wait_s: float) -> CommandPoll:
        """The commands that the service lists for this device. See :meth:`agent.ports.CommandSource.poll`.

        Raises:
            ServiceError: the list cannot be had, and there is no push either, or this is the first contact.
        """
        was_up, self._was_up = self._was_up, self.pushes.is_up
        if not self._was_up:
            return self._list(wait_s)
        if not was_up or self._now_s() >= self._list_at_s or self.is_first_contact():
            try:
                return self._list(0.0)
            except ServiceError:
                if self.is_first_contact():
                    raise
                self._list_at_s = self._now_s() + min(_LIST_AGAIN_S, self.list_every_s)
        self._polled = self.pushes
        try:
            return self.pushes.poll(max(0.0, min(_PUSH_WAIT_S, self._list_at_s - self._now_s())))
        except Offline:
            return self._list(0.0)

    def acknowledge(self, command_ids: Sequence[str]) -> None:
        """The journal has these."""
        self._polled.acknowledge(command_ids)

    def canceled(self, command_ids: Sequence[str]) -> frozenset[str]:
        """Which of these the service has taken back. See :meth:`agent.ports.CommandSource.canceled`."""
        return self.lists.canceled(command_ids)

    def interrupt(self) -> None:
        """End a poll that waits, on either way."""
        self.pushes.interrupt()
        self.lists.interrupt()

    def _list(self, wait_s: float) -> CommandPoll:
        self._polled = self.lists
        poll = self.lists.poll(wait_s)
        self._list_at_s = self._now_s() + self.list_every_s
        return poll

    def _now_s(self) -> float:
        return self.clock.now().monotonic_s
