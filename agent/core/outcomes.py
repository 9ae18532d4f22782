"""Outcomes that the agent concludes itself: refused, interrupted, canceled, out of time."""

from __future__ import annotations

from agent.core.values import Command, Outcome, OutcomeStatus
from agent.frozen import dataclass


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


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of one run.

    Attributes:
        timeout_s: from its beginning to its end.
        inactivity_s: from one sign of life to the next; None asks for none.
    """

    timeout_s: float
    inactivity_s: float | None = None

    def ends_at(self, begun_s: float, alive_s: float) -> float:
        """When the run is out of time, unless it shows a sign of life before.

        Args:
            begun_s: when it began.
            alive_s: when it last showed a sign of life; its beginning is the first.
        """
        end_s = begun_s + self.timeout_s
        return end_s if self.inactivity_s is None else min(end_s, alive_s + self.inactivity_s)

    def fault(self, handler: str, begun_s: float, alive_s: float, now_s: float) -> str | None:
        """Why the run must end now, as ``code: sentence``; None while it may go on."""
        if now_s >= begun_s + self.timeout_s:
            return f"timeout: {handler!r} ran longer than {self.timeout_s:g} s"
        if self.inactivity_s is not None and now_s >= alive_s + self.inactivity_s:
            return f"inactive: {handler!r} gave no sign of life for {self.inactivity_s:g} s"
        return None
