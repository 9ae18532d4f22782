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

IF_NONE_MATCH: Final = "if-none-match"
"""In :attr:`ServerProfile.withdrawn`: the header of conditional requests."""
CANCELED_QUERY: Final = "status=canceled"
"""In :attr:`ServerProfile.withdrawn`: the list of canceled commands."""

_TEXT_MAX: Final = 200
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
        lists: what its list of a device's commands holds, as far as seen.
        more_pages: how much of a list of commands it does not give; empty when lists were whole.
        derives_ids: commands came without an id, so their ids are derived from content and time.
        unread_time: the times of commands that could not be read, such as ``created_at``; empty when all were.
        status_words: states of commands that are not those of docs/protocol.md, sorted.
        no_place: why results find no place there; empty when they do, or none was sent yet.
        withdrawn: (name, reason), sorted: what it announces, or could ignore, and refuses.
        unread: how many commands of one answer were read, where it had too many; empty when all were.
    """

    address: str = ""
    version: str = ""
    announced: tuple[str, ...] | None = None
    lists: CommandLists | None = None
    more_pages: str = ""
    derives_ids: bool = False
    unread_time: str = ""
    status_words: tuple[str, ...] = ()
    no_place: str = ""
    withdrawn: tuple[tuple[str, str], ...] = ()
    unread: str = ""

    def is_withdrawn(self, feature: str) -> bool:
        """It refused this feature: the name of an extension, or one of this module's."""
        return any(name == feature for name, _ in self.withdrawn)

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


def shortened(text: str) -> str:
    """A reason as it is kept: one line, bounded."""
    line = " ".join(text.split())
    return line if len(line) <= _TEXT_MAX else f"{line[:_TEXT_MAX]}..."


def describe(profile: ServerProfile, dialect: Dialect) -> tuple[str, ...]:
    """The profile in words, each a phrase that follows on ``this server:``.

    Args:
        profile: what was found out.
        dialect: what the configuration says, which goes before it.
    """
    offered = profile.announced if dialect.extensions is None else tuple(sorted(dialect.extensions))
    if offered is None:
        return ("was not asked yet what it offers",)
    in_use = [name for name in offered if not profile.is_withdrawn(name)]
    words = [f"offers {', '.join(offered)}" if offered else "offers no extensions (a plain server)"]
    words += _of_commands(profile, dialect, in_use)
    words.append(_of_results(profile, dialect, in_use))
    words.append(_of_time(dialect, in_use))
    words += [f"refuses {name} ({why})" for name, why in profile.withdrawn]
    return tuple(words)


def sentence(words: tuple[str, ...]) -> str:
    """The words of :func:`describe` as one sentence."""
    return f"this server: {', '.join(words)}"


def _of_commands(profile: ServerProfile, dialect: Dialect, in_use: list[str]) -> list[str]:
    lists = dialect.command_lists or (CommandLists.OPEN if extensions.COMMAND_STATUS in in_use else profile.lists)
    words = [] if lists is None else [_LISTS[lists]]
    if profile.more_pages:
        words.append(f"does not give the whole list of commands ({profile.more_pages})")
    if profile.unread:
        words.append(f"lists more commands at once than are read ({profile.unread})")
    if profile.derives_ids:
        words.append("gives commands without an id, so ids are derived from content and time")
    if profile.unread_time:
        words.append(f"writes times that cannot be read ({profile.unread_time})")
    if profile.status_words:
        words.append(f"has states of its own ({', '.join(profile.status_words)})")
    return words


def _of_results(profile: ServerProfile, dialect: Dialect, in_use: list[str]) -> str:
    auto = ResultPlace.ENDPOINT if extensions.COMMAND_RESULTS in in_use else ResultPlace.TABLE
    place = dialect.results or auto
    if place is ResultPlace.NONE:
        return "has no place for results (configured)"
    if profile.no_place:
        return f"has no place for results ({profile.no_place})"
    if place is ResultPlace.ENDPOINT:
        return "takes results at their commands"
    return f"is sent results as records of table {dialect.results_table}"


def _of_time(dialect: Dialect, in_use: list[str]) -> str:
    if extensions.RECORDED_AT in in_use:
        return "takes recorded_at"
    if dialect.recorded_at_reading is None:
        return "takes no recorded_at"
    return f"takes no recorded_at, so the time is sent as the reading {dialect.recorded_at_reading}"
