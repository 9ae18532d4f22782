"""The lines of a snapshot: a header, one line for each row of each table, a checksum at the end.

::

    {"format":"device-service-snapshot","version":1,"schema":"0007","made_at":"...","clock":{...},"rows":{"devices":2,...}}
    {"table":"manufacturers","row":{"seq":1,"id":"...","name":"default",...}}
    ...
    {"sha256":"...","lines":1234}

Tables come in one order, rows in that of their keys; binary values are base64 (RFC 4648, section 4). The checksum is
SHA-256 over all bytes before its own line: ``head -n -1 FILE | sha256sum``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json, to_json
from sqlalchemy import Boolean, Column, Integer, LargeBinary, Table

from agent.errors import InvalidMessage
from agent.wire.times import parse_time
from simulator.service.clock import LATEST_MS, ClockMode, ClockState
from simulator.service.errors import Invalid
from simulator.service.storage.tables import METADATA
from simulator.service.times import show_time

FORMAT: Final = "device-service-snapshot"
VERSION: Final = 1
LINE_BYTES: Final = 16 * 1024 * 1024
"""The longest line: a row has 256 KiB of a request, which escaping makes a few times longer at most."""
TABLES: Final[tuple[Table, ...]] = tuple(METADATA.tables.values())
"""In the order in which they come."""
_INT64: Final = 2**63
_RATE_MAX: Final = 1_000_000.0


def unfit(field: str, issue: str) -> Invalid:
    """The error for a file that cannot be loaded."""
    return Invalid("invalid_snapshot", f"The snapshot cannot be loaded: {field} {issue}.", details=[(field, issue)])


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a snapshot's file.

    Attributes:
        schema: the schema revision of the tables.
        made_ms: when it was made, by the machine's clock, milliseconds since the epoch.
        clock: the service's clock.
        rows: table -> its rows.
    """

    schema: str
    made_ms: int
    clock: ClockState
    rows: Mapping[str, int]

    def line(self) -> bytes:
        """The line, with its end."""
        document = {"format": FORMAT, "version": VERSION, "schema": self.schema, **self.shown()}
        return to_json(document) + b"\n"

    def shown(self) -> dict[str, Any]:
        """What people look at: when it was made, the clock, and the rows."""
        return {
            "made_at": show_time(self.made_ms),
            "clock": {
                "mode": self.clock.mode.value,
                "time": show_time(self.clock.now_ms),
                "rate": self.clock.rate,
            },
            "rows": dict(self.rows),
        }


def read_header(line: bytes, schema: str) -> Header:
    """The header of a file.

    Args:
        line: the first one.
        schema: the revision that this release works with.

    Raises:
        Invalid: ``invalid_snapshot``: it is none, or one that this release cannot load.
    """
    document = read_object(line)
    if document is None or document.get("format") != FORMAT:
        raise unfit("format", f"is not {FORMAT!r}: the file is no snapshot of this service")
    version, found = document.get("version"), document.get("schema")
    if not isinstance(version, int) or version < VERSION:
        raise unfit("version", f"must be {VERSION}")
    if version > VERSION:
        raise unfit("version", f"is {version}: this release reads {VERSION}, use a newer one")
    if not isinstance(found, str):
        raise unfit("schema", f"must be a text such as {schema!r}")
    if found != schema:
        which = "of a newer release: use that one" if found > schema else "of an older release: save it there anew"
        raise unfit("schema", f"is {found[:20]!r}, {which}; this one has {schema!r}")
    rows = document.get("rows")
    known = {table.name for table in TABLES}
    if not isinstance(rows, dict) or set(rows) != known or not all(_is_count(count) for count in rows.values()):
        raise unfit("rows", "must give the number of rows of each table")
    return Header(schema, _read_time(document, "made_at", "made_at"), _read_clock(document.get("clock")), rows)


def _read_clock(value: Any) -> ClockState:
    if not isinstance(value, dict) or value.get("mode") not in list(ClockMode):
        raise unfit("clock.mode", f"must be one of: {', '.join(ClockMode)}")
    rate = value.get("rate")
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= _RATE_MAX:
        raise unfit("clock.rate", f"must be a number from 0 to {_RATE_MAX:g}")
    return ClockState(ClockMode(value["mode"]), _read_time(value, "time", "clock.time"), float(rate))


def _read_time(members: Mapping[str, Any], name: str, field: str) -> int:
    try:
        at_ms = round(parse_time(members.get(name, "")) * 1000)
    except (InvalidMessage, TypeError):
        at_ms = -1
    if not 0 <= at_ms <= LATEST_MS:
        raise unfit(field, "must be a time (RFC 3339)")
    return at_ms


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _INT64


def read_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None when it is none."""
    try:
        value = from_json(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class Rows:
    """How the rows of one table are written and read."""

    def __init__(self, table: Table) -> None:
        self.table = table
        # Plain texts: SQLAlchemy's own kind of them takes ten times as long to encode.
        self._names = [str(column.name) for column in table.columns]
        self._binary = [place for place, column in enumerate(table.columns) if isinstance(column.type, LargeBinary)]
        self._begin = b'{"table":%b,"row":' % to_json(table.name)
        self._columns = {str(column.name): (_reader(column), column.nullable) for column in table.columns}

    def line(self, row: Sequence[Any]) -> bytes:
        """The line of a row, with its end."""
        values = dict(zip(self._names, row, strict=True))
        for place in self._binary:
            value = row[place]
            values[self._names[place]] = None if value is None else base64.b64encode(value).decode("ascii")
        return b"%b%b}\n" % (self._begin, to_json(values))

    def read(self, values: Any, place: str) -> dict[str, Any]:
        """A row as it is stored.

        Raises:
            Invalid: ``invalid_snapshot``: it has not this table's columns, or a value that a column cannot hold.
        """
        if not isinstance(values, dict) or values.keys() != self._columns.keys():
            raise unfit(place, f"has not the columns of {self.table.name}")
        row: dict[str, Any] = {}
        for name, value in values.items():
            read, nullable = self._columns[name]
            if value is None and nullable:
                row[name] = None
                continue
            try:
                row[name] = read(value)
            except (TypeError, ValueError):
                raise unfit(f"{place} {self.table.name}.{name}", "has a value that the column cannot hold") from None
        return row


def _reader(column: Column[Any]) -> Callable[[Any], Any]:
    if isinstance(column.type, LargeBinary):
        return _read_binary
    if isinstance(column.type, Boolean):
        return _read_boolean
    return _read_integer if isinstance(column.type, Integer) else _read_text


def _read_binary(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError from None


def _read_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _read_integer(value: Any) -> int:
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise TypeError
    return value


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:  # JSON texts of the service have none
        raise TypeError
    return value
