"""What requests and answers carry: their base classes, commands, devices, readings, records of a product's database.

The specification's "Command", "Device", "Sensor data" and "Database"; states of commands, and what our service adds,
are in docs/protocol.md.

``Sent`` is for request bodies: the client builds them, the service checks incoming bodies with them. Strict: no
coercion, no unknown members. ``Received`` is for answers: whatever the specification and the protocol leave open may be
missing, unknown members are ignored, ``null`` counts as missing, ids may be numbers.

Both build their validators on first use (``defer_build``): importing all of them costs little.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    Strict,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails

from agent.core.values import Command
from agent.errors import InvalidMessage
from agent.wire.encoding import encode_json, find_fault, parse_json, parse_received_time, parse_time
from agent.wire.limits import ANSWER_BYTES, INT_MAX, INT_MIN
from agent.wire.secret import Secret
from agent.wire.server import Dialect

# --- the base classes, and the types of fields that they share --------------------------------------------------------

JsonObject = dict[str, Any]
"""An opaque JSON object: ``command_payload``, ``result``, ``metadata``."""

Item = TypeVar("Item")


def _check_number(value: object) -> int | float:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("must be a finite number")
    elif isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("must be a number")
    elif not INT_MIN <= value <= INT_MAX:
        raise ValueError("must fit into 64 bits")
    return value


def _check_time(value: str | int) -> str | int:
    try:
        parse_time(value)
    except InvalidMessage as exc:
        raise ValueError(str(exc)) from None
    return value


def _time_or_none(value: object, info: ValidationInfo) -> float | None:
    zone = info.context.zone if isinstance(info.context, Dialect) else UTC
    try:
        return parse_received_time(value, zone)
    except InvalidMessage:
        return None


def _wrap_secret(value: object) -> object:
    return Secret(value) if isinstance(value, str) else value


# The years 1 to 9999, as :mod:`agent.wire.encoding` takes them.
TIME_RANGE_MS: Final = {"minimum": -62_135_596_800_000, "maximum": 253_402_300_799_999}

Text = Annotated[str, StringConstraints(min_length=1)]
"""A string that says something: an id, a name."""

Number = Annotated[int | float, PlainValidator(_check_number), WithJsonSchema({"type": "number"})]
"""A finite JSON number within 64 bits, kept as it came: 21 stays 21. No booleans, no strings."""

WireTime = Annotated[
    str | int,
    AfterValidator(_check_time),
    WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "integer", **TIME_RANGE_MS}]}),
]
"""A time in a request: RFC 3339 text or epoch milliseconds, kept as it came (see :mod:`agent.wire.encoding`)."""

Items = Annotated[tuple[Item, ...], Strict(strict=False)]
"""A JSON array as a tuple, in a strict model too; the items stay strict."""

LooseTime = Annotated[
    float | None,
    BeforeValidator(_time_or_none),
    WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}),
]
"""A time in an answer that nothing is decided by: None when it cannot be read."""


SentSecret = Annotated[
    InstanceOf[Secret],
    BeforeValidator(_wrap_secret),
    PlainSerializer(lambda value: None if value is None else value.reveal()),
    WithJsonSchema({"type": "string", "format": "password"}),
]
"""A secret in a request: text or :class:`Secret` in, text on the wire, never in a ``repr``."""

ReceivedSecret = Annotated[InstanceOf[Secret], BeforeValidator(_wrap_secret)]
"""A secret in an answer: stays a :class:`Secret`."""


class Sent(BaseModel):
    """The base of request bodies: frozen, strict, unknown members refused."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        defer_build=True,
        hide_input_in_errors=True,
    )

    def to_wire(self) -> JsonObject:
        """The body to send: members that are None are left out; opaque objects stay as they are."""
        return self.model_dump(exclude_none=True)


class Received(BaseModel):
    """The base of answers: frozen, unknown members ignored, ``null`` counts as missing."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        defer_build=True,
        hide_input_in_errors=True,
        coerce_numbers_to_str=True,
        populate_by_name=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_missing(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            return {name: value for name, value in data.items() if value is not None}
        return data

    @classmethod
    def receive(cls, value: object, dialect: Dialect | None = None) -> Self:
        """Take a JSON value out of an answer.

        Args:
            value: the JSON value.
            dialect: how this server's answers are read; None is the usual way.

        Raises:
            InvalidMessage: it does not have this shape; the text names each faulty member, never its content.
        """
        try:
            return cls.model_validate(value, context=dialect)
        except ValidationError as exc:
            raise InvalidMessage(describe_faults(exc)) from None


def describe_issue(fault: ErrorDetails) -> str:
    """What is wrong, without the member's name: ``must be a number``."""
    return _IN_JSON.get(fault["type"]) or fault["msg"].removeprefix("Value error, ").replace("\n", " ")


def list_faults(
    error: ValidationError, describe: Callable[[ErrorDetails], str] = describe_issue
) -> list[tuple[str, str]]:
    """(field, issue) for each fault: ``("sensor_data.t", "must be a number")``. The input itself is never shown.

    Args:
        error: of a model.
        describe: the issue of one fault.
    """
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    places = [fault["loc"] for fault in faults]
    return [
        (
            ".".join(str(part) for part in fault["loc"]) or "body",
            describe(fault),
        )
        for fault in faults
        # An array is also "too short" when its items are at fault, which is all that there is to say.
        if fault["type"] != "too_short" or not any(each[:-1] == fault["loc"] for each in places)
    ]


_IN_JSON: Final[Mapping[str, str]] = {
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "list_type": "must be an array",
    "tuple_type": "must be an array",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
}
"""pydantic's error types that speak of Python -> the words for JSON."""


def describe_faults(error: ValidationError | InvalidMessage) -> str:
    """All faults on one line: ``sensor_data.t: must be a number; device_id: Field required``."""
    if isinstance(error, InvalidMessage):
        return str(error)
    return "; ".join(f"{field}: {issue}" for field, issue in list_faults(error))


# --- commands ---------------------------------------------------------------------------------------------------------

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
    """``data_payload`` of a result in the table of a plain server (:data:`agent.wire.server.RESULTS_TABLE`).

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

    @classmethod
    def receive(cls, value: object, dialect: Dialect | None = None) -> Self:
        """Take a JSON value out of an answer.

        See :meth:`Received.receive`; the id is taken from where ``dialect`` says.
        """
        if not isinstance(value, Mapping):
            return super().receive(value, dialect)
        found = _find_id(value, None if dialect is None else dialect.command_id_path)
        rest = {name: item for name, item in value.items() if name not in ID_NAMES}
        record = super().receive({**rest, "id": found}, dialect)
        created = _first(value, _CREATED)
        times = (("created_at", created, record.created_at), ("expires_at", _first(value, _EXPIRES), record.expires_at))
        unreadable = tuple(name for name, sent, read in times if sent is not None and read is None)
        # What is private is set on one of this class, which is frozen for others.
        record._unreadable_times = unreadable
        record._created = created
        return record

    def stable_id(self, occurrence: int = 0) -> str:
        """The id to remember this command by: the service's, or where it gave none one derived from the content.

        The same content, time and ``occurrence`` make the same id at every poll. Limits: where a list drops the first
        of several equal commands, the last of their ids becomes free, and an equal command that comes later gets it
        again; it then counts as known and is not run. So without ids and times a command that equals an earlier one
        runs only while both are listed.

        Args:
            occurrence: which one of the equal ones in a list this is, from 0.
        """
        if self.id:
            return self.id
        created = self._created if self._created is not None else self.created_at
        content = json.dumps([self.device_id, created, self.command_payload, occurrence], sort_keys=True)
        return f"derived-{hashlib.sha256(content.encode()).hexdigest()[:32]}"

    def to_command(self, device_id: str) -> Command:
        """The record as the core decides on it.

        Args:
            device_id: whose list or topic it came from.

        Raises:
            InvalidMessage: it is another device's, or its payload cannot go over the wire.
        """
        if self.device_id not in {None, device_id}:
            text = f"a command for device {self.device_id!r:.80} is in this device's list: it is skipped"
            raise InvalidMessage(text)
        return Command(
            id=self.stable_id(),
            payload=self.command_payload,
            created_at=self.created_at,
            expires_at=self.expires_at,
            status=self.status,
            size_bytes=len(encode_json(self.command_payload)),
            fault=_NO_EXPIRY if "expires_at" in self._unreadable_times else None,
            listed_at=self.listed_at,
        )


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


# --- devices, readings, records ---------------------------------------------------------------------------------------


class DeviceStatus(StrEnum):
    """Presence: online means seen within 120 s."""

    ONLINE = "online"
    OFFLINE = "offline"
    NEVER_SEEN = "never_seen"


class Device(Received):
    """A device record. ``status`` is :class:`DeviceStatus` on our service and any text elsewhere."""

    device_id: str = Field(default="", validation_alias=AliasChoices("device_id", "deviceId", "id"))
    product_id: str | None = Field(default=None, validation_alias=AliasChoices("product_id", "productId"))
    user_id: str | None = Field(default=None, validation_alias=AliasChoices("user_id", "userId"))
    device_name: str | None = Field(default=None, validation_alias=AliasChoices("device_name", "deviceName", "name"))
    device_identifier: str | None = Field(
        default=None, validation_alias=AliasChoices("device_identifier", "deviceIdentifier")
    )
    status: str | None = None
    last_seen_at: LooseTime = None
    firmware_version: str | None = None
    metadata: JsonObject | None = None
    created_at: LooseTime = None
    updated_at: LooseTime = None


class PostSensorData(Sent):
    """``POST /sensor-data``.

    Attributes:
        sensor_data: named readings, finite numbers, at least one.
        recorded_at: when they were read; the service takes the time of arrival when it is missing.
    """

    device_id: Text
    sensor_data: Annotated[dict[Text, Number], Field(min_length=1)]
    recorded_at: WireTime | None = None


class KeyedReading(PostSensorData):
    """A reading in an array (extension ``batch-sensor-data``).

    Attributes:
        idempotency_key: the same at each repeat (extension ``reading-keys``): it is stored once in 24 hours.
    """

    idempotency_key: Annotated[str, Field(pattern=r"^[!-~]{1,255}$")] | None = None


class SensorDataRecord(Received):
    """One stored reading. Values are numbers on our service; others may hold anything."""

    sensor_data: dict[str, Any] = Field(default_factory=dict)
    id: str | None = None
    device_id: str | None = Field(default=None, validation_alias=AliasChoices("device_id", "deviceId"))
    recorded_at: LooseTime = Field(default=None, validation_alias=AliasChoices("recorded_at", "timestamp"))
    received_at: LooseTime = Field(default=None, validation_alias=AliasChoices("received_at", "created_at"))


class BatchError(Received):
    """Why one reading of a batch was refused; ``index`` is its place in the array, from 0."""

    index: int
    error: str = ""
    message: str = ""


class BatchAnswer(Received):
    """The answer to an array of readings (extension ``batch-sensor-data``)."""

    accepted: int
    errors: tuple[BatchError, ...] = ()


class NewRuntimeRecord(Sent):
    """``POST /database/runtime-data``."""

    product_id: Text
    device_id: Text
    table_name: Text
    data_payload: JsonObject


class RuntimeRecord(Received):
    """A record of a product's database."""

    id: str = ""
    product_id: str | None = Field(default=None, validation_alias=AliasChoices("product_id", "productId"))
    device_id: str | None = Field(default=None, validation_alias=AliasChoices("device_id", "deviceId"))
    table_name: str | None = None
    data_payload: JsonObject = Field(default_factory=dict)
    created_at: LooseTime = None
    updated_at: LooseTime = None
