"""The climate node: the signals of a device by default."""

from __future__ import annotations

from typing import Final

from simulator.fleet.signals.base import Shaped, SignalSet
from simulator.fleet.signals.kinds.battery import Battery
from simulator.fleet.signals.kinds.random_walk import RandomWalk

CLIMATE: Final = SignalSet(
    {
        "temperature_celsius": Shaped(RandomWalk("temperature", start=21.0, step=0.09)),
        "humidity_percent": Shaped(RandomWalk("humidity", start=45.0, step=0.16), low=0.0, high=100.0),
        "battery_percent": Shaped(Battery("battery"), digits=3),
        "signal_dbm": Shaped(RandomWalk("signal", start=-67.0, step=0.35), digits=0),
    }
)
"""What a virtual climate sensor reads, by reading name."""
