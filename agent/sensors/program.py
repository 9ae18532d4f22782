"""``program``: readings from an executable that prints one JSON object of numbers."""

from __future__ import annotations

import threading

from pydantic import Field

from agent.core.values import JsonObject
from agent.errors import InvalidMessage
from agent.program import (
    GRACE_S,
    ProgramNotStarted,
    ProgramRun,
    ProgramSettings,
    program_fault,
    run_program,
)
from agent.sensors.base import Sensor, SensorFailed
from agent.wire.json_text import parse_object


class ProgramSensor(Sensor):
    """Runs a program for each read. Exit code 0 and a JSON object are a good read; everything else is not."""

    type = "program"
    description = "Readings that a program prints as a JSON object."

    class Settings(ProgramSettings):
        """The settings: the program to run."""

        timeout_s: float = Field(default=10.0, gt=0, le=600, description="After this its process group is ended, s.")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._program = settings
        self._stopping = threading.Event()
        # Longer than the program's own timeout, so that the program is ended and its last words are reported.
        self.timeout_s = settings.timeout_s + GRACE_S + 1.0

    def check(self) -> None:
        """The program is there and may be run."""
        fault = program_fault(self._program.argv, self._program.environment, self._program.directory)
        if fault:
            raise ProgramNotStarted(fault)

    def read(self) -> dict[str, float]:
        """Run the program and return the numbers that it printed; a member that is null is left out.

        Raises:
            SensorFailed: it could not be started, failed, took too long, or printed something else.
        """
        program = self._program
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
        return {name: value for name, value in self._parse(run).items() if value is not None}

    def interrupt(self) -> None:
        """End the program that runs now."""
        self._stopping.set()

    def _parse(self, run: ProgramRun) -> JsonObject:
        program = self._program
        failure = run.failure()
        if failure is not None:
            raise SensorFailed(f"{program.argv[0]}: {failure[1]}")
        if run.truncated:
            raise SensorFailed(f"{program.argv[0]} printed more than {program.output_bytes} bytes")
        try:
            return parse_object(run.output, max_bytes=program.output_bytes)
        except InvalidMessage as error:
            raise SensorFailed(f"{program.argv[0]} did not print one JSON object: {error}") from error
