"""A session between a broker's bytes and those who use it, on virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    ConnectPacket,
    DisconnectPacket,
    DisconnectReasonCode,
    PingReqPacket,
    PingRespPacket,
    PubAckPacket,
    PubAckReasonCode,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubAckReasonCode,
    SubscribePacket,
)

from agent.errors import LockedOut, SessionTakenOver
from simulator.fleet.outcomes import OutcomeClass
from tests.unit.simulator.fleet.engine.virtual_mqtt import GRANTED, Line, Publisher


def publishes(line: Line) -> list[PublishPacket]:
    return [packet for packet in line.transport.taken() if isinstance(packet, PublishPacket)]


def only_loss(line: Line):
    [(error, outcome)] = line.listener.losses
    assert line.transport.is_reset
    assert line.ended == [line.session]
    return error, outcome


# --- coming up --------------------------------------------------------------------------------------------------


def test_a_device_is_there_once_its_subscriptions_stand():
    line = Line()
    line.dial()
    [connect] = line.transport.taken()
    assert isinstance(connect, ConnectPacket)
    line.pass_s(0.25)
    line.hear(ConnAckPacket(session_present=True, max_packet_size=5000))
    [subscribe] = line.transport.taken()
    assert isinstance(subscribe, SubscribePacket)
    assert not line.session.is_up
    line.hear(SubAckPacket(1, [GRANTED, GRANTED]))
    [standing] = line.listener.standings
    assert line.session.is_up
    assert (standing.kept, standing.began_s) == (True, 1000.0)
    assert standing.max_packet_bytes == 5000


def test_without_subscriptions_it_is_there_at_once():
    line = Line(subscriptions=())
    line.greet()
    assert line.session.is_up
    assert line.transport.taken() == []


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


def test_a_subscription_that_is_refused_locks_the_device_out():
    line = Line()
    line.greet()
    line.hear(SubAckPacket(1, [GRANTED, SubAckReasonCode.NOT_AUTHORIZED]))
    error, outcome = only_loss(line)
    assert isinstance(error, LockedOut)
    assert "v1/devices/d1/notice" in str(error)
    assert outcome is OutcomeClass.REFUSED


def test_a_broker_of_version_3_is_named_as_such():
    line = Line()
    line.dial()
    line.session.data_received(b"\x20\x02\x00\x01")
    error, outcome = only_loss(line)
    assert error.state == "unsupported_version"
    assert outcome is OutcomeClass.REFUSED


def test_a_broker_without_acknowledgements_is_of_no_use():
    line = Line()
    line.greet(max_qos=QoS.AT_MOST_ONCE)
    assert "QoS 1" in str(only_loss(line)[0])


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


def test_hanging_up_before_an_answer_is_a_hint_at_the_version():
    line = Line()
    line.dial()
    line.session.connection_lost(None)
    [(error, outcome)] = line.listener.losses
    assert "MQTT 5" in str(error)
    assert outcome is OutcomeClass.TRANSPORT


# --- publishing -------------------------------------------------------------------------------------------------


def test_whoever_published_is_told_of_the_acknowledgement_with_both_times():
    line = Line()
    line.stand()
    publisher = line.publish(b"21.5", "v1/devices/d1/sensor-data")
    [packet] = publishes(line)
    assert (packet.topic, packet.payload, packet.qos) == ("v1/devices/d1/sensor-data", b"21.5", QoS.AT_LEAST_ONCE)
    line.pass_s(0.125)
    line.hear(PubAckPacket(packet.packet_id))
    line.hear(PubAckPacket(packet.packet_id))  # a second one is nobody's
    assert publisher.acknowledgements == [(0, 1000.0, 1000.125)]
    assert publisher.failures == []


def test_a_reason_in_the_acknowledgement_is_handed_on():
    line = Line()
    line.stand()
    codes = [PubAckReasonCode.NO_MATCHING_SUBSCRIBERS, PubAckReasonCode.QUOTA_EXCEEDED]
    publishers = [line.publish() for _ in codes]
    line.hear(*[PubAckPacket(p.packet_id, reason_code=c) for p, c in zip(publishes(line), codes, strict=True)])
    assert [publisher.acknowledgements[0][0] for publisher in publishers] == [0x10, 0x97]


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


def test_our_own_window_holds_where_it_is_the_smaller_one():
    line = Line(in_flight=1)
    line.stand(receive_max=20)
    line.publish()
    line.publish()
    assert len(publishes(line)) == 1


def test_packet_ids_go_round_past_those_that_are_taken():
    line = Line()
    line.stand()
    stuck = line.publish(b"stuck")
    [first] = publishes(line)
    seen = set()
    for _ in range(65_534):
        line.publish()
        [packet] = publishes(line)
        seen.add(packet.packet_id)
        line.hear(PubAckPacket(packet.packet_id))
    assert seen == set(range(1, 65_536)) - {first.packet_id}
    line.hear(PubAckPacket(first.packet_id))
    assert len(stuck.acknowledgements) == 1


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


def test_topics_are_sent_in_full_also_where_the_broker_takes_aliases():
    line = Line()
    line.stand(topic_alias_max=10)
    for topic in ("a", "a"):
        line.publish(topic=topic)
    assert [(p.topic, p.topic_alias) for p in publishes(line)] == [("a", None), ("a", None)]


# --- messages that come -----------------------------------------------------------------------------------------


def test_nothing_is_acknowledged_before_it_is_safe():
    line = Line()
    line.stand()
    line.hear(PublishPacket("v1/devices/d1/commands/c1", b"{}", qos=QoS.AT_LEAST_ONCE, packet_id=9))
    line.hear(PublishPacket("v1/devices/d1/notice", b"{}"))
    command, notice = line.listener.arrivals
    assert (command.topic, command.payload, command.packet_id) == ("v1/devices/d1/commands/c1", b"{}", 9)
    assert notice.packet_id is None
    assert line.transport.taken() == []
    line.session.acknowledge(9)
    assert line.transport.taken() == [PubAckPacket(9)]


def test_a_kept_session_delivers_before_subscribe_is_answered():
    line = Line()
    line.greet(session_present=True)
    line.hear(PublishPacket("v1/devices/d1/commands/c1", b"{}", qos=QoS.AT_LEAST_ONCE, packet_id=1))
    assert len(line.listener.arrivals) == 1
    assert line.listener.losses == []


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


def test_a_message_that_never_ends_does_not_fill_the_memory():
    line = Line()
    line.stand()
    line.session.data_received(b"\x30\xff\xff\xff\x7f" + b"x" * 3_000_000)
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


def test_whom_another_client_threw_out_is_told_so():
    line = Line()
    line.stand()
    line.hear(DisconnectPacket(reason_code=DisconnectReasonCode.SESSION_TAKEN_OVER))
    assert isinstance(only_loss(line)[0], SessionTakenOver)


def test_power_loss_says_nothing_to_anybody():
    line = Line()
    line.stand()
    publisher = line.publish()
    line.transport.taken()
    line.session.cut()
    line.session.connection_lost(None)
    line.pass_s(1000)
    assert line.transport.is_reset
    assert line.transport.written == b""
    assert (line.listener.losses, publisher.failures, line.ended) == ([], [], [])


def test_a_device_that_is_cut_while_it_connects_is_reset_when_it_gets_there():
    line = Line()
    line.session.cut()
    line.dial()
    assert line.transport.is_reset
    assert line.transport.written == b""


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


def test_a_busy_device_does_not_ping():
    line = Line()
    line.stand()
    for _ in range(20):
        line.pass_s(30)
        line.publish()
        [packet] = line.transport.taken()
        line.hear(PubAckPacket(packet.packet_id))


def test_the_broker_may_choose_another_keep_alive():
    line = Line()
    line.stand(server_keep_alive=10)
    line.pass_s(10.1)
    assert pings(line) == 1


def test_without_keep_alive_nothing_is_ever_sent():
    line = Line(keep_alive_s=0)
    line.stand()
    line.pass_s(100_000)
    assert line.transport.taken() == []
