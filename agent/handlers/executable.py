"""A handler that is a program of the device: declared in the configuration, in any language.

It gets the payload without the member that names the handler as one JSON object on standard input, and who it is for
in its environment. Its exit code decides, nothing else does:

====  ==========  ====================================================================
code  status      what else
====  ==========  ====================================================================
0     succeeded   standard output becomes the result: one JSON object, or nothing
64    rejected    EX_USAGE of ``sysexits.h``: it did not begin, since the payload is wrong
else  failed      also when a signal, the timeout or the agent's stop ended it
====  ==========  ====================================================================

Standard error is diagnostics: its end is kept, its last line is part of the reason when the program fails, and it
never makes a run fail. Whatever it writes, to either output, is a sign of life.

A second program may find out after a crash how a command ended (the setting ``verify``):

====  =========================================================================================
code  what it found
====  =========================================================================================
0     it was done; standard output becomes the result
70    it was tried and failed (EX_SOFTWARE); the last line of standard error is the reason
75    it was certainly not done (EX_TEMPFAIL of ``sysexits.h``): it runs now
else  it does not know, and the command ends as ``indeterminate``
====  =========================================================================================
"""

from __future__ import annotations

import json
import signal
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.core.commands import ATTEMPTS_MAX
from agent.core.values import Contract, JsonObject
from agent.errors import InvalidMessage
from agent.handlers.base import CommandContext, Handler, HandlerFailed, HandlerRejected, Verified
from agent.program import (
    GRACE_S,
    Argument,
    ProgramNotStarted,
    ProgramRun,
    ProgramSettings,
    last_line,
    program_fault,
    run_program,
    text_of,
)
from agent.wire.encoding import parse_object

EXIT_REJECTED: Final = 64
_EXIT_FAILED: Final = 70
_EXIT_NOT_DONE: Final = 75
_NO_REASON: Final = "the program gave no reason"
# After SIGKILL a program may need a moment to be gone.
_GONE_S: Final = 3.0


class ExecutableSettings(ProgramSettings):
    """What the configuration says about one executable handler."""

    description: str = Field(default="", description="One line for a person.")
    contract: Contract = Field(default=Contract.ONCE, description="What a crash in the middle of it means.")
    verify: tuple[Argument, ...] | None = Field(
        default=None, min_length=1, description="The program that finds out after a crash how a command ended."
    )
    start_timeout_s: float | None = Field(default=None, gt=0, description="How long a command may wait for it, s.")
    inactivity_timeout_s: float | None = Field(default=None, gt=0, description="How long it may write nothing, s.")
    max_attempts: int = Field(default=ATTEMPTS_MAX, ge=1, le=100, description="So many starts for one command.")
    lane: str | None = Field(default=None, description="Handlers of one lane run one after the other.")
    output: Literal["json", "text"] = Field(default="json", description="What standard output is.")
    grace_s: float = Field(default=GRACE_S, ge=0, le=60, description="From SIGTERM to SIGKILL, s.")


class AnyPayload(BaseModel):
    """Any JSON object: the program itself checks it and answers 64 when it is wrong."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)


class Executable(Handler):
    """Runs a program of the device."""

    Payload = AnyPayload
    Settings = ExecutableSettings

    def __init__(self, name: str, settings: ExecutableSettings) -> None:
        super().__init__(settings)
        self.name = name
        self.description = settings.description or f"runs {settings.argv[0]}"
        self.contract = settings.contract
        # Longer than the program's own, so that the program is ended and its last words are reported.
        self.timeout_s = settings.timeout_s + settings.grace_s + 1.0
        self.stop_timeout_s = settings.grace_s + _GONE_S
        self.start_timeout_s = settings.start_timeout_s
        self.inactivity_timeout_s = settings.inactivity_timeout_s
        self.max_attempts = settings.max_attempts
        self.lane = settings.lane

    def verifies(self) -> bool:
        """Whether the settings name a program for it."""
        return self.settings.verify is not None

    def check(self) -> None:
        """The programs are there and may be run."""
        for argv in (self.settings.argv, self.settings.verify):
            fault = None if argv is None else program_fault(argv, self.settings.environment, self.settings.directory)
            if fault:
                raise ProgramNotStarted(fault)

    def handle(self, payload: Any, context: CommandContext) -> JsonObject | None:
        """Run it once, with the payload on its standard input."""
        run = self._run(self.settings.argv, payload, context)
        if run.exited_with(EXIT_REJECTED):
            raise HandlerRejected("rejected_by_program", last_line(run.diagnostics) or _NO_REASON)
        # The agent's stop ends it, or the service manager, which sends SIGTERM to all that the agent started.
        ended_from_outside = run.ended_for == "stopped" or run.exited_with(-signal.SIGTERM)
        if self.contract is Contract.RESTARTS_DEVICE and not context.restarted and ended_from_outside:
            return None  # the restart that it asked for: the run after it concludes the command
        return self._result(run)

    def verify(self, payload: Any, context: CommandContext) -> Verified | None:
        """Run the program that finds out how a command ended, with the same input and environment."""
        if self.settings.verify is None:
            return None
        run = self._run(self.settings.verify, payload, context)
        if run.exited_with(_EXIT_NOT_DONE):
            return Verified.not_done()
        if run.exited_with(_EXIT_FAILED):
            return Verified.failed("program_failed", last_line(run.diagnostics) or _NO_REASON)
        return Verified.succeeded(self._result(run))

    def _run(self, argv: tuple[str, ...], payload: Any, context: CommandContext) -> ProgramRun:
        program = self.settings
        environment = {
            "COMMAND": self.name,
            "COMMAND_ID": context.command_id,
            "COMMAND_ATTEMPT": str(context.attempt),
            "COMMAND_RESTARTED": "1" if context.restarted else "0",
            "DEVICE_ID": context.device_id,
        }
        try:
            run = run_program(
                argv,
                timeout_s=program.timeout_s,
                environment=program.environment | environment,
                input_bytes=json.dumps(payload.model_extra or {}).encode(),
                stopping=context.stopping,
                directory=program.directory,
                output_bytes=program.output_bytes,
                grace_s=program.grace_s,
                alive=context.heartbeat,
            )
        except ProgramNotStarted as error:
            raise HandlerFailed("program_not_started", str(error)) from error
        diagnostics = last_line(run.diagnostics)
        if diagnostics:
            context.log.info("stderr ended with: %s", diagnostics)
        return run

    def _result(self, run: ProgramRun) -> JsonObject | None:
        failure = run.failure()
        if failure is not None:
            raise HandlerFailed(*failure)
        if self.settings.output == "text":
            return {"output": text_of(run.output, max_bytes=self.settings.output_bytes), "truncated": run.truncated}
        return json_result(run, self.settings.output_bytes)


def json_result(run: ProgramRun, output_bytes: int) -> JsonObject | None:
    """Standard output as the result: one JSON object, or nothing.

    Raises:
        HandlerFailed: ``output_too_large`` or ``invalid_output``.
    """
    if run.truncated:
        reason = f"the program succeeded, but its standard output is larger than {output_bytes} bytes"
        raise HandlerFailed("output_too_large", f"{reason}: print less or raise output_bytes")
    if not run.output.strip():
        return None
    try:
        return parse_object(run.output, max_bytes=output_bytes)
    except InvalidMessage as error:
        reason = f"the program succeeded, but its standard output is not one JSON object ({error})"
        raise HandlerFailed("invalid_output", f"{reason}: correct it or set output: text") from error
