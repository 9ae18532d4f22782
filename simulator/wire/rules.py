"""Rules (specification, "Other groups": ``GET /rules``; the rest is docs/protocol.md's)."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from agent.wire.base import Items, JsonObject, LooseTime, Number, Received, Sent, Text

FOR_SECONDS_MAX: Final = 366 * 86_400
"""How long a condition may have to hold at most."""
ACTIONS_MAX: Final = 16
"""Actions of one rule."""

Comparison = Literal[">", ">=", "<", "<=", "==", "!="]


class NewTrigger(Sent):
    """When a rule fires: a reading compared with a value, true for ``for_seconds`` without a break."""

    reading: Text
    op: Comparison
    value: Number
    for_seconds: Annotated[int, Field(ge=0, le=FOR_SECONDS_MAX)] = 0


class CommandAction(Sent):
    """Send a command: to the device that fired the rule, or to ``device_id``."""

    type: Literal["command"] = "command"
    command_payload: JsonObject
    device_id: Text | None = None


class RecordAction(Sent):
    """Write a runtime record into ``table_name`` for the device that fired the rule."""

    type: Literal["record"] = "record"
    table_name: Text
    data_payload: JsonObject


NewAction = Annotated[CommandAction | RecordAction, Field(discriminator="type")]


class NewRule(Sent):
    """``POST /rules``."""

    product_id: Text
    name: Text
    enabled: bool = True
    trigger: NewTrigger
    actions: Annotated[Items[NewAction], Field(min_length=1, max_length=ACTIONS_MAX)]


class RuleChange(Sent):
    """``PUT /rules/{id}``: only the fields to change, at least one."""

    name: Text | None = None
    enabled: bool | None = None
    trigger: NewTrigger | None = None
    actions: Annotated[Items[NewAction], Field(min_length=1, max_length=ACTIONS_MAX)] | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.to_wire():
            raise ValueError(f"give at least one field to change: {', '.join(type(self).model_fields)}")
        return self


class Trigger(Received):
    """When a rule fires."""

    reading: str = ""
    op: str = ""
    value: float | None = None
    for_seconds: float = 0


class Rule(Received):
    """A rule. ``actions`` stay opaque: a service may know more kinds than we do."""

    id: str = ""
    product_id: str | None = None
    name: str = ""
    enabled: bool = True
    trigger: Trigger = Field(default_factory=Trigger)
    actions: tuple[JsonObject, ...] = ()
    last_fired_at: LooseTime = None
    created_at: LooseTime = None
    updated_at: LooseTime = None
