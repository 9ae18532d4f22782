"""The signals that there are, by the word that a scenario names them by.

Each is a module of :mod:`simulator.fleet.signals.kinds`, which registers itself
(:func:`~simulator.fleet.signals.kind.register_signal`).
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Final, Union

from pydantic import Field

from simulator.fleet.settings import ReadingName
from simulator.fleet.signals import kinds
from simulator.fleet.signals.kind import REGISTERED, Shape

for _module in iter_modules(kinds.__path__, f"{kinds.__name__}."):
    import_module(_module.name)

KINDS: Final = dict(sorted(REGISTERED.items()))

if TYPE_CHECKING:
    SignalSettings = Shape
else:
    SignalSettings = Annotated[
        Union[tuple(each.settings for each in KINDS.values())],  # noqa: UP007 - made of what is registered
        Field(discriminator="kind"),
    ]
"""One signal of a scenario: the settings of one of the kinds."""

SignalMap = Annotated[dict[ReadingName, SignalSettings], Field(min_length=1, max_length=100)]
"""Signals by reading name."""
