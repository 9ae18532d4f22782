"""One life of a virtual device over MQTT: commands go to the core, and what is published waits for its receipt.

No I/O: :mod:`simulator.fleet.device.mqtt_driver` owns the session and the time.
"""

from __future__ import annotations

from typing import Any, Final

from agent.core.values import CommandPoll, Moment
from agent.errors import (
    InvalidMessage,
    LockedOut,
    RateLimited,
    Refused,
    ServiceError,
    TransportError,
    UnexpectedAnswer,
)
from agent.wire import topics
from agent.wire.mqtt_messages import Receipt, Refusal, read_notice, read_receipt
from agent.wire.topics import TopicKind
from simulator.fleet.device.device import VirtualDevice
from simulator.fleet.device.http_codec import Request
from simulator.fleet.device.mqtt_codec import MqttCodec, read_command
from simulator.fleet.engine.mqtt import FAILURES_FROM, NOBODY_LISTENS, NOT_AUTHORIZED, QUOTA_EXCEEDED
from simulator.fleet.outcomes import OutcomeClass

# Commands are not listed here, so their entries go by age; the broker keeps a session for an hour.
_REMEMBERED_S: Final = 2 * 3600.0
_TIDY_EVERY: Final = 64
_LIMITED: Final = 429
_NOT_UNDERSTOOD: Final = 400
_TOO_LARGE: Final = 413
_LONG_AGO_S: Final = float("-inf")
RECEIPT_TIMEOUT_S: Final = 30.0
"""So long a device waits for the gateway's receipt, once the broker has acknowledged."""


class VirtualMqttDevice(VirtualDevice):
    """A virtual device over MQTT: commands are pushed to it, and it polls for none.

    Attributes:
        awaited: what the gateway has to confirm of the message under way: key -> outbox key.
        confirmed: the confirmed ones: outbox key -> None for stored, or why it was refused.
        not_understood: the gateway could not read the message under way at all; why, empty where it could.
        held_until_s: the gateway asked for no readings before this.
    """

    __slots__ = (
        "_copies",
        "_copies_not_understood",
        "_name",
        "_taken",
        "awaited",
        "confirmed",
        "held_until_s",
        "not_understood",
    )

    codec: MqttCodec

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self._name = f"{self.fleet.run}-{self.index}"
        self._taken = 0
        self.awaited: dict[str, int] = {}
        self.confirmed: dict[int, str | None] = {}
        self.not_understood = ""
        self._copies = self._copies_not_understood = 0
        self.held_until_s = _LONG_AGO_S

    # --- what comes -----------------------------------------------------------------------------------------------

    def arrived(self, topic: str, payload: bytes, now: Moment) -> str:
        """Take a message; once this returns it may be acknowledged.

        Returns:
            What was wrong with it, for a person; empty when nothing was. It will not get better: acknowledge it, too.
        """
        try:
            parsed = topics.parse(topic)
            if parsed.kind is TopicKind.COMMAND:
                self._take_command(parsed.command_id or "", payload, now)
            elif parsed.kind is TopicKind.RECEIPTS:
                return self._take_receipt(read_receipt(payload))
            elif parsed.kind is TopicKind.NOTICE:
                self._take_notice(payload, now)
        except InvalidMessage as error:
            return f"a message on {topic[:120]} is skipped: {error}"
        return ""

    def _take_command(self, command_id: str, payload: bytes, now: Moment) -> None:
        command = read_command(command_id, payload, self.codec.device_id)
        self.take_in(CommandPoll((command,), pushed=True), now)
        self.own_due_s = _LONG_AGO_S  # its work begins with the next look
        self._taken += 1
        if self._taken % _TIDY_EVERY == 0:
            self.disk.journal.forget_before(now.monotonic_s - _REMEMBERED_S)

    def _take_receipt(self, receipt: Receipt) -> str:
        for key in receipt.stored:
            self._confirm(key, None)
        nameless = ""
        for refusal in receipt.refused:
            if refusal.key is None:
                nameless = _sentence(refusal)
                self._take_unnamed_refusal(nameless)
            else:
                self._confirm(refusal.key, _sentence(refusal))
        return f"the gateway did not understand a message: {nameless}" if nameless else ""

    def _take_unnamed_refusal(self, why: str) -> None:
        """The gateway could not read a message, so it names no key: it is that under way, or a copy of one before."""
        if self._copies_not_understood:
            self._copies_not_understood -= 1
        elif self.awaited:
            self.not_understood, self.awaited = why, {}
            self._copies_not_understood = self._copies

    def _confirm(self, key: str, refusal: str | None) -> None:
        outbox_key = self.awaited.pop(key, None)
        if outbox_key is not None:
            self.confirmed[outbox_key] = refusal

    def _take_notice(self, payload: bytes, now: Moment) -> None:
        notice = read_notice(payload)
        self.time = self.time.observe(notice.time, now)
        if notice.retry_after_s is None:
            self.uplink.wake(now)
        elif not self.model.defies_limit:
            self.held_until_s = now.monotonic_s + notice.retry_after_s

    # --- what goes ------------------------------------------------------------------------------------------------

    def connected(self, now: Moment) -> None:
        """The session stands: end any back-off."""
        self.uplink.begin(now)

    @property
    def out_due_s(self) -> float:
        """When to ask :meth:`out` again, on the monotonic clock."""
        return min(self.own_due_s, max(self.uplink.due_s, self._not_before_s))

    def out(self, now: Moment) -> Request | None:
        """What to publish next; None when nothing is due."""
        uplink, not_before_s = self.uplink, self._not_before_s
        if now.monotonic_s < not_before_s:
            return None
        uplink.not_before_s = max(uplink.not_before_s, not_before_s)
        request = uplink.next_request(now)
        if request is not None:
            self.awaited = self.codec.awaited(request, self._name)
            self.confirmed, self.not_understood = {}, ""
            self._copies = len(request.copies)
        return request

    @property
    def _not_before_s(self) -> float:
        """When readings may go out, on the monotonic clock; results never wait for the gateway's hint."""
        lanes = self.lanes
        results = (lanes is not None and lanes.has_progress) or self.disk.journal.first_finished() is not None
        return _LONG_AGO_S if results else self.held_until_s

    def puback(self, request: Request, code: int, now: Moment) -> bool:
        """The broker acknowledged; whether the gateway's word settles it, which may have come already."""
        error = error_of(code)
        if error is not None:
            self.gone_wrong(request, error, now)
            return False
        if self.awaited or self.confirmed or self.not_understood:
            return True
        self.receipted(request, now)
        return False

    def receipted(self, request: Request, now: Moment) -> None:
        """Settle the message: everything in it is confirmed."""
        if self.not_understood:
            self.gone_wrong(request, Refused(_NOT_UNDERSTOOD, "not_understood", self.not_understood), now)
            return
        self.uplink.settled(request, {key: why for key, why in self.confirmed.items() if why is not None}, now)
        self.confirmed = {}

    def gone_wrong(self, request: Request, error: ServiceError, now: Moment, *, left: bool = True) -> None:
        """No acknowledgement, or no receipt: the same goes again after a while, with the same keys."""
        self.awaited, self.confirmed, self.not_understood = {}, {}, ""
        self.uplink.failed(request, error, now, left=left)


def why_unsent(outcome: OutcomeClass, reason: str) -> ServiceError:
    """The error for a message without PUBACK; what is beyond the broker's limits will never get out."""
    return Refused(_TOO_LARGE, "too_large", reason) if outcome is OutcomeClass.REFUSED else TransportError(reason)


def no_receipt(timeout_s: float) -> TransportError:
    """The error for a message that the broker took and the gateway did not confirm."""
    return TransportError(
        f"the broker took a message, but no gateway confirmed it within {timeout_s:g} s: is the gateway running, and "
        "does the device have a token there?"
    )


def error_of(code: int) -> ServiceError | None:
    """What a PUBACK's reason code means; None where the broker has the message, and somebody will get it.

    Args:
        code: MQTT 5.0, section 3.4.2.1.
    """
    if code == NOBODY_LISTENS:
        return TransportError("no gateway listens at the broker, so nobody can store what devices send: start it")
    if code < FAILURES_FROM:
        return None
    if code == QUOTA_EXCEEDED:
        return RateLimited(_LIMITED, "quota_exceeded", "the broker takes no more messages now")
    if code == NOT_AUTHORIZED:
        return LockedOut("forbidden", "the broker does not let the device publish there: check its access rules")
    return UnexpectedAnswer(f"the broker refuses a message with reason code 0x{code:02X}")


def _sentence(refusal: Refusal) -> str:
    return f"{refusal.error}: {refusal.message}"
