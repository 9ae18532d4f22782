"""``run``: run one of the programs that the configuration lists, and no other.

Nothing goes through a shell. A program takes arguments from a command only when the configuration gives a pattern that
each argument must match as a whole; without one it runs exactly as configured.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from agent.core.values import Contract, JsonObject
from agent.handlers.base import CommandContext, Handler, HandlerPayload, HandlerRejected, HandlerSettings
from agent.handlers.executable import GONE_S, handler_timeout_s, raise_unless_succeeded, run_for_command, text_result
from agent.plugins import nearest
from agent.process.program import GRACE_S, Argument, ProgramNotStarted, ProgramSettings, program_fault


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return pattern


class Program(ProgramSettings):
    """One program that a command may run."""

    args_pattern: Annotated[str, AfterValidator(_compiles)] | None = Field(
        default=None, description="Each argument of the command must match it as a whole; none: no arguments."
    )
    args_max: int = Field(default=16, ge=0, le=256, description="How many arguments a command may give.")


class Run(Handler):
    """Runs a listed program."""

    name = "run"
    description = "Runs a program that the configuration lists."
    contract = Contract.ONCE
    timeout_s = 60.0

    class Payload(HandlerPayload):
        """The payload: the program to run and its arguments."""

        program: str = Field(min_length=1, max_length=200, description="Its name in the configuration.")
        args: list[Argument] = Field(default=[], max_length=256, description="Added to its arguments, when allowed.")

    class Settings(HandlerSettings):
        """The programs."""

        programs: dict[str, Program] = Field(default_factory=dict, description="Name -> program.")

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self._programs: dict[str, Program] = self.settings.programs
        longest_s = max((each.timeout_s for each in self._programs.values()), default=self.timeout_s)
        self.timeout_s = handler_timeout_s(longest_s)
        self.stop_timeout_s = GRACE_S + GONE_S

    def check(self) -> None:
        """Each program is there and may be run.

        Raises:
            ProgramNotStarted: the first one that is not.
        """
        for name, program in self._programs.items():
            fault = program_fault(program.argv, program.environment, program.directory)
            if fault:
                raise ProgramNotStarted(f"programs.{name}: {fault}")

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """The program's output as text and its exit code.

        Raises:
            HandlerRejected: ``unknown_program``, ``arguments_not_allowed``, ``argument_refused``.
            HandlerFailed: it could not be started, failed, took too long or was stopped.
        """
        program = self._programs.get(payload.program)
        if program is None:
            near = nearest(payload.program, self._programs)
            raise HandlerRejected("unknown_program", f"the configuration lists no program {payload.program!r}{near}")
        _check_arguments(payload.program, program, payload.args)
        run = run_for_command(program, (*program.argv, *payload.args), context)
        raise_unless_succeeded(run)
        return {
            "program": payload.program,
            "exit_code": 0,
            "duration_s": round(run.duration_s, 3),
            **text_result(run, program.output_bytes),
        }


def _check_arguments(name: str, program: Program, arguments: list[str]) -> None:
    if not arguments:
        return
    if program.args_pattern is None:
        raise HandlerRejected("arguments_not_allowed", f"program {name!r} takes no arguments from a command")
    if len(arguments) > program.args_max:
        raise HandlerRejected("argument_refused", f"program {name!r} takes at most {program.args_max} arguments")
    for position, argument in enumerate(arguments, 1):
        if re.fullmatch(program.args_pattern, argument) is None:
            reason = f"argument {position} of program {name!r} does not match the configured pattern"
            raise HandlerRejected("argument_refused", reason)
