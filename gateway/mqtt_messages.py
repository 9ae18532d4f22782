"""What devices publish, read by the gateway: a bad reading hides no good one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from agent.errors import InvalidMessage
from agent.wire.base import describe_faults
from agent.wire.json_text import parse_json
from agent.wire.limits import BATCH_MAX, BODY_BYTES
from agent.wire.topics import KEY_CHARACTERS, ReadingMessage, Refusal, ResultMessage, StatusMessage

_STATUS_WORDS: Final = {b"online", b"offline"}


@dataclass(frozen=True, slots=True)
class ReadingBatch:
    """One ``sensor-data`` message, read item by item: a bad reading hides no good one."""

    readings: tuple[ReadingMessage, ...] = ()
    refused: tuple[Refusal, ...] = ()


def read_readings(raw: bytes, *, max_bytes: int = BODY_BYTES) -> ReadingBatch:
    """Take a ``sensor-data`` message apart; what is wrong with it stands in ``refused``, nothing is raised."""
    try:
        value = parse_json(raw, max_bytes=max_bytes)
    except InvalidMessage as error:
        return ReadingBatch(refused=(Refusal(error="invalid_json", message=str(error)),))
    items = value if isinstance(value, list) else [value]
    if len(items) > BATCH_MAX:
        text = f"{len(items)} readings in one message are more than {BATCH_MAX}: send several messages"
        return ReadingBatch(refused=(Refusal(error="too_many_readings", message=text),))
    readings: list[ReadingMessage] = []
    refused: list[Refusal] = []
    for item in items:
        try:
            readings.append(ReadingMessage.model_validate(item))
        except ValidationError as error:
            refused.append(Refusal(key=_key_of(item), error="validation_error", message=describe_faults(error)))
    return ReadingBatch(tuple(readings), tuple(refused))


def read_result(raw: bytes, *, max_bytes: int = BODY_BYTES) -> ResultMessage | Refusal:
    """Take a result; a :class:`Refusal` says what is wrong with it."""
    try:
        value = parse_json(raw, max_bytes=max_bytes)
    except InvalidMessage as error:
        return Refusal(error="invalid_json", message=str(error))
    try:
        return ResultMessage.model_validate(value)
    except ValidationError as error:
        return Refusal(key=_key_of(value), error="validation_error", message=describe_faults(error))


def read_status(raw: bytes) -> StatusMessage:
    """Parse a status message.

    Raises:
        InvalidMessage: neither one of the two words nor an object with ``status``.
    """
    if raw in _STATUS_WORDS:
        return StatusMessage.receive({"status": raw.decode()})
    return StatusMessage.receive(parse_json(raw))


def _key_of(item: Any) -> str | None:
    key = item.get("key") if isinstance(item, dict) else None
    return key if isinstance(key, str) and 0 < len(key) <= KEY_CHARACTERS else None
