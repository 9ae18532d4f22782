"""MQTT 5 for very many devices: what a device says of its session, and what it is told of it.

A session is one network connection. When it ends, everything that it had on its way ends with it, and
:meth:`SessionListener.lost` says why; whether and when the device comes back is the caller's decision, with another
:meth:`MqttEngine.open`. The *broker's* session outlives the connection, as for the real agent: clean start false, so
what was not acknowledged to it comes again. Times are seconds on the loop's monotonic clock; every call comes from the
loop's thread, and never from within a method of the engine.

Source: MQTT 5.0 (OASIS, 2019).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from agent.errors import Offline
from agent.wire.secret import Secret
from simulator.fleet.outcomes import OutcomeClass

MAX_PACKET_BYTES: Final = 2 * 1024 * 1024
"""The largest packet that a broker may send to a device; the real agent says the same."""
FAILURES_FROM: Final = 0x80
NOBODY_LISTENS: Final = 0x10
NOT_AUTHORIZED: Final = 0x87
QUOTA_EXCEEDED: Final = 0x97
_LIMITED: Final = frozenset({QUOTA_EXCEEDED, 0x96, 0x9F})  # also: message rate too high, connection rate exceeded
_SERVER: Final = frozenset({0x80, 0x83, 0x88, 0x89, 0x8B, 0x8D})  # unspecified ... unavailable, busy, shutting down

Failure = tuple[Offline, OutcomeClass]
"""The error for the device, and the class that the attempt is counted in."""


def class_of_reason(code: int) -> OutcomeClass:
    """The class of a reason code, in a PUBACK or a CONNACK."""
    if code < FAILURES_FROM:
        return OutcomeClass.OK
    if code in _LIMITED:
        return OutcomeClass.LIMITED
    return OutcomeClass.SERVER_ERROR if code in _SERVER else OutcomeClass.REFUSED


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes when the connection ends without a DISCONNECT: QoS 1, retained."""

    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Opening:
    """Credentials, subscriptions and will of a session.

    Attributes:
        client_id: also the user name.
        password: None for a broker that asks for none.
        subscriptions: (filter, QoS); asked for at every connection, also when the broker kept the session.
        clean_start: the broker forgets what it kept.
        keep_alive_s: after so long without a word a ping is sent, and after as long again without an answer the
            connection is given up; 0 never. The broker may say another number.
    """

    client_id: str
    password: Secret | None = field(repr=False)
    subscriptions: tuple[tuple[str, int], ...] = ()
    will: Will | None = None
    clean_start: bool = False
    session_expiry_s: int = 3600
    keep_alive_s: int = 60
    receive_maximum: int = 100


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that came.

    Attributes:
        packet_id: what the acknowledgement names; None for QoS 0, which has none.
        connection: the number of the connection that it came over; an acknowledgement of an earlier one is void.
    """

    topic: str
    payload: bytes
    retain: bool
    packet_id: int | None
    connection: int


@dataclass(frozen=True, slots=True)
class Established:
    """A connection with its subscriptions acknowledged.

    Attributes:
        kept: the broker had kept subscriptions and messages of an earlier connection.
        began_s: when the connection was asked for.
        max_packet_bytes: the largest packet that the broker takes; None when it did not say.
    """

    kept: bool
    began_s: float
    max_packet_bytes: int | None


class SessionListener(Protocol):
    """Receives the events of a session. After each ``open``: at most one ``connected``, any ``arrived``, one ``lost``.

    After :meth:`MqttEngine.cut` nothing is called any more.
    """

    def connected(self, standing: Established, now_s: float) -> None:
        """The broker took the device, and the subscriptions stand."""

    def arrived(self, arrival: Arrival, now_s: float) -> None:
        """A message came. QoS 1: :meth:`MqttEngine.acknowledge` it once it is safe, or it comes again."""

    def lost(self, error: Offline, outcome: OutcomeClass, began_s: float | None, now_s: float) -> None:
        """There is no connection any more, or none was made.

        Args:
            error: why; :class:`agent.errors.LockedOut`, :class:`agent.errors.SessionTakenOver` if the broker said so.
            outcome: the class that an attempt to connect that ended so is counted in.
            began_s: when the connection was asked for; None when nothing went out.
            now_s: when it was over.
        """


class Publisher(Protocol):
    """The sender of a message. Exactly one of the two methods is called, once."""

    def acknowledged(self, code: int, sent_s: float, now_s: float) -> None:
        """PUBACK came. ``code``: below 0x80 the broker has the message; 0x10 says that nobody listens."""

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No PUBACK came; ``sent_s`` None: nothing went out. ``REFUSED``: the broker's limits do not let it out."""


class MqttEngine(Protocol):
    """A session for each device, by its index."""

    def open(self, device: int, opening: Opening, listener: SessionListener) -> None:
        """Connect, and subscribe. A session that this device still has is cut first."""

    def publish(
        self, device: int, topic: str, payload: bytes, publisher: Publisher, timeout_s: float, *, retain: bool = False
    ) -> None:
        """Publish with QoS 1, within ``timeout_s``; it waits its turn when the broker's receive maximum is reached."""

    def acknowledge(self, device: int, arrival: Arrival) -> None:
        """The message is safe: PUBACK. Void once its connection has ended, since the broker sends it again then."""

    def cut(self, device: int) -> None:
        """The device's power goes: the connection is reset, the broker publishes the will. Nobody is called then."""

    async def close(self) -> None:
        """Cut every session."""
