"""How a command of ``fleet-simulator`` ends its process."""

from __future__ import annotations

from enum import IntEnum

from agent.errors import AgentError, ConfigurationError, StorageError, TransportError


class ExitCode(IntEnum):
    """The exit code of the process."""

    GOOD = 0
    CHECK_FAILED = 1
    USAGE = 2
    INCONCLUSIVE = 3
    """The generator, not the target, was the limit; or a rule of the specification could not be judged."""
    DATA_LOST = 4
    """Data lost or changed."""
    UNREACHABLE = 5
    """The target cannot be reached or could not be started."""
    INTERRUPTED = 130
    """Ctrl-C, as a shell reports it."""


def exit_code_of(error: AgentError) -> ExitCode:
    """The exit code that an error of ours ends a command with, when the command did not handle it."""
    if isinstance(error, ConfigurationError):
        return ExitCode.USAGE
    if isinstance(error, TransportError | StorageError):
        return ExitCode.UNREACHABLE
    return ExitCode.CHECK_FAILED
