"""What a kind of damage is."""

from __future__ import annotations

from typing import Protocol

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels


class Kind(Protocol):
    """One kind of damage; the rules that it keeps stand in :mod:`simulator.labels.damage`."""

    @property
    def name(self) -> str:
        """A word for options, folders and manifests."""
        ...

    @property
    def what(self) -> str:
        """What happened to the label, in a few words."""
        ...

    @property
    def unit(self) -> str:
        """What :meth:`measure` counts."""
        ...

    def measure(self, severity: float) -> float:
        """How much damage a severity is; rises with it."""
        ...

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """The label's picture after the damage.

        Args:
            label: the label as it should be; never changed.
            severity: above 0, up to 1.
            chance: fresh for each call, and the same for every severity of this label.
        """
        ...
