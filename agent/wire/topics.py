"""Every MQTT topic between devices and gateway, and the messages on it (docs/protocol.md, "Topics", "Messages").

Ids are percent-encoded to one level each, exactly as in the paths of :mod:`agent.wire.paths`. So an id cannot add
levels or wildcards, and each id has one spelling: :func:`parse` refuses any other, since a broker's access rules
compare text. The encoded device id is the client id and the user name, too (:func:`user_name`): rules such as
mosquitto's ``pattern read v1/devices/%u/...`` then hold for every id.

==================================================== =========== ======= =====================================
topic                                                direction   retain  content
==================================================== =========== ======= =====================================
``v1/devices/{device_id}/commands/{command_id}``         to device   no      the command record
``v1/devices/{device_id}/commands/{command_id}/result``  from device no      ``ResultMessage``
``v1/devices/{device_id}/sensor-data``                   from device no      ``ReadingMessage`` or an array of them
``v1/devices/{device_id}/status``                        from device yes     ``StatusMessage``; also its will
``v1/devices/{device_id}/receipts``                      to device   no      ``Receipt``
``v1/devices/{device_id}/notice``                        to device   no      ``Notice``; QoS 0, all others QoS 1
``v1/gateway/status``                                    to devices  yes     ``StatusMessage``; also the gateway's will
==================================================== =========== ======= =====================================

**Who has a reading?** A QoS 1 PUBACK comes from the broker: it says nothing about the gateway, and a broker may lose
what it took. So a device that wants to know gives each reading and each result a ``key``, and the gateway names that
key in a :class:`Receipt` on the device's ``receipts`` topic once the service has the message (or refused it for good).
The device repeats the message, as it was, until then. For the gateway this means:

* the service first, receipt second, PUBACK to the broker last;
* a repeat is receipted again, and stored once where the service takes idempotency keys;
* a message without a key is stored as often as it comes, and gets no receipt: the device trusts the broker;
* what the service cannot take *now* gets no receipt: the device comes again by itself. ``refused`` is for good.

A refusal without a key means that a whole message was not understood; it is for a person who reads the topic.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Literal
from urllib.parse import unquote

from pydantic import BaseModel, Field, StringConstraints

from agent.core.values import IN_PROGRESS, Command, Report
from agent.errors import InvalidMessage
from agent.wire.encoding import encode_json, parse_object, to_rfc3339
from agent.wire.limits import MESSAGE_BYTES
from agent.wire.models import CommandRecord, JsonObject, LooseTime, Number, Received, ResultStatus, Sent, Text, WireTime
from agent.wire.paths import segment

ROOT: Final = "v1/devices"
DEVICE_ID_CHARACTERS: Final = 255
COMMAND_ID_CHARACTERS: Final = 512

_FORBIDDEN: Final = re.compile(r"[+#/\x00-\x1f\x7f]")


class TopicKind(StrEnum):
    """What a topic carries; the word is its level after the device id, save for ``RESULT``."""

    COMMAND = "commands"
    RESULT = "result"
    SENSOR_DATA = "sensor-data"
    STATUS = "status"
    RECEIPTS = "receipts"
    NOTICE = "notice"


_ALONE: Final = set(TopicKind) - {TopicKind.COMMAND, TopicKind.RESULT}
"""The kinds whose level is the last one."""


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


def subscriptions(device_id: str) -> tuple[tuple[str, int], ...]:
    """The topic filters that a device subscribes to, each with its QoS."""
    return (commands_filter(device_id), 1), (receipts(device_id), 1), (notice(device_id), 0)


def parse(topic: str) -> Topic:
    """Take a topic apart.

    Raises:
        InvalidMessage: no topic of this protocol, or an id that is not encoded as these functions encode it.
    """
    match topic.split("/"):
        case ["v1", "devices", device, TopicKind.COMMAND, command_id]:
            return Topic(_device_id(device), TopicKind.COMMAND, _decoded(command_id))
        case ["v1", "devices", device, TopicKind.COMMAND, command_id, TopicKind.RESULT]:
            return Topic(_device_id(device), TopicKind.RESULT, _decoded(command_id))
        case ["v1", "devices", device, kind] if kind in _ALONE:
            return Topic(_device_id(device), TopicKind(kind))
    raise InvalidMessage(f"{topic[:120]!r} is no topic of this protocol; docs/protocol.md lists them")


def _device(device_id: str) -> str:
    return f"{ROOT}/{user_name(device_id)}"


def _command(command_id: str) -> str:
    if len(command_id) > COMMAND_ID_CHARACTERS:
        raise InvalidMessage(f"a command id in a topic has at most {COMMAND_ID_CHARACTERS} characters")
    if "\0" in command_id:
        raise InvalidMessage("a command id in a topic must not contain NUL")
    return segment(command_id)


def _device_id(level: str) -> str:
    device_id = _decoded(level)
    user_name(device_id)  # refuses an id that no device can have
    return device_id


def _decoded(level: str) -> str:
    # What is not UTF-8 becomes a character that encodes differently, so it is refused with the rest.
    value = unquote(level)
    if not value or "\0" in value or segment(value) != level:
        raise InvalidMessage(f"the topic level {level[:80]!r} is not an id as docs/protocol.md encodes it")
    return value


# --- messages ---------------------------------------------------------------------------------------------------------

KEY_CHARACTERS: Final = 128

Key = Annotated[str, StringConstraints(min_length=1, max_length=KEY_CHARACTERS)]
"""What makes two messages of one device the same: stays equal over every repeat."""


class ReadingMessage(Sent):
    """One reading on ``sensor-data``; the topic carries one of them or an array.

    Attributes:
        sensor_data: named readings, finite numbers, at least one.
        recorded_at: when they were read; the time of arrival counts when it is missing.
    """

    sensor_data: Annotated[dict[Text, Number], Field(min_length=1)]
    recorded_at: WireTime | None = None
    key: Key | None = None


class ResultMessage(Sent):
    """How a command goes or ended, on ``commands/{command_id}/result``; idempotent by command id and status."""

    status: ResultStatus
    result: JsonObject | None = None
    error: str | None = None
    key: Key | None = None


class StatusMessage(Received):
    """Whether a device is there. The bare words ``online`` and ``offline`` are taken as well."""

    status: Literal["online", "offline"]
    firmware_version: str | None = None


class Refusal(Received):
    """The refusal of a message that the gateway will never take.

    Attributes:
        key: the refused message's; None when it had none, or could not be read at all.
        error: a stable snake_case word, such as ``validation_error``.
    """

    key: str | None = None
    error: str = "refused"
    message: str = ""


class Receipt(Received):
    """The gateway's word on messages with a key.

    Attributes:
        stored: keys of what the service has.
        refused: what will never be stored.
    """

    stored: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()


class Notice(Received):
    """Clock and hints, QoS 0; sent in answer to ``online`` and when a hint changes.

    Attributes:
        time: the gateway's clock, seconds since the epoch (RFC 3339 on the wire). Only a notice carries it, since QoS 0
            is never queued for a device that is away: a time that comes late would be a wrong one.
        retry_after_s: send no readings for this long, seconds: the quota is used up. Results may go.
    """

    time: LooseTime = None
    retry_after_s: Annotated[float, Field(ge=0, le=86_400)] | None = None


def encode(message: BaseModel) -> bytes:
    """A message as JSON text; members that are None are left out.

    Raises:
        InvalidMessage: something in it has no JSON form.
    """
    members = message.model_dump(exclude_none=True)
    if isinstance(message, Notice) and message.time is not None:
        members["time"] = to_rfc3339(message.time)
    return encode_json(members)


def encode_readings(readings: list[ReadingMessage]) -> bytes:
    """Readings as one ``sensor-data`` message: a lone one as an object, several as an array."""
    items = [reading.to_wire() for reading in readings]
    return encode_json(items[0] if len(items) == 1 else items)


def read_command(payload: bytes, command_id: str | None, device_id: str) -> Command:
    """A message on a command's topic.

    Args:
        payload: the command record.
        command_id: that the topic names.
        device_id: of the device that reads it.

    Raises:
        InvalidMessage: no command, another device's, or with another id than its topic.
    """
    record = CommandRecord.receive(parse_object(payload, max_bytes=MESSAGE_BYTES))
    if record.id is None:
        record = record.model_copy(update={"id": command_id})
    elif record.id != command_id:
        raise InvalidMessage(f"it says that its id is {record.id[:80]!r}, and its topic says otherwise")
    return record.to_command(device_id)


def result_key(report: Report) -> str | None:
    """The key of a result: the same in every repeat. Progress has none, since the next one replaces it."""
    if report.status == IN_PROGRESS:
        return None
    key = f"result-{report.status}-{report.command_id}"
    return key if len(key) <= KEY_CHARACTERS else f"result-{hashlib.sha256(key.encode()).hexdigest()}"
