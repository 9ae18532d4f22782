"""Device models out of a scenario's settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from simulator.fleet.models.condition import PowerLoss
from simulator.fleet.models.firmware import Firmware
from simulator.fleet.models.model import Clock, Model, StateReadings
from simulator.fleet.models.power import EmptyBattery, PowerSource, StateMachine
from simulator.fleet.models.settings import (
    BatterySettings,
    ClockSettings,
    FirmwareSettings,
    StateSettings,
)
from simulator.fleet.signals.base import Shaped, SignalSet, Since
from simulator.fleet.signals.build import build_signals
from simulator.fleet.signals.chain import Chain, ChainState
from simulator.fleet.signals.kinds.battery import Battery
from simulator.fleet.signals.registry import SignalSettings

_MILLION: Final = 1e6


@dataclass(frozen=True, slots=True)
class ModelParts:
    """What a model is built from; everything but signals may be left out.

    Attributes:
        every_s: between two readings.
    """

    name: str
    signals: Mapping[str, SignalSettings]
    every_s: float = 60.0
    states: Mapping[str, StateSettings] = field(default_factory=dict)
    battery: BatterySettings | None = None
    firmware: FirmwareSettings | None = None
    clock: ClockSettings | None = None


def power_sources(parts: ModelParts) -> tuple[PowerSource, ...]:
    """What takes the power of a model's devices; needs no file."""
    sources: list[PowerSource] = []
    if parts.battery is not None:
        sources.append(EmptyBattery(_battery(parts.battery)))
    if parts.states:
        sources.append(_machine(parts.states))
    return tuple(sources)


def build_model(parts: ModelParts, *, folder: Path, origin_s: float = 0.0) -> Model:
    """Build a device model from its settings.

    Args:
        parts: of which.
        folder: where files are looked for that have no absolute path; the scenario's.
        origin_s: the run's begin: when what is played once or in step begins, clocks were set, and from when on states
            and power are counted; seconds since the epoch.

    Raises:
        ConfigurationError: a file cannot be used, or a reading follows one that is not there; all such faults.
    """
    extra: dict[str, Shaped] = {}
    if parts.battery is not None and parts.battery.reading is not None:
        signal = Since(_battery(parts.battery), origin_s)
        extra[parts.battery.reading] = Shaped(signal, digits=parts.battery.digits)
    signals, states = _readings(parts, SignalSet(extra), folder, origin_s)
    return Model(
        name=parts.name,
        signals=signals,
        every_s=parts.every_s,
        states=states,
        sources=power_sources(parts),
        firmware=_firmware(parts.firmware) if parts.firmware else None,
        clock=_clock(parts.clock, origin_s) if parts.clock else None,
        origin_s=origin_s,
    )


def _readings(
    parts: ModelParts, extra: SignalSet, folder: Path, origin_s: float
) -> tuple[SignalSet, dict[str, StateReadings]]:
    """The signals of the model, and those of each state."""
    faults: list[str] = []

    def build(settings: Mapping[str, SignalSettings], where: str) -> SignalSet:
        # The model's own battery takes the place of a signal of that name.
        others = {name: signal for name, signal in settings.items() if name not in extra}
        try:
            return SignalSet({**build_signals(others, folder=folder, origin_s=origin_s, others=extra), **extra})
        except ConfigurationError as error:
            faults.extend(f"{where}: {fault}" for fault in error.faults)
            return extra

    signals = build(parts.signals, f"model {parts.name}")
    states = {
        name: StateReadings(
            build({**parts.signals, **state.signals}, f"model {parts.name}: state {name}")
            if state.signals
            else signals,
            state.telemetry_every_s,
        )
        for name, state in parts.states.items()
    }
    if faults:
        raise ConfigurationError(faults, "models")
    return signals, states


def _machine(states: Mapping[str, StateSettings]) -> StateMachine:
    unpowered = frozenset(name for name, state in states.items() if not state.powered)
    described = {name: ChainState(state.stay_s, state.stay == "fixed", state.next) for name, state in states.items()}
    return StateMachine(Chain("states", described, unpowered), unpowered, PowerLoss.STATE)


def _battery(settings: BatterySettings) -> Battery:
    return Battery(
        "power",
        settings.full,
        settings.empty,
        settings.life_s,
        settings.dead_s,
        settings.charge_s,
        settings.spread,
        lithium=settings.curve == "lithium",
    )


def _firmware(settings: FirmwareSettings) -> Firmware:
    return Firmware(settings.versions, settings.update_s, settings.failure_share)


def _clock(settings: ClockSettings, origin_s: float) -> Clock:
    set_every_s = math.inf if settings.set_every_s is None else settings.set_every_s
    return Clock(settings.offset_s, settings.drift_ppm / _MILLION, set_every_s, origin_s)
