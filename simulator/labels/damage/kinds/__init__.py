"""The kinds of damage: each is a function with the decorator ``damage_kind``, in any module of this package.

A new kind needs no entry elsewhere. The modules are imported by name, so the names decide the order of the kinds in
manifests.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

from simulator.labels.damage.kind import REGISTERED, Kind


def import_all() -> None:
    """Import every module of this package, so that its kinds register themselves."""
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        import_module(f"{__name__}.{name}")


import_all()
KINDS: Final[Mapping[str, Kind]] = MappingProxyType(REGISTERED)
"""Every kind by its name."""
