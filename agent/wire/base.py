"""The base classes of all messages, and the types of fields that they share.

``Sent`` is for request bodies: the client builds them, the service checks incoming bodies with them. Strict: no
coercion, no unknown members. ``Received`` is for answers: whatever the specification and the protocol leave open may be
missing, unknown members are ignored, ``null`` counts as missing, ids may be numbers.

Both build their validators on first use (``defer_build``): importing all of them costs little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    InstanceOf,
    PlainSerializer,
    PlainValidator,
    Strict,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails

from agent.errors import InvalidMessage
from agent.wire.limits import INT_MAX, INT_MIN
from agent.wire.secret import Secret
from agent.wire.server import Dialect
from agent.wire.times import parse_received_time, parse_time

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


# The years 1 to 9999, as :mod:`agent.wire.times` takes them.
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
"""A time in a request: RFC 3339 text or epoch milliseconds, kept as it came (see :mod:`agent.wire.times`)."""

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
