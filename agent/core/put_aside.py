"""What the journal keeps of a command whose result has no place at the service."""

from __future__ import annotations

from dataclasses import replace

from agent.core.commands import CommandEvent, advance
from agent.core.values import JournalEntry


def put_aside_entry(entry: JournalEntry, reason: str) -> JournalEntry:
    """The entry once the service has turned out to have no place for its result, which stays with it."""
    return replace(entry, state=advance(entry.state, CommandEvent.PUT_ASIDE), put_aside=reason)


def offer_again_entry(entry: JournalEntry) -> JournalEntry:
    """The entry once its result waits to be reported again."""
    return replace(entry, state=advance(entry.state, CommandEvent.OFFER_AGAIN), put_aside=None)


def give_up_entry(entry: JournalEntry) -> JournalEntry:
    """The entry once its result gave way to younger ones: it stays for de-duplication, and with the reason."""
    state = advance(entry.state, CommandEvent.GIVE_UP)
    outcome = None if entry.outcome is None else replace(entry.outcome, result=None)
    return replace(entry, state=state, outcome=outcome)
