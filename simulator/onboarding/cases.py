"""Orders of events: the journeys of given labels, and the cases that try every order there is.

A case says who does what, in which order; what is right at each step stands in :mod:`simulator.onboarding.journey` and
nowhere else. The first group is made out of the table: into every state, then every action, then a look at what the
service says now. The second group is what an adversary or a hurry does, by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from simulator.onboarding.journey import STRANGERS, TABLE, Action, Answer, State


class Label(StrEnum):
    """How a label comes about, and what has to be there first."""

    GIVEN = "given"
    """Read from a picture or a manifest."""
    FRESH = "fresh"
    """Of the run's own product; nobody has ever used its identifier."""
    COPY = "copy"
    """The text of the case's first label, printed a second time."""
    OTHER_PRODUCT = "other product"
    """The identifier of the case's first label, on another product of the account."""
    UNKNOWN_PRODUCT = "unknown product"
    """Of a product that never existed."""
    DELETED_PRODUCT = "deleted product"
    """Printed while its product was there: an expired label."""
    STRANGERS_PRODUCT = "another account's product"
    RESIGNED = "re-signed product"
    """Signed by the key that its product had when the label was printed; the product has another key by now."""


BEGINNING: Final[Mapping[Label, State]] = MappingProxyType(
    {
        Label.GIVEN: State.UNKNOWN,
        Label.FRESH: State.UNREGISTERED,
        Label.COPY: State.UNREGISTERED,
        Label.OTHER_PRODUCT: State.UNREGISTERED,
        Label.UNKNOWN_PRODUCT: State.FOREIGN,
        Label.DELETED_PRODUCT: State.FOREIGN,
        Label.STRANGERS_PRODUCT: State.FOREIGN,
        Label.RESIGNED: State.FORGED,
    }
)
"""The state of each label before the first step. A copy shares the state of what it was copied from."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request of a case.

    Attributes:
        action: who does what.
        label: to which of the case's labels.
        wants: what this walk is for, where the table allows more; empty takes all that it allows.
    """

    action: Action
    label: int = 0
    wants: frozenset[Answer] = frozenset()


@dataclass(frozen=True, slots=True)
class ConcurrentRequests:
    """Requests for the case's first label that are in flight at the same time."""

    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One order of events.

    Attributes:
        name: stable, for reports, profiles and ``--only``.
        title: one sentence.
        labels: what has to be there before the first step.
        steps: in order.
    """

    name: str
    title: str
    labels: tuple[Label, ...]
    steps: tuple[Step | ConcurrentRequests, ...]

    @property
    def needs_stranger(self) -> bool:
        """Whether a second account takes part."""
        actions = {action for step in self.steps for action in actions_of(step)}
        return bool(actions & STRANGERS) or Label.STRANGERS_PRODUCT in self.labels


def actions_of(step: Step | ConcurrentRequests) -> tuple[Action, ...]:
    """What is asked in one step."""
    return step.actions if isinstance(step, ConcurrentRequests) else (step.action,)


def _walk(*actions: Action) -> tuple[Step, ...]:
    return tuple(Step(action) for action in actions)


KEEP: Final = (Step(Action.SCAN), Step(Action.REGISTER, wants=frozenset({Answer.LINKED})), Step(Action.LIST))
"""The journey that leaves the device registered."""
ROUND_TRIP: Final = (*KEEP, *_walk(Action.REMOVE, Action.LIST))
"""The journey that leaves nothing behind; the second list proves it."""

_LOOK: Final = _walk(Action.SCAN, Action.LIST, Action.LIST_OTHER)
_INTO: Final[Mapping[State, tuple[Label, Sequence[Action]]]] = MappingProxyType(
    {
        State.UNREGISTERED: (Label.FRESH, ()),
        State.REGISTERED: (Label.FRESH, (Action.SCAN, Action.REGISTER)),
        State.TAKEN: (Label.FRESH, (Action.REGISTER_OTHER,)),
        State.REMOVED: (Label.FRESH, (Action.SCAN, Action.REGISTER, Action.REMOVE)),
        State.FOREIGN: (Label.UNKNOWN_PRODUCT, ()),
        State.FORGED: (Label.RESIGNED, ()),
    }
)
"""How to bring a label into each state; ``unknown`` is only what one has not asked yet."""


def _word(text: str) -> str:
    return text.replace(" ", "_")


def transitions() -> tuple[Case, ...]:
    """Every action in every state, and what the service says afterwards."""
    return tuple(
        Case(
            f"{state.value}.{_word(action.value)}",
            f"A label that is {state.value}: {action.value}.",
            (_INTO[state][0],),
            (*_walk(*_INTO[state][1]), Step(action), *_LOOK),
        )
        for state in TABLE
        if state in _INTO
        for action in Action
    )


_S, _R, _L, _D = Action.SCAN, Action.REGISTER, Action.LIST, Action.REMOVE
_RO = Action.REGISTER_OTHER
_FRESH: Final = (Label.FRESH,)
_CROWD: Final = 4
"""Requests of each kind in a race: enough to meet in the service, few enough for a small one."""

ADVERSARIAL: Final = (
    Case("round_trip", "Scan, register, list, remove, list, scan.", _FRESH, _walk(_S, _R, _L, _D, _L, _S)),
    Case("register_without_scan", "Whoever knows the identifier registers without a scan.", _FRESH, _walk(_R, _L, _S)),
    Case("register_twice", "The same user registers twice: one device.", _FRESH, _walk(_S, _R, _R, _L, _D, _L)),
    Case("remove_before_register", "A removal of what was never registered.", _FRESH, _walk(_D, _S, _R, _L)),
    Case("remove_twice", "The second removal finds nothing.", _FRESH, _walk(_R, _D, _D, _L)),
    Case("return", "Removed, then registered by the same user.", _FRESH, _walk(_S, _R, _D, _S, _R, _L, _D)),
    Case(
        "second_owner",
        "Removed, then registered by another user; the first one is out.",
        _FRESH,
        (*_walk(_S, _R, _D, _RO), *_LOOK, *_walk(_R, _D)),
    ),
    Case(
        "take_over",
        "Another user registers a device that has an owner, and lists.",
        _FRESH,
        (*_walk(_S, _R, _RO), *_LOOK),
    ),
    Case(
        "clone_same_user",
        "Two labels with the same text, one user: one device.",
        (Label.FRESH, Label.COPY),
        (*_walk(_S, _R), Step(_S, 1), Step(_R, 1), Step(_L)),
    ),
    Case(
        "clone_other_user",
        "Two labels with the same text, two users: the first one keeps it.",
        (Label.FRESH, Label.COPY),
        (*_walk(_S, _R), Step(_S, 1), Step(_RO, 1), Step(_L), Step(Action.LIST_OTHER, 1)),
    ),
    Case(
        "clone_other_product",
        "The same identifier on another product is another device.",
        (Label.FRESH, Label.OTHER_PRODUCT),
        (*_walk(_S, _R), Step(_S, 1), Step(_R, 1), Step(_L), Step(_L, 1), Step(_D, 1), Step(_L), Step(_L, 1)),
    ),
    Case(
        "wrong_identifier",
        "Scanned, then registered with another identifier: the scanned label stays free.",
        _FRESH,
        _walk(_S, Action.REGISTER_CHANGED, _L, _S, _R, _L),
    ),
    Case("scan_after_removal", "A removed label scans as free.", _FRESH, _walk(_S, _R, _S, _D, _S)),
    Case("unknown_product", "A label of a product that never existed.", (Label.UNKNOWN_PRODUCT,), _walk(_S, _R, _L)),
    Case("expired_label", "A label whose product was deleted.", (Label.DELETED_PRODUCT,), _walk(_S, _R, _L)),
    Case("revoked_signature", "A label signed by a key that was replaced.", (Label.RESIGNED,), _walk(_S)),
    Case(
        "foreign_label",
        "A label of another account's product.",
        (Label.STRANGERS_PRODUCT,),
        _walk(Action.SCAN_STRANGER, _S, _R, _L),
    ),
    Case(
        "foreign_account",
        "Another account scans, registers, lists and removes what is ours.",
        _FRESH,
        (*_walk(_S, _R), *_walk(*sorted(STRANGERS)), *_LOOK),
    ),
    Case(
        "race_same_user",
        "One user registers in parallel: exactly one device.",
        _FRESH,
        (Step(_S), ConcurrentRequests((_R,) * 2 * _CROWD), *_LOOK),
    ),
    Case(
        "race_two_users",
        "Two users register in parallel: one of them gets it.",
        _FRESH,
        (Step(_S), ConcurrentRequests((_R, _RO) * _CROWD), *_LOOK),
    ),
    Case(
        "race_remove",
        "Removed in parallel: once.",
        _FRESH,
        (*_walk(_S, _R), ConcurrentRequests((_D,) * _CROWD), *_LOOK),
    ),
    Case(
        "race_remove_register",
        "Removed while it is registered again.",
        _FRESH,
        (*_walk(_S, _R), ConcurrentRequests((_D, _R)), *_LOOK),
    ),
    Case(
        "race_remove_take_over",
        "Removed while another user registers.",
        _FRESH,
        (*_walk(_S, _R), ConcurrentRequests((_D, _RO)), *_LOOK),
    ),
    Case("race_scan_register", "Scanned while it is registered.", _FRESH, (ConcurrentRequests((_S, _R)), *_LOOK)),
)

CASES: Final = (*transitions(), *ADVERSARIAL)
"""All of them, by a name that is never used twice."""
