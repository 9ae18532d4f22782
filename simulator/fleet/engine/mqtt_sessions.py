"""The sessions of many devices with one broker: packets by the ``mqtt5`` codec, one protocol object for each, no task.

An :class:`~simulator.fleet.engine.mqtt.MqttEngine` on the running loop.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, cast

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

from agent.errors import Offline
from simulator.fleet.engine.addresses import TargetAddress, open_socket
from simulator.fleet.engine.mqtt import (
    FAILURES_FROM,
    MAX_PACKET_BYTES,
    Arrival,
    Established,
    Failure,
    Opening,
    Publisher,
    SessionListener,
)
from simulator.fleet.engine.mqtt_failures import (
    disconnected,
    nonsense,
    not_version_5,
    of_network,
    refused_connection,
    refused_subscription,
)
from simulator.fleet.engine.wheel import NEVER, LoopClock, Timer, Wheel
from simulator.fleet.outcomes import OutcomeClass
from simulator.watched import start_task

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
# The 3.1.1 CONNACK is two bytes long, that of version 5 at least three.
_OLD_CONNACK: Final = b"\x20\x02"
_NO_CONNECTION: Final = (OutcomeClass.TRANSPORT, "there is no connection to the broker")


# --- one connection ---------------------------------------------------------------------------------------------------


class _State(IntEnum):
    CONNECTING = 0
    GREETING = 1
    SUBSCRIBING = 2
    UP = 3
    OVER = 4


_UP: Final = _State.UP
_AWAITED: Final = {
    _State.CONNECTING: "take the connection",
    _State.GREETING: "answer CONNECT (does it speak MQTT 5?)",
    _State.SUBSCRIBING: "answer SUBSCRIBE",
}


@dataclass(slots=True)
class _Message:
    """A publish; ``publisher`` None once it was given up, ``sent_s`` None while it waits its turn."""

    topic: str
    payload: bytes
    retain: bool
    publisher: Publisher | None
    give_up_s: float
    sent_s: float | None = None

    def fail(self, outcome: OutcomeClass, reason: str, now_s: float) -> None:
        publisher, self.publisher, self.give_up_s = self.publisher, None, NEVER
        if publisher is not None:
            publisher.failed(outcome, reason, self.sent_s, now_s)


class Session(asyncio.Protocol, Timer):
    """One connection, from its beginning to its end; its own timer.

    Args:
        engine: of this session among others.
        device: whose.
        number: no two sessions of an engine have the same.
        opening: what it begins with; not kept.
        listener: called as messages come and when the session ends.
    """

    __slots__ = (
        "_began_s",
        "_engine",
        "_flying",
        "_heard_s",
        "_keep_alive_s",
        "_kept",
        "_last_id",
        "_listener",
        "_max_bytes",
        "_opening",
        "_pinged_s",
        "_rest",
        "_said_s",
        "_state",
        "_transport",
        "_waiting",
        "_window",
        "device",
        "number",
    )

    def __init__(
        self, engine: MqttSessions, device: int, number: int, opening: Opening, listener: SessionListener
    ) -> None:
        super().__init__()
        self.device = device
        self.number = number
        self._engine = engine
        self._opening: Opening | None = opening
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._state = _State.CONNECTING
        self._rest = b""
        self._max_bytes: int | None = None
        self._kept = False
        self._window = engine.in_flight
        self._flying: dict[int, _Message] = {}
        self._waiting: deque[_Message] | None = None
        self._last_id = _SUBSCRIBE_ID
        self._keep_alive_s = float(opening.keep_alive_s)
        self._began_s = self._heard_s = self._said_s = engine.time()
        self._pinged_s = NEVER
        engine.wheel.at(self._began_s + engine.connect_timeout_s, self)

    @property
    def is_up(self) -> bool:
        """Whether the subscriptions are acknowledged."""
        return self._state is _UP

    def publish(
        self, topic: str, payload: bytes, publisher: Publisher, timeout_s: float, *, retain: bool
    ) -> tuple[OutcomeClass, str] | None:
        """As :meth:`MqttEngine.publish`; the reason where nothing can go out at all, and then nobody is called."""
        if self._state is not _UP:
            return _NO_CONNECTION
        size_bytes = len(topic) + len(payload) + _HEAD_BYTES
        if size_bytes > (self._max_bytes or _LARGEST_BYTES):
            return OutcomeClass.REFUSED, f"{size_bytes} bytes are more than the broker takes ({self._max_bytes})"
        now_s = self._said_s = self._engine.time()
        message = _Message(topic, payload, retain, publisher, now_s + timeout_s)
        if self._waiting or len(self._flying) >= self._window:
            self._waiting = self._waiting or deque()
            self._waiting.append(message)
        else:
            self._send(message, now_s)
        if message.give_up_s < self.due_s:
            self._engine.wheel.at(message.give_up_s, self)
        return None

    def acknowledge(self, packet_id: int) -> None:
        """PUBACK for a message that came over this connection."""
        if self._transport is not None:
            self._transport.write(bytes((_PUBACK, _PUBACK_REST, packet_id >> 8, packet_id & 0xFF)))
            self._said_s = self._engine.time()

    def cut(self) -> None:
        """Reset the connection; nobody is called any more."""
        transport = self._transport
        self._end()
        if transport is not None:
            transport.abort()

    def fail(self, failure: Failure) -> None:
        """End the session with an error; its listener and publishers are called, once."""
        if self._state is _State.OVER:
            return
        now_s, transport, (error, outcome) = self._engine.time(), self._transport, failure
        messages = [*self._flying.values(), *(self._waiting or ())]
        self._end()
        if transport is not None:
            transport.abort()
        self._engine.ended(self)
        for message in messages:
            message.fail(OutcomeClass.TRANSPORT, str(error), now_s)
        self._listener.lost(error, outcome, self._began_s, now_s)

    # --- what the loop says -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TCP, and TLS where it is wanted, stand."""
        stream = cast("asyncio.Transport", transport)  # uvloop's own types derive from nothing of asyncio's
        opening = self._opening
        if opening is None:
            stream.abort()
            return
        self._transport = stream
        self._state = _State.GREETING
        will, password = opening.will, opening.password
        stream.write(
            ConnectPacket(
                opening.client_id,
                username=opening.client_id,
                password=None if password is None else password.reveal().encode(),
                clean_start=opening.clean_start,
                will=None
                if will is None
                else Will(will.topic, payload=will.payload, qos=QoS.AT_LEAST_ONCE, retain=True),
                keep_alive=opening.keep_alive_s,
                session_expiry_interval=opening.session_expiry_s,
                receive_max=opening.receive_maximum,
                max_packet_size=MAX_PACKET_BYTES,
            ).write()
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side hung up, or the network is gone."""
        where, answered = self._engine.where, self._state >= _State.SUBSCRIBING
        self._transport = None
        if isinstance(exc, ssl.SSLError):
            self.fail(of_network(exc, where))
            return
        hint = "" if answered else " before it answered CONNECT: does it speak MQTT 5, and is it TLS that it wants?"
        text = f"the broker {where} closed the connection{hint}" + (f" ({exc})" if exc else "")
        self.fail((Offline("closed", text), OutcomeClass.TRANSPORT))

    def data_received(self, data: bytes) -> None:
        """Bytes of MQTT: any number of packets, and perhaps a part of one."""
        now_s = self._heard_s = self._engine.time()
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
                except IndexError:
                    self._keep(data[at:])
                    break
                except ValueError as error:
                    self._keep(data[at:], str(error))
                    break
                at += size
                self._take(packet, now_s)
            if self._state is _State.OVER:
                return
        if self._waiting:
            self._send_waiting(now_s)

    # --- what the broker says -----------------------------------------------------------------------------------------

    def _take(self, packet: Any, now_s: float) -> None:
        state, where = self._state, self._engine.where
        match packet:
            # A session that the broker kept delivers before SUBSCRIBE is answered.
            case PublishPacket() if state >= _State.SUBSCRIBING and packet.qos is not QoS.EXACTLY_ONCE:
                arrival = Arrival(packet.topic, packet.payload, packet.retain, packet.packet_id, self.number)
                self._listener.arrived(arrival, now_s)
            case PubAckPacket():
                self._settle(packet.packet_id, int(packet.reason_code), now_s)
            case PingRespPacket():
                self._pinged_s = NEVER
            case ConnAckPacket() if state is _State.GREETING:
                self._greeted(packet, now_s)
            case SubAckPacket() if state is _State.SUBSCRIBING:
                subscriptions = self._opening.subscriptions if self._opening is not None else ()
                for (topic_filter, _), code in zip(subscriptions, packet.reason_codes, strict=False):
                    if int(code) >= FAILURES_FROM:
                        self.fail(refused_subscription(topic_filter, int(code), code.name))
                        return
                self._came_up(now_s)
            case DisconnectPacket():
                self.fail(disconnected(int(packet.reason_code), packet.reason_code.name, where))
            case _:
                self.fail(nonsense(type(packet).__name__, where))

    def _greeted(self, packet: ConnAckPacket, now_s: float) -> None:
        code, opening, transport, where = packet.reason_code, self._opening, self._transport, self._engine.where
        if int(code) >= FAILURES_FROM:
            self.fail(refused_connection(int(code), code.name, where))
            return
        if packet.max_qos is QoS.AT_MOST_ONCE:
            text = f"the broker {where} takes no message with QoS 1, and devices send nothing else: change its limits"
            self.fail((Offline("refused", text), OutcomeClass.REFUSED))
            return
        if opening is None or transport is None:
            raise AssertionError("a session that greets has both")
        self._kept, self._max_bytes = packet.session_present, packet.max_packet_size
        self._window = min(self._window, packet.receive_max)
        if packet.server_keep_alive is not None:
            self._keep_alive_s = float(packet.server_keep_alive)
        self._state = _State.SUBSCRIBING
        if not opening.subscriptions:
            self._came_up(now_s)
            return
        # What is retained is old, and is not asked for.
        never = RetainHandling.SEND_NEVER
        filters = [
            TopicFilter(each, max_qos=QoS(qos), retain_as_published=False, retain_handling=never)
            for each, qos in opening.subscriptions
        ]
        transport.write(SubscribePacket(_SUBSCRIBE_ID, filters).write())

    def _came_up(self, now_s: float) -> None:
        self._state = _State.UP
        self._opening = None
        self._said_s = now_s
        self._engine.wheel.at(now_s + self._keep_alive_s if self._keep_alive_s else NEVER, self)
        self._listener.connected(Established(self._kept, self._began_s, self._max_bytes), now_s)

    def _keep(self, rest: bytes, fault: str = "") -> None:
        """The beginning of a packet, until the rest of it is there; with a fault there is none."""
        if self._state is _State.GREETING and rest.startswith(_OLD_CONNACK):
            self.fail(not_version_5(self._engine.where))
        elif fault or len(rest) > MAX_PACKET_BYTES:
            self.fail(nonsense(fault or "a packet beyond the size that was agreed on", self._engine.where))
        else:
            self._rest = rest

    # --- publishes ----------------------------------------------------------------------------------------------------

    def _send(self, message: _Message, now_s: float) -> None:
        packet_id = self._last_id % _IDS + 1
        while packet_id in self._flying:
            packet_id = packet_id % _IDS + 1
        self._last_id = packet_id
        self._flying[packet_id] = message
        message.sent_s = now_s
        packet = PublishPacket(
            message.topic, message.payload, qos=QoS.AT_LEAST_ONCE, retain=message.retain, packet_id=packet_id
        )
        if self._transport is not None:
            self._transport.write(packet.write())

    def _send_waiting(self, now_s: float) -> None:
        waiting = self._waiting
        while waiting and len(self._flying) < self._window:
            message = waiting.popleft()
            if message.publisher is not None:
                self._send(message, now_s)

    def _settle(self, packet_id: int, code: int, now_s: float) -> None:
        """PUBACK came; one that nobody waits for is passed over."""
        message = self._flying.pop(packet_id, None)
        if message is not None and message.publisher is not None and message.sent_s is not None:
            message.publisher.acknowledged(code, message.sent_s, now_s)

    def _give_up_late(self, now_s: float) -> None:
        """A packet id stays taken until its PUBACK comes, or the connection ends."""
        for message in [*self._flying.values(), *(self._waiting or ())]:
            if message.give_up_s <= now_s:
                sent = message.sent_s is not None
                reason = "the broker did not acknowledge it in time" if sent else "it waited for earlier messages"
                message.fail(OutcomeClass.TIMEOUT, reason, now_s)

    # --- time ---------------------------------------------------------------------------------------------------------

    def fire(self) -> None:
        """Do what is due: give up a connection that does not come, give up messages, send pings."""
        now_s, engine = self._engine.time(), self._engine
        if self._state is not _UP:
            text = f"the broker {engine.where} did not {_AWAITED[self._state]} within {engine.connect_timeout_s:g} s"
            self.fail((Offline("unreachable", text), OutcomeClass.TIMEOUT))
            return
        ping_s = self._ping_when_due(now_s) if self._keep_alive_s else NEVER
        if now_s >= ping_s:
            text = f"the broker {engine.where} did not answer a ping within {self._keep_alive_s:g} s"
            self.fail((Offline("unreachable", text), OutcomeClass.TIMEOUT))
            return
        messages = [*self._flying.values(), *(self._waiting or ())]
        late_s = min((message.give_up_s for message in messages if message.give_up_s > now_s), default=NEVER)
        engine.wheel.at(min(ping_s, late_s), self)
        self._give_up_late(now_s)

    def _ping_when_due(self, now_s: float) -> float:
        """Ping when it is time; when to look again. That is past when the last ping was not answered in time.

        As the real agent's library does it: a ping is due when one direction has been silent for so long.
        """
        if self._pinged_s == NEVER:
            quiet_s = min(self._said_s, self._heard_s)
            if now_s - quiet_s < self._keep_alive_s or self._transport is None:
                return quiet_s + self._keep_alive_s
            self._transport.write(_PING)
            self._said_s = self._pinged_s = now_s
        return self._pinged_s + self._keep_alive_s

    def _end(self) -> None:
        """Nothing of it is used any more; what was on its way is forgotten."""
        self._state = _State.OVER
        self._engine.wheel.cancel(self)
        self._opening = self._transport = self._waiting = None
        self._flying = {}


# --- all of them ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where the broker is; ``tls``: one context for all sessions, None for connections in the clear."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"{'mqtts' if self.tls else 'mqtt'}://{self.host}:{self.port}"


class MqttSessions:
    """The sessions of many devices with one broker, on the running loop; an :class:`MqttEngine`.

    Args:
        broker: whom to talk to.
        wheel: for time limits and keep-alives, on the loop's clock; one of its own by default.
        sources: addresses of this machine to connect from, each good for some 28,000 sessions; empty lets the system
            choose. A device keeps its address.
        connect_timeout_s: from ``open`` until the subscriptions stand.
        in_flight: so many publishes of one device may be on their way, where the broker does not say less.
    """

    def __init__(
        self,
        broker: BrokerAddress,
        wheel: Wheel | None = None,
        *,
        sources: tuple[str, ...] = (),
        connect_timeout_s: float = 10.0,
        in_flight: int = _IDS,
    ) -> None:
        self._broker = broker
        self._sources = sources
        self._loop = asyncio.get_running_loop()
        clock = LoopClock(self._loop)
        self.time = clock.time
        self.wheel = wheel or Wheel(clock)
        self.where = str(broker)
        self.connect_timeout_s = connect_timeout_s
        self.in_flight = in_flight
        self._sessions: dict[int, Session] = {}
        self._attempts: dict[int, asyncio.Task[None]] = {}
        self._address = TargetAddress(broker.host, broker.port, sources)
        self._opened = 0

    @property
    def sessions(self) -> int:
        """How many there are, those that still connect too."""
        return len(self._sessions)

    @property
    def standing(self) -> int:
        """How many can publish now."""
        return sum(session.is_up for session in self._sessions.values())

    def open(self, device: int, opening: Opening, listener: SessionListener) -> None:
        """Connect, and subscribe. A session that this device still has is cut first."""
        self.cut(device)
        self._opened += 1
        session = self._sessions[device] = Session(self, device, self._opened, opening, listener)
        self._attempts[self._opened] = start_task(self._connect(session), "mqtt-connect")

    def publish(
        self, device: int, topic: str, payload: bytes, publisher: Publisher, timeout_s: float, *, retain: bool = False
    ) -> None:
        """Publish with QoS 1, within ``timeout_s``."""
        session, refusal = self._sessions.get(device), _NO_CONNECTION
        if session is not None:
            found = session.publish(topic, payload, publisher, timeout_s, retain=retain)
            if found is None:
                return
            refusal = found
        self._loop.call_soon(publisher.failed, *refusal, None, self.time())

    def acknowledge(self, device: int, arrival: Arrival) -> None:
        """The message is safe: PUBACK. Void once its connection has ended."""
        session = self._sessions.get(device)
        if session is not None and session.number == arrival.connection and arrival.packet_id is not None:
            session.acknowledge(arrival.packet_id)

    def cut(self, device: int) -> None:
        """The device's power goes: the connection is reset, the broker publishes the will. Nobody is called then."""
        session = self._sessions.pop(device, None)
        if session is not None:
            self._give_up(session.number)
            session.cut()

    async def close(self) -> None:
        """Cut every session."""
        for device in list(self._sessions):
            self.cut(device)
        self._address.close()
        await asyncio.gather(*self._attempts.values(), return_exceptions=True)
        await asyncio.sleep(0)  # transports say goodbye in the loop's next turn

    async def _connect(self, session: Session) -> None:
        broker, sources = self._broker, self._sources
        try:
            family, address = await self._address.get()
            sock = open_socket(family, sources[session.device % len(sources)] if sources else None)
            try:
                await self._loop.sock_connect(sock, address)
                name = broker.host if broker.tls else None
                await self._loop.create_connection(lambda: session, sock=sock, ssl=broker.tls, server_hostname=name)
            except BaseException:
                sock.close()
                raise
        except (OSError, ValueError) as error:  # ValueError: a host name that cannot be one
            session.fail(of_network(error, str(broker)))
        except Exception as error:
            session.fail(of_network(error, str(broker)))
            raise
        finally:
            self._attempts.pop(session.number, None)

    def ended(self, session: Session) -> None:
        """A session is over by itself; called before its listener is."""
        self._give_up(session.number)
        if self._sessions.get(session.device) is session:
            del self._sessions[session.device]

    def _give_up(self, number: int) -> None:
        attempt = self._attempts.get(number)
        if attempt is not None and attempt is not asyncio.current_task():
            attempt.cancel()
