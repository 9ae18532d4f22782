"""A session between a broker's bytes and those who use it: a transport that keeps what is written, on virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    DisconnectPacket,
    DisconnectReasonCode,
    PingReqPacket,
    PingRespPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubAckReasonCode,
    read,
)

from agent.errors import LockedOut, Offline, SessionTakenOver
from simulator.fleet.engine.mqtt import PACKET_TOO_LARGE, Opening, Session
from simulator.fleet.engine.timers import Timers
from simulator.fleet.outcomes import OutcomeClass
from tests.support.virtual_clock import VirtualClock

GREETED = ConnAckPacket().write()
UP = GREETED + SubAckPacket(1, [SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE] * 2).write()
SUBSCRIPTIONS = (("v1/devices/d1/commands/+", 1), ("v1/devices/d1/notice", 0))


class Line(asyncio.Transport):
    """A session, its transport and its listener."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock(1000.0)
        self.written = b""
        self.is_reset = False
        self.arrivals, self.losses, self.acknowledged = [], [], []
        engine = SimpleNamespace(
            where="mqtt://127.0.0.1:1883",
            timers=Timers(self.clock),
            time=self.clock.time,
            connect_timeout_s=10.0,
        )
        self.session = Session(engine, Opening("d1", None, SUBSCRIPTIONS), self)

    def write(self, data):
        self.written += data

    def abort(self):
        self.is_reset = True

    def connected(self, now_s):
        """The subscriptions stand."""

    def arrived(self, topic, payload, now_s):
        self.arrivals.append((topic, len(payload)))

    def lost(self, error, outcome, now_s):
        self.losses.append((error, outcome))

    def taken(self, kind):
        """The packets of a kind that were written since the last call."""
        packets, at = [], 0
        while at < len(self.written):
            packet, size = read(memoryview(self.written)[at:])
            packets.append(packet)
            at += size
        self.written = b""
        return [packet for packet in packets if isinstance(packet, kind)]

    def pass_s(self, seconds: float) -> None:
        self.clock.run_until(self.clock.time() + seconds)

    def hear(self, *packets):
        self.session.data_received(b"".join(packet.write() for packet in packets))

    def stand(self, **answer):
        """The subscriptions stand."""
        self.session.connection_made(self)
        self.session.data_received(ConnAckPacket(**answer).write() + UP[len(GREETED) :])
        self.written = b""

    def publish(self, payload: bytes = b"1") -> None:
        def note(code, sent_s, now_s):
            self.acknowledged.append((payload, code, sent_s))

        self.session.publish("t", payload, note)

    def only_loss(self):
        [(error, outcome)] = self.losses
        assert self.is_reset
        return error, outcome


@pytest.fixture
def line() -> Line:
    return Line()


def refused(code: ConnAckReasonCode) -> bytes:
    return ConnAckPacket(reason_code=code).write()


def ended(code: DisconnectReasonCode) -> bytes:
    return UP + DisconnectPacket(reason_code=code).write()


@pytest.mark.parametrize(
    ("heard", "outcome", "kind", "said"),
    [
        (refused(ConnAckReasonCode.BAD_USER_NAME_OR_PASSWORD), OutcomeClass.REFUSED, LockedOut, "BAD_USER_NAME"),
        (refused(ConnAckReasonCode.SERVER_BUSY), OutcomeClass.SERVER_ERROR, Offline, "SERVER_BUSY"),
        (refused(ConnAckReasonCode.CONNECTION_RATE_EXCEEDED), OutcomeClass.LIMITED, Offline, "CONNECTION_RATE"),
        (
            GREETED + SubAckPacket(1, [SubAckReasonCode.NOT_AUTHORIZED] * 2).write(),
            OutcomeClass.REFUSED,
            LockedOut,
            "broker-config",
        ),
        (ended(DisconnectReasonCode.SESSION_TAKEN_OVER), OutcomeClass.REFUSED, SessionTakenOver, "another client"),
        (ended(DisconnectReasonCode.SERVER_SHUTTING_DOWN), OutcomeClass.SERVER_ERROR, Offline, "SHUTTING_DOWN"),
        (UP + b"\xff\xff\xff\xff\xff\xff", OutcomeClass.UNEXPECTED, Offline, "does not send"),
        (UP + b"\x00\x00", OutcomeClass.UNEXPECTED, Offline, "does not send"),
        (UP + PingReqPacket().write(), OutcomeClass.UNEXPECTED, Offline, "PingReqPacket"),
        (UP + GREETED, OutcomeClass.UNEXPECTED, Offline, "ConnAckPacket"),
    ],
)
def test_a_session_that_the_broker_refuses_or_ends_says_why(line, heard, outcome, kind, said):
    line.session.connection_made(line)
    line.session.data_received(heard)
    error, counted = line.only_loss()
    assert (counted, type(error)) == (outcome, kind)
    assert said in str(error)


@pytest.mark.parametrize(("heard", "word"), [(None, "connection"), (b"", "MQTT 5"), (GREETED, "SUBSCRIBE")])
def test_a_broker_that_says_nothing_is_given_up_in_time(line, heard, word):
    if heard is not None:
        line.session.connection_made(line)
        line.session.data_received(heard)
    line.pass_s(9.99)
    assert line.losses == []
    line.pass_s(0.02)
    [(error, outcome)] = line.losses
    assert word in str(error)
    assert outcome is OutcomeClass.TIMEOUT


def test_no_more_are_on_their_way_than_the_broker_takes(line):
    line.stand(receive_max=2)
    for n in range(5):
        line.publish(b"%d" % n)
    first, second = line.taken(PublishPacket)
    line.pass_s(1)
    line.hear(PubAckPacket(second.packet_id))
    [third] = line.taken(PublishPacket)
    line.hear(PubAckPacket(first.packet_id), PubAckPacket(third.packet_id))
    rest = line.taken(PublishPacket)
    assert [packet.payload for packet in (first, second, third, *rest)] == [b"0", b"1", b"2", b"3", b"4"]
    line.hear(*[PubAckPacket(packet.packet_id) for packet in rest])
    # What waited was sent when its turn came.
    assert sorted(line.acknowledged) == [(b"%d" % n, 0, 1000.0 if n < 2 else 1001.0) for n in range(5)]


def test_what_the_broker_does_not_take_is_refused_unsent(line):
    line.stand(max_packet_size=100)
    line.publish(b"x" * 100)
    line.pass_s(0)
    assert [code for _, code, _ in line.acknowledged] == [PACKET_TOO_LARGE]
    assert line.taken(PublishPacket) == []


@given(st.lists(st.integers(1, 400), max_size=30), st.integers(0, 300))
def test_packets_are_understood_however_the_network_cuts_them(cuts, size):
    line = Line()
    line.stand()
    line.publish()
    [own] = line.taken(PublishPacket)
    raw = b"".join(
        packet.write()
        for packet in (
            PublishPacket("a", b"x" * size, qos=QoS.AT_LEAST_ONCE, packet_id=3),
            PubAckPacket(own.packet_id),
            PingRespPacket(),
            PublishPacket("b", b"y"),
        )
    )
    at = 0
    for cut in [*cuts, len(raw)]:
        if raw[at : at + cut]:
            line.session.data_received(raw[at : at + cut])
        at += cut
    assert line.arrivals == [("a", size), ("b", 1)]
    assert [packet.packet_id for packet in line.taken(PubAckPacket)] == [3], "of QoS 1 alone"
    assert len(line.acknowledged) == 1


def test_the_listener_is_told_once_when_the_connection_breaks(line):
    line.stand()
    line.publish()
    line.session.connection_lost(ConnectionResetError(104, "reset"))
    line.pass_s(1000)
    [(error, outcome)] = line.losses
    assert (error.state, outcome, line.acknowledged) == ("closed", OutcomeClass.TRANSPORT, [])


def test_a_silent_device_pings_and_a_broker_that_does_not_answer_is_given_up(line):
    line.stand()
    line.pass_s(59.9)
    for _ in range(5):
        assert line.taken(PingReqPacket) == []
        line.pass_s(0.2)
        assert len(line.taken(PingReqPacket)) == 1
        line.hear(PingRespPacket())
        line.pass_s(59.8)
    line.pass_s(60)
    assert line.losses == []
    line.pass_s(0.4)
    assert line.only_loss()[1] is OutcomeClass.TIMEOUT
