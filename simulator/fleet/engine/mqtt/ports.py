"""The interface of MQTT engines: a session for each device, and calls instead of tasks.

A session is one network connection. When it ends, everything that it had on its way ends with it, and
:meth:`SessionListener.lost` says why; whether and when the device comes back is the caller's decision
(:mod:`agent.core.backoff`), with another :meth:`MqttEngine.open`. The *broker's* session outlives the connection, as
for the real agent: clean start false, so what was not acknowledged to it comes again.

Times are seconds on the loop's monotonic clock. Every call comes from the loop's thread, and never from within a method
of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from agent.errors import Offline
from agent.wire.secret import Secret
from simulator.fleet.outcomes import OutcomeClass

KEEP_ALIVE_S: Final = 60
SESSION_EXPIRY_S: Final = 3600
RECEIVE_MAXIMUM: Final = 100
"""So many messages may be on their way to a device without its acknowledgement; the real agent says the same."""


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
    session_expiry_s: int = SESSION_EXPIRY_S
    keep_alive_s: int = KEEP_ALIVE_S
    receive_maximum: int = RECEIVE_MAXIMUM


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
    """A connection of a session with its subscriptions acknowledged.

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
        ...

    def arrived(self, arrival: Arrival, now_s: float) -> None:
        """A message came. QoS 1: :meth:`MqttEngine.acknowledge` it once it is safe, or it comes again."""
        ...

    def lost(self, error: Offline, outcome: OutcomeClass, began_s: float | None, now_s: float) -> None:
        """Note that there is no connection any more, or that it was never made.

        Args:
            error: why; :class:`agent.errors.LockedOut`, :class:`agent.errors.SessionTakenOver` if the broker said so.
            outcome: the class that an attempt to connect that ended so is counted in.
            began_s: when the connection was asked for; None when nothing went out, so that the broker cannot know.
            now_s: when it was over.
        """
        ...


class Publisher(Protocol):
    """The sender of a message. Exactly one of the two methods is called, once."""

    def acknowledged(self, code: int, sent_s: float, now_s: float) -> None:
        """The broker acknowledged the message (PUBACK).

        Args:
            code: MQTT 5.0, section 3.4.2.1: below 0x80 the broker has the message; 0x10 says that nobody listens.
            sent_s: when the packet went to the socket.
            now_s: when the acknowledgement was there.
        """
        ...

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """No acknowledgement came.

        Args:
            outcome: ``TIMEOUT``, ``TRANSPORT``, or ``REFUSED`` for a message that the broker's limits do not let out.
            reason: for a person.
            sent_s: None when nothing went out, so that the broker cannot have seen it.
            now_s: when it was given up.
        """
        ...


class MqttEngine(Protocol):
    """A session for each device, by its index."""

    def open(self, device: int, opening: Opening, listener: SessionListener) -> None:
        """Connect, and subscribe. A session that this device still has is cut first."""
        ...

    def publish(
        self, device: int, topic: str, payload: bytes, publisher: Publisher, timeout_s: float, *, retain: bool = False
    ) -> None:
        """Publish with QoS 1; it waits its turn when the broker's receive maximum is reached.

        Args:
            device: whose session; without one that stands it fails as ``TRANSPORT``, unsent.
            topic: where to.
            payload: the message.
            publisher: called with the acknowledgement, or with the failure.
            timeout_s: from now until PUBACK.
            retain: the broker keeps it for those who subscribe later.
        """
        ...

    def acknowledge(self, device: int, arrival: Arrival) -> None:
        """The message is safe: PUBACK. Void once its connection has ended, since the broker sends it again then."""
        ...

    def cut(self, device: int) -> None:
        """The device's power goes: the connection is reset, the broker publishes the will. Nobody is called then."""
        ...

    async def close(self) -> None:
        """Close the connection of every session at once."""
        ...
