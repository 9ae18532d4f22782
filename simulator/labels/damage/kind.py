"""What a kind of damage is, and the decorator that registers one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from simulator.labels.damage.chance import PortableRandom
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels

Apply = Callable[[CleanLabel, float, PortableRandom], Pixels]
"""The label, a severity above 0 up to 1, and the chance in; the damaged picture out.

The label is never changed. The chance is fresh for each call, and the same for every severity of a label.
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of damage; :mod:`simulator.labels.damage` lists the rules that it keeps.

    Attributes:
        name: a word for options, folders and manifests.
        what: what happened to the label, in a few words.
        unit: what ``measure`` counts.
        measure: how much damage a severity from 0 to 1 is; rises with it.
        apply: makes the damaged picture.
    """

    name: str
    what: str
    unit: str
    measure: Callable[[float], float]
    apply: Apply


REGISTERED: Final[dict[str, Kind]] = {}
"""Every kind by its name, in the order of registration."""


def damage_kind(what: str, *, unit: str, measure: Callable[[float], float]) -> Callable[[Apply], Apply]:
    """Register the function below as a kind of damage; its name is the kind's name.

    Args:
        what: see :class:`Kind`.
        unit: see :class:`Kind`.
        measure: see :class:`Kind`.

    Raises:
        ValueError: there is a kind of this name.
    """

    def register(apply: Apply) -> Apply:
        name = apply.__name__
        if name in REGISTERED:
            raise ValueError(f"two kinds of damage are called {name}")
        REGISTERED[name] = Kind(name, what, unit, measure, apply)
        return apply

    return register
