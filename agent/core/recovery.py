"""What a crash means for the command that it interrupted.

Handled here: by the handler's contract, whether an entry that a crash caught in ``started`` runs again, is concluded,
or is looked into by its handler's verify hook first; what that look means; how often all of that is tried.

Never handled here: running, verifying, committing.

Therefore the I/O layer must call :func:`recover` for every entry in ``started`` before the lanes run, count a look as
an attempt in the journal *before* it begins (a hook that takes the agent down with it must come to an end), and pass
the cancels that the journal remembers.
"""

from __future__ import annotations

from typing import Final

from agent.core.commands import HandlerRule
from agent.core.outcomes import canceled, indeterminate
from agent.core.values import Contract, JournalEntry, Moment, Outcome, OutcomeStatus
from agent.frozen import dataclass

# A restart that worked is the second attempt: with fewer it could never be concluded.
_RESTART_ATTEMPTS_MIN: Final = 2


@dataclass(frozen=True, slots=True)
class Recovery:
    """What to do with a command that a crash caught in ``started``.

    Attributes:
        outcome: conclude it with this; None means run it again, or verify it.
        restarted: tell the handler that the process or boot that started the command is gone.
        verify: ask the handler first how it ended.
    """

    outcome: Outcome | None = None
    restarted: bool = False
    verify: bool = False


def recover(
    entry: JournalEntry, rule: HandlerRule | None, process_started: Moment, *, canceled_by: str | None = None
) -> Recovery:
    """Judge an entry in ``started`` that has no outcome.

    Args:
        entry: the journal's entry.
        rule: its handler's; None when this agent no longer has the handler.
        process_started: when this process began; anything started before that was started by another one.
        canceled_by: who took it back before the crash; None when nobody did.
    """
    if rule is None:
        return Recovery(indeterminate(f"its handler {entry.handler!r} is gone, and a crash interrupted it"))
    restarted = _is_before(entry.started, process_started)
    if rule.contract is Contract.IDEMPOTENT and canceled_by is not None:
        return Recovery(canceled(canceled_by, began=True))
    if rule.contract is Contract.IDEMPOTENT or (rule.contract is Contract.RESTARTS_DEVICE and restarted):
        # The run after a restart only tells what came of it, so a cancel no longer changes anything.
        least = 1 if rule.contract is Contract.IDEMPOTENT else _RESTART_ATTEMPTS_MIN
        is_last = entry.attempts >= max(rule.max_attempts, least)
        return Recovery(_too_many(entry)) if is_last else Recovery(restarted=restarted)
    if rule.verifies and entry.attempts < rule.max_attempts:
        return Recovery(verify=True)
    if rule.contract is Contract.ONCE:
        return Recovery(indeterminate("the agent ended while it ran, and it must not run twice"))
    return Recovery(indeterminate("it was to restart the device, and the device did not restart"))


def _too_many(entry: JournalEntry) -> Outcome:
    text = f"the agent ended {entry.attempts} times while it ran; find out why in the device's log"
    return Outcome(OutcomeStatus.FAILED, error=f"too_many_attempts: {text}")


def _is_before(started: Moment | None, process_started: Moment) -> bool:
    if started is None or started.boot_id != process_started.boot_id:
        return True
    return started.monotonic_s < process_started.monotonic_s
