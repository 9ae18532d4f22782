"""One connection of one device to the broker: bytes in, calls out. No task, one timer, no I/O but its transport's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, cast

from mqtt5 import ConnAckPacket, DisconnectPacket, PingRespPacket, PubAckPacket, PublishPacket, QoS, SubAckPacket, read

from simulator.fleet.engine.mqtt import faults, packets
from simulator.fleet.engine.mqtt.faults import ConnectionFailure
from simulator.fleet.engine.mqtt.outgoing import Outgoing
from simulator.fleet.engine.mqtt.packets import PUBACK, PUBACK_BYTES, PUBACK_REST
from simulator.fleet.engine.mqtt.ports import Arrival, Established, Opening, Publisher, SessionListener
from simulator.fleet.engine.wheel import NEVER, Timer, Wheel
from simulator.fleet.outcomes import OutcomeClass

# Beyond this the codec gives up, and no broker takes it (MQTT 5.0, section 1.5.5: 268,435,455).
_LARGEST_BYTES: Final = 268_000_000
# PUBLISH beside topic and payload: type and length, topic length, packet id, property length.
_HEAD_BYTES: Final = 10
# The 3.1.1 CONNACK is two bytes long, that of version 5 at least three.
_OLD_CONNACK: Final = b"\x20\x02"


@dataclass(frozen=True, slots=True)
class SessionContext:
    """Settings and clock that all sessions of an engine share.

    Attributes:
        where: the broker, for a person.
        time: the wheel's clock.
        connect_timeout_s: from the beginning until the subscriptions stand.
        in_flight: so many publishes may be on their way at most, whatever the broker allows.
        ended: called with a session that is over by itself, before its listener is called.
    """

    where: str
    wheel: Wheel
    time: Callable[[], float]
    connect_timeout_s: float
    in_flight: int
    ended: Callable[[Session], None]


class _State(IntEnum):
    CONNECTING = 0
    GREETING = 1
    """CONNECT was sent."""
    SUBSCRIBING = 2
    UP = 3
    OVER = 4


# What each message asks for, without the way through the class.
_UP: Final = _State.UP
_OVER: Final = _State.OVER

_AWAITED: Final = {
    _State.CONNECTING: "take the connection",
    _State.GREETING: "answer CONNECT (does it speak MQTT 5?)",
    _State.SUBSCRIBING: "answer SUBSCRIBE",
}


class Session(asyncio.Protocol, Timer):
    """One connection, from its beginning to its end. It is its own timer: see :meth:`fire`.

    Args:
        context: what all share.
        device: whose.
        number: no two sessions of an engine have the same.
        opening: what it begins with; not kept.
        listener: called as messages come and when the session ends.
    """

    __slots__ = (
        "_began_s",
        "_context",
        "_heard_s",
        "_keep_alive_s",
        "_kept",
        "_listener",
        "_max_bytes",
        "_opening",
        "_out",
        "_pinged_s",
        "_rest",
        "_said_s",
        "_state",
        "_transport",
        "device",
        "number",
    )

    def __init__(
        self, context: SessionContext, device: int, number: int, opening: Opening, listener: SessionListener
    ) -> None:
        super().__init__()
        self.device = device
        self.number = number
        self._context = context
        self._opening: Opening | None = opening
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._out: Outgoing | None = None
        self._state = _State.CONNECTING
        self._rest = b""
        self._max_bytes: int | None = None
        self._kept = False
        self._keep_alive_s = float(opening.keep_alive_s)
        self._began_s = context.time()
        self._heard_s = self._said_s = self._began_s
        self._pinged_s = NEVER
        context.wheel.at(self._began_s + context.connect_timeout_s, self)

    @property
    def is_up(self) -> bool:
        """Whether the subscriptions are acknowledged."""
        return self._state is _UP

    # --- what the engine asks for -------------------------------------------------------------------------------------

    def publish(
        self, topic: str, payload: bytes, publisher: Publisher, timeout_s: float, *, retain: bool
    ) -> tuple[OutcomeClass, str] | None:
        """As :meth:`MqttEngine.publish`; the reason where nothing can go out at all, and then nobody is called."""
        out = self._out
        if out is None or self._state is not _UP:
            return faults.NO_CONNECTION
        size_bytes = len(topic) + len(payload) + _HEAD_BYTES
        if size_bytes > (self._max_bytes or _LARGEST_BYTES):
            return OutcomeClass.REFUSED, f"{size_bytes} bytes are more than the broker takes ({self._max_bytes})"
        now_s = self._said_s = self._context.time()
        give_up_s = now_s + timeout_s
        out.publish(topic, payload, publisher, now_s, give_up_s, retain=retain)
        if give_up_s < self.due_s:
            self._context.wheel.at(give_up_s, self)
        return None

    def acknowledge(self, packet_id: int) -> None:
        """PUBACK for a message that came over this connection."""
        if self._transport is not None:
            self._transport.write(packets.puback(packet_id))
            self._said_s = self._context.time()

    def cut(self) -> None:
        """Reset the connection; nobody is called any more."""
        transport = self._transport
        self._end()
        if transport is not None:
            transport.abort()

    def fail(self, failure: ConnectionFailure) -> None:
        """End the session with an error; its listener and publishers are called, once."""
        if self._state is _OVER:
            return
        now_s, transport, out = self._context.time(), self._transport, self._out
        self._end()
        if transport is not None:
            transport.abort()
        self._context.ended(self)
        for failed in () if out is None else out.all(str(failure.error)):
            failed.notify(now_s)
        self._listener.lost(failure.error, failure.outcome, self._began_s, now_s)

    # --- what the loop says -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TCP, and TLS where it is wanted, stand."""
        stream = cast("asyncio.Transport", transport)  # uvloop's own types derive from nothing of asyncio's
        if self._opening is None:
            stream.abort()
            return
        self._transport = stream
        self._state = _State.GREETING
        stream.write(packets.connect(self._opening))

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side hung up, or the network is gone."""
        answered = self._state >= _State.SUBSCRIBING
        self._transport = None
        self.fail(faults.of_end(exc, self._context.where, answered=answered))

    def pause_writing(self) -> None:
        """The socket is full."""
        if self._out is not None:
            self._out.held_up = True

    def resume_writing(self) -> None:
        """Write what waits: the transport has room again."""
        if self._out is not None:
            self._out.held_up = False
            self._out.send_waiting(self._context.time())

    def data_received(self, data: bytes) -> None:
        """Bytes of MQTT: any number of packets, and perhaps a part of one."""
        now_s = self._heard_s = self._context.time()
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, end, out = 0, len(data), self._out
        while at < end:
            if end - at >= PUBACK_BYTES and data[at] == PUBACK and data[at + 1] == PUBACK_REST:
                if out is not None:
                    out.settle(data[at + 2] << 8 | data[at + 3], 0, now_s)
                at += PUBACK_BYTES
            else:
                try:
                    packet, size = read(memoryview(data)[at:])
                except IndexError:
                    self._keep(data[at:])
                    break
                except ValueError as error:
                    self._on_unexpected(data[at:], str(error))
                    break
                at += size
                self._take(packet, now_s)
            if self._state is _OVER:
                return
        if out is not None and out.waits:
            out.send_waiting(now_s)

    # --- what the broker says -----------------------------------------------------------------------------------------

    def _take(self, packet: Any, now_s: float) -> None:
        state = self._state
        match packet:
            # A session that the broker kept delivers before SUBSCRIBE is answered.
            case PublishPacket() if state >= _State.SUBSCRIBING and packet.qos is not QoS.EXACTLY_ONCE:
                arrival = Arrival(packet.topic, packet.payload, packet.retain, packet.packet_id, self.number)
                self._listener.arrived(arrival, now_s)
            case PubAckPacket() if self._out is not None:
                self._out.settle(packet.packet_id, int(packet.reason_code), now_s)
            case PingRespPacket():
                self._pinged_s = NEVER
            case ConnAckPacket() if state is _State.GREETING:
                self._on_connack(packet, now_s)
            case SubAckPacket() if state is _State.SUBSCRIBING:
                self._subscribed(packet, now_s)
            case DisconnectPacket():
                code = packet.reason_code
                self.fail(faults.of_disconnect(int(code), code.name, self._context.where))
            case _:
                self.fail(faults.of_nonsense(type(packet).__name__, self._context.where))

    def _on_connack(self, packet: ConnAckPacket, now_s: float) -> None:
        code, opening, transport, context = packet.reason_code, self._opening, self._transport, self._context
        if int(code) >= faults.FAILURES_FROM:
            self.fail(faults.of_connack(int(code), code.name, context.where))
            return
        if packet.max_qos is QoS.AT_MOST_ONCE:
            self.fail(faults.no_acknowledgements(context.where))
            return
        if opening is None or transport is None:
            raise AssertionError("a session that greets has both")
        self._kept, self._max_bytes = packet.session_present, packet.max_packet_size
        if packet.server_keep_alive is not None:
            self._keep_alive_s = float(packet.server_keep_alive)
        window = min(context.in_flight, packet.receive_max)
        self._out = Outgoing(transport.write, window)
        self._state = _State.SUBSCRIBING
        if opening.subscriptions:
            transport.write(packets.subscribe(opening.subscriptions))
        else:
            self._announce_connected(now_s)

    def _subscribed(self, packet: SubAckPacket, now_s: float) -> None:
        subscriptions = self._opening.subscriptions if self._opening is not None else ()
        for (topic_filter, _), code in zip(subscriptions, packet.reason_codes, strict=False):
            if int(code) >= faults.FAILURES_FROM:
                self.fail(faults.of_suback(topic_filter, int(code), code.name))
                return
        self._announce_connected(now_s)

    def _announce_connected(self, now_s: float) -> None:
        self._state = _State.UP
        self._opening = None
        self._said_s = now_s
        self._context.wheel.at(now_s + self._keep_alive_s if self._keep_alive_s else NEVER, self)
        self._listener.connected(Established(self._kept, self._began_s, self._max_bytes), now_s)

    def _keep(self, rest: bytes) -> None:
        """The beginning of a packet, until the rest of it is there."""
        if len(rest) > packets.MAX_PACKET_BYTES:
            self.fail(faults.of_nonsense("a packet beyond the size that was agreed on", self._context.where))
        elif self._state is _State.GREETING and rest.startswith(_OLD_CONNACK):
            self.fail(faults.not_version_5(self._context.where))
        else:
            self._rest = rest

    def _on_unexpected(self, data: bytes, why: str) -> None:
        if self._state is _State.GREETING and data.startswith(_OLD_CONNACK):
            self.fail(faults.not_version_5(self._context.where))
        else:
            self.fail(faults.of_nonsense(why, self._context.where))

    # --- time ---------------------------------------------------------------------------------------------------------

    def fire(self) -> None:
        """Do what is due: give up a connection that does not come, give up messages, send pings."""
        now_s, out, context = self._context.time(), self._out, self._context
        if out is None or self._state is not _UP:
            self.fail(faults.of_silence(_AWAITED[self._state], context.connect_timeout_s, context.where))
            return
        ping_s = self._ping_when_due(now_s) if self._keep_alive_s else NEVER
        if now_s >= ping_s:
            self.fail(faults.of_silence("answer a ping", self._keep_alive_s, context.where))
            return
        failed = out.late(now_s)
        context.wheel.at(min(ping_s, out.next_s()), self)
        for each in failed:
            each.notify(now_s)

    def _ping_when_due(self, now_s: float) -> float:
        """Ping when it is time; when to look again. That is past when the last ping was not answered in time.

        As the real agent's library does it: a ping is due when one direction has been silent for so long.
        """
        if self._pinged_s == NEVER:
            quiet_s = min(self._said_s, self._heard_s)
            if now_s - quiet_s < self._keep_alive_s or self._transport is None:
                return quiet_s + self._keep_alive_s
            self._transport.write(packets.PING)
            self._said_s = self._pinged_s = now_s
        return self._pinged_s + self._keep_alive_s

    def _end(self) -> None:
        """Nothing of it is used any more; what was on its way is forgotten."""
        self._state = _State.OVER
        self._context.wheel.cancel(self)
        self._opening = self._transport = self._out = None
