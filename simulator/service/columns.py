"""Typed columns of a product's table: what a value must be, and how it is kept.

| type | takes | is kept as |
|---|---|---|
| string, boolean, integer, number | that JSON type; an integer has no fraction, a number is finite | it came |
| datetime | RFC 3339 text or epoch milliseconds | RFC 3339 in UTC with milliseconds |
| json | any JSON value | it came |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from agent.errors import InvalidMessage
from agent.wire.encoding import parse_time, to_rfc3339
from agent.wire.models import JsonObject
from simulator.wire.models import ColumnType, NewColumn

Problem = tuple[str, str]
"""(field, issue)."""

COMMAND_RESULTS: Final = "command_results"
RESULT_COLUMNS: Final = (
    NewColumn(name="command_id", type="string", required=True),
    NewColumn(name="status", type="string", required=True),
    NewColumn(name="result", type="json"),
    NewColumn(name="error", type="string"),
    NewColumn(name="started_at", type="datetime"),
    NewColumn(name="finished_at", type="datetime"),
)
"""Of the table that every product has: where devices put results on a service without the extension for them."""

_TYPES: Final[Mapping[ColumnType, tuple[Callable[[Any], bool], str]]] = {
    "string": (lambda value: isinstance(value, str), "must be a string"),
    "number": (lambda value: isinstance(value, (int, float)) and not isinstance(value, bool), "must be a number"),
    "integer": (lambda value: isinstance(value, int) and not isinstance(value, bool), "must be an integer"),
    "boolean": (lambda value: isinstance(value, bool), "must be true or false"),
    "json": (lambda _value: True, "must be JSON"),
}
_COLUMNS_NAMED: Final = 10


def keep(kind: ColumnType, value: Any) -> Any:
    """A value that is not null, as a column of this type keeps it.

    Raises:
        InvalidMessage: it is of another type.
    """
    if kind == "datetime":
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise InvalidMessage("must be a time: RFC 3339 text or epoch milliseconds")
        return to_rfc3339(parse_time(value))
    fits, issue = _TYPES[kind]
    if not fits(value):
        raise InvalidMessage(issue)
    return value


def keep_columns(columns: Sequence[NewColumn]) -> tuple[list[NewColumn], list[Problem]]:
    """The columns of a new table as they are kept, and what is wrong: a name twice, a default of another type."""
    problems: list[Problem] = []
    kept: list[NewColumn] = []
    for index, column in enumerate(columns):
        if any(column.name == other.name for other in kept):
            problems.append((f"columns.{index}.name", "occurs twice in this table"))
        default = column.default
        try:
            default = None if default is None else keep(column.type, default)
        except InvalidMessage as exc:
            problems.append((f"columns.{index}.default", str(exc)))
        kept.append(column.model_copy(update={"default": default}))
    return kept, problems


def keep_payload(columns: Sequence[NewColumn], payload: Mapping[str, Any]) -> tuple[JsonObject, list[Problem]]:
    """A record's content as it is kept, defaults filled in, and what is wrong with it."""
    problems: list[Problem] = []
    kept: JsonObject = {}
    for column in columns:
        value = payload.get(column.name)
        if column.name not in payload and column.default is not None:
            kept[column.name] = column.default
        elif value is not None:
            try:
                kept[column.name] = keep(column.type, value)
            except InvalidMessage as exc:
                problems.append((f"data_payload.{column.name}", str(exc)))
        elif column.required:
            problems.append((f"data_payload.{column.name}", "is required"))
        elif column.name in payload:
            kept[column.name] = None
    known = sorted(column.name for column in columns)
    shown = ", ".join(known[:_COLUMNS_NAMED]) + (", ..." if len(known) > _COLUMNS_NAMED else "")
    unknown = [name for name in payload if name not in known]
    problems += [(f"data_payload.{name}", f"is no column of this table; it has: {shown}") for name in unknown]
    return kept, problems
