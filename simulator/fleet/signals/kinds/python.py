"""A function of a Python file."""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from agent.errors import ConfigurationError
from simulator.fleet.settings import key
from simulator.fleet.signals.base import Individual, Signal
from simulator.fleet.signals.kind import Shape, SignalContext, register_signal

Function = Callable[[Individual, float], float]


class PythonSettings(Shape):
    """What a function of a Python file returns. The file has all rights of whoever starts the run: `--allow-python`."""

    kind: Literal["python"]
    file: str = key("Python file with the function", min_length=1, example="values.py")
    function: str = key(
        "its function of a device (`index`, `seed`) and the time in seconds since the epoch, and of nothing else: "
        "workers ask in any order. It returns a number, or NaN where there is no reading",
        default="value",
        min_length=1,
    )


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function of a file."""

    path: Path
    name: str
    function: Function

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none.

        Raises:
            ConfigurationError: the function fails, or returns no number.
        """
        try:
            value = self.function(device, time_s)
        except Exception as error:  # noqa: BLE001 - whatever the function does is reported in one line
            raise _fault(self.path, error) from None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigurationError(
                [f"{self.name}() returned {value!r:.60}, and has to return a number"], str(self.path)
            )
        return value


@lru_cache(maxsize=64)  # a file may have many functions, and a model many signals
def _names_of(path: Path) -> dict[str, Any]:
    try:
        return runpy.run_path(str(path), run_name="fleet_signals")
    except Exception as error:  # noqa: BLE001 - whatever the file does is reported in one line
        raise _fault(path, error) from None


def _fault(path: Path, error: Exception) -> ConfigurationError:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = lines[-1] if lines else getattr(error, "lineno", None)
    where = f"line {line}: " if line else ""
    return ConfigurationError([f"{where}{type(error).__name__}: {str(error)[:200]}"], str(path))


@register_signal(PythonSettings, reads_file=True, runs_code=True)
def make_signal(_name: str, settings: PythonSettings, context: SignalContext) -> Signal:
    """Make the signal that the settings describe; the function is tried once."""
    path = context.folder / settings.file
    function = _names_of(path).get(settings.function)
    if not callable(function):
        raise ConfigurationError([f"has no function {settings.function!r}"], str(path))
    signal = PythonFunction(path, settings.function, function)
    signal.value_at(Individual.at(0, 0), context.origin_s)
    return signal
