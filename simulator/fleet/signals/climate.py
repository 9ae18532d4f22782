"""The climate node: the signals of a device by default."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from simulator.fleet.signals.build import build_signals
from simulator.fleet.signals.registry import SignalMap, SignalSettings

CLIMATE_SETTINGS: Final[dict[str, SignalSettings]] = TypeAdapter(SignalMap).validate_python(
    {
        "temperature_celsius": {"kind": "random_walk", "start": 21.0, "step": 0.09, "unit": "celsius"},
        "humidity_percent": {"kind": "random_walk", "start": 45.0, "step": 0.16, "min": 0.0, "max": 100.0},
        "battery_percent": {"kind": "battery"},
        "signal_dbm": {"kind": "random_walk", "start": -67.0, "step": 0.35, "digits": 0, "unit": "dBm"},
    }
)
"""What a virtual climate sensor reads, by reading name."""
CLIMATE: Final = build_signals(CLIMATE_SETTINGS, folder=Path())
