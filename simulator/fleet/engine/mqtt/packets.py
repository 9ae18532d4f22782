"""The packets that a device sends, as bytes: all of them through the ``mqtt5`` codec.

Two packets have one form only, and are by far the most frequent beside PUBLISH: they are constants or four bytes made
here (:data:`PING`, :func:`puback`), and the tests hold them against the codec.

Source: MQTT 5.0 (OASIS, 2019), section 3.
"""

from __future__ import annotations

from typing import Final

from mqtt5 import ConnectPacket, PublishPacket, QoS, RetainHandling, SubscribePacket, TopicFilter
from mqtt5 import Will as WillMessage

from simulator.fleet.engine.mqtt.ports import Opening

MAX_PACKET_BYTES: Final = 2 * 1024 * 1024
"""The largest packet that a broker may send to a device; the real agent says the same."""

PUBACK: Final = 0x40
PUBACK_REST: Final = 2
PUBACK_BYTES: Final = 4
"""A PUBACK without a reason: the packet type, how much comes, two bytes of packet id."""

SUBSCRIBE_ID: Final = 1
"""The packet id of SUBSCRIBE, the first packet of a connection that has one."""

PING: Final = b"\xc0\x00"

QOS_1: Final = QoS.AT_LEAST_ONCE


def connect(opening: Opening) -> bytes:
    """The bytes of a CONNECT packet."""
    will = opening.will
    password = opening.password
    return ConnectPacket(
        opening.client_id,
        username=opening.client_id,
        password=None if password is None else password.reveal().encode(),
        clean_start=opening.clean_start,
        will=None if will is None else WillMessage(will.topic, payload=will.payload, qos=QOS_1, retain=True),
        keep_alive=opening.keep_alive_s,
        session_expiry_interval=opening.session_expiry_s,
        receive_max=opening.receive_maximum,
        max_packet_size=MAX_PACKET_BYTES,
    ).write()


def subscribe(subscriptions: tuple[tuple[str, int], ...]) -> bytes:
    """SUBSCRIBE. What is retained is old, and is not asked for."""
    news_only = RetainHandling.SEND_NEVER
    filters = [
        TopicFilter(each, max_qos=QoS(qos), retain_as_published=False, retain_handling=news_only)
        for each, qos in subscriptions
    ]
    return SubscribePacket(SUBSCRIBE_ID, filters).write()


def publish(topic: str, payload: bytes, packet_id: int, *, retain: bool = False) -> bytes:
    """PUBLISH with QoS 1."""
    return PublishPacket(topic, payload, qos=QOS_1, retain=retain, packet_id=packet_id).write()


def puback(packet_id: int) -> bytes:
    """The bytes of a PUBACK packet that reports success."""
    return bytes((PUBACK, PUBACK_REST, packet_id >> 8, packet_id & 0xFF))
