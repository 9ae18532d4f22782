"""How one server differs from others: by what it announces, and by what the configuration says of it.

What the specification states is required. What it leaves open is observed: status codes decide, bodies inform. What
goes beyond it (query parameters, body members, headers, endpoints) is used only where the server announces it in
``GET /.well-known/device-service``, or where the configuration says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo
from enum import StrEnum
from typing import Final

RESULTS_TABLE: Final = "command_results"
"""The runtime-data table that takes results where there is no endpoint for them, unless the configuration differs."""


class ResultPlace(StrEnum):
    """Where the result of a command goes."""

    ENDPOINT = "endpoint"
    """``POST /devices/{deviceId}/commands/{commandId}/result``, extension ``command-results``."""
    TABLE = "table"
    """A runtime-data record (specification, "Database")."""
    NONE = "none"
    """This server has no place for results: they stay on the device."""


class CommandLists(StrEnum):
    """What ``GET /devices/{deviceId}/commands`` lists."""

    OPEN = "open"
    """Open commands alone: one that is missing from the list has ended."""
    EVERYTHING = "everything"
    """All commands for ever, or for long: that one is listed says nothing about whether it is open."""
    ONCE = "once"
    """Each command on one answer and never again: one that is missing may still be to do."""


@dataclass(frozen=True, slots=True)
class AnswerReading:
    """How answers are read where servers differ.

    Attributes:
        command_id_path: members that lead to a command's id, such as ``("meta", "uuid")``; None takes the usual names.
        zone: of times that name none.
    """

    command_id_path: tuple[str, ...] | None = None
    zone: tzinfo = UTC


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the configuration says of the server (section ``service.dialect``). None is ``auto``: look and see.

    Attributes:
        extensions: taken as announced, and the server is not asked.
        reading: how answers are read.
        recorded_at_reading: a name inside ``sensor_data`` that carries the time of reading, epoch seconds, where the
            server has no ``recorded_at``; None sends no time there.
        results: where results go.
        results_table: the table of :attr:`ResultPlace.TABLE`.
        command_lists: what the list of commands holds.
    """

    extensions: frozenset[str] | None = None
    reading: AnswerReading = AnswerReading()
    recorded_at_reading: str | None = None
    results: ResultPlace | None = None
    results_table: str = RESULTS_TABLE
    command_lists: CommandLists | None = None
