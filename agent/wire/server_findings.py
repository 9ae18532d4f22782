"""What was found out about one server where the specification leaves a choice, and the words for it.

A value, kept as JSON text in the agent's journal. It belongs to one address, one version and one set of announced
extensions: with another it begins anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from agent.wire import extensions
from agent.wire.dialect import CommandLists, Dialect, ResultPlace

SETTING: Final = "server.findings"
"""Name of the journal's setting that holds them."""

IF_NONE_MATCH: Final = "if-none-match"
"""In :attr:`ServerFindings.withdrawn`: the header of conditional requests."""
CANCELED_QUERY: Final = "status=canceled"
"""In :attr:`ServerFindings.withdrawn`: the list of canceled commands."""

_TEXT_MAX: Final = 200
_LISTS: Final = {
    CommandLists.OPEN: "lists open commands alone",
    CommandLists.EVERYTHING: "lists everything",
    CommandLists.ONCE: "hands each command out once",
}


@dataclass(frozen=True, slots=True)
class ServerFindings:
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
        """The findings as JSON text, without what is not known."""
        members: dict[str, Any] = {
            "address": self.address,
            "version": self.version,
            "announced": self.announced,
            "lists": self.lists,
            "more_pages": self.more_pages,
            "unread": self.unread,
            "derives_ids": self.derives_ids,
            "unread_time": self.unread_time,
            "status_words": self.status_words,
            "no_place": self.no_place,
            "withdrawn": dict(self.withdrawn),
        }
        known = {name: value for name, value in members.items() if value or (name == "announced" and value is not None)}
        return json.dumps(known, separators=(",", ":"))


def read_findings(text: str | None) -> ServerFindings | None:
    """The findings in a JSON text; None when there are none, or the text is not what :meth:`to_json` writes."""
    try:
        value = json.loads(text or "null")
        if not isinstance(value, dict):
            return None
        announced, lists = value.get("announced"), value.get("lists")
        return ServerFindings(
            address=str(value.get("address", "")),
            version=str(value.get("version", "")),
            announced=None if announced is None else tuple(sorted(map(str, announced))),
            lists=None if lists is None else CommandLists(lists),
            more_pages=str(value.get("more_pages", "")),
            unread=str(value.get("unread", "")),
            derives_ids=bool(value.get("derives_ids", False)),
            unread_time=str(value.get("unread_time", "")),
            status_words=tuple(sorted(map(str, value.get("status_words", ())))),
            no_place=str(value.get("no_place", "")),
            withdrawn=tuple(sorted((str(name), str(why)) for name, why in dict(value.get("withdrawn", {})).items())),
        )
    except (ValueError, TypeError):
        return None


def shortened(text: str) -> str:
    """A reason as it is kept: one line, bounded."""
    line = " ".join(text.split())
    return line if len(line) <= _TEXT_MAX else f"{line[:_TEXT_MAX]}..."


def describe(findings: ServerFindings, dialect: Dialect) -> tuple[str, ...]:
    """The findings in words, each a phrase that follows on ``this server:``.

    Args:
        findings: what was found out.
        dialect: what the configuration says, which goes before it.
    """
    offered = findings.announced if dialect.extensions is None else tuple(sorted(dialect.extensions))
    if offered is None:
        return ("was not asked yet what it offers",)
    in_use = [name for name in offered if not findings.is_withdrawn(name)]
    words = [f"offers {', '.join(offered)}" if offered else "offers no extensions (a plain server)"]
    words += _of_commands(findings, dialect, in_use)
    words.append(_of_results(findings, dialect, in_use))
    words.append(_of_time(dialect, in_use))
    words += [f"refuses {name} ({why})" for name, why in findings.withdrawn]
    return tuple(words)


def sentence(words: tuple[str, ...]) -> str:
    """The words of :func:`describe` as one sentence."""
    return f"this server: {', '.join(words)}"


def _of_commands(findings: ServerFindings, dialect: Dialect, in_use: list[str]) -> list[str]:
    lists = dialect.command_lists or (CommandLists.OPEN if extensions.COMMAND_STATUS in in_use else findings.lists)
    words = [] if lists is None else [_LISTS[lists]]
    if findings.more_pages:
        words.append(f"does not give the whole list of commands ({findings.more_pages})")
    if findings.unread:
        words.append(f"lists more commands at once than are read ({findings.unread})")
    if findings.derives_ids:
        words.append("gives commands without an id, so ids are derived from content and time")
    if findings.unread_time:
        words.append(f"writes times that cannot be read ({findings.unread_time})")
    if findings.status_words:
        words.append(f"has states of its own ({', '.join(findings.status_words)})")
    return words


def _of_results(findings: ServerFindings, dialect: Dialect, in_use: list[str]) -> str:
    auto = ResultPlace.ENDPOINT if extensions.COMMAND_RESULTS in in_use else ResultPlace.TABLE
    place = dialect.results or auto
    if place is ResultPlace.NONE:
        return "has no place for results (configured)"
    if findings.no_place:
        return f"has no place for results ({findings.no_place})"
    if place is ResultPlace.ENDPOINT:
        return "takes results at their commands"
    return f"is sent results as records of table {dialect.results_table}"


def _of_time(dialect: Dialect, in_use: list[str]) -> str:
    if extensions.RECORDED_AT in in_use:
        return "takes recorded_at"
    if dialect.recorded_at_reading is None:
        return "takes no recorded_at"
    return f"takes no recorded_at, so the time is sent as the reading {dialect.recorded_at_reading}"
