"""The bytes themselves, put together by hand from the specification: no codec judges itself here."""

from __future__ import annotations

import pytest
from mqtt5 import PingReqPacket, PubAckPacket, PublishPacket, QoS, read

from simulator.fleet.engine.mqtt import packets
from tests.unit.simulator.fleet.engine.mqtt.virtual import opening


def test_connect_is_what_the_specification_says():
    assert packets.connect(opening()) == bytes.fromhex(
        "10 43"  # CONNECT, 67 bytes
        "0004 4d515454 05"  # MQTT, version 5
        "ec"  # user name, password, will retained, will QoS 1, will; no clean start
        "003c"  # keep alive 60 s
        "0d 11 00000e10 21 0064 27 00200000"  # session expiry 3600 s, receive maximum 100, largest packet 2 MiB
        "0002 6431"  # client id d1
        "00"  # the will has no properties: no delay
        "0014 76312f646576696365732f64312f737461747573"  # v1/devices/d1/status
        "0007 6f66666c696e65"  # offline
        "0002 6431"  # user name d1
        "0001 74"  # password t
    )


def test_connect_without_password_and_will_has_neither_their_flags_nor_their_fields():
    raw = packets.connect(opening(password=None, will=None, clean_start=True))
    assert raw == bytes.fromhex("10 20 0004 4d515454 05 82 003c 0d 11 00000e10 21 0064 27 00200000 0002 6431 0002 6431")


def test_subscribe_asks_for_no_retained_messages():
    assert packets.subscribe((("a/+", 1), ("b", 0))) == bytes.fromhex(
        "82 0d 0001 00"  # SUBSCRIBE, 13 bytes, packet id 1, no properties
        "0003 612f2b 21"  # a/+, QoS 1, retained messages not sent
        "0001 62 20"  # b, QoS 0, likewise
    )


def test_publish_has_quality_of_service_1():
    assert packets.publish("a/b", b"xy", 258) == bytes.fromhex("32 0a 0003 612f62 0102 00 7879")
    assert packets.publish("a/b", b"xy", 258, retain=True)[0] == 0x33


@pytest.mark.parametrize("packet_id", [1, 255, 256, 65_535])
def test_the_acknowledgement_made_by_hand_is_the_codecs(packet_id):
    raw = packets.puback(packet_id)
    assert raw == PubAckPacket(packet_id).write()
    assert len(raw) == packets.PUBACK_BYTES


def test_a_ping_is_what_the_specification_says():
    assert packets.PING == PingReqPacket().write() == bytes.fromhex("c000")


def test_a_publish_is_read_back_as_it_was_written():
    packet, size = read(packets.publish("v1/devices/d1/sensor-data", b"{}" * 4000, 65_535, retain=True))
    assert isinstance(packet, PublishPacket)
    assert (packet.topic, packet.payload, packet.packet_id, packet.retain) == (
        "v1/devices/d1/sensor-data",
        b"{}" * 4000,
        65_535,
        True,
    )
    assert (packet.qos, packet.duplicate, size) == (QoS.AT_LEAST_ONCE, False, 8000 + 33)
