"""The faults that there are, of devices and of the network, by the word that a scenario names them by.

Each is a class of :mod:`simulator.fleet.faults.kinds`, which registers it
(:func:`~simulator.fleet.faults.base.register_fault`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final, Union

from pydantic import Field

from simulator.fleet.faults import kinds  # noqa: F401 - registers them
from simulator.fleet.faults.base import REGISTERED, DeviceFault, FaultBasis
from simulator.fleet.faults.link import LinkFault

_KINDS: Final = dict(sorted(REGISTERED.items()))

if TYPE_CHECKING:
    DeviceFaultSettings = FaultBasis
else:
    DeviceFaultSettings = Annotated[
        Union[tuple(each.settings for each in _KINDS.values())],  # noqa: UP007 - made of what is registered
        Field(discriminator="kind"),
    ]
"""One fault in a scenario: the settings of one of the kinds."""

KINDS: Final = tuple(_KINDS)
"""The words."""

LINK_KINDS: Final = frozenset(word for word, each in _KINDS.items() if issubclass(each.fault, LinkFault))
"""Those of the network."""


def causes_rejections(words: Iterable[str]) -> bool:
    """Whether faults of these kinds make readings that a service refuses, as the scenario means it."""
    return any(_KINDS[word].makes_refusals for word in words)


def skews_clocks(words: Iterable[str]) -> bool:
    """Whether faults of these kinds make the clocks of devices wrong, as the scenario means it."""
    return any(_KINDS[word].sets_clocks for word in words)


def build_faults(settings: Iterable[DeviceFaultSettings], *, origin_s: float) -> tuple[DeviceFault[Any], ...]:
    """The faults of a run that begins at ``origin_s``, seconds since the epoch."""
    return tuple(_KINDS[each.kind].fault(each, origin_s, number) for number, each in enumerate(settings))
