"""How a command of ``fleet-simulator`` ends its process: its exit code, and what is said of an error."""

from __future__ import annotations

from enum import IntEnum

from agent.errors import (
    Advice,
    AgentError,
    ConfigurationError,
    Forbidden,
    StorageError,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
)
from simulator.login.errors import SignInEnded, TokensNotStored


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
    """The exit code of a command, or of a run, that this error ended."""
    if error.advice is Advice.EXIT or isinstance(error, (Unauthorized, Forbidden, TokensNotStored)):
        return ExitCode.USAGE
    if isinstance(error, (TransportError, UnexpectedAnswer, StorageError)):
        return ExitCode.UNREACHABLE
    return ExitCode.CHECK_FAILED


def text_of(error: AgentError) -> str:
    """What to show of an error in one line, with what to look at."""
    if isinstance(error, ConfigurationError):
        return error.in_one_line
    if isinstance(error, Unauthorized) and not isinstance(error, SignInEnded):
        return f"{error}; check --api-key and --secret-key-file, or --token-file"
    return str(error)
