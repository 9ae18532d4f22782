"""What was found out about one server where the specification leaves a choice, and the words for it.

A value, kept as JSON text in the agent's journal. It belongs to one address, one version and one set of announced
extensions: with another it begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter

from agent.wire import extensions
from agent.wire.dialect import CommandLists, Dialect, ResultPlace

SETTING: Final = "server.profile"
"""Name of the journal's setting that holds it."""

_LISTS: Final = {
    CommandLists.OPEN: "lists open commands alone",
    CommandLists.EVERYTHING: "lists everything",
    CommandLists.ONCE: "hands each command out once",
}


@dataclass(frozen=True, slots=True)
class ServerProfile:
    """What was found out about one server.

    Attributes:
        address: its base URL.
        version: as its discovery document or its ``Server`` header names it; empty when neither does.
        announced: the extensions that it announces, sorted; empty for a plain server, None while that is not known.
        no_place: why results find no place there; empty when they do, or none was sent yet.
        notes: (kind, sentence), sorted: what is odd about its lists of commands.
    """

    address: str = ""
    version: str = ""
    announced: tuple[str, ...] | None = None
    no_place: str = ""
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


def describe(profile: ServerProfile, dialect: Dialect) -> tuple[str, ...]:
    """The profile in words, each a phrase that follows on ``this server:``.

    Args:
        profile: what was found out.
        dialect: what the configuration says, which goes before it.
    """
    offered = profile.announced if dialect.extensions is None else tuple(sorted(dialect.extensions))
    if offered is None:
        return ("was not asked yet what it offers",)
    lists = dialect.command_lists or (CommandLists.OPEN if extensions.COMMAND_STATUS in offered else None)
    return (
        f"offers {', '.join(offered)}" if offered else "offers no extensions (a plain server)",
        *([] if lists is None else [_LISTS[lists]]),
        _describe_results(profile, dialect, offered),
        _describe_time(dialect, offered),
        *(sentence for _, sentence in profile.notes),
    )


def _describe_results(profile: ServerProfile, dialect: Dialect, offered: tuple[str, ...]) -> str:
    auto = ResultPlace.ENDPOINT if extensions.COMMAND_RESULTS in offered else ResultPlace.TABLE
    place = dialect.results or auto
    if place is ResultPlace.NONE:
        return "has no place for results (configured)"
    if profile.no_place:
        return f"has no place for results ({profile.no_place})"
    if place is ResultPlace.ENDPOINT:
        return "takes results at their commands"
    return f"is sent results as records of table {dialect.results_table}"


def _describe_time(dialect: Dialect, offered: tuple[str, ...]) -> str:
    if extensions.RECORDED_AT in offered:
        return "takes recorded_at"
    if dialect.recorded_at_reading is None:
        return "takes no recorded_at"
    return f"takes no recorded_at, so the time is sent as the reading {dialect.recorded_at_reading}"
