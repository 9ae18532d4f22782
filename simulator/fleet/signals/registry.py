"""The signals that there are, by the word that a scenario names them by."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simulator.fleet.settings import ReadingName
from simulator.fleet.signals.kinds import (
    BatterySignalSettings,
    ConstantSettings,
    DiurnalSettings,
    MarkovSettings,
    PythonSettings,
    RandomWalkSettings,
)
from simulator.fleet.signals.recordings import CsvSettings

SignalSettings = Annotated[
    BatterySignalSettings
    | ConstantSettings
    | CsvSettings
    | DiurnalSettings
    | MarkovSettings
    | PythonSettings
    | RandomWalkSettings,
    Field(discriminator="kind"),
]
"""One signal of a scenario: the settings of one of the kinds."""

SignalMap = Annotated[dict[ReadingName, SignalSettings], Field(min_length=1, max_length=100)]
"""Signals by reading name."""
