"""Commands: sending, listing, results (specification, "Command"; states are docs/protocol.md's)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AliasChoices, BeforeValidator, Field, PrivateAttr

from agent.errors import InvalidMessage
from agent.wire.base import JsonObject, LooseTime, Received, Sent, Text, WireTime
from agent.wire.dialect import AnswerReading
from agent.wire.json_text import encode_json, find_fault, parse_json
from agent.wire.limits import ANSWER_BYTES

ResultStatus = Literal["in_progress", "succeeded", "failed", "rejected"]

ID_NAMES: Final = ("id", "command_id", "commandId", "_id", "uuid")
"""Where a command's id is looked for, in this order."""
_CREATED: Final = ("created_at", "createdAt")
_NO_EXPIRY: Final = "unreadable_expires_at: the command's expires_at is no time that this device can read"
_EXPIRES: Final = ("expires_at", "expiresAt")


class CommandStatus(StrEnum):
    """The life cycle: queued -> delivered -> in_progress -> succeeded, failed or rejected.

    ``expired``: never delivered in time. ``timed_out``: no result in time; a late result is still taken.
    """

    QUEUED = "queued"
    DELIVERED = "delivered"
    IN_PROGRESS = "in_progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    TIMED_OUT = "timed_out"
    CANCELED = "canceled"


OPEN_STATES: Final = frozenset({CommandStatus.QUEUED, CommandStatus.DELIVERED, CommandStatus.IN_PROGRESS})
FINAL_STATES: Final = frozenset(CommandStatus) - OPEN_STATES
RESULT_STATES: Final = frozenset({CommandStatus.SUCCEEDED, CommandStatus.FAILED, CommandStatus.REJECTED})
OPEN: Final = "open"
"""As the ``status`` filter of a listing: every state of :data:`OPEN_STATES`."""


class CommandResult(Sent):
    """``POST /devices/{device_id}/commands/{command_id}/result`` (extension ``command-results``)."""

    status: ResultStatus
    result: JsonObject | None = None
    error: str | None = None


class CommandResultPayload(Sent):
    """``data_payload`` of a result in the table of a plain server (:data:`agent.wire.dialect.RESULTS_TABLE`).

    Every member is sent.
    """

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
        raise ValueError("must be a JSON object")
    fault = find_fault(value)
    if fault is not None:
        raise ValueError(fault)
    return value


class CommandRecord(Received):
    """A command as the service lists it. Only ``command_payload`` must be there.

    ``command_payload`` may be the JSON text of an object instead of the object. A time that cannot be read is None, and
    its name is in :attr:`unreadable_times`. A command whose ``expires_at`` cannot be read must not be started, since it
    may have expired; one whose ``created_at`` cannot be read counts as old wherever its age matters, as if the time
    were missing.

    Attributes:
        id: the service's id; None when it gives none, see :meth:`stable_id`.
        status: a :class:`CommandStatus` on our service, any text elsewhere, None when the
            service sends none.
        listed_at: from a gateway: when it first saw the command on the service's list.
    """

    command_payload: Annotated[dict[str, Any], BeforeValidator(_read_payload)] = Field(
        validation_alias=AliasChoices("command_payload", "commandPayload", "payload")
    )
    id: str | None = Field(default=None, validation_alias=AliasChoices(*ID_NAMES))
    device_id: str | None = Field(default=None, validation_alias=AliasChoices("device_id", "deviceId"))
    status: str | None = None
    status_reason: str | None = None
    result: JsonObject | None = None
    error: str | None = None
    created_at: LooseTime = Field(default=None, validation_alias=AliasChoices(*_CREATED))
    delivered_at: LooseTime = None
    completed_at: LooseTime = None
    expires_at: LooseTime = Field(default=None, validation_alias=AliasChoices(*_EXPIRES))
    listed_at: LooseTime = None
    _unreadable_times: tuple[str, ...] = PrivateAttr(default=())
    _created: object = PrivateAttr(default=None)

    @property
    def unreadable_times(self) -> tuple[str, ...]:
        """Which of ``created_at`` and ``expires_at`` the service sent in a form that could not be read."""
        return self._unreadable_times

    @property
    def fault(self) -> str | None:
        """Why it must not run although it could be read, as ``code: sentence``; None when nothing is wrong."""
        return _NO_EXPIRY if "expires_at" in self._unreadable_times else None

    @classmethod
    def receive(cls, value: object, reading: AnswerReading | None = None) -> Self:
        """Take a JSON value out of an answer.

        See :meth:`Received.receive`; the id is taken from where ``reading`` says.
        """
        if not isinstance(value, Mapping):
            return super().receive(value, reading)
        found = _find_id(value, None if reading is None else reading.command_id_path)
        rest = {name: item for name, item in value.items() if name not in ID_NAMES}
        record = super().receive({**rest, "id": found}, reading)
        created = _first(value, _CREATED)
        times = (("created_at", created, record.created_at), ("expires_at", _first(value, _EXPIRES), record.expires_at))
        unreadable = tuple(name for name, sent, read in times if sent is not None and read is None)
        # What is private is set on one of this class, which is frozen for others.
        record._unreadable_times = unreadable
        record._created = created
        return record

    def stable_id(self) -> str:
        """The id to remember this command by: the service's, or the first one that :meth:`with_derived_id` makes."""
        return self.id or self._derive(0)

    def with_derived_id(self, occurrence: int = 0) -> Self:
        """The record with an id, derived where the service gave none: the last resort.

        The same content, time and ``occurrence`` make the same id at every poll. Limits: where a list drops the first
        of several equal commands, the last of their ids becomes free, and an equal command that comes later gets it
        again; it then counts as known and is not run. So without ids and times a command that equals an earlier one
        runs only while both are listed.

        Args:
            occurrence: which one of the equal ones in a list this is, from 0.
        """
        return self if self.id else self.model_copy(update={"id": self._derive(occurrence)})

    def _derive(self, occurrence: int) -> str:
        created = self._created if self._created is not None else self.created_at
        content = json.dumps([self.device_id, created, self.command_payload, occurrence], sort_keys=True)
        return f"derived-{hashlib.sha256(content.encode()).hexdigest()[:32]}"

    def payload_size_bytes(self) -> int:
        """Length of the payload as compact JSON text."""
        return len(encode_json(self.command_payload))


def _find_id(value: Mapping[str, Any], path: tuple[str, ...] | None) -> str | int | None:
    """The id in a listed command; None when there is none that is text or a whole number."""
    candidates: list[object] = [value.get(name) for name in ID_NAMES]
    if path is not None:
        inner: object = value
        for name in path:
            inner = inner.get(name) if isinstance(inner, Mapping) else None
        candidates = [inner]
    for found in candidates:
        if isinstance(found, str | int) and not isinstance(found, bool) and found != "":
            return found
    return None


def _first(value: Mapping[str, Any], names: Iterable[str]) -> object:
    return next((value[name] for name in names if value.get(name) is not None), None)
