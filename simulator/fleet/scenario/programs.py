"""Models whose readings a program gives, and the check of that program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from simulator.fleet.models.build import ModelParts, build_model
from simulator.fleet.models.model import Model
from simulator.fleet.scenario.files import product_of, signals_of_models
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.python_file import Program, load_telemetry
from simulator.fleet.signals.base import SignalSet
from simulator.fleet.signals.program import ProgramSignals, Telemetry, check_telemetry

_TRIED_S: Final = (1_767_225_600.0, 1_767_247_201.5, 1_767_398_400.25)
"""A midnight, a morning after a quarter of a day, and another day: 2026-01-01 to 03, UTC."""


def programmed(model: Model, telemetry: Telemetry, source: Path) -> Model:
    """The model with a program behind its signals, in whatever state a device is."""

    def behind(signals: SignalSet) -> ProgramSignals:
        return ProgramSignals(signals, telemetry, model.name, source)

    states = {name: replace(state, signals=behind(state.signals)) for name, state in model.states.items()}
    return replace(model, signals=behind(model.signals), states=states)


def check_program(scenario: Scenario, folder: Path, program: Program) -> None:
    """Ask the program for a few readings of a device of each model, twice.

    Raises:
        ConfigurationError: it cannot be run, or says something that is no reading, or not always the same.
    """
    telemetry = load_telemetry(program)
    all_signals = signals_of_models(scenario, product_of(scenario, folder))
    for settings, signals in zip(scenario.fleet.models, all_signals, strict=True):
        parts = ModelParts(settings.name, signals, states=settings.states or {}, battery=settings.battery)
        model = programmed(build_model(parts, folder=folder), telemetry, program.path)
        for readings in (model.signals, *(state.signals for state in model.states.values())):
            for index in {0, scenario.fleet.devices - 1}:
                for time_s in _TRIED_S:
                    check_telemetry(readings, scenario.seed, index, time_s, str(program.path))
