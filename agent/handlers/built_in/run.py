"""``run``: run one of the programs that the configuration lists, and no other.

Nothing goes through a shell. A program takes arguments from a command only when the configuration gives a pattern that
each argument must match as a whole; without one it runs exactly as configured.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from agent.core.values import Contract, JsonObject
from agent.handlers.base import CommandContext, Handler, HandlerPayload, HandlerRejected, HandlerSettings
from agent.plugins import nearest
from agent.process.bounds import DEFAULT_PATH, GRACE_S, MAX_OUTPUT_BYTES, OUTPUT_BYTES, Argument
from agent.process.running import ProgramNotStarted, program_fault

# What runs programs is loaded with the first of them: most devices have none.


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return pattern


class Program(HandlerSettings):
    """One program that a command may run."""

    argv: tuple[Argument, ...] = Field(min_length=1, description="The program and its fixed arguments.")
    timeout_s: float = Field(default=60.0, gt=0, le=86400, description="After this its process group is ended, s.")
    args_pattern: Annotated[str, AfterValidator(_compiles)] | None = Field(
        default=None, description="Each argument of the command must match it as a whole; none: no arguments."
    )
    args_max: int = Field(default=16, ge=0, le=256, description="How many arguments a command may give.")
    output_bytes: int = Field(default=OUTPUT_BYTES, ge=1, le=MAX_OUTPUT_BYTES, description="How much output is kept.")
    environment: dict[str, str] = Field(default_factory=dict, description="Added to its environment.")


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

    def __init__(self, settings: BaseModel | None = None) -> None:
        super().__init__(settings)
        chosen = settings if isinstance(settings, Run.Settings) else Run.Settings()
        self._programs = chosen.programs

    def run_timeout_s(self) -> float:
        """Longer than the longest of the programs' own timeouts."""
        if not self._programs:
            return self.timeout_s
        from agent.handlers.executable import own_timeout_first

        longest_s = max(program.timeout_s for program in self._programs.values())
        return own_timeout_first(longest_s, GRACE_S)

    def unwind_s(self) -> float:
        """A program's grace, and a moment to be gone."""
        return GRACE_S + 3.0

    def check(self) -> None:
        """Each program is there and may be run.

        Raises:
            ProgramNotStarted: the first one that is not.
        """
        if not self._programs:
            return
        for name, program in self._programs.items():
            fault = program_fault(program.argv, {"PATH": DEFAULT_PATH, **program.environment})
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
        _judge_arguments(payload.program, program, payload.args)
        from agent.handlers.executable import raise_unless_succeeded, run_for_handler, text_result

        run = run_for_handler(
            (*program.argv, *payload.args),
            context=context,
            timeout_s=program.timeout_s,
            environment={
                "PATH": DEFAULT_PATH,
                **program.environment,
                "COMMAND_ID": context.command_id,
                "DEVICE_ID": context.device_id,
            },
            output_bytes=program.output_bytes,
        )
        raise_unless_succeeded(run, program.timeout_s)
        return {
            "program": payload.program,
            "exit_code": 0,
            "duration_s": round(run.duration_s, 3),
            **text_result(run, program.output_bytes),
        }


def _judge_arguments(name: str, program: Program, arguments: list[str]) -> None:
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
