"""What ``device-agent status`` says of a server, for each choice that the server can make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.wire import extensions
from simulator.service.profiles.model import ServerProfile

_OPEN: Final = "lists open commands alone"
_EVERYTHING: Final = "lists everything"
_ONCE: Final = "hands each command out once"
_AT_COMMANDS: Final = "takes results at their commands"
_AS_RECORDS: Final = "is sent results as records of table command_results"
_DERIVED: Final = "gives commands without an id, so ids are derived from content and time"
_OWN_STATES: Final = "has states of its own"
_NO_PLACE: Final = "has no place for results"

_SEEN_LISTS: Final[Mapping[str, frozenset[str]]] = {
    # A command is listed with its end, or after its result was taken; where no result is taken, none ends.
    "everything": frozenset({_EVERYTHING}),
    # A result in a table ends no command there, so it stays open, and listed.
    "open": frozenset({_OPEN, _EVERYTHING}),
    "once": frozenset({_ONCE}),
}
"""``command_list`` -> what an agent may take the lists for, as far as it sees."""


@dataclass(frozen=True, slots=True)
class Words:
    """Phrases, or how they begin.

    Attributes:
        all_of: each is said.
        some_of: these may be said, too; nothing else is.
    """

    all_of: frozenset[str] = frozenset()
    some_of: frozenset[str] = frozenset()


def words_of(profile: ServerProfile, offers: frozenset[str], *, is_whole: bool) -> Words:
    """What is said of the server of a profile.

    Args:
        offers: the extensions that it announces, of those that our programs use.
        is_whole: its lists can be read to their end.
    """
    named = sorted(filter(profile.has, profile.extensions))
    first = f"offers {', '.join(named)}" if named else "offers no extensions (a plain server)"
    all_of = {first, "takes recorded_at" if extensions.RECORDED_AT in offers else "takes no recorded_at"}
    some_of: set[str] = set()
    if extensions.COMMAND_RESULTS in offers:
        all_of.add(_AT_COMMANDS)
    elif profile.results in {"endpoint", "table"}:
        all_of.add(_AS_RECORDS)
    else:  # it takes more tries than a test has time for
        some_of |= {_AS_RECORDS, _NO_PLACE}
    if extensions.COMMAND_STATUS in offers:
        all_of.add(_OPEN)
    elif is_whole:
        some_of |= _SEEN_LISTS[profile.command_list]
        if profile.command_list == "everything" and profile.results in {"endpoint", "table"}:
            all_of.add(_EVERYTHING)
        if profile.status_words in {"own", "number"}:
            all_of.add(_OWN_STATES)
    if profile.id_name in {"none", "meta.uuid"}:  # an id one level deeper is found where the configuration says so
        all_of.add(_DERIVED)
    return Words(frozenset(all_of), frozenset(some_of))


def check_server_words(said: Sequence[str], wanted: Words) -> list[str]:
    """Every phrase that has to be said is, and no other."""
    missing = sorted(phrase for phrase in wanted.all_of if not any(_is(one, phrase) for one in said))
    known = wanted.all_of | wanted.some_of
    wrong = [one for one in said if not any(_is(one, phrase) for phrase in known)]
    problems = [f"status does not say: {'; '.join(missing)}; it says: {'; '.join(said)}"] if missing else []
    return [*problems, *(f"status says of this server: {one}" for one in wrong)]


def _is(said: str, phrase: str) -> bool:
    return said == phrase or said.startswith(f"{phrase} (")
