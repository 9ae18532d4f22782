"""Outcomes that are no handler's own: refused, interrupted, taken back."""

from __future__ import annotations

from agent.core.values import Command, Outcome, OutcomeStatus


def rejected(code: str, sentence: str) -> Outcome:
    """The command is not run, for a reason with a stable code."""
    return Outcome(OutcomeStatus.REJECTED, error=f"{code}: {sentence}")


def indeterminate(sentence: str) -> Outcome:
    """Nobody knows whether it was done, and ``sentence`` says why."""
    return Outcome(OutcomeStatus.FAILED, error=f"indeterminate: {sentence}; it is not run again")


def canceled(why: str, *, began: bool) -> Outcome:
    """The outcome of a command that somebody took back.

    Args:
        why: who or what did, such as ``by command 17``.
        began: its handler had been started: it ends as ``failed``, else as ``rejected``.
    """
    status = OutcomeStatus.FAILED if began else OutcomeStatus.REJECTED
    when = "while it ran" if began else "before it began"
    return Outcome(status, error=f"canceled: {why}, {when}")


def expiry(command: Command, service_now_s: float | None) -> Outcome | None:
    """The outcome of a command that has expired; None when it has not, or nobody can say."""
    if command.expires_at is None or service_now_s is None or service_now_s < command.expires_at:
        return None
    return rejected("expired", f"it expired {service_now_s - command.expires_at:.0f} s before this device could run it")


def faulty(command: Command) -> Outcome | None:
    """The outcome of a command that must not run although it could be read; None when nothing is wrong."""
    return None if command.fault is None else Outcome(OutcomeStatus.REJECTED, error=command.fault)
