"""Readings and results over MQTT, handed over when the gateway's receipt says so (docs/protocol.md, "Receipts")."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from agent.core.timekeeping import marked_time_unknown
from agent.core.values import BatchKey, Moment, Report, SendOutcome, StoredReading
from agent.errors import InvalidMessage, RateLimited, Refused, ServiceError, TransportError, Unanswered
from agent.transports.mqtt_connection import Message, MqttConnection
from agent.transports.mqtt_faults import NOBODY_LISTENS
from agent.wire import topics
from agent.wire.base import describe_faults
from agent.wire.limits import BATCH_MAX, BODY_BYTES
from agent.wire.mqtt_messages import (
    KEY_CHARACTERS,
    ReadingMessage,
    Receipt,
    Refusal,
    ResultMessage,
    encode,
    encode_readings,
)
from agent.wire.times import to_rfc3339

if TYPE_CHECKING:
    from agent.ports import Clock

IN_PROGRESS: Final = "in_progress"

# What a packet has beside its payload: topic, lengths, properties.
_PACKET_HEAD_BYTES: Final = 1024
# What an array has beside each of its items.
_COMMA_BYTES: Final = 1
TIME_WITHIN_S: Final = 12.0
"""A gateway sends the time when a device comes online; readings of unknown time wait so long for it, once, seconds."""
# Receipts that came too late for the call that waited for them; the next call asks here first.
_RECEIPTS_KEPT: Final = 4 * BATCH_MAX


class MqttUplink:
    """An :class:`~agent.ports.Uplink` on ``sensor-data`` and ``commands/{command_id}/result``.

    Args:
        connection: says when there is none.
        device_id: whose readings.
        clock: for the gateway's hints.
        receipts: True waits for the gateway's receipts; False takes the broker's PUBACK for the whole truth.
        timeout_s: how long to wait for a PUBACK, and then for the receipt.
        wall_of: when a moment was, epoch seconds; None when nobody can say: then the gateway takes the time of
            arrival, and the reading says so.
    """

    def __init__(
        self,
        connection: MqttConnection,
        device_id: str,
        clock: Clock,
        *,
        receipts: bool = True,
        timeout_s: float = 30.0,
        wall_of: Callable[[Moment], float | None] = lambda moment: moment.wall_s,
    ) -> None:
        self._connection = connection
        self._device_id = device_id
        self._clock = clock
        self._receipts = receipts
        self._timeout_s = timeout_s
        self._wall_of = wall_of
        self._changed = threading.Condition()
        self._answered: dict[str, Refusal | None] = {}
        self._not_before_s = 0.0
        self._time_until_s: float | None = None

    # --- the runtime's side -------------------------------------------------------------------------------------------

    def send(self, readings: Sequence[StoredReading], batch: BatchKey | None = None) -> SendOutcome:
        """Hand over readings; what comes back as delivered is stored on the other side.

        See :meth:`agent.ports.Uplink.send`. Several readings go as one array, each under its own key.
        """
        self._check_quota()
        self._await_time(readings)
        delivered: list[int] = []
        refused: dict[int, str] = {}
        good: list[tuple[StoredReading, ReadingMessage]] = []
        for stored in readings:
            try:
                good.append((stored, self._message(stored)))
            except (ValidationError, InvalidMessage) as error:
                refused[stored.key] = f"invalid_reading: {_fault_text(error)}"
        try:
            for group in self._groups(good, refused):
                self._send_group(group, delivered, refused)
        except ServiceError:
            # What was stored before is known and must be returned; the next call meets the same trouble at once.
            if not delivered and not refused:
                raise
        return SendOutcome(tuple(delivered), refused)

    def report(self, report: Report) -> float | None:
        """Send the service how a command goes or ended; the service's clock, if its answer has it.

        See :meth:`agent.ports.Uplink.report`. Progress needs no receipt: the next word replaces it.
        """
        is_final = report.status != IN_PROGRESS
        key = _result_key(report) if is_final and self._receipts else None
        try:
            message = ResultMessage(status=report.status, result=report.result, error=report.error, key=key)  # type: ignore[arg-type]  # checked by the model
            payload = encode(message)
        except (ValidationError, InvalidMessage) as error:
            raise Refused(400, "invalid_result", _fault_text(error)) from error
        if len(payload) > self._max_payload_bytes():
            sizes = f"{len(payload)} bytes are more than the {self._max_payload_bytes()} that one message may have"
            raise Refused(413, "result_too_large", sizes)
        self._publish(topics.result(self._device_id, report.command_id), payload, [] if key is None else [key])
        if key is not None:
            refusal = self._await_receipts([key]).get(key)
            if refusal is not None:
                raise Refused(400, refusal.error, refusal.message)
        return None

    def close(self) -> None:
        """The connection belongs to whoever made it; nothing else is held."""

    # --- the connection's side ----------------------------------------------------------------------------------------

    def receipted(self, receipt: Receipt) -> None:
        """The gateway has stored or refused messages with these keys."""
        with self._changed:
            self._answered.update(dict.fromkeys(receipt.stored))
            self._answered.update({refusal.key: refusal for refusal in receipt.refused if refusal.key is not None})
            while len(self._answered) > _RECEIPTS_KEPT:
                del self._answered[next(iter(self._answered))]
            self._changed.notify_all()

    def hold_back(self, seconds: float) -> None:
        """The gateway asks for no readings for so long."""
        self._not_before_s = self._clock.now().monotonic_s + seconds

    def time_is_known(self) -> None:
        """From now on ``wall_of`` dates what this boot has read."""
        with self._changed:
            self._changed.notify_all()

    def _await_time(self, readings: Sequence[StoredReading]) -> None:
        """Wait once for the gateway's first notice, which dates readings of this boot that nobody could date before."""
        if not self._connection.is_up:
            return
        now = self._clock.now()
        if self._time_until_s is None:
            self._time_until_s = now.monotonic_s + TIME_WITHIN_S
        boot_id = now.boot_id
        undated_at = next((one.reading.at for one in readings if one.reading.at.boot_id == boot_id), None)
        left_s = self._time_until_s - now.monotonic_s
        if undated_at is None or left_s <= 0 or self._wall_of(undated_at) is not None:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._wall_of(undated_at) is not None or not self._connection.is_up, left_s)

    def _check_quota(self) -> None:
        left_s = self._not_before_s - self._clock.now().monotonic_s
        if left_s > 0:
            raise RateLimited(429, "quota", "the gateway asks to hold readings back", retry_after_s=left_s)

    def _message(self, stored: StoredReading) -> ReadingMessage:
        values, at = stored.reading.values, stored.reading.at
        wall_s = self._wall_of(at)
        return ReadingMessage(
            sensor_data=dict(values) if wall_s is not None else marked_time_unknown(values, at),
            recorded_at=None if wall_s is None else to_rfc3339(wall_s),
            key=stored.idempotency_key if self._receipts else None,
        )

    def _groups(
        self, items: Sequence[tuple[StoredReading, ReadingMessage]], refused: dict[int, str]
    ) -> Iterator[list[tuple[StoredReading, ReadingMessage]]]:
        """As many readings for each message as number and size allow."""
        room_bytes = self._max_payload_bytes()
        group: list[tuple[StoredReading, ReadingMessage]] = []
        group_bytes = 2
        for stored, message in items:
            size_bytes = len(encode_readings([message])) + _COMMA_BYTES
            if size_bytes > room_bytes:
                refused[stored.key] = f"too_large: {size_bytes} bytes are more than one message may have ({room_bytes})"
                continue
            if len(group) == BATCH_MAX or (group and group_bytes + size_bytes > room_bytes):
                yield group
                group, group_bytes = [], 2
            group.append((stored, message))
            group_bytes += size_bytes
        if group:
            yield group

    def _send_group(
        self, group: Sequence[tuple[StoredReading, ReadingMessage]], delivered: list[int], refused: dict[int, str]
    ) -> None:
        names = [stored.idempotency_key for stored, _ in group]
        with self._changed:
            late = {name: self._answered.pop(name) for name in names if name in self._answered}
        open_names = [name for name in names if name not in late]
        answered = late
        try:
            if open_names:
                messages = [message for stored, message in group if stored.idempotency_key not in late]
                payload = encode_readings(messages)
                self._publish(topics.sensor_data(self._device_id), payload, open_names if self._receipts else [])
                answered |= self._await_receipts(open_names) if self._receipts else dict.fromkeys(open_names)
        finally:
            for stored, _ in group:
                if stored.idempotency_key in answered:
                    refusal = answered[stored.idempotency_key]
                    if refusal is None:
                        delivered.append(stored.key)
                    else:
                        refused[stored.key] = f"{refusal.error}: {refusal.message}"

    def _publish(self, topic: str, payload: bytes, keys: Sequence[str]) -> None:
        code = self._connection.publish(Message(topic, payload), self._timeout_s)
        if code == NOBODY_LISTENS and keys:
            # The subscription of a gateway that is away for a moment is kept by the broker: nobody at all is a fault.
            raise TransportError(
                "no gateway listens at the broker, so nobody can store what this device sends: start the gateway, or "
                "set mqtt.delivered_when: puback for a broker without one"
            )

    def _await_receipts(self, keys: Sequence[str]) -> dict[str, Refusal | None]:
        """What the gateway said of these keys; those that it said nothing of are missing.

        Raises:
            Unanswered: nothing was said in time, or before the connection ended.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: all(key in self._answered for key in keys) or not self._connection.is_up, self._timeout_s
            )
            answered = {key: self._answered.pop(key) for key in keys if key in self._answered}
        if answered:
            return answered
        if not self._connection.is_up:
            raise Unanswered(f"the connection ended before a gateway confirmed a message: {self._connection.trouble}")
        raise Unanswered(
            f"the broker took a message, but no gateway confirmed it within {self._timeout_s:g} s: is the gateway "
            "running? For a broker without one, set mqtt.delivered_when: puback"
        )

    def went_down(self) -> None:
        """The connection ended: nobody need wait for receipts any longer."""
        with self._changed:
            self._changed.notify_all()

    def _max_payload_bytes(self) -> int:
        return min(BODY_BYTES, self._connection.max_packet_bytes or BODY_BYTES) - _PACKET_HEAD_BYTES


def _result_key(report: Report) -> str:
    key = f"result-{report.status}-{report.command_id}"
    return key if len(key) <= KEY_CHARACTERS else f"result-{hashlib.sha256(key.encode()).hexdigest()}"


def _fault_text(error: ValidationError | InvalidMessage) -> str:
    return describe_faults(error) if isinstance(error, ValidationError) else str(error)
