"""Readings that a program gives: ``telemetry(device, time)`` of a Python scenario, checked each time it is asked.

It has to be a function of the device and the time alone, as every signal is: workers ask in any order, and history asks
for what is long gone.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigurationError
from simulator.fleet.signals.base import Individual, SignalSet, salt_of

FUNCTION: Final = "telemetry"
_RESERVED: Final = "fleet_sequence"
_SHOWN: Final = 60
_NUMBERS: Final = frozenset({int, float})


@dataclass(frozen=True, slots=True)
class ProgramDevice:
    """A device as ``telemetry`` is given it.

    Attributes:
        index: its place in the fleet, from 0.
        seed: of the scenario.
        model: the name of its model.
        readings: what the model's signals read at this instant; a copy, to be changed as one likes.
    """

    index: int
    seed: int
    model: str
    readings: dict[str, float]
    _individual: Individual

    def chance(self, name: str, number: int = 0) -> float:
        """A number between 0 and 1 that is always the same for this seed, device, name and whole number."""
        return self._individual.uniform(salt_of(FUNCTION, name), number)


Telemetry = Callable[[ProgramDevice, float], Mapping[str, float]]


class ProgramSignals(SignalSet):
    """The signals of a model with a program behind them.

    Args:
        signals: the model's own.
        telemetry: the program.
        model: the model's name.
        source: the program's file, for complaints.
    """

    __slots__ = ("_model", "_source", "_telemetry")

    def __init__(self, signals: SignalSet, telemetry: Telemetry, model: str, source: Path) -> None:
        super().__init__(dict(signals))
        self._telemetry = telemetry
        self._model = model
        self._source = source

    def read(self, device: Individual, time_s: float) -> dict[str, float]:
        """What the program says.

        Raises:
            ConfigurationError: it fails, or says something that is no reading.
        """
        view = ProgramDevice(device.index, device.seed, self._model, super().read(device, time_s), device)
        try:
            given = self._telemetry(view, time_s)
        except Exception as error:  # noqa: BLE001 - whatever the program does is reported in one line
            raise self._refusal(device, time_s, fault_in_a_line(self._source, error)) from None
        fault = _fault_of(given)
        if fault:
            raise self._refusal(device, time_s, fault)
        return dict(given)

    def _refusal(self, device: Individual, time_s: float, fault: str) -> ConfigurationError:
        call = f"{FUNCTION}(device {device.index}, {time_s:.3f})"
        return ConfigurationError([f"{call}: {fault}"], str(self._source))


def check_telemetry(signals: SignalSet, seed: int, index: int, time_s: float, source: str) -> None:
    """Ask for one reading twice, each time as if for the first time.

    Raises:
        ConfigurationError: it fails, says something that is no reading, or something else the second time.
    """
    first = signals.read(Individual.at(seed, index), time_s)
    again = signals.read(Individual.at(seed, index), time_s)
    if first != again:
        said = f"{FUNCTION}(device {index}, {time_s:.3f}) said {_short(first)}, and then {_short(again)}"
        fix = "it has to be a function of device and time alone; take device.chance() for random numbers"
        raise ConfigurationError([f"{said}: {fix}"], source)


def fault_in_a_line(path: Path, error: Exception) -> str:
    """What went wrong in a program, with its line."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = lines[-1] if lines else getattr(error, "lineno", None)
    where = f"line {line}: " if line else ""
    return f"{where}{type(error).__name__}: {str(error)[:200]}"


def _fault_of(given: Any) -> str:
    """What is wrong with a program's result; empty when nothing is."""
    if not isinstance(given, dict):
        return f"returned {_short(given)}, and has to return a dict with readings by name"
    if not given:
        return "returned no reading at all; leave the device off (states, battery) where it should be silent"
    return next((fault for name, value in given.items() if (fault := _fault_of_reading(name, value))), "")


def _fault_of_reading(name: Any, value: Any) -> str:
    if not isinstance(name, str) or not name:
        return f"{_short(name)} is no name of a reading; a text is needed"
    if name == _RESERVED:
        return f"{_RESERVED!r} is the audit's own number; take another name"
    if type(value) not in _NUMBERS:
        return f"{name!r} is {_short(value)}, and has to be a number (int or float)"
    if value - value != 0:
        return f"{name!r} is {value}; a reading is a finite number, and one that is not there is left out"
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
