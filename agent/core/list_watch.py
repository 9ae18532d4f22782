"""What a server's lists of commands hold, found out by comparing each with the one before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from agent.core.listed_states import FINAL_STATUSES, OPEN_STATUSES
from agent.wire.dialect import CommandLists

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

    def saw(self, listed: Mapping[str, str | None], ended: Iterable[str]) -> CommandLists | None:
        """What the lists hold as far as seen; None while nothing speaks for anything.

        Args:
            listed: command id -> its state, of a complete list.
            ended: :attr:`ended` from before the list was asked for.
        """
        ended = frozenset(ended)
        states = {(state or "").lower() for state in listed.values()} - {""}
        own = {state[:_WORD_MAX] for state in states - FINAL_STATUSES - OPEN_STATUSES}
        self.words = frozenset(sorted(self.words | own)[:_WORDS_MAX])
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
