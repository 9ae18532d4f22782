"""The section ``service.dialect``: what is known of the server beforehand. Everything is ``auto`` by default."""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Annotated, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator

from agent.config.section import Section
from agent.wire import extensions
from agent.wire.dialect import RESULTS_TABLE, AnswerReading, CommandLists, Dialect, ResultPlace

AUTO: Final = "auto"
_OFFSET: Final = re.compile(r"([+-])(\d\d):?(\d\d)", re.ASCII)


class DialectConfig(Section):
    """How this server speaks where the specification leaves it open; with ``auto`` the agent finds out by itself.

    Attributes:
        extensions: additions to the specification, by the names of the discovery document; none is a plain server.
        command_id: the member of a listed command that holds its id, with dots for members inside members.
        time_zone: of times that the server writes without one; a name or an offset.
        recorded_at_reading: of a server without ``recorded_at``: a name in ``sensor_data`` for the time of reading.
        results: where results of commands go.
        results_table: the runtime-data table that takes them.
        command_lists: what a list of commands holds: open ones alone, everything for ever, or each command once.
    """

    extensions: Literal["auto"] | tuple[str, ...] = AUTO
    command_id: Annotated[str, Field(pattern=r"^[^.\x00-\x1f\x7f]+(\.[^.\x00-\x1f\x7f]+)*$", max_length=255)] = AUTO
    time_zone: str = AUTO
    recorded_at_reading: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    results: Literal["auto", "endpoint", "table", "none"] = AUTO
    results_table: Annotated[str, Field(min_length=1, max_length=255)] = RESULTS_TABLE
    command_lists: Literal["auto", "open", "everything", "once"] = AUTO

    @field_validator("extensions")
    @classmethod
    def _are_known(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        unknown = [] if isinstance(value, str) else sorted(set(value) - extensions.ALL)
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no extension; there are {', '.join(sorted(extensions.ALL))}")
        return value

    @field_validator("time_zone")
    @classmethod
    def _is_a_zone(cls, value: str) -> str:
        _zone(value)
        return value

    def dialect(self) -> Dialect:
        """The section as the client takes it."""
        path = None if self.command_id == AUTO else tuple(self.command_id.split("."))
        return Dialect(
            extensions=None if self.extensions == AUTO else frozenset(self.extensions),
            reading=AnswerReading(path, _zone(self.time_zone)),
            recorded_at_reading=self.recorded_at_reading,
            results=None if self.results == AUTO else ResultPlace(self.results),
            results_table=self.results_table,
            command_lists=None if self.command_lists == AUTO else CommandLists(self.command_lists),
        )


def _zone(name: str) -> tzinfo:
    if name == AUTO:
        return UTC
    match = _OFFSET.fullmatch(name)
    if match is not None:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        if offset < timedelta(hours=24):
            return timezone(offset if match[1] == "+" else -offset)
    try:
        return UTC if name in {"UTC", "Z"} else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        text = f"{name!r} is no zone of this machine: write an offset such as +02:00, or install tzdata"
        raise ValueError(text) from None
