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
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """What is known about the device behind a label."""

    UNREGISTERED = "unregistered"
    REGISTERED = "registered"
    """To our user."""
    TAKEN = "taken"
    """Registered to another user of the same account."""
    REMOVED = "removed"
    """It was registered and removed; the label is free again."""
    FOREIGN = "foreign"
    """The label's product is not one of this account: unknown, or deleted after printing."""
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
    }


TABLE: Final[Mapping[State, Mapping[Action, Expected]]] = {
    State.UNREGISTERED: _free(State.UNREGISTERED),
    State.REGISTERED: {
        Action.SCAN: {Answer.SHOWN_REGISTERED: State.REGISTERED},
        Action.REGISTER: {Answer.LINKED: State.REGISTERED},
        Action.LIST: {Answer.LISTED: State.REGISTERED},
        Action.REMOVE: {Answer.REMOVED: State.REMOVED},
        Action.REGISTER_CHANGED: {Answer.LINKED: State.REGISTERED},
        Action.REGISTER_OTHER: {Answer.CONFLICT: State.REGISTERED},
        Action.LIST_OTHER: _unlisted(State.REGISTERED),
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
    },
}

_FREE_TOO: Final[Mapping[Action, Collection[Answer]]] = {
    Action.SCAN: {Answer.SHOWN_SILENT},
    Action.REMOVE: {Answer.REFUSED},
    Action.REGISTER_CHANGED: {Answer.REFUSED, Answer.CONFLICT},
}
OPEN: Final[Mapping[State, Mapping[Action, Collection[Answer]]]] = {
    State.UNREGISTERED: _FREE_TOO,
    State.REMOVED: _FREE_TOO,
    State.REGISTERED: {
        Action.SCAN: {Answer.SHOWN_SILENT, Answer.CONFLICT},
        Action.REGISTER: {Answer.CONFLICT, Answer.REFUSED},
        Action.REGISTER_CHANGED: {Answer.REFUSED, Answer.CONFLICT},
        Action.REGISTER_OTHER: {Answer.REFUSED},
    },
    State.TAKEN: {
        Action.SCAN: {Answer.SHOWN_SILENT, Answer.CONFLICT},
        Action.REGISTER: {Answer.REFUSED},
        Action.REMOVE: {Answer.REFUSED, Answer.NOT_FOUND},
        Action.REGISTER_CHANGED: {Answer.REFUSED, Answer.CONFLICT},
        Action.REGISTER_OTHER: {Answer.CONFLICT, Answer.REFUSED},
    },
    State.FOREIGN: {
        Action.SCAN: {Answer.REFUSED},
        Action.REGISTER: {Answer.REFUSED},
        Action.REMOVE: {Answer.REFUSED},
        Action.REGISTER_CHANGED: {Answer.REFUSED},
        Action.REGISTER_OTHER: {Answer.REFUSED},
    },
    State.FORGED: {
        # A server without signatures takes the label for a good one.
        Action.SCAN: {Answer.SHOWN, Answer.SHOWN_SILENT, Answer.SHOWN_REGISTERED},
        Action.REGISTER: {Answer.REFUSED},
        Action.REMOVE: {Answer.REFUSED},
        Action.REGISTER_CHANGED: {Answer.REFUSED, Answer.CONFLICT},
        Action.REGISTER_OTHER: {Answer.REFUSED},
    },
}
"""What is right, too, since the specification is silent (rules E2, E5 and errors rule 5); the state stays."""


class Verdict(StrEnum):
    """What an answer proved."""

    PASSED = "passed"
    ALLOWED = "allowed"
    """Not what docs/service.md chose, and nothing against the specification."""
    FAILED = "failed"


def expected_answers(states: Iterable[State], action: Action) -> tuple[Answer, ...]:
    """The good answers to an action, the chosen ones before those that the specification leaves open."""
    found = sorted(states)
    chosen = [answer for state in found for answer in TABLE[state][action]]
    open_ones = [answer for state in found for answer in sorted(OPEN[state].get(action, ()))]
    return tuple(dict.fromkeys(chosen + open_ones))


def judge(states: frozenset[State], answered: Sequence[tuple[Action, Answer]]) -> tuple[Verdict, frozenset[State]]:
    """Hold the answers to requests that were in flight together against the table; several states are possible.

    They are right when there is an order of the requests, one after the other, that explains every answer
    (linearizability: M. Herlihy and J. Wing, 1990). What is possible afterwards is the end of every such order; a
    fault leaves it as it was.
    """
    for verdict, with_open in ((Verdict.PASSED, False), (Verdict.ALLOWED, True)):
        ends = frozenset().union(*(_ends(state, Counter(answered), with_open=with_open) for state in states))
        if ends:
            return verdict, ends
    return Verdict.FAILED, states


def _ends(state: State, left: Counter[tuple[Action, Answer]], *, with_open: bool) -> frozenset[State]:
    """Where the orders end that explain all of ``left``; equal requests with equal answers are tried once."""
    if not left:
        return frozenset({state})
    ends: set[State] = set()
    for (action, answer), count in left.items():
        after = TABLE[state][action].get(answer)
        if after is None and with_open and answer in OPEN[state].get(action, ()):
            after = state
        if after is not None:
            rest = Counter({**left, (action, answer): count - 1})
            ends |= _ends(after, +rest, with_open=with_open)
    return frozenset(ends)
