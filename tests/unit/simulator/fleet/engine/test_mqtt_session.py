"""A session between a broker's bytes and those who use it, on virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    PingReqPacket,
    PingRespPacket,
    PubAckPacket,
    PublishPacket,
    QoS,
)

from agent.errors import LockedOut
from simulator.fleet.outcomes import OutcomeClass
from tests.unit.simulator.fleet.engine.virtual_mqtt import Line, Publisher


def publishes(line: Line) -> list[PublishPacket]:
    return [packet for packet in line.transport.taken() if isinstance(packet, PublishPacket)]


def only_loss(line: Line):
    [(error, outcome)] = line.listener.losses
    assert line.transport.is_reset
    assert line.ended == [line.session]
    return error, outcome


# --- coming up --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "outcome", "kind"),
    [
        (ConnAckReasonCode.BAD_USER_NAME_OR_PASSWORD, OutcomeClass.REFUSED, LockedOut),
        (ConnAckReasonCode.NOT_AUTHORIZED, OutcomeClass.REFUSED, LockedOut),
        (ConnAckReasonCode.SERVER_BUSY, OutcomeClass.SERVER_ERROR, Exception),
        (ConnAckReasonCode.CONNECTION_RATE_EXCEEDED, OutcomeClass.LIMITED, Exception),
    ],
)
def test_a_broker_that_refuses_says_why(code, outcome, kind):
    line = Line()
    line.greet(reason_code=code)
    error, counted = only_loss(line)
    assert counted is outcome
    assert isinstance(error, kind)
    assert code.name in str(error)


def test_a_broker_of_version_3_is_named_as_such():
    line = Line()
    line.dial()
    line.session.data_received(b"\x20\x02\x00\x01")
    error, outcome = only_loss(line)
    assert error.state == "unsupported_version"
    assert outcome is OutcomeClass.REFUSED


@pytest.mark.parametrize(("steps", "word"), [(0, "connection"), (1, "MQTT 5"), (2, "SUBSCRIBE")])
def test_a_broker_that_says_nothing_is_given_up_in_time(steps, word):
    line = Line()
    if steps == 1:
        line.dial()
    if steps == 2:
        line.greet()
    line.pass_s(9.99)
    assert line.listener.losses == []
    line.pass_s(0.02)
    [(error, outcome)] = line.listener.losses
    assert word in str(error)
    assert outcome is OutcomeClass.TIMEOUT


# --- publishing -------------------------------------------------------------------------------------------------


def test_no_more_are_on_their_way_than_the_broker_takes():
    line = Line()
    line.stand(receive_max=2)
    publishers = [line.publish(b"%d" % n) for n in range(5)]
    first = publishes(line)
    assert [packet.payload for packet in first] == [b"0", b"1"]
    line.pass_s(1)
    line.hear(PubAckPacket(first[1].packet_id))
    [third] = publishes(line)
    assert third.payload == b"2"
    line.hear(PubAckPacket(first[0].packet_id), PubAckPacket(third.packet_id))
    rest = publishes(line)
    assert [packet.payload for packet in rest] == [b"3", b"4"]
    line.hear(*[PubAckPacket(packet.packet_id) for packet in rest])
    # What waited was sent when its turn came.
    assert [publisher.acknowledgements[0][1] for publisher in publishers] == [1000.0, 1000.0, 1001.0, 1001.0, 1001.0]


def test_a_message_is_given_up_in_time_and_its_id_only_with_its_acknowledgement():
    line = Line()
    line.stand(receive_max=1)
    late, waiting = line.publish(b"a", timeout_s=5), line.publish(b"b", timeout_s=3)
    [packet] = publishes(line)
    line.pass_s(3.01)
    assert waiting.failures == [(OutcomeClass.TIMEOUT, None)]
    line.pass_s(2)
    assert late.failures == [(OutcomeClass.TIMEOUT, 1000.0)]
    patient = line.publish(b"c", timeout_s=60)
    assert publishes(line) == []
    line.hear(PubAckPacket(packet.packet_id))
    assert late.acknowledgements == []
    [now] = publishes(line)
    assert now.payload == b"c"
    line.hear(PubAckPacket(now.packet_id))
    assert len(patient.acknowledgements) == 1


def test_what_the_broker_does_not_take_is_refused_unsent():
    line = Line()
    line.stand(max_packet_size=100)
    told = line.session.publish("t", b"x" * 100, Publisher(), 5, retain=False)
    assert told is not None
    assert told[0] is OutcomeClass.REFUSED
    assert publishes(line) == []


# --- messages that come -----------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 400), max_size=30), st.integers(0, 300))
def test_packets_are_understood_however_the_network_cuts_them(cuts, size):
    line = Line()
    line.stand()
    publisher = line.publish()
    [own] = publishes(line)
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
    assert [(arrival.topic, len(arrival.payload)) for arrival in line.listener.arrivals] == [("a", size), ("b", 1)]
    assert len(publisher.acknowledgements) == 1


@pytest.mark.parametrize(
    "raw",
    [b"\xff\xff\xff\xff\xff\xff", b"\x00\x00", PingReqPacket().write(), ConnAckPacket().write()],
    ids=["no length", "no type", "a client's packet", "a second greeting"],
)
def test_what_no_broker_sends_ends_the_connection(raw):
    line = Line()
    line.stand()
    line.session.data_received(raw)
    assert only_loss(line)[1] is OutcomeClass.UNEXPECTED


# --- the end ----------------------------------------------------------------------------------------------------


def test_everybody_is_told_once_when_the_connection_breaks():
    line = Line()
    line.stand(receive_max=1)
    sent, waiting = line.publish(), line.publish()
    line.session.connection_lost(ConnectionResetError(104, "reset"))
    assert sent.failures == [(OutcomeClass.TRANSPORT, 1000.0)]
    assert waiting.failures == [(OutcomeClass.TRANSPORT, None)]
    [(error, outcome)] = line.listener.losses
    assert (error.state, outcome) == ("closed", OutcomeClass.TRANSPORT)
    line.pass_s(1000)
    assert len(line.listener.losses) == 1
    assert line.session.publish("t", b"", Publisher(), 1, retain=False) is not None


# --- keeping alive ----------------------------------------------------------------------------------------------


def pings(line: Line) -> int:
    return sum(isinstance(packet, PingReqPacket) for packet in line.transport.taken())


def test_a_silent_device_pings_and_a_broker_that_answers_keeps_it():
    line = Line()
    line.stand()
    line.pass_s(59.9)
    assert pings(line) == 0
    for _ in range(5):
        line.pass_s(0.2)
        assert pings(line) == 1
        line.hear(PingRespPacket())
        line.pass_s(59.8)
        assert pings(line) == 0
    assert line.listener.losses == []


def test_a_broker_that_does_not_answer_a_ping_is_given_up():
    line = Line()
    line.stand()
    line.pass_s(119.9)
    assert pings(line) == 1
    assert line.listener.losses == []
    line.pass_s(0.2)
    assert only_loss(line)[1] is OutcomeClass.TIMEOUT
