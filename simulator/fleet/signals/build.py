"""Signals out of a scenario's settings: files read, names resolved, all faults reported at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from agent.errors import ConfigurationError
from simulator.fleet.signals.base import Shaped, Signal, SignalSet
from simulator.fleet.signals.kind import Shape, SignalContext
from simulator.fleet.signals.kinds.constant import Constant
from simulator.fleet.signals.registry import KINDS, SignalSettings


def build_signals(
    settings: Mapping[str, SignalSettings],
    *,
    folder: Path,
    origin_s: float = 0.0,
    others: SignalSet | None = None,
) -> SignalSet:
    """Make the signals of one device model.

    Args:
        settings: by reading name.
        folder: where files are looked for that have no absolute path; the scenario's.
        origin_s: when signals begin that are played once or in step, seconds since the epoch.
        others: signals that formulas and followers may name as well, and that are not part of the answer.

    Raises:
        ConfigurationError: a file cannot be used, a name is not there or goes in a circle; every such fault, each with
            the reading it belongs to.
    """
    builder = _Builder(settings, folder, origin_s, others or SignalSet({}))
    signals = builder.build()
    if builder.faults:
        raise ConfigurationError(builder.faults, "signals")
    return signals


class _Builder:
    """Signals by reading name, each made when it is first asked for."""

    def __init__(
        self, settings: Mapping[str, SignalSettings], folder: Path, origin_s: float, others: SignalSet
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._origin_s = origin_s
        self._others = others
        self._made: dict[str, Shaped] = {}
        self._open: list[str] = []
        self.faults: list[str] = []

    def build(self) -> SignalSet:
        owners: dict[str, str] = {}
        for name, settings in self._settings.items():
            for reading in settings.names(name):
                if reading in owners:
                    self.faults.append(f"{name}: the reading {reading} is already given by {owners[reading]}")
                owners[reading] = name
        # Those with readings of other names first: other signals may follow these readings.
        for name in sorted(self._settings, key=self._is_named):
            if self._is_named(name):
                self._signal(name)
            else:
                self._make(name)
        return SignalSet({reading: self._made[reading] for reading in owners if reading in self._made})

    def _is_named(self, name: str) -> bool:
        """Whether the signal's reading has the name that the signal stands under."""
        return self._settings[name].names(name) == (name,)

    def _make(self, name: str) -> None:
        """Make the signals of one entry; what is wrong with it is among the faults."""
        settings = self._settings[name]
        context = SignalContext(self._folder, self._origin_s, partial(self._reference, name))
        try:
            made = KINDS[settings.kind].make(name, settings, context)
        except ConfigurationError as error:
            self.faults += [f"{name}: {error.source}: {fault}" for fault in error.faults]
            return
        self._made |= made if isinstance(made, Mapping) else {name: _shaped(settings, made)}

    def _signal(self, name: str) -> Shaped | None:
        """The signal of a reading; None when it cannot be made, which is then among the faults."""
        if name in self._made:
            return self._made[name]
        if name in self._open:
            circle = " -> ".join([*self._open[self._open.index(name) :], name])
            self.faults.append(f"{name}: follows itself: {circle}")
            return None
        self._open.append(name)
        before = len(self.faults)
        self._make(name)
        self._open.pop()
        return self._made[name] if len(self.faults) == before and name in self._made else None

    def _reference(self, name: str, other: str) -> Signal:
        """Another reading of the same device."""
        if other in self._made:
            return self._made[other]
        if other in self._settings and self._is_named(other):
            return self._signal(other) or Constant(math.nan)
        if other in self._others:
            return self._others[other]
        there = ", ".join(sorted({*self._made, *self._settings, *self._others} - {name})) or "none"
        self.faults.append(f"{name}: there is no reading {other!r} to follow; there is {there}")
        return Constant(math.nan)


def _shaped(settings: SignalSettings, signal: Signal) -> Shaped:
    """The signal within the sensor's bounds and decimals."""
    if not isinstance(settings, Shape):
        return Shaped(signal)
    low = -math.inf if settings.min is None else settings.min
    high = math.inf if settings.max is None else settings.max
    return Shaped(signal, low, high, settings.digits)
