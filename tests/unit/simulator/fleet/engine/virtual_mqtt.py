"""A broker's side of a session without a network: a transport that keeps what is written, and virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from mqtt5 import ConnAckPacket, Packet, SubAckPacket, SubAckReasonCode, read

from agent.errors import Offline
from agent.wire.secret import Secret
from simulator.fleet.engine.mqtt import Arrival, Established, Opening, Will
from simulator.fleet.engine.mqtt_sessions import Session
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.outcomes import OutcomeClass
from tests.support.virtual_clock import VirtualClock

WHERE = "mqtt://127.0.0.1:1883"
GRANTED = SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE


class VirtualTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = self.is_reset = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_reset = True

    def taken(self) -> list[Packet]:
        """The packets written since the last call."""
        packets, at = [], 0
        while at < len(self.written):
            packet, size = read(memoryview(self.written)[at:])
            packets.append(packet)
            at += size
        self.written = b""
        return packets


class Listener:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.standings: list[Established] = []
        self.arrivals: list[Arrival] = []
        self.losses: list[tuple[Offline, OutcomeClass]] = []

    def connected(self, standing: Established, now_s: float) -> None:
        self.standings.append(standing)

    def arrived(self, arrival: Arrival, now_s: float) -> None:
        self.arrivals.append(arrival)

    def lost(self, error: Offline, outcome: OutcomeClass, began_s: float | None, now_s: float) -> None:
        self.losses.append((error, outcome))


class Publisher:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.acknowledgements: list[tuple[int, float, float]] = []
        self.failures: list[tuple[OutcomeClass, float | None]] = []

    def acknowledged(self, code: int, sent_s: float, now_s: float) -> None:
        self.acknowledgements.append((code, sent_s, now_s))

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        assert reason
        self.failures.append((outcome, sent_s))


def opening(**changes: Any) -> Opening:
    """What a device begins with."""
    usual: dict[str, Any] = {
        "client_id": "d1",
        "password": Secret("t"),
        "subscriptions": (("v1/devices/d1/commands/+", 1), ("v1/devices/d1/notice", 0)),
        "will": Will("v1/devices/d1/status", b"offline"),
    }
    return Opening(**(usual | changes))


class Line:
    """A session, with everything around it.

    Args:
        in_flight: of the engine.
        changes: of the opening.
    """

    def __init__(self, *, in_flight: int = 65_535, **changes: Any) -> None:
        self.clock = VirtualClock(1000.0)
        self.ended: list[Session] = []
        engine = SimpleNamespace(
            where=WHERE,
            wheel=Wheel(self.clock),
            time=self.clock.time,
            connect_timeout_s=10.0,
            in_flight=in_flight,
            ended=self.ended.append,
        )
        self.listener = Listener()
        self.session = Session(engine, 7, 1, opening(**changes), self.listener)
        self.transport = VirtualTransport()

    def pass_s(self, seconds: float) -> None:
        """Time passes."""
        self.clock.run_until(self.clock.time() + seconds)

    def dial(self) -> None:
        """TCP stands."""
        self.session.connection_made(self.transport)

    def greet(self, **answer: Any) -> None:
        """And CONNACK comes."""
        self.dial()
        self.transport.taken()
        self.hear(ConnAckPacket(**answer))

    def stand(self, **answer: Any) -> None:
        """And the subscriptions stand."""
        self.greet(**answer)
        self.transport.taken()
        self.hear(SubAckPacket(1, [GRANTED, GRANTED]))

    def hear(self, *packets: Any) -> None:
        """The broker sends these in one go."""
        self.session.data_received(b"".join(packet.write() for packet in packets))

    def publish(self, payload: bytes = b"1", topic: str = "t", timeout_s: float = 30.0) -> Publisher:
        """Publish; who is told of it."""
        publisher = Publisher()
        assert self.session.publish(topic, payload, publisher, timeout_s, retain=False) is None
        return publisher
