"""The section ``service.dialect``: what is known of the server beforehand. Everything is ``auto`` by default."""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from agent.config.section import Section, key
from agent.wire import extensions
from agent.wire.dialect import RESULTS_TABLE, AnswerReading, CommandLists, Dialect, ResultPlace

AUTO: Final = "auto"
_OFFSET: Final = re.compile(r"([+-])(\d\d):?(\d\d)", re.ASCII)
_MEMBERS: Final = r"^[^.\x00-\x1f\x7f]+(\.[^.\x00-\x1f\x7f]+)*$"


class DialectConfig(Section):
    """How this server speaks where the specification leaves it open; the agent finds out by itself."""

    extensions: Literal["auto"] | tuple[str, ...] = key(
        "Which additions to the specification the server has, by the names of the discovery document. 'auto' asks "
        "GET /.well-known/device-service; [] is a plain server, which is sent nothing beyond the specification.",
        why="A server that takes recorded_at or status=open without announcing it, or one that must not be asked.",
        default=AUTO,
        example=["recorded-at", "command-status"],
    )
    command_id: str = key(
        "The member of a listed command that holds its id, with dots for members inside members. 'auto' takes id, "
        "command_id, commandId, _id or uuid.",
        why="Without an id the agent derives one from content and time.",
        default=AUTO,
        pattern=_MEMBERS,
        max_length=255,
        example="meta.command_uuid",
    )
    time_zone: str = key(
        "The zone of times that the server writes without one: a name such as Europe/Berlin, or an offset such as "
        "+02:00. 'auto' is UTC.",
        why="Whether a command has expired hangs on it.",
        default=AUTO,
        example="+02:00",
    )
    recorded_at_reading: Annotated[str, Field(min_length=1, max_length=128)] | None = key(
        "On a server without recorded_at: a name inside sensor_data that carries the time of reading, as epoch "
        "seconds.",
        why="Readings that waited for the network would otherwise get the time at which they arrived.",
        default=None,
        example="recorded_at_s",
    )
    results: Literal["auto", "endpoint", "table", "none"] = key(
        "Where results of commands go: endpoint (extension command-results), table (a runtime-data record), or none. "
        "'auto' takes the endpoint where it is announced, else the table.",
        default=AUTO,
    )
    results_table: Annotated[str, Field(min_length=1, max_length=255)] = key(
        "The runtime-data table that takes results.", default=RESULTS_TABLE
    )
    command_lists: Literal["auto", "open", "everything", "once"] = key(
        "What the list of a device's commands holds: open commands alone, everything for ever, or each command once. "
        "'auto' believes a list only where the server announces command-status.",
        why="With 'open' a command that has left the list counts as withdrawn.",
        default=AUTO,
    )

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
    if name in {AUTO, "UTC", "Z"}:
        return UTC
    match = _OFFSET.fullmatch(name)
    if match is not None:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        if offset < timedelta(hours=24):
            return timezone(offset if match[1] == "+" else -offset)
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # most servers write UTC

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        text = f"{name!r} is no zone of this machine: write an offset such as +02:00, or install tzdata"
        raise ValueError(text) from None
