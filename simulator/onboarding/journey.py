"""The onboarding of one label as a table: scan, register, list, remove.

Two rules for this file:

1. It knows what may happen, not how to make it happen: no request, no clock.
2. Every expected move stands in :data:`TABLE`; what is not in it is a fault of the service, and needs no ``if``.

Sources: specification, "Onboarding" and "Errors"; docs/protocol.md for what they leave open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class State(StrEnum):
    """What the service has told us about the device behind a label."""

    UNKNOWN = "unknown"
    UNREGISTERED = "unregistered"
    REGISTERED = "registered"
    REMOVED = "removed"


class Action(StrEnum):
    """One request of the onboarding group, by the same user and with the same label."""

    SCAN = "scan"
    REGISTER = "register"
    LIST = "list"
    REMOVE = "remove"


class Answer(StrEnum):
    """What the service answered, without its particulars."""

    SHOWN = "product shown"
    SHOWN_REGISTERED = "registered product shown"
    SHOWN_ANOTHER = "another label shown"
    LINKED = "device linked"
    LISTED = "device listed"
    NOT_LISTED = "device not listed"
    REMOVED = "device removed"
    NOT_FOUND = "not found"
    CONFLICT = "conflict"
    REFUSED = "refused"
    RATE_LIMITED = "rate limited"
    FAULT = "server error"
    NONSENSE = "not an answer of the specification"
    NONE = "no answer"


Expected = Mapping[Answer, State]
"""The good answers to one action, each with the state after it."""

TABLE: Final[Mapping[State, Mapping[Action, Expected]]] = MappingProxyType(
    {
        State.UNKNOWN: {
            Action.SCAN: {Answer.SHOWN: State.UNREGISTERED, Answer.SHOWN_REGISTERED: State.REGISTERED},
        },
        State.UNREGISTERED: {
            Action.SCAN: {Answer.SHOWN: State.UNREGISTERED},
            Action.REGISTER: {Answer.LINKED: State.REGISTERED},
            Action.LIST: {Answer.NOT_LISTED: State.UNREGISTERED},
        },
        State.REGISTERED: {
            # A server that does not say whether a label is in use answers the same as before.
            Action.SCAN: {Answer.SHOWN_REGISTERED: State.REGISTERED, Answer.SHOWN: State.REGISTERED},
            Action.REGISTER: {Answer.LINKED: State.REGISTERED},
            Action.LIST: {Answer.LISTED: State.REGISTERED},
            Action.REMOVE: {Answer.REMOVED: State.REMOVED},
        },
        State.REMOVED: {
            Action.SCAN: {Answer.SHOWN: State.REMOVED},
            Action.REGISTER: {Answer.LINKED: State.REGISTERED},
            Action.LIST: {Answer.NOT_LISTED: State.REMOVED},
            Action.REMOVE: {Answer.NOT_FOUND: State.REMOVED},
        },
    }
)

KEEP: Final = (Action.SCAN, Action.REGISTER, Action.LIST)
"""The journey that leaves the device registered."""
ROUND_TRIP: Final = (*KEEP, Action.REMOVE, Action.LIST)
"""The journey that leaves nothing behind; the second list proves it."""


class Verdict(StrEnum):
    """What a step proved."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Judgement:
    """An answer held against the table.

    Attributes:
        verdict: passed when the table expects the answer.
        state: the state afterwards; a fault leaves it as it was.
    """

    verdict: Verdict
    state: State


def expected_answers(state: State, action: Action) -> Expected | None:
    """The good answers to an action in a state; ``None`` when it makes no sense there and is skipped."""
    return TABLE[state].get(action)


def judge(state: State, action: Action, answer: Answer) -> Judgement:
    """Hold an answer against the table."""
    expected = expected_answers(state, action)
    if expected is None:
        return Judgement(Verdict.SKIPPED, state)
    after = expected.get(answer)
    return Judgement(Verdict.FAILED, state) if after is None else Judgement(Verdict.PASSED, after)
