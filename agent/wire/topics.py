"""Every MQTT topic between devices and gateway (docs/protocol.md, "Topics").

Ids are percent-encoded to one level each, exactly as in the paths of :mod:`agent.wire.paths`. So an id cannot add
levels or wildcards, and each id has one spelling: :func:`parse` refuses any other, since a broker's access rules
compare text. The encoded device id is the client id and the user name, too (:func:`user_name`): rules such as
mosquitto's ``pattern read v1/devices/%u/...`` then hold for every id.

==================================================== =========== ======= =====================================
topic                                                direction   retain  content (:mod:`agent.wire.mqtt_messages`)
==================================================== =========== ======= =====================================
``v1/devices/{device_id}/commands/{command_id}``         to device   no      the command record
``v1/devices/{device_id}/commands/{command_id}/result``  from device no      ``ResultMessage``
``v1/devices/{device_id}/sensor-data``                   from device no      ``ReadingMessage`` or an array of them
``v1/devices/{device_id}/status``                        from device yes     ``StatusMessage``; also its will
``v1/devices/{device_id}/receipts``                      to device   no      ``Receipt``
``v1/devices/{device_id}/notice``                        to device   no      ``Notice``; QoS 0, all others QoS 1
``v1/gateway/status``                                    to devices  yes     ``StatusMessage``; also the gateway's will
==================================================== =========== ======= =====================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import unquote

from agent.errors import InvalidMessage
from agent.wire.paths import segment

ROOT: Final = "v1/devices"
DEVICE_ID_CHARACTERS: Final = 255
COMMAND_ID_CHARACTERS: Final = 512

_FORBIDDEN: Final = re.compile(r"[+#/\x00-\x1f\x7f]")
_DEVICE_LEVELS: Final = 4  # v1, devices, the id, the kind
_COMMAND_LEVELS: Final = 5
_RESULT_LEVELS: Final = 6


class TopicKind(StrEnum):
    """What a topic carries; the word is its level after the device id, save for ``RESULT``."""

    COMMAND = "commands"
    RESULT = "result"
    SENSOR_DATA = "sensor-data"
    STATUS = "status"
    RECEIPTS = "receipts"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic taken apart.

    Attributes:
        command_id: of ``COMMAND`` and ``RESULT``; None for the others.
    """

    device_id: str
    kind: TopicKind
    command_id: str | None = None


GATEWAY_FILTERS: Final = (
    f"{ROOT}/+/{TopicKind.SENSOR_DATA}",
    f"{ROOT}/+/{TopicKind.COMMAND}/+/{TopicKind.RESULT}",
    f"{ROOT}/+/{TopicKind.STATUS}",
)
"""All that a gateway subscribes to."""


GATEWAY_STATUS: Final = "v1/gateway/status"
"""From the gateway, retained, and its will: ``{"status":"online"}`` or ``offline``."""


def user_name(device_id: str) -> str:
    """The client id and user name of a device: its id as one topic level; a UUID or a serial number stays as it is.

    Raises:
        InvalidMessage: empty, too long, a lone surrogate, a control character, or one of ``+ # /`` and NUL, which MQTT
            gives a meaning: they would be encoded, but such ids only cause trouble in rules that people write.
    """
    if _FORBIDDEN.search(device_id):
        raise InvalidMessage("a device id must not contain '+', '#', '/' or control characters: give it another id")
    if len(device_id) > DEVICE_ID_CHARACTERS:
        raise InvalidMessage(f"a device id has at most {DEVICE_ID_CHARACTERS} characters, not {len(device_id)}")
    return segment(device_id)


def command(device_id: str, command_id: str) -> str:
    """To the device: one command record."""
    return f"{_device(device_id)}/{TopicKind.COMMAND}/{_command(command_id)}"


def commands_filter(device_id: str) -> str:
    """What a device subscribes to for its commands."""
    return f"{_device(device_id)}/{TopicKind.COMMAND}/+"


def result(device_id: str, command_id: str) -> str:
    """From the device: how a command goes or ended."""
    return f"{_device(device_id)}/{TopicKind.COMMAND}/{_command(command_id)}/{TopicKind.RESULT}"


def sensor_data(device_id: str) -> str:
    """From the device: readings."""
    return f"{_device(device_id)}/{TopicKind.SENSOR_DATA}"


def status(device_id: str) -> str:
    """From the device, retained, and its will: online or offline."""
    return f"{_device(device_id)}/{TopicKind.STATUS}"


def receipts(device_id: str) -> str:
    """To the device: which of its messages the gateway has stored."""
    return f"{_device(device_id)}/{TopicKind.RECEIPTS}"


def notice(device_id: str) -> str:
    """To the device: the gateway's clock and hints."""
    return f"{_device(device_id)}/{TopicKind.NOTICE}"


def parse(topic: str) -> Topic:
    """Take a topic apart.

    Raises:
        InvalidMessage: no topic of this protocol, or an id that is not encoded as these functions encode it.
    """
    levels = topic.split("/")
    if len(levels) >= _DEVICE_LEVELS and "/".join(levels[:2]) == ROOT:
        device_id = _decoded(levels[2])
        user_name(device_id)  # an id that no device can have
        kind, rest = levels[3], levels[4:]
        if kind == TopicKind.COMMAND:
            if len(levels) == _COMMAND_LEVELS:
                return Topic(device_id, TopicKind.COMMAND, _decoded(rest[0]))
            if len(levels) == _RESULT_LEVELS and rest[1] == TopicKind.RESULT:
                return Topic(device_id, TopicKind.RESULT, _decoded(rest[0]))
        elif not rest and kind in set(TopicKind) - {TopicKind.RESULT}:
            return Topic(device_id, TopicKind(kind))
    raise InvalidMessage(f"{topic[:120]!r} is no topic of this protocol; docs/protocol.md lists them")


def _device(device_id: str) -> str:
    return f"{ROOT}/{user_name(device_id)}"


def _command(command_id: str) -> str:
    if len(command_id) > COMMAND_ID_CHARACTERS:
        raise InvalidMessage(f"a command id in a topic has at most {COMMAND_ID_CHARACTERS} characters")
    if "\0" in command_id:
        raise InvalidMessage("a command id in a topic must not contain NUL")
    return segment(command_id)


def _decoded(level: str) -> str:
    # What is not UTF-8 becomes a character that encodes differently, so it is refused with the rest.
    value = unquote(level)
    if not value or "\0" in value or segment(value) != level:
        raise InvalidMessage(f"the topic level {level[:80]!r} is not an id as docs/protocol.md encodes it")
    return value
