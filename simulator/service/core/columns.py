"""Typed columns of a product's table: what a value must be, how it is kept, and how a filter finds it. No storage here.

| type | takes | is kept as |
|---|---|---|
| string, boolean, integer, number | that JSON type; an integer has no fraction, a number is finite | it came |
| datetime | RFC 3339 text or epoch milliseconds | RFC 3339 in UTC with milliseconds |
| json | any JSON value | it came |
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.errors import InvalidMessage
from agent.wire.base import JsonObject
from agent.wire.limits import INT_MAX, INT_MIN
from agent.wire.times import parse_time, to_rfc3339
from simulator.wire.database import ColumnType, NewColumn

Fault = tuple[str, str]

_JSON_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_LITERALS: Final = frozenset({"true", "false", "null"})


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table.

    Attributes:
        required: a record must have it, and not as null.
        default: what a record gets that leaves the column out; None for nothing.
    """

    name: str
    type: ColumnType
    required: bool
    default: Any

    def show(self) -> JsonObject:
        """The column as the service answers and stores it."""
        return {"name": self.name, "type": self.type, "required": self.required, "default": self.default}


COMMAND_RESULTS: Final = (
    TableColumn("command_id", "string", required=True, default=None),
    TableColumn("status", "string", required=True, default=None),
    TableColumn("result", "json", required=False, default=None),
    TableColumn("error", "string", required=False, default=None),
    TableColumn("started_at", "datetime", required=False, default=None),
    TableColumn("finished_at", "datetime", required=False, default=None),
)
"""The table that every product has: where devices put results on a service without the extension for them."""


def check_columns(given: Sequence[NewColumn]) -> tuple[tuple[TableColumn, ...], list[Fault]]:
    """The columns of a new table, and what is wrong with them: a name that occurs twice, a default of another type."""
    faults: list[Fault] = []
    seen: set[str] = set()
    columns = []
    for index, column in enumerate(given):
        if column.name in seen:
            faults.append((f"columns.{index}.name", "occurs twice in this table"))
        seen.add(column.name)
        default = column.default
        if default is not None:
            try:
                default = keep(column.type, default)
            except InvalidMessage as exc:
                faults.append((f"columns.{index}.default", str(exc)))
        columns.append(TableColumn(column.name, column.type, column.required, default))
    return tuple(columns), faults


def check_payload(columns: Sequence[TableColumn], payload: Mapping[str, Any]) -> tuple[JsonObject, list[Fault]]:
    """A record's content as it is kept, defaults filled in, and what is wrong with it."""
    faults: list[Fault] = []
    kept: JsonObject = {}
    for column in columns:
        field = f"data_payload.{column.name}"
        value = payload.get(column.name)
        if column.name not in payload and column.default is not None:
            kept[column.name] = column.default
        elif value is None:
            if column.required:
                faults.append((field, "is required"))
            elif column.name in payload:
                kept[column.name] = None
        else:
            try:
                kept[column.name] = keep(column.type, value)
            except InvalidMessage as exc:
                faults.append((field, str(exc)))
    known = {column.name for column in columns}
    unknown = [name for name in payload if name not in known]
    faults += [(f"data_payload.{name}", f"is no column of this table; it has: {_some(known)}") for name in unknown]
    return kept, faults


def keep(kind: ColumnType, value: Any) -> Any:
    """A value that is not null, as a column of this type keeps it.

    Raises:
        InvalidMessage: it is of another type.
    """
    if kind == "datetime":
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise InvalidMessage("must be a time: RFC 3339 text or epoch milliseconds")
        return to_rfc3339(parse_time(value))
    if not _FITS[kind](value):
        raise InvalidMessage(_MUST_BE[kind])
    return value


_FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "json": lambda _value: True,
}
_MUST_BE: Final = {
    "string": "must be a string",
    "number": "must be a number",
    "integer": "must be an integer",
    "boolean": "must be true or false",
    "json": "must be JSON",
}


def value_hashes(payload: Mapping[str, Any]) -> set[bytes]:
    """What a record can be found by: one hash for each column but objects and arrays."""
    return {_hash(column, text) for column, value in payload.items() if (text := _canonical_value(value)) is not None}


def filter_hashes(column: str, text: str) -> set[bytes]:
    """What ``data.<column>=<text>`` looks for: the text as a string, and as whatever else it is the text of."""
    meanings = {f"s{text}"}
    if text in _LITERALS:
        meanings.add(f"l{text}")
    if _JSON_NUMBER.fullmatch(text):
        number = int(text) if text.lstrip("-").isdigit() else float(text)
        meanings.add(f"n{_canonical_number(number)}")
    with contextlib.suppress(InvalidMessage):
        meanings.add(f"s{to_rfc3339(parse_time(text))}")
    return {_hash(column, meaning) for meaning in meanings}


def _canonical_value(value: Any) -> str | None:
    if isinstance(value, str):
        return f"s{value}"
    if value is None or isinstance(value, bool):
        return f"l{_LITERAL_OF[value]}"
    if isinstance(value, (int, float)):
        return f"n{_canonical_number(value)}"
    return None


_LITERAL_OF: Final = {None: "null", True: "true", False: "false"}


def _canonical_number(number: float) -> str:
    if isinstance(number, float) and number.is_integer() and INT_MIN <= number <= INT_MAX:
        number = int(number)
    return repr(number)


def _hash(column: str, text: str) -> bytes:
    return hashlib.sha256(f"{column}\0{text}".encode()).digest()


def _some(names: set[str]) -> str:
    shown = sorted(names)[:10]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) else "")
