"""Sentences for errors of Ray's: which process of a machine ended or does not answer, and where its logs are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from simulator.watched import describe

LOGS: Final = "/tmp/ray/session_latest/logs"  # noqa: S108 - where Ray has them
_ENDED: Final = frozenset({"ActorDiedError", "NodeDiedError", "WorkerCrashedError", "LocalRayletDiedError"})
_CUT: Final = frozenset({"ActorUnavailableError", "GetTimeoutError"})


def reason(error: BaseException, silent_head: Callable[[], str | None]) -> str:
    """Why a call to a machine came to nothing, in one line.

    Args:
        error: of Ray's; one of our own program on the machine is its cause.
        silent_head: the address of the cluster's head where it does not answer any more; None where it does.
    """
    cause, name = getattr(error, "cause", None), type(error).__name__
    if isinstance(cause, BaseException):
        return describe(cause)
    if getattr(error, "actor_init_failed", False) or name not in _ENDED | _CUT:
        lines = str(error).strip().splitlines()
        return f"{name}: {lines[0]}" if lines else name
    if (head := silent_head()) is not None:
        return f"Ray's head at {head} does not answer, and without it Ray ends its processes on every machine"
    if name in _ENDED:
        return f"Ray's process there ended (its logs there: {LOGS})"
    return "Ray's process there does not answer"
