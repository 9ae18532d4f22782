"""Scenarios as programs: a Python file with ``def scenario() -> dict``.

It may have ``def telemetry(device, time) -> dict`` as well, which gives the readings of each device; see
:mod:`simulator.fleet.signals.program`. It is run with all rights of whoever starts it, so it is loaded only where
somebody said so.
"""

from __future__ import annotations

import hashlib
import json
import runpy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigurationError
from simulator.fleet.models.build import ModelParts, build_model
from simulator.fleet.models.model import Model
from simulator.fleet.scenario.files import product_of, signals_of_models
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.signals.base import SignalSet
from simulator.fleet.signals.program import FUNCTION as TELEMETRY
from simulator.fleet.signals.program import ProgramSignals, Telemetry, check_telemetry, fault_in_a_line

FUNCTION: Final = "scenario"
_TRIED_S: Final = (1_767_225_600.0, 1_767_247_201.5, 1_767_398_400.25)
"""A midnight, a morning after a quarter of a day, and another day: 2026-01-01 to 03, UTC."""


@dataclass(frozen=True, slots=True)
class Program:
    """A file that gives readings; what a worker is sent of it, since functions do not travel.

    Attributes:
        path: the file.
        digest: SHA-256 of its bytes, hexadecimal. Other files that it imports are not in it.
    """

    path: Path
    digest: str


def run_scenario_file(path: Path, *, allowed: bool) -> tuple[dict[str, Any], Program | None]:
    """What the function ``scenario`` of a file returns: the same document as YAML would hold.

    Args:
        path: the file.
        allowed: whether somebody said that it may be run.

    Returns:
        The document; and the program, where the file has ``telemetry`` too.

    Raises:
        ConfigurationError: it may not, it cannot be run, or it returns no document.
    """
    source = str(path)
    if not allowed:
        fix = "is a program, and running it is not allowed; look into it, and give --allow-python if you trust it"
        raise ConfigurationError([fix], source)
    if not path.is_file():
        raise ConfigurationError(["cannot be read: No such file or directory; name a file that is there"], source)
    names = _run(path)
    function = names.get(FUNCTION)
    try:
        document = function() if callable(function) else None
    except Exception as error:  # noqa: BLE001 - whatever the program raises is shown as one line
        raise ConfigurationError([fault_in_a_line(path, error)], source) from None
    if not isinstance(document, dict):
        raise ConfigurationError([f"needs a function '{FUNCTION}()' that returns a dict with the scenario"], source)
    try:
        json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigurationError([f"{FUNCTION}() returns something that JSON cannot hold: {error}"], source) from None
    if TELEMETRY not in names:
        return document, None
    _telemetry_of(names, path)
    return document, Program(path.resolve(), hashlib.sha256(path.read_bytes()).hexdigest())


def load_telemetry(program: Program) -> Telemetry:
    """The function of a program that was allowed.

    Raises:
        ConfigurationError: the file is another one by now, or cannot be run.
    """
    path = program.path
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}"], str(path)) from None
    if found != program.digest:
        raise ConfigurationError(["was changed since the run was planned: start the run again"], str(path))
    return _telemetry_of(_run(path), path)


def _run(path: Path) -> dict[str, Any]:
    try:
        return runpy.run_path(str(path), run_name="fleet_scenario")
    except Exception as error:  # noqa: BLE001 - whatever the program raises is shown as one line
        raise ConfigurationError([fault_in_a_line(path, error)], str(path)) from None


def _telemetry_of(names: dict[str, Any], path: Path) -> Telemetry:
    function = names.get(TELEMETRY)
    if not callable(function):
        raise ConfigurationError([f"{TELEMETRY!r} has to be a function of a device and a time"], str(path))
    telemetry: Telemetry = function
    return telemetry


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
