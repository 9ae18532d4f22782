"""Messages of devices over MQTT, and those that come for them: values in, bytes out, and back. No I/O.

The topics and messages of docs/protocol.md, out of :mod:`agent.wire`, as the real agent's adapters use them. What is
said all day, readings, is written without the models, to the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from agent.core.values import IN_PROGRESS, Command, Report
from agent.errors import InvalidMessage
from agent.wire import topics
from agent.wire.json_text import encode_json, parse_object
from agent.wire.models import CommandRecord
from agent.wire.mqtt_messages import KEY_CHARACTERS, ResultMessage, StatusMessage, encode
from agent.wire.secret import Secret
from simulator.fleet.device.http_messages import (
    HttpMessages,
    Operation,
    Reading,
    Request,
    json_name,
    time_text,
)
from simulator.fleet.engine.mqtt import MAX_PACKET_BYTES, Opening, Will
from simulator.fleet.outcomes import Attempt

_PUBLISH: Final = "PUBLISH"
_FIRMWARE: Final = "fleet"


class MqttOperation(StrEnum):
    """What is measured; the value is its name in the measurement."""

    CONNECT = "mqtt.connect"
    """From when it was due until the subscriptions were acknowledged."""
    STATUS = "mqtt.status"
    READINGS = "mqtt.sensor_data"
    """Until the broker acknowledged."""
    REPORT = "mqtt.report"
    RECEIPT = "mqtt.receipt"
    """Until the gateway said that it has the message in its store."""


OPERATIONS: Final = {Operation.READINGS: MqttOperation.READINGS, Operation.REPORT: MqttOperation.REPORT}
"""What a request is counted as."""


class MqttMessages(HttpMessages):
    """Builds the messages of devices to the gateway: they carry keys, and the gateway's receipt settles them."""

    def __init__(self) -> None:
        super().__init__(frozenset())
        # By the gateway's contract, whatever the service behind it takes.
        self.sends_time = self.takes_arrays = True

    def readings(
        self,
        device_id: str,
        batch: Sequence[Reading],
        name: str,
        intended_s: float = 0.0,
        ready_s: float = 0.0,
        attempt: Attempt = Attempt.FIRST,
    ) -> Request:
        """Hand over readings: a lone one as an object, several as an array."""
        items = [_item(reading, name) for reading in batch]
        body = items[0] if len(items) == 1 else f"[{','.join(items)}]"
        keys = tuple([reading.key for reading in batch])
        topic = topics.sensor_data(device_id)
        request = Request(Operation.READINGS, _PUBLISH, topic, body.encode(), keys=keys)
        return request._replace(intended_s=intended_s, ready_s=ready_s, attempt=attempt)

    def report(self, device_id: str, product_id: str, report: Report) -> Request | None:
        """Report progress or the result of a command."""
        message = ResultMessage(
            status=report.status,  # type: ignore[arg-type]  # checked by the model
            result=report.result,
            error=report.error,
            key=None if report.status == IN_PROGRESS else result_key(report),
        )
        topic = topics.result(device_id, report.command_id)
        return Request(Operation.REPORT, _PUBLISH, topic, encode(message), report=report)


def awaited_keys(request: Request, name: str) -> dict[str, int]:
    """The keys that a receipt has to name, with the outbox's key of each (0 for a result); empty for none."""
    if request.report is not None:
        return {} if request.report.status == IN_PROGRESS else {result_key(request.report): 0}
    return {f"{name}-{key}": key for key in request.keys}


def status_of(device_id: str, *, online: bool) -> Will:
    """The retained status; ``offline`` is also the will."""
    word = StatusMessage(status="online" if online else "offline", firmware_version=_FIRMWARE)
    return Will(topics.status(device_id), encode(word))


def opening_of(device_id: str, token: Secret | None) -> Opening:
    """What a session begins with."""
    subscriptions = (
        (topics.commands_filter(device_id), 1),
        (topics.receipts(device_id), 1),
        (topics.notice(device_id), 0),
    )
    return Opening(topics.user_name(device_id), token, subscriptions, status_of(device_id, online=False))


def _item(reading: Reading, name: str) -> str:
    """:class:`agent.wire.mqtt_messages.ReadingMessage` as JSON text."""
    text = f'{{"sensor_data":{reading.text}'
    if reading.recorded_ms is not None:
        text += f',"recorded_at":"{time_text(reading.recorded_ms)}"'
    return f'{text},"key":{json_name(name)[:-1]}-{reading.key}"}}'


def renamed(request: Request, suffix: str) -> Request:
    """The same readings with keys of their own: this at the end of each. What is no JSON any more stays as it is."""
    try:
        document = json.loads(request.body or b"")
    except ValueError:
        return request
    for reading in document if isinstance(document, list) else [document]:
        reading["key"] += suffix
    return request._replace(body=encode_json(document))


def result_key(report: Report) -> str:
    """The key of a result: stays equal over every repeat."""
    key = f"result-{report.status}-{report.command_id}"
    return key if len(key) <= KEY_CHARACTERS else f"result-{hashlib.sha256(key.encode()).hexdigest()}"


def read_command(command_id: str, payload: bytes, device_id: str) -> Command:
    """A message on the commands' topic.

    Raises:
        InvalidMessage: no command, another device's, or with another id than its topic.
    """
    record = CommandRecord.receive(parse_object(payload, max_bytes=MAX_PACKET_BYTES))
    if record.id is None:
        record = record.model_copy(update={"id": command_id})
    elif record.id != command_id:
        raise InvalidMessage(f"it says that its id is {record.id[:80]!r}, and its topic says otherwise")
    return record.to_command(device_id)
