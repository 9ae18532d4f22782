"""How servers differ: what one announces, what the configuration says of it, and what was found out about it.

What the specification states is required. What it leaves open is observed: status codes decide, bodies inform. What
goes beyond it (query parameters, body members, headers, endpoints) is used only where the server announces it in
``GET /.well-known/device-service``, or where the configuration says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo
from enum import StrEnum
from typing import Final

from pydantic import TypeAdapter

# --- extensions, by their names in the discovery document -------------------------------------------------------------

LONG_POLL: Final = "long-poll"
"""``wait=`` on the device poll."""
COMMAND_RESULTS: Final = "command-results"
"""``POST /devices/{device_id}/commands/{command_id}/result``."""
BATCH_SENSOR_DATA: Final = "batch-sensor-data"
"""An array as the body of ``POST /sensor-data``."""
IDEMPOTENCY_KEY: Final = "idempotency-key"
"""The ``Idempotency-Key`` header on POST."""
READING_KEYS: Final = "reading-keys"
"""``idempotency_key`` in each reading of an array."""
KEY_REUSED: Final = "idempotency_key_reused"
"""``error`` of the 422 that says: this key has been used, for another body."""
COMMAND_EVENTS: Final = "command-events"
"""``GET /commands/events``, server-sent events."""
COMMAND_STATUS: Final = "command-status"
"""``status=`` on the list of a device's commands; the list with ``status=open`` is the truth about what is open."""
COMMAND_TTL: Final = "command-ttl"
"""``ttl_seconds`` in ``POST /commands/send``."""
RECORDED_AT: Final = "recorded-at"
"""``recorded_at`` in ``POST /sensor-data``."""
LIST_PARAMETERS: Final = "list-parameters"
"""Filters, ``order``, ``limit`` and ``cursor`` on lists, by the names in docs/service.md."""

ALL_EXTENSIONS: Final = frozenset(
    {
        LONG_POLL,
        COMMAND_RESULTS,
        BATCH_SENSOR_DATA,
        IDEMPOTENCY_KEY,
        READING_KEYS,
        COMMAND_EVENTS,
        COMMAND_STATUS,
        COMMAND_TTL,
        RECORDED_AT,
        LIST_PARAMETERS,
    }
)
NO_EXTENSIONS: Final[frozenset[str]] = frozenset()
"""A plain server's."""

# --- what the configuration says --------------------------------------------------------------------------------------

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
class Dialect:
    """What the configuration says of the server (section ``service.dialect``). None is ``auto``: look and see.

    Attributes:
        extensions: taken as announced, and the server is not asked.
        command_id_path: members that lead to a command's id, such as ``("meta", "uuid")``; None takes the usual names.
        zone: of times that name none.
        recorded_at_reading: a name inside ``sensor_data`` that carries the time of reading, epoch seconds, where the
            server has no ``recorded_at``; None sends no time there.
        results: where results go.
        results_table: the table of :attr:`ResultPlace.TABLE`.
        command_lists: what the list of commands holds.
    """

    extensions: frozenset[str] | None = None
    command_id_path: tuple[str, ...] | None = None
    zone: tzinfo = UTC
    recorded_at_reading: str | None = None
    results: ResultPlace | None = None
    results_table: str = RESULTS_TABLE
    command_lists: CommandLists | None = None


# --- what was found out -----------------------------------------------------------------------------------------------

PROFILE_SETTING: Final = "server.profile"
"""Name of the journal's setting that holds a :class:`ServerProfile`."""

_LISTS: Final = {
    CommandLists.OPEN: "lists open commands alone",
    CommandLists.EVERYTHING: "lists everything",
    CommandLists.ONCE: "hands each command out once",
}


@dataclass(frozen=True, slots=True)
class ServerProfile:
    """What one server announces, and what was found out about it.

    Attributes:
        address: its base URL.
        was_asked: it was asked what it announces; before that nothing is known.
        extensions: the names that it announces; none for a plain server.
        notes: (kind, sentence), sorted: what was odd about its lists of commands since the agent started.
    """

    address: str = ""
    was_asked: bool = False
    extensions: frozenset[str] = NO_EXTENSIONS
    notes: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> str:
        """The profile as JSON text."""
        return _JSON.dump_json(self, exclude_defaults=True).decode()


_JSON: Final = TypeAdapter(ServerProfile)


def read_profile(text: str | None) -> ServerProfile | None:
    """The profile in a JSON text; None when there is none, or the text is not what :meth:`to_json` writes."""
    try:
        return None if text is None else _JSON.validate_json(text)
    except ValueError:
        return None


def read_announcement(document: object, address: str = "") -> ServerProfile:
    """The profile of a server that answered with this document, whatever it is.

    Args:
        document: a JSON value.
        address: of the server.
    """
    members = document if isinstance(document, dict) else {}
    names = members.get("extensions")
    extensions = (
        frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else NO_EXTENSIONS
    )
    return ServerProfile(address, was_asked=True, extensions=extensions)


def describe(profile: ServerProfile, dialect: Dialect) -> tuple[str, ...]:
    """The profile in words, each a phrase that follows on ``this server:``.

    Args:
        profile: what was found out.
        dialect: what the configuration says, which goes before it.
    """
    if dialect.extensions is None and not profile.was_asked:
        return ("was not asked yet what it offers",)
    offered = profile.extensions if dialect.extensions is None else dialect.extensions
    lists = dialect.command_lists or (CommandLists.OPEN if COMMAND_STATUS in offered else None)
    place = dialect.results or (ResultPlace.ENDPOINT if COMMAND_RESULTS in offered else ResultPlace.TABLE)
    results = {
        ResultPlace.ENDPOINT: "takes results at their commands",
        ResultPlace.TABLE: f"is sent results as records of table {dialect.results_table}",
        ResultPlace.NONE: "has no place for results (configured)",
    }
    time = "takes recorded_at" if RECORDED_AT in offered else "takes no recorded_at"
    if RECORDED_AT not in offered and dialect.recorded_at_reading is not None:
        time += f", so the time is sent as the reading {dialect.recorded_at_reading}"
    return (
        f"offers {', '.join(sorted(offered))}" if offered else "offers no extensions (a plain server)",
        *([] if lists is None else [_LISTS[lists]]),
        results[place],
        time,
        *(sentence for _, sentence in profile.notes),
    )
