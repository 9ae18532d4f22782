"""The onboarding of one label as a table: what may happen, in every state, whoever does it.

Three rules for this file:

1. It knows what may happen, not how to make it happen: no request, no clock.
2. Every move of the specification and of docs/service.md stands in :data:`TABLE`. Where both leave room, what another
   server may answer stands in :data:`OPEN`. What is in neither is a fault of the service, and needs no ``if``.
3. Every state has a verdict for every action: :data:`TABLE` has no gaps.

Sources: specification, "Onboarding" and "Errors"; docs/service.md, "What the specification leaves open".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class State(StrEnum):
    """What is known about the device behind a label."""

    UNKNOWN = "unknown"
    """Nobody has asked yet."""
    UNREGISTERED = "unregistered"
    REGISTERED = "registered"
    """To our user."""
    TAKEN = "taken"
    """Registered to another user of the same account."""
    REMOVED = "removed"
    """It was registered and removed; the label is free again."""
    FOREIGN = "foreign"
    """The label's product is not one of this account: unknown, another account's, or deleted after printing."""
    FORGED = "forged"
    """The label's signature is not one of its product's present key: made up, or the key was changed after printing."""


class Action(StrEnum):
    """One request of the onboarding group, and who makes it."""

    SCAN = "scan"
    REGISTER = "register"
    LIST = "list"
    REMOVE = "remove"
    REGISTER_CHANGED = "register another identifier"
    """With the answer to this label's scan, and an identifier that is not this label's."""
    REGISTER_OTHER = "another user registers"
    LIST_OTHER = "another user lists"
    SCAN_STRANGER = "another account scans"
    REGISTER_STRANGER = "another account registers"
    LIST_STRANGER = "another account lists our user"
    REMOVE_STRANGER = "another account removes"


STRANGERS: Final = frozenset(
    {Action.SCAN_STRANGER, Action.REGISTER_STRANGER, Action.LIST_STRANGER, Action.REMOVE_STRANGER}
)
"""Actions that need the credentials of a second account."""


class Answer(StrEnum):
    """What the service answered, without its particulars."""

    SHOWN = "product shown"
    """As one that is not registered."""
    SHOWN_REGISTERED = "registered product shown"
    SHOWN_SILENT = "product alone shown"
    """Nothing is said about whether it is registered."""
    SHOWN_ANOTHER = "another label shown"
    CONTRADICTED = "a contradiction"
    """To the label, the user or an earlier answer, in a member that the answer need not have had."""
    LINKED = "device linked"
    LINKED_AGAIN = "device linked a second time, under another id"
    LISTED = "device listed"
    LISTED_TWICE = "device listed more than once"
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
"""Good answers to one action, each with the state after it."""
Rows = Mapping[State, Mapping[Action, Expected]]


def _missing(state: State) -> Mapping[Action, Expected]:
    """Another account never learns that there is such a label, user or device: errors rule 3."""
    return {
        Action.SCAN_STRANGER: {Answer.NOT_FOUND: state},
        Action.REGISTER_STRANGER: {Answer.NOT_FOUND: state},
        Action.LIST_STRANGER: {Answer.NOT_FOUND: state, Answer.NOT_LISTED: state},
        Action.REMOVE_STRANGER: {Answer.NOT_FOUND: state},
    }


def _unlisted(state: State) -> Expected:
    """A list without the device; a user who never registered anything may be unknown (404)."""
    return {Answer.NOT_LISTED: state, Answer.NOT_FOUND: state}


def _free(state: State) -> Mapping[Action, Expected]:
    """What a label that belongs to nobody does; a removal asks for a device that is not there."""
    return {
        Action.SCAN: {Answer.SHOWN: state},
        Action.REGISTER: {Answer.LINKED: State.REGISTERED},
        Action.LIST: _unlisted(state),
        Action.REMOVE: {Answer.NOT_FOUND: state},
        Action.REGISTER_CHANGED: {Answer.LINKED: state},
        Action.REGISTER_OTHER: {Answer.LINKED: State.TAKEN},
        Action.LIST_OTHER: _unlisted(state),
        **_missing(state),
    }


TABLE: Final[Rows] = MappingProxyType(
    {
        State.UNKNOWN: {
            Action.SCAN: {Answer.SHOWN: State.UNREGISTERED, Answer.SHOWN_REGISTERED: State.REGISTERED},
            Action.REGISTER: {Answer.LINKED: State.REGISTERED, Answer.CONFLICT: State.TAKEN},
            Action.LIST: {Answer.LISTED: State.REGISTERED, **_unlisted(State.UNKNOWN)},
            Action.REMOVE: {Answer.NOT_FOUND: State.UNKNOWN},
            Action.REGISTER_CHANGED: {Answer.LINKED: State.UNKNOWN},
            Action.REGISTER_OTHER: {Answer.LINKED: State.TAKEN, Answer.CONFLICT: State.UNKNOWN},
            Action.LIST_OTHER: {Answer.LISTED: State.TAKEN, **_unlisted(State.UNKNOWN)},
            **_missing(State.UNKNOWN),
        },
        State.UNREGISTERED: _free(State.UNREGISTERED),
        State.REGISTERED: {
            Action.SCAN: {Answer.SHOWN_REGISTERED: State.REGISTERED},
            Action.REGISTER: {Answer.LINKED: State.REGISTERED},
            Action.LIST: {Answer.LISTED: State.REGISTERED},
            Action.REMOVE: {Answer.REMOVED: State.REMOVED},
            Action.REGISTER_CHANGED: {Answer.LINKED: State.REGISTERED},
            Action.REGISTER_OTHER: {Answer.CONFLICT: State.REGISTERED},
            Action.LIST_OTHER: _unlisted(State.REGISTERED),
            **_missing(State.REGISTERED),
        },
        State.TAKEN: {
            Action.SCAN: {Answer.SHOWN_REGISTERED: State.TAKEN},
            Action.REGISTER: {Answer.CONFLICT: State.TAKEN},
            Action.LIST: _unlisted(State.TAKEN),
            # A removal names no user: whoever holds the account's credentials may.
            Action.REMOVE: {Answer.REMOVED: State.REMOVED},
            Action.REGISTER_CHANGED: {Answer.LINKED: State.TAKEN},
            Action.REGISTER_OTHER: {Answer.LINKED: State.TAKEN},
            Action.LIST_OTHER: {Answer.LISTED: State.TAKEN},
            **_missing(State.TAKEN),
        },
        State.REMOVED: _free(State.REMOVED),
        State.FOREIGN: {
            Action.SCAN: {Answer.NOT_FOUND: State.FOREIGN},
            Action.REGISTER: {Answer.NOT_FOUND: State.FOREIGN},
            Action.LIST: _unlisted(State.FOREIGN),
            Action.REMOVE: {Answer.NOT_FOUND: State.FOREIGN},
            Action.REGISTER_CHANGED: {Answer.NOT_FOUND: State.FOREIGN},
            Action.REGISTER_OTHER: {Answer.NOT_FOUND: State.FOREIGN},
            Action.LIST_OTHER: _unlisted(State.FOREIGN),
            # The label may well be the other account's own, so only what touches our user is theirs to be refused.
            Action.SCAN_STRANGER: {Answer.NOT_FOUND: State.FOREIGN, Answer.SHOWN: State.FOREIGN},
            Action.REGISTER_STRANGER: {Answer.NOT_FOUND: State.FOREIGN, Answer.LINKED: State.FOREIGN},
            Action.LIST_STRANGER: _unlisted(State.FOREIGN),
            Action.REMOVE_STRANGER: {Answer.NOT_FOUND: State.FOREIGN},
        },
        State.FORGED: {
            Action.SCAN: {Answer.REFUSED: State.FORGED},
            # The service checks signatures where it scans. Whether a caller who registers all the same succeeds is not
            # followed up: what comes after is right either way.
            Action.REGISTER: {Answer.LINKED: State.FORGED, Answer.CONFLICT: State.FORGED},
            Action.LIST: {Answer.LISTED: State.FORGED, **_unlisted(State.FORGED)},
            Action.REMOVE: {Answer.NOT_FOUND: State.FORGED, Answer.REMOVED: State.FORGED},
            Action.REGISTER_CHANGED: {Answer.LINKED: State.FORGED},
            Action.REGISTER_OTHER: {Answer.LINKED: State.FORGED, Answer.CONFLICT: State.FORGED},
            Action.LIST_OTHER: {Answer.LISTED: State.FORGED, **_unlisted(State.FORGED)},
            **_missing(State.FORGED),
        },
    }
)

OPEN: Final[Rows] = MappingProxyType(
    {
        State.UNKNOWN: {
            # Silence about registration says nothing against a fresh label; whoever registers finds out.
            Action.SCAN: {Answer.SHOWN_SILENT: State.UNREGISTERED},
            Action.REGISTER_CHANGED: {Answer.REFUSED: State.UNKNOWN, Answer.CONFLICT: State.UNKNOWN},
            Action.REMOVE: {Answer.REFUSED: State.UNKNOWN},
        },
        State.UNREGISTERED: {
            Action.SCAN: {Answer.SHOWN_SILENT: State.UNREGISTERED},
            Action.REMOVE: {Answer.REFUSED: State.UNREGISTERED},
            Action.REGISTER_CHANGED: {Answer.REFUSED: State.UNREGISTERED, Answer.CONFLICT: State.UNREGISTERED},
        },
        State.REGISTERED: {
            Action.SCAN: {Answer.SHOWN_SILENT: State.REGISTERED, Answer.CONFLICT: State.REGISTERED},
            Action.REGISTER: {Answer.CONFLICT: State.REGISTERED, Answer.REFUSED: State.REGISTERED},
            Action.REGISTER_CHANGED: {Answer.REFUSED: State.REGISTERED, Answer.CONFLICT: State.REGISTERED},
            Action.REGISTER_OTHER: {Answer.REFUSED: State.REGISTERED},
        },
        State.TAKEN: {
            Action.SCAN: {Answer.SHOWN_SILENT: State.TAKEN, Answer.CONFLICT: State.TAKEN},
            Action.REGISTER: {Answer.REFUSED: State.TAKEN},
            Action.REMOVE: {Answer.REFUSED: State.TAKEN, Answer.NOT_FOUND: State.TAKEN},
            Action.REGISTER_CHANGED: {Answer.REFUSED: State.TAKEN, Answer.CONFLICT: State.TAKEN},
            Action.REGISTER_OTHER: {Answer.CONFLICT: State.TAKEN, Answer.REFUSED: State.TAKEN},
        },
        State.REMOVED: {
            Action.SCAN: {Answer.SHOWN_SILENT: State.REMOVED},
            Action.REMOVE: {Answer.REFUSED: State.REMOVED},
            Action.REGISTER_CHANGED: {Answer.REFUSED: State.REMOVED, Answer.CONFLICT: State.REMOVED},
        },
        State.FOREIGN: {
            Action.SCAN: {Answer.REFUSED: State.FOREIGN},
            Action.REGISTER: {Answer.REFUSED: State.FOREIGN},
            Action.REMOVE: {Answer.REFUSED: State.FOREIGN},
            Action.REGISTER_CHANGED: {Answer.REFUSED: State.FOREIGN},
            Action.REGISTER_OTHER: {Answer.REFUSED: State.FOREIGN},
            Action.SCAN_STRANGER: {Answer.REFUSED: State.FOREIGN, Answer.SHOWN_SILENT: State.FOREIGN},
            Action.REGISTER_STRANGER: {Answer.REFUSED: State.FOREIGN},
        },
        State.FORGED: {
            # A server without signatures takes the label for a good one.
            Action.SCAN: {
                Answer.SHOWN: State.FORGED,
                Answer.SHOWN_SILENT: State.FORGED,
                Answer.SHOWN_REGISTERED: State.FORGED,
            },
            Action.REGISTER: {Answer.REFUSED: State.FORGED},
            Action.REMOVE: {Answer.REFUSED: State.FORGED},
            Action.REGISTER_CHANGED: {Answer.REFUSED: State.FORGED, Answer.CONFLICT: State.FORGED},
            Action.REGISTER_OTHER: {Answer.REFUSED: State.FORGED},
        },
    }
)
"""What is right, too, since the specification is silent: rules E2, E5 and errors rule 5."""


class StepVerdict(StrEnum):
    """What a step proved."""

    PASSED = "passed"
    ALLOWED = "allowed"
    """Not what docs/service.md chose, and nothing against the specification."""
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def is_good(self) -> bool:
        """Whether the service did nothing wrong."""
        return self in {StepVerdict.PASSED, StepVerdict.ALLOWED}


@dataclass(frozen=True, slots=True)
class Judgement:
    """Answers held against the table.

    Attributes:
        verdict: of the answer, or of the worst one of several.
        states: what is possible afterwards; a fault leaves it as it was.
    """

    verdict: StepVerdict
    states: frozenset[State]


def expected_answers(states: Iterable[State], action: Action) -> tuple[Answer, ...]:
    """The good answers to an action, the chosen ones before those that the specification leaves open."""
    found = sorted(states)
    chosen = [answer for state in found for answer in TABLE[state][action]]
    open_ones = [answer for state in found for answer in OPEN[state].get(action, {})]
    return tuple(dict.fromkeys(chosen + open_ones))


def judge(states: frozenset[State], action: Action, answer: Answer) -> Judgement:
    """Hold one answer against the table; several states are possible after a race."""
    return judge_together(states, [(action, answer)])


def judge_together(states: frozenset[State], answered: Sequence[tuple[Action, Answer]]) -> Judgement:
    """Hold the answers to requests that were in flight together against the table.

    They are right when there is an order of the requests, one after the other, that explains every answer
    (linearizability: M. Herlihy and J. Wing, 1990). What is possible afterwards is the end of every such order.
    """
    for verdict, rows in ((StepVerdict.PASSED, (TABLE,)), (StepVerdict.ALLOWED, (TABLE, OPEN))):
        ends = frozenset().union(*(_ends(state, Counter(answered), rows) for state in states))
        if ends:
            return Judgement(verdict, ends)
    return Judgement(StepVerdict.FAILED, states)


def _ends(state: State, left: Counter[tuple[Action, Answer]], rows: Sequence[Rows]) -> frozenset[State]:
    """Where the orders end that explain all of ``left``; equal requests with equal answers are tried once."""
    if not left:
        return frozenset({state})
    ends: set[State] = set()
    for (action, answer), count in left.items():
        for after in (row[state].get(action, {}).get(answer) for row in rows):
            if after is not None:
                rest = Counter({**left, (action, answer): count - 1})
                ends |= _ends(after, +rest, rows)
    return frozenset(ends)
