"""Which words for a command's state count in a server's list of commands."""

from __future__ import annotations

from typing import Final

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
