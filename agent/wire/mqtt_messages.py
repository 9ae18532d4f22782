"""What MQTT messages between devices and gateway carry: JSON text (docs/protocol.md, "Messages").

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

from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field, StringConstraints

from agent.wire.base import JsonObject, LooseTime, Number, Received, Sent, Text, WireTime
from agent.wire.json_text import encode_json
from agent.wire.models import ResultStatus
from agent.wire.times import to_rfc3339

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
        poll_s: how often to ask over HTTP, where the device does so beside MQTT, seconds.
    """

    time: LooseTime = None
    retry_after_s: Annotated[float, Field(ge=0, le=86_400)] | None = None
    poll_s: Annotated[float, Field(gt=0, le=86_400)] | None = None


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
