"""Outcomes that are no handler's own: refused, interrupted, taken back."""

from __future__ import annotations

from agent.core.values import Outcome, OutcomeStatus


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
