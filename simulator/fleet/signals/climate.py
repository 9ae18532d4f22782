"""The climate node that stands for every device where nobody asked for another."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from simulator.fleet.signals.base import Signal
from simulator.fleet.signals.battery import Battery
from simulator.fleet.signals.walk import RandomWalk

CLIMATE: Final[Mapping[str, Signal]] = MappingProxyType(
    {
        "temperature_celsius": RandomWalk("temperature", start=21.0, step=0.09),
        "humidity_percent": RandomWalk("humidity", start=45.0, step=0.16),
        "battery_percent": Battery("battery"),
        "signal_dbm": RandomWalk("signal", start=-67.0, step=0.35, digits=0),
    }
)
"""What a virtual climate sensor reads, by reading name."""
