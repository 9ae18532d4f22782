"""Signals out of a scenario's settings: files read, names resolved, everything that is wrong said at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigurationError
from simulator.fleet.signals import settings as kinds
from simulator.fleet.signals.base import Shaped, Signal, SignalSet
from simulator.fleet.signals.battery import Battery
from simulator.fleet.signals.chain import ChainState
from simulator.fleet.signals.day import Diurnal, Sine
from simulator.fleet.signals.formula import parse_formula
from simulator.fleet.signals.plain import Computed, Constant, Correlated, Noise
from simulator.fleet.signals.recording import Columns, Replay, read_recordings
from simulator.fleet.signals.route import AtTheEnd, Route, RouteReading, read_route
from simulator.fleet.signals.steps import Markov, Steps
from simulator.fleet.signals.walk import RandomWalk

_PLACE: Final = ("latitude", "longitude", "heading", "speed")
_PLACE_DIGITS: Final = {"latitude": 6, "longitude": 6, "heading": 1, "speed": 2}
_HASHED: Final = "hashed"


def build_signals(
    settings: Mapping[str, kinds.SignalSettings],
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
    """Signals by name, each made when it is first asked for."""

    def __init__(
        self, settings: Mapping[str, kinds.SignalSettings], folder: Path, origin_s: float, others: SignalSet
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
            for reading in settings.names if isinstance(settings, kinds.GpsRouteSettings) else (name,):
                if reading in owners:
                    self.faults.append(f"{name}: the reading {reading} is already given by {owners[reading]}")
                owners[reading] = name
        # Routes first: their readings have names of their own, which others may follow.
        for name, settings in self._settings.items():
            if isinstance(settings, kinds.GpsRouteSettings):
                self._add(name, partial(self._drive, name, settings))
        for name, settings in self._settings.items():
            if not isinstance(settings, kinds.GpsRouteSettings):
                self._signal(name)
        return SignalSet({reading: self._made[reading] for reading in owners if reading in self._made})

    def _add(self, name: str, make: Callable[[], Mapping[str, Shaped]]) -> None:
        try:
            self._made |= make()
        except ConfigurationError as error:
            self.faults += [f"{name}: {error.source}: {fault}" for fault in error.faults]

    def _drive(self, name: str, settings: kinds.GpsRouteSettings) -> Mapping[str, Shaped]:
        route = Route(
            name,
            read_route(self._folder / settings.file),
            speed_mps=settings.speed_mps,
            at_the_end=AtTheEnd(settings.at_the_end),
            begin_s=None if settings.begin == _HASHED else self._origin_s,
            origin_s=self._origin_s,
            noise_m=settings.noise_m,
        )
        return {
            reading: Shaped(RouteReading(route, part), digits=_PLACE_DIGITS[part])
            for reading, part in zip(settings.names, _PLACE, strict=True)
        }

    def _signal(self, name: str) -> Shaped | None:
        """The signal of a reading; None when it cannot be made, which is then among the faults."""
        if name in self._made:
            return self._made[name]
        if name in self._open or isinstance(settings := self._settings[name], kinds.GpsRouteSettings):
            circle = " -> ".join([*self._open[self._open.index(name) :], name]) if name in self._open else name
            self.faults.append(f"{name}: follows itself: {circle}")
            return None
        self._open.append(name)
        before = len(self.faults)
        self._add(name, lambda: {name: self._shaped(settings, self._make(name, settings))})
        self._open.pop()
        return self._made[name] if len(self.faults) == before and name in self._made else None

    def _shaped(self, settings: kinds.Shape, signal: Signal) -> Shaped:
        low = -math.inf if settings.min is None else settings.min
        high = math.inf if settings.max is None else settings.max
        return Shaped(signal, low, high, settings.digits)

    def _make(self, name: str, settings: Any) -> Signal:
        return _MAKERS[type(settings)](self, name, settings)

    def _reference(self, name: str, other: str) -> Signal:
        """Another reading of the same device."""
        if other in self._made:
            return self._made[other]
        if other in self._settings and not isinstance(self._settings[other], kinds.GpsRouteSettings):
            return self._signal(other) or Constant(math.nan)
        if other in self._others:
            return self._others[other]
        there = ", ".join(sorted({*self._made, *self._settings, *self._others} - {name})) or "none"
        self.faults.append(f"{name}: there is no reading {other!r} to follow; there is {there}")
        return Constant(math.nan)

    def constant(self, _: str, settings: kinds.ConstantSettings) -> Signal:
        return Constant(settings.value)

    def sine(self, name: str, settings: kinds.SineSettings) -> Signal:
        phase = None if settings.phase == _HASHED else float(settings.phase)
        return Sine(name, settings.mean, settings.amplitude, settings.period_s, phase, settings.noise)

    def diurnal(self, name: str, settings: kinds.DiurnalSettings) -> Signal:
        return Diurnal(
            name, settings.mean, settings.amplitude, settings.noise, settings.peak_hour, spread=settings.spread
        )

    def random_walk(self, name: str, settings: kinds.RandomWalkSettings) -> Signal:
        return RandomWalk(
            name, settings.start, settings.step, settings.span_s, settings.resolution_s, spread=settings.spread
        )

    def noise(self, name: str, settings: kinds.NoiseSettings) -> Signal:
        return Noise(name, settings.mean, settings.deviation, uniform=settings.distribution == "uniform")

    def steps(self, name: str, settings: kinds.StepsSettings) -> Signal:
        begin_s = None if settings.phase == _HASHED else self._origin_s
        return Steps(name, [(step.value, step.for_s) for step in settings.steps], begin_s)

    def markov(self, name: str, settings: kinds.MarkovSettings) -> Signal:
        states = {
            state: ChainState(described.stay_s, described.stay == "fixed", described.next)
            for state, described in settings.states.items()
        }
        return Markov(name, states, {state: described.value for state, described in settings.states.items()})

    def csv(self, _: str, settings: kinds.CsvSettings) -> Signal:
        columns = Columns(settings.column, settings.time_column, settings.device_column, settings.every_s)
        return Replay(
            settings.file,
            read_recordings(self._folder / settings.file, columns),
            linear=settings.between == "linear",
            loop=settings.loop,
            begin_s=None if settings.begin == _HASHED else self._origin_s,
            origin_s=self._origin_s,
        )

    def formula(self, name: str, settings: kinds.FormulaSettings) -> Signal:
        formula = parse_formula(settings.expression)
        return Computed(formula, {other: self._reference(name, other) for other in sorted(formula.names)})

    def correlated(self, name: str, settings: kinds.CorrelatedSettings) -> Signal:
        return Correlated(
            name,
            self._reference(name, settings.follows),
            settings.factor,
            settings.offset,
            settings.lag_s,
            settings.noise,
        )

    def battery(self, name: str, settings: kinds.BatterySignalSettings) -> Signal:
        return Battery(
            name,
            settings.full,
            settings.empty,
            settings.life_s,
            charge_s=settings.charge_s,
            spread=settings.spread,
            lithium=settings.curve == "lithium",
        )


_MAKERS: Final[Mapping[type, Callable[[_Builder, str, Any], Signal]]] = {
    kinds.ConstantSettings: _Builder.constant,
    kinds.SineSettings: _Builder.sine,
    kinds.DiurnalSettings: _Builder.diurnal,
    kinds.RandomWalkSettings: _Builder.random_walk,
    kinds.NoiseSettings: _Builder.noise,
    kinds.StepsSettings: _Builder.steps,
    kinds.MarkovSettings: _Builder.markov,
    kinds.CsvSettings: _Builder.csv,
    kinds.FormulaSettings: _Builder.formula,
    kinds.CorrelatedSettings: _Builder.correlated,
    kinds.BatterySignalSettings: _Builder.battery,
}
