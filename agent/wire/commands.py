"""Commands: sending, listing, results (specification, "Command"; states are docs/protocol.md's)."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field

from agent.errors import InvalidMessage
from agent.wire.base import JsonObject, LooseTime, Received, ReceivedTime, Sent, Text, WireTime
from agent.wire.command_list import FINAL_STATES, OPEN, OPEN_STATES, RESULT_STATES, CommandList, CommandStatus
from agent.wire.dialect import RESULTS_TABLE
from agent.wire.json_text import encode_json, find_fault, parse_json
from agent.wire.limits import ANSWER_BYTES, TTL_MAX_S

__all__ = [
    "FINAL_STATES",
    "OPEN",
    "OPEN_STATES",
    "RESULTS_TABLE",
    "RESULT_STATES",
    "CommandList",
    "CommandRecord",
    "CommandResult",
    "CommandResultPayload",
    "CommandStatus",
    "ResultStatus",
    "SendCommand",
]


ResultStatus = Literal["in_progress", "succeeded", "failed", "rejected"]


class SendCommand(Sent):
    """``POST /commands/send``.

    Attributes:
        ttl_seconds: how long the command waits for its device; the service's default is 3600.
    """

    device_id: Text
    command_payload: JsonObject
    ttl_seconds: Annotated[int, Field(ge=1, le=TTL_MAX_S)] | None = None


class CommandResult(Sent):
    """``POST /devices/{device_id}/commands/{command_id}/result`` (extension ``command-results``)."""

    status: ResultStatus
    result: JsonObject | None = None
    error: str | None = None


class CommandResultPayload(Sent):
    """``data_payload`` of a result on a plain server, in table :data:`RESULTS_TABLE`; every member is sent."""

    command_id: Text
    status: ResultStatus
    result: JsonObject | None = None
    error: str | None = None
    started_at: WireTime | None = None
    finished_at: WireTime | None = None

    def to_wire(self) -> JsonObject:
        """All members, None as ``null``: a table has all its columns."""
        return self.model_dump()


def _read_payload(value: object) -> dict[str, Any]:
    """An object, or JSON text that holds one: some servers keep the payload in a text column."""
    if isinstance(value, str):
        try:
            value = parse_json(value.encode(), max_bytes=ANSWER_BYTES)
        except (InvalidMessage, UnicodeEncodeError) as exc:
            raise ValueError(f"is text, but not the JSON text of an object: {exc}") from None
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")  # noqa: TRY004 - pydantic turns only a ValueError into a fault
    fault = find_fault(value)
    if fault is not None:
        raise ValueError(fault)
    return value


class CommandRecord(Received):
    """A command as the service lists it. Only ``command_payload`` must be there.

    ``command_payload`` may be the JSON text of an object instead of the object. ``created_at`` and ``expires_at`` must
    be readable when they are there: whether a command still may run hangs on them.

    Attributes:
        id: the service's id; None when it gives none, see :meth:`stable_id`.
        status: :class:`CommandStatus` on our service, any text elsewhere, None when the service tells none.
        listed_at: from a gateway: when it first saw the command on the service's list.
    """

    command_payload: Annotated[dict[str, Any], BeforeValidator(_read_payload)]
    id: str | None = Field(default=None, validation_alias=AliasChoices("id", "command_id", "commandId"))
    device_id: str | None = Field(default=None, validation_alias=AliasChoices("device_id", "deviceId"))
    status: str | None = None
    status_reason: str | None = None
    result: JsonObject | None = None
    error: str | None = None
    created_at: ReceivedTime | None = None
    delivered_at: LooseTime = None
    completed_at: LooseTime = None
    expires_at: ReceivedTime | None = None
    listed_at: LooseTime = None

    def stable_id(self) -> str:
        """The id to remember this command by: the service's, or one derived from its content and ``created_at``.

        Raises:
            InvalidMessage: neither an id nor ``created_at``: a repeat could not be told from a second command.
        """
        if self.id:
            return self.id
        if self.created_at is None:
            raise InvalidMessage(
                "a command has neither 'id' nor 'created_at', so a repeat cannot be told from a new command: "
                "it is skipped; let the service list ids"
            )
        content = encode_json([self.device_id, round(self.created_at * 1000), _sort(self.command_payload)])
        return f"derived-{hashlib.sha256(content).hexdigest()[:32]}"

    def payload_size_bytes(self) -> int:
        """Length of the payload as compact JSON text."""
        return len(encode_json(self.command_payload))


def _sort(value: Any) -> Any:
    """The same value with the names of objects in order, so that equal payloads make equal text."""
    if isinstance(value, dict):
        return {name: _sort(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_sort(item) for item in value]
    return value
