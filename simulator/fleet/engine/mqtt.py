"""MQTT 5 for very many devices: packets by the ``mqtt5`` codec, one protocol object for each session, no task.

A session is one network connection. When it ends, everything that it had on its way ends with it, and
:meth:`SessionListener.lost` says why; whether and when the device comes back is the caller's decision, with another
:meth:`MqttSessions.open`. The *broker's* session outlives the connection, as for the real agent: clean start false, so
what was not acknowledged to it comes again. Times are seconds on the loop's monotonic clock; the listener is called
from the loop's thread, and never from within a method of the engine.

Source: MQTT 5.0 (OASIS, 2019).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any, Final, Protocol, cast

from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    PingRespPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    RetainHandling,
    SubAckPacket,
    SubscribePacket,
    TopicFilter,
    Will,
    read,
)

from agent.errors import LockedOut, Offline, SessionTakenOver
from agent.wire.limits import MESSAGE_BYTES
from agent.wire.secret import Secret
from simulator.fleet.engine.addresses import TargetAddress, explain
from simulator.fleet.engine.timers import NEVER, LoopClock, Timer, Timers
from simulator.fleet.outcomes import OutcomeClass
from simulator.watched import start_task

SESSION_EXPIRY_S: Final = 3600
"""So long the broker keeps a session whose connection is gone."""
KEEP_ALIVE_S: Final = 60
"""After so long without a word a ping is sent, and after as long again without an answer the connection is given up.

The broker may say another number, and 0 for never.
"""

# Reason codes.
FAILURES_FROM: Final = 0x80
NOBODY_LISTENS: Final = 0x10
NOT_AUTHORIZED: Final = 0x87
PACKET_TOO_LARGE: Final = 0x95
QUOTA_EXCEEDED: Final = 0x97
_TAKEN_OVER: Final = 0x8E
_LIMITED: Final = frozenset({QUOTA_EXCEEDED, 0x96, 0x9F})  # also: message rate too high, connection rate exceeded
_SERVER: Final = frozenset({0x80, 0x83, 0x88, 0x89, 0x8B, 0x8D})  # unspecified ... unavailable, busy, shutting down
# Client id refused, wrong password, not authorized, banned, another way of authentication wanted.
_LOCKED_OUT: Final = frozenset({0x85, 0x86, NOT_AUTHORIZED, 0x8A, 0x8C})

_PUBACK: Final = 0x40
_PUBACK_REST: Final = 2
_PUBACK_BYTES: Final = 4
"""A PUBACK without a reason: the packet type, how much comes, two bytes of packet id."""
_PING: Final = b"\xc0\x00"
_SUBSCRIBE_ID: Final = 1
_IDS: Final = 65_535
# Beyond this the codec gives up, and no broker takes it (section 1.5.5).
_LARGEST_BYTES: Final = 268_000_000
# PUBLISH beside topic and payload: type and length, topic length, packet id, property length.
_HEAD_BYTES: Final = 10
_RECEIVE_MAXIMUM: Final = 100

OnAcknowledged = Callable[[int, float, float], object]
"""Called with the reason code of a message's PUBACK, when the message was sent, and when PUBACK came.

Below 0x80 the broker has the message; :data:`NOBODY_LISTENS` says that nobody else gets it. Never called where the
session ends before.
"""


def class_of_reason(code: int) -> OutcomeClass:
    """The class of a reason code, in a PUBACK or a CONNACK."""
    if code < FAILURES_FROM:
        return OutcomeClass.OK
    if code in _LIMITED:
        return OutcomeClass.LIMITED
    return OutcomeClass.SERVER_ERROR if code in _SERVER else OutcomeClass.REFUSED


@dataclass(frozen=True, slots=True)
class Opening:
    """Credentials, subscriptions and will of a session.

    Attributes:
        client_id: also the user name.
        password: None for a broker that asks for none.
        subscriptions: (filter, QoS); asked for at every connection, also when the broker kept the session.
        will: what the broker publishes when the connection ends without a DISCONNECT.
    """

    client_id: str
    password: Secret | None = field(repr=False)
    subscriptions: tuple[tuple[str, int], ...] = ()
    will: Will | None = None


class SessionListener(Protocol):
    """Receives the events of a session. After each ``open``: at most one ``connected``, any ``arrived``, one ``lost``.

    After :meth:`MqttSessions.cut` nothing is called any more.
    """

    def connected(self, now_s: float) -> None:
        """The broker took the device, and the subscriptions stand."""

    def arrived(self, topic: str, payload: bytes, now_s: float) -> None:
        """A message came. It is acknowledged to the broker once this returns: what has to be safe is safe by then."""

    def lost(self, error: Offline, outcome: OutcomeClass, now_s: float) -> None:
        """There is no connection any more, or none was made.

        Args:
            error: why; :class:`agent.errors.LockedOut`, :class:`agent.errors.SessionTakenOver` if the broker said so.
            outcome: the class that an attempt to connect that ended so is counted in.
            now_s: when it was over.
        """


class _State(IntEnum):
    CONNECTING = 0
    GREETING = 1
    SUBSCRIBING = 2
    UP = 3
    OVER = 4


# Of an enumeration each look-up costs as much as a call.
_UP: Final = _State.UP
_OVER: Final = _State.OVER
_QOS_1: Final = QoS.AT_LEAST_ONCE
_AWAITED: Final = {
    _State.CONNECTING: "take the connection",
    _State.GREETING: "answer CONNECT (does it speak MQTT 5?)",
    _State.SUBSCRIBING: "answer SUBSCRIBE",
}


@dataclass(slots=True, eq=False, repr=False)
class Session(asyncio.Protocol, Timer):
    """One connection, from its beginning to its end; its own timer.

    Attributes:
        engine: that it belongs to.
        opening: what it begins with; None once it is up.
        listener: called as messages come and when the session ends.
        attempt: the task that connects, while it does.
    """

    engine: MqttSessions
    opening: Opening | None
    listener: SessionListener
    attempt: asyncio.Task[None] | None = None
    _transport: asyncio.Transport | None = None
    _state: _State = _State.CONNECTING
    _rest: bytes = b""  # the beginning of a packet
    _max_bytes: int = _LARGEST_BYTES
    _window: int = _IDS  # so many messages may be on their way
    _flying: dict[int, tuple[OnAcknowledged, float]] = field(default_factory=dict)  # with the time of sending
    _waiting: list[tuple[str, bytes, bool, OnAcknowledged]] = field(default_factory=list)
    _last_id: int = _SUBSCRIBE_ID
    _keep_alive_s: float = KEEP_ALIVE_S
    _heard_s: float = 0.0
    _said_s: float = 0.0
    _pinged_s: float = NEVER

    def __post_init__(self) -> None:
        Timer.__init__(self)
        self._heard_s = self._said_s = self.engine.time()
        self.engine.timers.at(self._said_s + self.engine.connect_timeout_s, self)

    def publish(self, topic: str, payload: bytes, on_acknowledged: OnAcknowledged, *, retain: bool = False) -> None:
        """Publish with QoS 1; it waits its turn when the broker's receive maximum is reached.

        Nothing goes out, and nobody is called, where the session is not up.
        """
        if self._state is not _UP:
            return
        now_s = self._said_s = self.engine.time()
        if len(topic) + len(payload) + _HEAD_BYTES > self._max_bytes:
            self.engine.timers.at(now_s, partial(on_acknowledged, PACKET_TOO_LARGE, now_s, now_s))
        elif self._waiting or len(self._flying) >= self._window:
            self._waiting.append((topic, payload, retain, on_acknowledged))
        else:
            self._send(topic, payload, retain, on_acknowledged, now_s)

    def cut(self) -> None:
        """Reset the connection; nobody is called any more."""
        transport, self._transport = self._transport, None
        self._state = _State.OVER
        self.stop()
        self.opening, self._flying, self._waiting = None, {}, []
        if self.attempt is not None:
            self.attempt.cancel()
        if transport is not None:
            transport.abort()

    def fail(self, error: Offline, outcome: OutcomeClass) -> None:
        """End the session with an error; its listener is called, once."""
        if self._state is not _State.OVER:
            self.cut()
            self.listener.lost(error, outcome, self.engine.time())

    # --- what the loop says -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TCP, and TLS where it is wanted, stand."""
        stream = cast("asyncio.Transport", transport)  # uvloop's own types derive from nothing of asyncio's
        opening = self.opening
        if opening is None:
            stream.abort()
            return
        self._transport = stream
        self._state = _State.GREETING
        stream.write(
            ConnectPacket(
                opening.client_id,
                username=opening.client_id,
                password=None if opening.password is None else opening.password.reveal().encode(),
                clean_start=False,
                will=opening.will,
                keep_alive=KEEP_ALIVE_S,
                session_expiry_interval=SESSION_EXPIRY_S,
                receive_max=_RECEIVE_MAXIMUM,
                max_packet_size=MESSAGE_BYTES,
            ).write()
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side hung up, or the network is gone."""
        where, answered = self.engine.where, self._state >= _State.SUBSCRIBING
        self._transport = None
        hint = "" if answered else " before it answered CONNECT: does it speak MQTT 5, and is it TLS that it wants?"
        text = f"the broker {where} closed the connection{hint}" + (f" ({explain(exc)})" if exc else "")
        self.fail(Offline("closed", text), OutcomeClass.TRANSPORT)

    def data_received(self, data: bytes) -> None:
        """Bytes of MQTT: any number of packets, and perhaps a part of one."""
        now_s = self._heard_s = self.engine.time()
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, end = 0, len(data)
        while at < end:
            if end - at >= _PUBACK_BYTES and data[at] == _PUBACK and data[at + 1] == _PUBACK_REST:
                self._settle(data[at + 2] << 8 | data[at + 3], 0, now_s)
                at += _PUBACK_BYTES
            else:
                try:
                    packet, size = read(memoryview(data)[at:])
                except IndexError:  # the rest of it is still to come
                    self._rest = data[at:]
                    break
                except ValueError as error:
                    self._fail_by_nonsense(str(error))
                    return
                at += size
                self._take(packet, now_s)
            if self._state is _OVER:
                return
        if len(self._rest) > MESSAGE_BYTES:
            self._fail_by_nonsense("a packet beyond the size that was agreed on")
        while self._waiting and len(self._flying) < self._window:
            self._send(*self._waiting.pop(0), now_s)

    # --- what the broker says -----------------------------------------------------------------------------------------

    def _take(self, packet: Any, now_s: float) -> None:
        state, transport = self._state, self._transport
        if transport is None:
            return
        match packet:
            # A session that the broker kept delivers before SUBSCRIBE is answered.
            case PublishPacket() if state >= _State.SUBSCRIBING and packet.qos is not QoS.EXACTLY_ONCE:
                self.listener.arrived(packet.topic, packet.payload, now_s)
                if packet.packet_id is not None and self._transport is not None:
                    self._transport.write(PubAckPacket(packet.packet_id).write())
                    self._said_s = now_s
            case PubAckPacket():
                self._settle(packet.packet_id, int(packet.reason_code), now_s)
            case PingRespPacket():
                self._pinged_s = NEVER
            case ConnAckPacket() if state is _State.GREETING:
                self._greeted(packet, transport, now_s)
            case SubAckPacket() if state is _State.SUBSCRIBING:
                self._subscribed(packet, now_s)
            case DisconnectPacket():
                self._disconnected(int(packet.reason_code), packet.reason_code.name)
            case _:
                self._fail_by_nonsense(type(packet).__name__)

    def _greeted(self, packet: ConnAckPacket, transport: asyncio.Transport, now_s: float) -> None:
        code = int(packet.reason_code)
        if code >= FAILURES_FROM:
            is_locked_out = code in _LOCKED_OUT
            refusal = "does not let this device in" if is_locked_out else "refuses the connection"
            text = f"the broker {self.engine.where} {refusal}: {packet.reason_code.name} (0x{code:02X})"
            error = LockedOut("unauthorized", text) if is_locked_out else Offline("refused", text)
            self.fail(error, class_of_reason(code))
            return
        self._max_bytes = packet.max_packet_size or _LARGEST_BYTES
        self._window = packet.receive_max
        if packet.server_keep_alive is not None:
            self._keep_alive_s = packet.server_keep_alive
        self._state = _State.SUBSCRIBING
        if not self._subscriptions:
            self._came_up(now_s)
            return
        # What is retained is old, and is not asked for.
        never = RetainHandling.SEND_NEVER
        filters = [TopicFilter(each, max_qos=QoS(qos), retain_handling=never) for each, qos in self._subscriptions]
        transport.write(SubscribePacket(_SUBSCRIBE_ID, filters).write())

    @property
    def _subscriptions(self) -> tuple[tuple[str, int], ...]:
        return () if self.opening is None else self.opening.subscriptions

    def _subscribed(self, packet: SubAckPacket, now_s: float) -> None:
        for (topic_filter, _), code in zip(self._subscriptions, packet.reason_codes, strict=False):
            if int(code) >= FAILURES_FROM:
                text = (
                    f"the broker does not let the device subscribe to {topic_filter}: {code.name} (0x{int(code):02X}); "
                    "let its access rules give each user the topics of its own id (device-gateway broker-config writes "
                    "such rules)"
                )
                self.fail(LockedOut("forbidden", text), OutcomeClass.REFUSED)
                return
        self._came_up(now_s)

    def _came_up(self, now_s: float) -> None:
        self._state = _State.UP
        self.opening = None
        self._said_s = now_s
        self.engine.timers.at(now_s + self._keep_alive_s if self._keep_alive_s else NEVER, self)
        self.listener.connected(now_s)

    def _disconnected(self, code: int, name: str) -> None:
        where, outcome = self.engine.where, class_of_reason(code)
        text = f"the broker {where} ended the connection: {name} (0x{code:02X})"
        if code == _TAKEN_OVER:
            text = f"another client connected to {where} with this device's id, and the broker gave it the connection"
            self.fail(SessionTakenOver("taken_over", text), outcome)
        elif code == NOT_AUTHORIZED:
            self.fail(LockedOut("unauthorized", text), outcome)
        else:
            self.fail(Offline("closed", text), outcome)

    def _fail_by_nonsense(self, why: str) -> None:
        text = f"{self.engine.where} sent what a broker does not send here: {why}"
        self.fail(Offline("closed", text), OutcomeClass.UNEXPECTED)

    # --- publishes ----------------------------------------------------------------------------------------------------

    def _send(self, topic: str, payload: bytes, retain: bool, on_acknowledged: OnAcknowledged, now_s: float) -> None:
        packet_id = self._last_id % _IDS + 1
        while packet_id in self._flying:
            packet_id = packet_id % _IDS + 1
        self._last_id = packet_id
        self._flying[packet_id] = on_acknowledged, now_s
        packet = PublishPacket(topic, payload, qos=_QOS_1, retain=retain, packet_id=packet_id)
        if self._transport is not None:
            self._transport.write(packet.write())

    def _settle(self, packet_id: int, code: int, now_s: float) -> None:
        """PUBACK came; one that nobody waits for is passed over."""
        found = self._flying.pop(packet_id, None)
        if found is not None:
            on_acknowledged, sent_s = found
            on_acknowledged(code, sent_s, now_s)

    # --- time ---------------------------------------------------------------------------------------------------------

    def fire(self) -> None:
        """Give up a connection that does not come or does not answer; ping one that is silent.

        As the real agent's library does it: a ping is due when one direction has been silent for so long.
        """
        now_s, engine, keep_alive_s = self.engine.time(), self.engine, self._keep_alive_s
        text = ""
        if self._state is not _UP:
            text = f"the broker {engine.where} did not {_AWAITED[self._state]} within {engine.connect_timeout_s:g} s"
        elif now_s >= self._pinged_s + keep_alive_s:
            text = f"the broker {engine.where} did not answer a ping within {keep_alive_s:g} s"
        if text:
            self.fail(Offline("unreachable", text), OutcomeClass.TIMEOUT)
            return
        quiet_s = min(self._said_s, self._heard_s)
        if self._pinged_s == NEVER and now_s >= quiet_s + keep_alive_s and self._transport is not None:
            self._transport.write(_PING)
            self._said_s = self._pinged_s = now_s
        engine.timers.at((quiet_s if self._pinged_s == NEVER else self._pinged_s) + keep_alive_s, self)


class MqttSessions:
    """The sessions of many devices with one broker, on the running loop.

    Args:
        broker: whom to talk to; a device connects from the same one of its sources each time.
        timers: for time limits and keep-alives, on the loop's clock; its own by default.
        connect_timeout_s: from ``open`` until the subscriptions stand.
    """

    def __init__(self, broker: TargetAddress, timers: Timers | None = None, *, connect_timeout_s: float = 10.0) -> None:
        clock = LoopClock()
        self.time = clock.time
        self.timers = timers or Timers(clock)
        self.where = f"{'mqtts' if broker.tls else 'mqtt'}://{broker.host}:{broker.port}"
        self.connect_timeout_s = connect_timeout_s
        self._broker = broker
        self._sessions: dict[int, Session] = {}  # the last one of each device

    def open(self, device: int, opening: Opening, listener: SessionListener) -> Session:
        """Connect, and subscribe. A session that this device still has is cut first."""
        self.cut(device)
        session = self._sessions[device] = Session(self, opening, listener)
        session.attempt = start_task(self._connect(session, device), "mqtt-connect")
        return session

    def cut(self, device: int) -> None:
        """The device's power goes: the connection is reset, the broker publishes the will. Nobody is called then."""
        session = self._sessions.pop(device, None)
        if session is not None:
            session.cut()

    async def close(self) -> None:
        """Cut every session."""
        attempts = [session.attempt for session in self._sessions.values() if session.attempt is not None]
        for device in list(self._sessions):
            self.cut(device)
        self._broker.close()
        await asyncio.gather(*attempts, return_exceptions=True)
        await asyncio.sleep(0)  # transports say goodbye in the loop's next turn

    async def _connect(self, session: Session, device: int) -> None:
        try:
            await self._broker.connect(session, device)
        except Exception as error:
            text = f"the broker {self.where} cannot be reached: {explain(error)}"
            session.fail(Offline("unreachable", text), OutcomeClass.TRANSPORT)
            if not isinstance(error, OSError | ValueError):  # ValueError: a host name that cannot be one
                raise
        finally:
            session.attempt = None
