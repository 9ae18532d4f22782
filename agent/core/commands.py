"""The life of a command on the device: which moves are legal, and how it ends where the agent itself concludes it.

A state is what the journal holds and nothing else. All legal moves are in the table :data:`MOVES`.

Here are also: what the journal keeps of a command that is over; expired, or too late for its lane; by the handler's
contract, what a crash in the middle of a run means; which words count in a list; what a result means that is not taken.
What to do with a listed command is in :mod:`agent.core.admission`.

The caller must

- ask :func:`refuse_at_start` when a lane comes to a command, which may have waited long;
- call :func:`recover` for every entry in ``started`` before the lanes run, and count a call of a verify hook as an
  attempt in the journal *before* it begins: a hook that takes the agent down with it must come to an end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from agent.core.timekeeping import age_s
from agent.core.values import Command, CommandState, Contract, JournalEntry, Moment, Outcome, OutcomeStatus
from agent.errors import (
    AgentError,
    Conflict,
    ErrorAnswer,
    InvalidMessage,
    NoPlaceForResults,
    NotFound,
    Refused,
    ServerFault,
    UnexpectedAnswer,
)

ATTEMPTS_MAX: Final = 3
"""A handler that takes the agent down with it is not started more often than this, unless its rule says otherwise."""

HISTORY_LOST: Final = "history_lost"
"""Name of the journal setting that is present after an unreadable journal was replaced: until the next ``admit``."""

# A restart that worked is the second attempt: with fewer it could never be concluded.
_RESTART_ATTEMPTS_MIN: Final = 2


class IllegalMove(AgentError):
    """A move that :data:`MOVES` does not have: a fault of the program, not of the data."""

    def __init__(self, state: CommandState | None, after: CommandState) -> None:
        self.state = state
        self.after = after
        super().__init__(f"a command that is {state or 'not in the journal'} cannot be {after}: report this as a bug")


MOVES: Final[Mapping[CommandState, frozenset[CommandState]]] = {
    CommandState.RECEIVED: frozenset({CommandState.STARTED, CommandState.FINISHED}),  # finished: refused at the start
    CommandState.STARTED: frozenset({CommandState.STARTED, CommandState.FINISHED}),  # started: again, after a crash
    CommandState.FINISHED: frozenset({CommandState.REPORTED, CommandState.UNDELIVERABLE}),
    CommandState.REPORTED: frozenset(),
    CommandState.SKIPPED: frozenset(),
    CommandState.UNDELIVERABLE: frozenset(),
}
"""State -> the states that may follow. A new command is ``received``, ``skipped``, or refused: ``finished``."""

OPEN_STATES: Final = (CommandState.RECEIVED, CommandState.STARTED, CommandState.FINISHED)

OVER_STATES: Final = (CommandState.REPORTED, CommandState.SKIPPED, CommandState.UNDELIVERABLE)
"""Nothing is left to do, so an entry may be forgotten when the service no longer lists its command."""


def move(entry: JournalEntry, after: CommandState, **changes: Any) -> JournalEntry:
    """The entry in its next state, with these members changed.

    Once it has an outcome its payload has done its duty and goes. Once the service has the result, that goes, too: the
    entry stays for de-duplication as long as a plain server lists the command, which is for ever, and 64 KiB each would
    fill a flash card.

    Raises:
        IllegalMove: the table has no such move.
    """
    if after not in MOVES[entry.state]:
        raise IllegalMove(entry.state, after)
    if after is CommandState.FINISHED:
        changes["command"] = without_payload(entry.command)
    if after is CommandState.REPORTED:
        entry = without_result(entry)
    return replace(entry, state=after, **changes)


def start_entry(entry: JournalEntry, at: Moment) -> JournalEntry:
    """The entry once its handler is about to run: ``started``, one attempt more."""
    return move(entry, CommandState.STARTED, attempts=entry.attempts + 1, started=at)


def without_result(entry: JournalEntry) -> JournalEntry:
    """The entry with its outcome, but without what its handler returned."""
    return entry if entry.outcome is None else replace(entry, outcome=replace(entry.outcome, result=None))


def without_payload(command: Command) -> Command:
    """The command as it is kept once it is over."""
    return replace(command, payload={}) if command.payload else command


# --- outcomes that the agent concludes itself -------------------------------------------------------------------------


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


# --- before a run and after a crash -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HandlerRule:
    """What is known of one usable handler.

    Attributes:
        contract: what it promises.
        lane: commands of one lane run one after the other.
        start_timeout_s: how long a command may wait for its lane, seconds; None for as long as it likes.
        max_attempts: how often it may be started for one command, its verify hook included.
        verifies: it can say after a crash how a command ended.
    """

    contract: Contract
    lane: str
    start_timeout_s: float | None = None
    max_attempts: int = ATTEMPTS_MAX
    verifies: bool = False


def refuse_at_start(
    entry: JournalEntry,
    service_now_s: float | None,
    now: Moment | None = None,
    start_timeout_s: float | None = None,
) -> Outcome | None:
    """The outcome of a command that waited too long for its lane; None when it may start.

    Args:
        entry: as the journal has it.
        service_now_s: now, on the service's clock; None when nobody can say, and then nothing counts as expired.
        now: this instant; only the start timeout asks for it.
        start_timeout_s: its handler's. It says nothing of a command that was started before.
    """
    expired = expiry(entry.command, service_now_s)
    if expired is not None:
        return expired
    if start_timeout_s is None or now is None or entry.state is not CommandState.RECEIVED:
        return None
    # As far as clocks can say; across boots at least since this one began.
    since_boot_s = now.monotonic_s if entry.received.boot_id != now.boot_id else 0.0
    so_far_s = max(since_boot_s, age_s(entry.received, now) or 0.0)
    if so_far_s <= start_timeout_s:
        return None
    text = f"it waited {so_far_s:.0f} s for its lane, and its handler allows {start_timeout_s:g} s"
    return rejected("not_started_in_time", text)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What to do with a command that a crash caught in ``started``.

    Attributes:
        outcome: conclude it with this; None means run it again, or verify it.
        verify: ask the handler first how it ended.
    """

    outcome: Outcome | None = None
    verify: bool = False


def recover(entry: JournalEntry, rule: HandlerRule | None, process_started: Moment) -> Recovery:
    """Judge an entry in ``started`` that has no outcome.

    Args:
        entry: the journal's entry.
        rule: its handler's; None when this agent no longer has the handler.
        process_started: when this process began; anything started before that was started by another one.
    """
    if rule is None:
        return Recovery(indeterminate(f"its handler {entry.handler!r} is gone, and a crash interrupted it"))
    started = entry.started
    restarted = (
        started is None
        or started.boot_id != process_started.boot_id
        or started.monotonic_s < process_started.monotonic_s
    )
    if rule.contract is Contract.IDEMPOTENT and entry.canceled_by is not None:
        return Recovery(canceled(entry.canceled_by, began=True))
    if rule.contract is Contract.IDEMPOTENT or (rule.contract is Contract.RESTARTS_DEVICE and restarted):
        # The run after a restart only says what came of it, so a cancel no longer changes anything.
        least = 1 if rule.contract is Contract.IDEMPOTENT else _RESTART_ATTEMPTS_MIN
        if entry.attempts < max(rule.max_attempts, least):
            return Recovery()
        text = f"the agent ended {entry.attempts} times while it ran; find out why in the device's log"
        return Recovery(Outcome(OutcomeStatus.FAILED, error=f"too_many_attempts: {text}"))
    if rule.verifies and entry.attempts < rule.max_attempts:
        return Recovery(verify=True)
    if rule.contract is Contract.ONCE:
        return Recovery(indeterminate("the agent ended while it ran, and it must not run twice"))
    return Recovery(indeterminate("it was to restart the device, and the device did not restart"))


# --- which words for a state count in a list --------------------------------------------------------------------------

OPEN_STATUSES: Final = frozenset({"queued", "delivered", "in_progress"})
FINAL_STATUSES: Final = frozenset(
    {"succeeded", "failed", "rejected", "expired", "timed_out", "canceled"}
    # Other services' spellings of the same. A word that is in neither set counts as no word at all.
    | {"cancelled", "completed", "done", "executed", "error", "timeout"}
)
_OPEN: Final = "queued"


def listed_state(status: str | None, *, has_states: bool, only_open: bool) -> str | None:
    """The state of a listed command, as far as the server can be taken at its word; None when it says nothing.

    A final word counts everywhere: a command that has ended is not run. Any other word counts only where the server is
    known to list what is open: others write a word once, when the command is sent, and list it so for ever.

    Args:
        status: as it is listed.
        has_states: the server announces ``command-status``, or the configuration does, so it was asked for open
            commands alone, whatever it calls them.
        only_open: by the configuration lists hold open commands alone.
    """
    word = (status or "").lower()
    if word in FINAL_STATUSES:
        return status
    if not (has_states or only_open):
        return None
    return status if word in OPEN_STATUSES else _OPEN


# --- results that the service does not take ---------------------------------------------------------------------------
# What an error says about a result, and how often it is tried. The caller counts one try for each answer, and starts
# anew after a success.

REASON_MAX: Final = 200
"""Characters of the reason that are kept with a result."""

COMMAND_UNKNOWN: Final = "command_not_found"

_NO_PLACE_STATUSES: Final = frozenset({403, 404, 405, 410, 501})


class ReportFault(StrEnum):
    """What an error says about a result that was reported: whether to try it again, and where the fault is."""

    OVER = "over"
    """The service no longer wants the end of this command."""
    CONTENT = "content"
    """The service does not take this result; it may take the status alone."""
    NOWHERE = "nowhere"
    """This service takes no results, and nothing was sent: no try is needed."""
    NO_PLACE = "no_place"
    """The answer says that there is no such place."""
    FAILING = "failing"
    """The service, or something on the way, fails on it."""
    NOT_NOW = "not_now"
    """Nothing is known about this result: no answer, wrong keys, the quota, an earlier attempt that still runs."""


def fault_of(error: AgentError) -> ReportFault:
    """Which fault an error of the service means for the result that was reported."""
    if isinstance(error, Conflict) or (isinstance(error, NotFound) and error.error == COMMAND_UNKNOWN):
        return ReportFault.OVER
    if isinstance(error, NoPlaceForResults):
        return ReportFault.NOWHERE
    if isinstance(error, ErrorAnswer | UnexpectedAnswer) and error.status in _NO_PLACE_STATUSES:
        return ReportFault.NO_PLACE
    if isinstance(error, Refused | InvalidMessage):
        return ReportFault.CONTENT
    if isinstance(error, ServerFault | UnexpectedAnswer):
        return ReportFault.FAILING
    return ReportFault.NOT_NOW


LIMITS: Final = {
    # A place that does not exist may be deployed in these minutes.
    ReportFault.NO_PLACE: (5, 600.0),
    # A service that fails is mostly mended; one that fails on this result for ever is not waited for.
    ReportFault.FAILING: (20, 3600.0),
}
"""So many answers of a kind, over so many seconds since the first of them, are enough."""


@dataclass(frozen=True, slots=True)
class FailureStreak:
    """Failed tries in a row, of one result or of any.

    Attributes:
        times: how many.
        since_s: when the first was, seconds on the monotonic clock.
    """

    times: int = 0
    since_s: float = 0.0

    def failed(self, now_s: float) -> FailureStreak:
        """The streak with one more failure."""
        return FailureStreak(1, now_s) if not self.times else replace(self, times=self.times + 1)

    def are_enough(self, fault: ReportFault, now_s: float) -> bool:
        """The last one failed with ``fault``, and there is no point in more of them for now."""
        if fault not in LIMITS:
            return False
        times, span_s = LIMITS[fault]
        return self.times >= times and now_s - self.since_s >= span_s
