"""``file``, ``program``, ``simulated``: a number in a file, numbers that a program prints, and made-up ones."""

from __future__ import annotations

import math
import random
import re
import threading
import time
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from agent.errors import InvalidMessage
from agent.program import GRACE_S, ProgramNotStarted, ProgramSettings, program_fault, run_program
from agent.sensors.base import Sensor, SensorFailed, SensorSettings
from agent.wire.encoding import parse_object

_FILE_BYTES: Final = 4096
# A number, then perhaps a unit: "23.5", "23.5 °C", "42%", "1024 kB".
_NUMBER: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\d\s.,+-][^\d\s]{0,15})?")


class FileSensor(Sensor):
    """Reads one number: what the file says, times ``scale``, plus ``offset``."""

    type = "file"
    description = "A number in a file."
    named_by_settings = True

    class Settings(SensorSettings):
        """The settings: the file, and how its number is scaled and named."""

        path: Path = Field(description="The file; its first number counts.")
        reading: str = Field(min_length=1, max_length=128, description="Name of the reading, such as boiler_c.")
        scale: float = Field(default=1.0, allow_inf_nan=False, description="The file's number is multiplied by it.")
        offset: float = Field(default=0.0, allow_inf_nan=False, description="Added after that.")
        least: float = Field(default=-math.inf, description="Below it the reading is no reading.")
        most: float = Field(default=math.inf, description="Above it likewise.")

    def read(self) -> dict[str, float]:
        """Read the number in the file. A unit behind the number is allowed and does not change it.

        Raises:
            SensorFailed: the file cannot be read, holds no single number, or one that cannot be measured.
        """
        settings = self.settings
        try:
            with settings.path.open("rb") as file:
                text = file.read(_FILE_BYTES).decode("utf-8", "replace").strip()
        except OSError as error:
            raise SensorFailed(f"{settings.path} could not be read: {error.strerror or error}") from error
        found = _NUMBER.fullmatch(text)
        if found is None:
            raise SensorFailed(f"{settings.path} holds {text[:40]!r}, not one number")
        value = float(found[1]) * settings.scale + settings.offset
        if not settings.least <= value <= settings.most:
            bounds = f"from {settings.least:g} to {settings.most:g}"
            raise SensorFailed(f"{settings.path} gives {value:g}, which is not {bounds}")
        return {settings.reading: value}


class ProgramSensor(Sensor):
    """Runs a program for each read. Exit code 0 and a JSON object are a good read; everything else is not."""

    type = "program"
    description = "Readings that a program prints as a JSON object."

    class Settings(ProgramSettings):
        """The settings: the program to run."""

        timeout_s: float = Field(default=10.0, gt=0, le=600, description="After this its process group is ended, s.")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._stopping = threading.Event()
        # Longer than the program's own timeout, so that the program is ended and its last words are reported.
        self.timeout_s = settings.timeout_s + GRACE_S + 1.0

    def check(self) -> None:
        """The program is there and may be run."""
        fault = program_fault(self.settings.argv, self.settings.environment, self.settings.directory)
        if fault:
            raise ProgramNotStarted(fault)

    def read(self) -> dict[str, float]:
        """Run the program and return the numbers that it printed; a member that is null is left out.

        Raises:
            SensorFailed: it could not be started, failed, took too long, or printed something else.
        """
        program = self.settings
        try:
            run = run_program(
                program.argv,
                timeout_s=program.timeout_s,
                environment=program.environment,
                stopping=self._stopping,
                directory=program.directory,
                output_bytes=program.output_bytes,
            )
        except ProgramNotStarted as error:
            raise SensorFailed(str(error)) from error
        failure = run.failure()
        if failure is not None:
            raise SensorFailed(f"{program.argv[0]}: {failure[1]}")
        if run.truncated:
            raise SensorFailed(f"{program.argv[0]} printed more than {program.output_bytes} bytes")
        try:
            values = parse_object(run.output, max_bytes=program.output_bytes)
        except InvalidMessage as error:
            raise SensorFailed(f"{program.argv[0]} did not print one JSON object: {error}") from error
        return {name: value for name, value in values.items() if value is not None}

    def interrupt(self) -> None:
        """End the program that runs now."""
        self._stopping.set()


class SimulatedSensor(Sensor):
    """A sine, a random walk or a constant."""

    type = "simulated"
    description = "A sine, a random walk or a constant, for trying things out."
    named_by_settings = True

    class Settings(SensorSettings):
        """The curve."""

        reading: str = Field(default="simulated", min_length=1, max_length=128, description="Name of the reading.")
        shape: Literal["constant", "random_walk", "sine"] = Field(default="sine", description="The curve.")
        mean: float = Field(default=20.0, allow_inf_nan=False, description="The constant, or what it moves around.")
        amplitude: float = Field(
            default=5.0, ge=0, allow_inf_nan=False, description="Sine and random walk stay within mean ± amplitude."
        )
        period_s: float = Field(default=600.0, gt=0, allow_inf_nan=False, description="Of the sine, s.")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._begun_s = time.monotonic()
        self._offset = 0.0

    def read(self) -> dict[str, float]:
        """Make up the next value."""
        curve = self.settings
        if curve.shape == "sine":
            turns = (time.monotonic() - self._begun_s) / curve.period_s
            self._offset = math.sin(2 * math.pi * turns)
        elif curve.shape == "random_walk":
            moved = self._offset + random.uniform(-0.1, 0.1)  # noqa: S311 - a made-up curve is no secret
            # Reflected at the bounds: at a wall it would stay for some readings, all alike.
            self._offset = moved if abs(moved) <= 1.0 else math.copysign(2.0, moved) - moved
        return {curve.reading: curve.mean + curve.amplitude * self._offset}
