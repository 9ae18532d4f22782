"""``program``: readings from an executable that prints one JSON object of numbers."""

from __future__ import annotations

import threading
from pathlib import Path

from pydantic import Field

from agent.core.values import JsonObject
from agent.errors import InvalidMessage
from agent.process.bounds import DEFAULT_PATH, GRACE_S, OUTPUT_BYTES, Argument
from agent.process.running import (
    ProgramEnd,
    ProgramNotStarted,
    ProgramRun,
    last_line,
    program_fault,
    run_program,
)
from agent.sensors.base import Sensor, SensorFailed, SensorSettings
from agent.wire.json_text import parse_object


class ProgramSensor(Sensor):
    """Runs a program for each read. Exit code 0 and a JSON object are a good read; everything else is not."""

    type = "program"
    description = "Readings that a program prints as a JSON object."

    class Settings(SensorSettings):
        """The settings: the program to run."""

        argv: tuple[Argument, ...] = Field(
            min_length=1, description="The program and its arguments; no shell sees them."
        )
        timeout_s: float = Field(default=10.0, gt=0, le=600, description="After this its process group is ended, s.")
        environment: dict[str, str] = Field(default_factory=dict, description="Added to its environment.")
        directory: Path | None = Field(default=None, description="Its working directory.")
        output_bytes: int = Field(default=OUTPUT_BYTES, ge=2, le=1024 * 1024, description="More than this is refused.")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._program = settings
        self._environment = {"PATH": DEFAULT_PATH, **settings.environment}
        self._stopping = threading.Event()

    def read_timeout_s(self) -> float:
        """Longer than the program's own timeout, so that the program is ended and its last words are reported."""
        return self._program.timeout_s + GRACE_S + 1.0

    def check(self) -> None:
        """The program is there and may be run."""
        fault = program_fault(self._program.argv, self._environment, self._program.directory)
        if fault:
            raise ProgramNotStarted(fault)

    def read(self) -> dict[str, float]:
        """Run the program and return the numbers that it printed; a member that is null is left out.

        Raises:
            SensorFailed: it could not be started, failed, took too long, or printed something else.
        """
        settings = self._program
        try:
            run = run_program(
                settings.argv,
                timeout_s=settings.timeout_s,
                environment=self._environment,
                stopping=self._stopping,
                directory=settings.directory,
                output_bytes=settings.output_bytes,
            )
        except ProgramNotStarted as error:
            raise SensorFailed(str(error)) from error
        return {name: value for name, value in self._parse(run).items() if value is not None}

    def interrupt(self) -> None:
        """End the program that runs now."""
        self._stopping.set()

    def _parse(self, run: ProgramRun) -> JsonObject:
        settings = self._program
        diagnostics = last_line(run.diagnostics)
        tail = f"; stderr ended with: {diagnostics}" if diagnostics else ""
        if run.ending is ProgramEnd.TIMED_OUT:
            raise SensorFailed(f"{settings.argv[0]} took longer than {settings.timeout_s:g} s and was ended{tail}")
        if run.ending is ProgramEnd.STOPPED:
            raise SensorFailed(f"{settings.argv[0]} was ended because the agent stops")
        if run.exit_code != 0:
            raise SensorFailed(f"{settings.argv[0]} failed, {run.describe_exit()}{tail}")
        if run.truncated:
            raise SensorFailed(f"{settings.argv[0]} printed more than {settings.output_bytes} bytes")
        try:
            return parse_object(run.output, max_bytes=settings.output_bytes)
        except InvalidMessage as error:
            raise SensorFailed(f"{settings.argv[0]} did not print one JSON object: {error}") from error
