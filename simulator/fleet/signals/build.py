"""Signals out of a scenario's settings: files read, all faults reported at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from agent.errors import ConfigurationError
from simulator.fleet.signals.base import Shaped, Signal, SignalSet
from simulator.fleet.signals.kind import SignalContext
from simulator.fleet.signals.registry import SignalSettings


def build_signals(settings: Mapping[str, SignalSettings], *, folder: Path, origin_s: float = 0.0) -> SignalSet:
    """Make the signals of one device model.

    Args:
        settings: by reading name.
        folder: where files are looked for that have no absolute path; the scenario's.
        origin_s: when signals begin that are played once or in step, seconds since the epoch.

    Raises:
        ConfigurationError: a file cannot be used; every such fault, each with the reading it belongs to.
    """
    context = SignalContext(folder, origin_s)
    made: dict[str, Shaped] = {}
    faults: list[str] = []
    for name, each in settings.items():
        try:
            made[name] = _shaped(each, each.make(name, context))
        except ConfigurationError as error:
            faults += [f"{name}: {error.source}: {fault}" for fault in error.faults]
    if faults:
        raise ConfigurationError(faults, "signals")
    return SignalSet(made)


def _shaped(settings: SignalSettings, signal: Signal) -> Shaped:
    """The signal within the sensor's bounds and decimals."""
    low = -math.inf if settings.min is None else settings.min
    high = math.inf if settings.max is None else settings.max
    return Shaped(signal, low, high, settings.digits)
