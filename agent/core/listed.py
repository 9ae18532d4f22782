"""What a server's lists of commands say: which words for a command's state count, and what the lists hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from agent.wire.dialect import CommandLists

OPEN_STATUSES: Final = frozenset({"queued", "delivered", "in_progress"})
FINAL_STATUSES: Final = frozenset(
    {"succeeded", "failed", "rejected", "expired", "timed_out", "canceled"}
    # Other services' spellings of the same. A word that is in neither set counts as no word at all.
    | {"cancelled", "completed", "done", "executed", "error", "timeout"}
)
_OPEN: Final = "queued"


def listed_state(status: str | None, *, has_states: bool, only_open: bool) -> str | None:
    """The state of a listed command, as far as the server can be taken at its word; None when it says nothing.

    A final word counts everywhere: a command that has ended is not run. Any other word counts only where the server is
    known to list what is open: others write a word once, when the command is sent, and list it so for ever.

    Args:
        status: as it is listed.
        has_states: the server announces ``command-status``, or the configuration does, so it was asked for open
            commands alone, whatever it calls them.
        only_open: by the configuration lists hold open commands alone.
    """
    word = (status or "").lower()
    if word in FINAL_STATUSES:
        return status
    if not (has_states or only_open):
        return None
    return status if word in OPEN_STATUSES else _OPEN


_KEPT_MAX: Final = 64
_WORDS_MAX: Final = 8
_WORD_MAX: Final = 40
_VANISHED_TWICE: Final = 2


class ListWatch:
    """Looks at complete lists that were asked for without a filter. Not thread-safe.

    Everything: a command that has ended is listed. Open: it left the list with its result, and others stayed on it.
    Once: commands without a result left it, twice, and none was ever listed again.
    """

    def __init__(self) -> None:
        self._reported: dict[str, None] = {}
        self._before: frozenset[str] = frozenset()
        self._repeats = False
        self._vanished = 0
        self.words: frozenset[str] = frozenset()

    def reported(self, command_id: str) -> None:
        """The server has taken the result of this command."""
        self._reported.pop(command_id, None)
        self._reported[command_id] = None
        if len(self._reported) > _KEPT_MAX:
            del self._reported[next(iter(self._reported))]

    @property
    def ended(self) -> frozenset[str]:
        """What was reported so far: to be taken before a list is asked for."""
        return frozenset(self._reported)

    def note_words(self, listed: Iterable[str | None]) -> None:
        """Remember states that are not those of docs/protocol.md."""
        states = {(state or "").lower() for state in listed} - {""}
        own = {state[:_WORD_MAX] for state in states - FINAL_STATUSES - OPEN_STATUSES}
        self.words = frozenset(sorted(self.words | own)[:_WORDS_MAX])

    def saw(self, listed: Mapping[str, str | None], ended: Iterable[str]) -> CommandLists | None:
        """What the lists hold as far as seen; None while nothing speaks for anything.

        Args:
            listed: command id -> its state, of a complete list.
            ended: :attr:`ended` from before the list was asked for.
        """
        ended = frozenset(ended)
        states = {(state or "").lower() for state in listed.values()} - {""}
        self.note_words(states)
        ids = frozenset(listed)
        before, self._before = self._before, ids
        if before & ids:
            self._repeats = True
        elif before - ended:
            self._vanished += 1
        if states & FINAL_STATUSES or ended & ids:
            return CommandLists.EVERYTHING
        if self._repeats:
            return CommandLists.OPEN if (before & ended) - ids else None
        return CommandLists.ONCE if self._vanished >= _VANISHED_TWICE else None

    def saw_again(self, ended: Iterable[str]) -> CommandLists | None:
        """The same for the last list once more: the server said that it has not changed.

        Args:
            ended: :attr:`ended` from before the list was asked for.
        """
        self._repeats = self._repeats or bool(self._before)
        return None if self._before.isdisjoint(ended) else CommandLists.EVERYTHING
