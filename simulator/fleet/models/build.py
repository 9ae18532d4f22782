"""Device models out of a scenario's settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from simulator.fleet.models.firmware import Firmware
from simulator.fleet.models.model import Clock, Model
from simulator.fleet.models.settings import ClockSettings, FirmwareSettings
from simulator.fleet.signals.build import build_signals
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
    firmware: FirmwareSettings | None = None
    clock: ClockSettings | None = None


def build_model(parts: ModelParts, *, folder: Path, origin_s: float = 0.0) -> Model:
    """Build a device model from its settings.

    Args:
        parts: of which.
        folder: where files are looked for that have no absolute path; the scenario's.
        origin_s: the run's begin: when what is played once or in step begins, and clocks were set; seconds since the
            epoch.

    Raises:
        ConfigurationError: a file cannot be used; all such faults.
    """
    try:
        signals = build_signals(parts.signals, folder=folder, origin_s=origin_s)
    except ConfigurationError as error:
        raise ConfigurationError([f"model {parts.name}: {fault}" for fault in error.faults], "models") from None
    return Model(
        name=parts.name,
        signals=signals,
        every_s=parts.every_s,
        firmware=_firmware(parts.firmware) if parts.firmware else None,
        clock=_clock(parts.clock, origin_s) if parts.clock else None,
    )


def _firmware(settings: FirmwareSettings) -> Firmware:
    return Firmware(settings.versions, settings.update_s, settings.failure_share)


def _clock(settings: ClockSettings, origin_s: float) -> Clock:
    set_every_s = math.inf if settings.set_every_s is None else settings.set_every_s
    return Clock(settings.offset_s, settings.drift_ppm / _MILLION, set_every_s, origin_s)
