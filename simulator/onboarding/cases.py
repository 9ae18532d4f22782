"""The cases that try every order of events.

A case says who does what, in which order; what is right at each step stands in :mod:`simulator.onboarding.journey` and
nowhere else. The first group is made out of the table: into every state, then every action, then a look at what the
service says now. The second group is what an adversary or a hurry does, by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from simulator.onboarding.journey import TABLE, Action, State


class Label(StrEnum):
    """How a label comes about, and what has to be there first."""

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
    RESIGNED = "re-signed product"
    """Signed by the key that its product had when the label was printed; the product has another key by now."""


BEGINNING: Final[Mapping[Label, State]] = {
    Label.FRESH: State.UNREGISTERED,
    Label.COPY: State.UNREGISTERED,
    Label.OTHER_PRODUCT: State.UNREGISTERED,
    Label.UNKNOWN_PRODUCT: State.FOREIGN,
    Label.DELETED_PRODUCT: State.FOREIGN,
    Label.RESIGNED: State.FORGED,
}
"""The state of each label before the first step. A copy shares the state of what it was copied from."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request of a case.

    Attributes:
        action: who does what.
        label: to which of the case's labels.
    """

    action: Action
    label: int = 0


@dataclass(frozen=True, slots=True)
class ConcurrentRequests:
    """Requests for the case's first label that are in flight at the same time."""

    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One order of events.

    Attributes:
        name: stable, for reports and ``--select``.
        title: one sentence.
        labels: what has to be there before the first step.
        steps: in order.
    """

    name: str
    title: str
    labels: tuple[Label, ...]
    steps: tuple[Step | ConcurrentRequests, ...]


def actions_of(step: Step | ConcurrentRequests) -> tuple[Action, ...]:
    """What is asked in one step."""
    return step.actions if isinstance(step, ConcurrentRequests) else (step.action,)


def _walk(*actions: Action) -> tuple[Step, ...]:
    return tuple(Step(action) for action in actions)


_LOOK: Final = _walk(Action.SCAN, Action.LIST, Action.LIST_OTHER)
_INTO: Final[Mapping[State, tuple[Label, Sequence[Action]]]] = {
    State.UNREGISTERED: (Label.FRESH, ()),
    State.REGISTERED: (Label.FRESH, (Action.SCAN, Action.REGISTER)),
    State.TAKEN: (Label.FRESH, (Action.REGISTER_OTHER,)),
    State.REMOVED: (Label.FRESH, (Action.SCAN, Action.REGISTER, Action.REMOVE)),
    State.FOREIGN: (Label.UNKNOWN_PRODUCT, ()),
    State.FORGED: (Label.RESIGNED, ()),
}
"""How to bring a label into each state."""


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
        for action in Action
    )


_S, _R, _L, _D = Action.SCAN, Action.REGISTER, Action.LIST, Action.REMOVE
_RO, _LO, _RC = Action.REGISTER_OTHER, Action.LIST_OTHER, Action.REGISTER_CHANGED
_CROWD: Final = 4
"""Requests of each kind in a race: enough to meet in the service, few enough for a small one."""


def _case(name: str, title: str, *steps: Action | Step | ConcurrentRequests, labels: Sequence[Label] = ()) -> Case:
    made = (Step(step) if isinstance(step, Action) else step for step in steps)
    return Case(name, title, tuple(labels) or (Label.FRESH,), tuple(made))


def _race(*actions: Action) -> ConcurrentRequests:
    return ConcurrentRequests(actions)


def _second(*actions: Action) -> tuple[Step, ...]:
    """The same with the case's second label."""
    return tuple(Step(action, label=1) for action in actions)


_CLONE: Final = (Label.FRESH, Label.COPY)
_TWO_PRODUCTS: Final = (Label.FRESH, Label.OTHER_PRODUCT)
_TWO_DEVICES: Final[tuple[Action | Step, ...]] = (_S, _R, *_second(_S, _R), _L, *_second(_L, _D), _L, *_second(_L))

ADVERSARIAL: Final = (
    _case("round_trip", "Scan, register, list, remove, list, scan.", _S, _R, _L, _D, _L, _S),
    _case("register_without_scan", "Whoever knows the identifier registers without a scan.", _R, _L, _S),
    _case("register_twice", "The same user registers twice: one device.", _S, _R, _R, _L, _D, _L),
    _case("remove_before_register", "A removal of what was never registered.", _D, _S, _R, _L),
    _case("remove_twice", "The second removal finds nothing.", _R, _D, _D, _L),
    _case("return", "Removed, then registered by the same user.", _S, _R, _D, _S, _R, _L, _D),
    _case("second_owner", "Removed, then registered by another user.", _S, _R, _D, _RO, *_LOOK, _R, _D),
    _case("clone_same_user", "The same text twice, one user: one device.", _S, _R, *_second(_S, _R), _L, labels=_CLONE),
    _case("clone_other_user", "The same, two users.", _S, _R, *_second(_S, _RO), _L, *_second(_LO), labels=_CLONE),
    _case("clone_other_product", "On another product it is another device.", *_TWO_DEVICES, labels=_TWO_PRODUCTS),
    _case("wrong_identifier", "Registered with another identifier: the label stays free.", _S, _RC, _L, _S, _R, _L),
    _case("unknown_product", "A label of no product.", _S, _R, _L, labels=[Label.UNKNOWN_PRODUCT]),
    _case("expired_label", "A label whose product was deleted.", _S, _R, _L, labels=[Label.DELETED_PRODUCT]),
    _case("race_same_user", "One user registers in parallel: one device.", _S, _race(*(_R,) * 2 * _CROWD), *_LOOK),
    _case("race_two_users", "Two users register in parallel: one gets it.", _S, _race(*(_R, _RO) * _CROWD), *_LOOK),
    _case("race_remove", "Removed in parallel: once.", _S, _R, _race(*(_D,) * _CROWD), *_LOOK),
    _case("race_remove_register", "Removed while it is registered again.", _S, _R, _race(_D, _R), *_LOOK),
    _case("race_remove_take_over", "Removed while another user registers.", _S, _R, _race(_D, _RO), *_LOOK),
    _case("race_scan_register", "Scanned while it is registered.", _race(_S, _R), *_LOOK),
)

CASES: Final = (*transitions(), *ADVERSARIAL)
"""All of them, by a name that is never used twice."""
