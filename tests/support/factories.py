"""Values for tests, with defaults that say nothing: a test names what matters to it."""

from __future__ import annotations

import itertools
from typing import Any

from agent.core.admission import CommandRules
from agent.core.commands import HandlerRule
from agent.core.values import (
    Command,
    CommandState,
    Contract,
    JournalEntry,
    Moment,
    Outcome,
    OutcomeStatus,
    Priority,
    Reading,
)
from tests.support.fakes import START_WALL_S

_numbers = itertools.count(1)


def make_moment(monotonic_s: float = 1000.0, wall_s: float | None = None, boot_id: str = "boot-1") -> Moment:
    """A moment; the wall clock goes with the monotonic one unless told otherwise."""
    return Moment(monotonic_s, START_WALL_S + monotonic_s - 1000.0 if wall_s is None else wall_s, boot_id)


def make_command(command_id: str | None = None, payload: dict[str, Any] | None = None, **members: Any) -> Command:
    """A command; its payload names the handler ``ping``."""
    chosen = {"command": "ping"} if payload is None else payload
    return Command(command_id or f"command-{next(_numbers)}", chosen, **{"size_bytes": 18, **members})


def make_entry(
    command_id: str | None = None, state: CommandState = CommandState.RECEIVED, **members: Any
) -> JournalEntry:
    """A journal entry; ``command`` or the id may be given."""
    command = members.pop("command", None) or make_command(command_id)
    defaults: dict[str, Any] = {"handler": "ping", "received": make_moment()}
    return JournalEntry(command, state, **{**defaults, **members})


def make_outcome(status: str = "succeeded", **members: Any) -> Outcome:
    """An outcome."""
    return Outcome(OutcomeStatus(status), **members)


def make_reading(
    values: dict[str, float] | None = None, at: Moment | None = None, priority: Priority = Priority.NORMAL
) -> Reading:
    """A reading of one number."""
    return Reading({"temperature": 21.5} if values is None else values, at or make_moment(), priority)


def make_rules(*names: str, contract: Contract = Contract.ONCE, **members: Any) -> CommandRules:
    """Rules with these handlers, each its own lane; ``ping`` when none is named."""
    handlers = {name: HandlerRule(contract, name) for name in names or ("ping",)}
    return CommandRules(handlers, **members)
