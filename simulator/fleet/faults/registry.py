"""The faults that there are, of devices and of the network, by the word that a scenario names them by.

Each is a module of :mod:`simulator.fleet.faults.kinds`, which registers itself
(:func:`~simulator.fleet.faults.base.register_fault`).
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Any, Final, Union

from pydantic import Field

from simulator.fleet.faults import kinds
from simulator.fleet.faults.base import REGISTERED, DeviceFault, FaultBasis
from simulator.fleet.faults.link import LinkFault

for _module in iter_modules(kinds.__path__, f"{kinds.__name__}."):
    import_module(_module.name)

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


def causes_rejections(kinds: Iterable[str]) -> bool:
    """Whether faults of these kinds make readings that a service refuses, as the scenario means it."""
    return any(_KINDS[kind].makes_refusals for kind in kinds)


def skews_clocks(kinds: Iterable[str]) -> bool:
    """Whether faults of these kinds make the clocks of devices wrong, as the scenario means it."""
    return any(_KINDS[kind].sets_clocks for kind in kinds)


def build_faults(settings: Iterable[DeviceFaultSettings], *, origin_s: float) -> tuple[DeviceFault[Any], ...]:
    """The faults of a run that begins at ``origin_s``, seconds since the epoch."""
    return tuple(_KINDS[each.kind].fault(each, origin_s, number) for number, each in enumerate(settings))
