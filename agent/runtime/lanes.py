"""Lanes: each runs its commands one after the other; :mod:`agent.runtime.dispatcher` keeps them fed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from agent.core.commands import IllegalMove, RunLimits, canceled, indeterminate, start_entry
from agent.core.values import CommandState, Contract, JournalEntry, Moment, Outcome, OutcomeStatus, Report
from agent.errors import StorageError
from agent.runtime.failure_log import FailureLog
from agent.runtime.health import Health
from agent.runtime.jobs import Attempt, CancelSwitch, Ended, Job, JobRunner, Jobs, Progress
from agent.runtime.service import Actor

if TYPE_CHECKING:
    from agent.ports import Clock
    from agent.store.journal import Journal

_log = logging.getLogger(__name__)

_STORE_RETRY_S: Final = 1.0
_SLACK_S: Final = 30.0
_LOOK_S: Final = 1.0

LANE_CAPACITY: Final = 64
"""How many commands may be in one lane, the running one included; the others wait in the journal."""


class LaneItem:
    """A command in its lane. Shared with the dispatcher, which guards ``began`` and ``settled``.

    Attributes:
        entry: as it was before this run.
        lane: its own lane's name, also where it shares another.
        is_started: the journal has it as ``started`` already: the commit that admitted it did that, too.
        verify: a crash interrupted it, so its handler is first asked how it ended.
        switch: takes it back once it has begun.
        began: its lane runs it.
        settled: how it ended without a run; None while it may run.
        is_written: the journal has that end, and the reporter of results has it.
    """

    __slots__ = ("began", "entry", "is_started", "is_written", "lane", "settled", "switch", "verify")

    def __init__(self, entry: JournalEntry, lane: str, *, is_started: bool = False, verify: bool = False) -> None:
        self.entry = entry
        self.lane = lane
        self.is_started = is_started
        self.verify = verify
        self.switch = CancelSwitch()
        self.began = False
        self.settled: Outcome | None = None
        self.is_written = False


@dataclass(slots=True)
class LaneParts:
    """What all lanes share.

    Attributes:
        runner: runs the handlers.
        service_now: the service's clock, epoch seconds; None when it is not known.
        on_finished: called with a command whose result waits to be reported.
        on_progress: called with the progress of a running command; a report may be lost.
        wall_of: the time of a moment, epoch seconds; None when it is not known.
        holds: True for an item that must not begin yet; the holder dispatches it again.
        progress_every_s: one report of progress in this time at most, for each command, seconds.
        stopping: set once no further command may begin.
    """

    journal: Journal
    jobs: Jobs
    runner: JobRunner
    clock: Clock
    health: Health
    service_now: Callable[[], float | None]
    on_finished: Callable[[JournalEntry], object]
    on_progress: Callable[[Report], object]
    wall_of: Callable[[Moment], float | None] = lambda moment: moment.wall_s
    holds: Callable[[JournalEntry, bool], bool] = lambda _entry, _verify: False
    progress_every_s: float = 1.0
    repeat_after_s: float = 300.0
    stopping: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Begin no further command, and ask the running ones to end."""
        self.stopping.set()
        self.runner.stop()


class LaneCallbacks(Protocol):
    """The dispatcher, as far as a lane uses it."""

    def begin(self, item: LaneItem) -> Outcome | None:
        """Begin an item: None when it shall run now, else its outcome without a run."""
        ...

    def too_late(self, entry: JournalEntry) -> Outcome | None:
        """The outcome of a command whose time is over; None while it may start."""
        ...

    def look(self) -> None:
        """Conclude those that have waited too long. Called again and again while a lane makes others wait."""
        ...

    def concluded(self, command_id: str) -> None:
        """Note that the outcome of a command is in the journal."""
        ...

    def done(self, command_id: str) -> None:
        """Note that the lane has finished with a command, with or without an outcome."""
        ...


class Lane(Actor):
    """Runs the commands of one lane in order.

    Args:
        callbacks: called with what becomes of each command.
    """

    capacity = LANE_CAPACITY

    def __init__(self, name: str, parts: LaneParts, callbacks: LaneCallbacks) -> None:
        super().__init__(f"lane:{name}")
        self._parts = parts
        self._callbacks = callbacks
        self._hung: threading.Thread | None = None
        self._failure_log = FailureLog(_log, lambda: parts.clock.now().monotonic_s, parts.repeat_after_s)
        self.patience_s = _SLACK_S

    def receive(self, message: LaneItem) -> None:
        """Run one command: journal ``started``, handler, journal the outcome."""
        try:
            if not self._parts.stopping.is_set():
                self._take(message)
        finally:
            self._callbacks.done(message.entry.command.id)
            self.patience_s = _SLACK_S

    def _take(self, item: LaneItem) -> None:
        entry = item.entry
        if not item.is_started and (not self._is_current(entry) or self._parts.holds(entry, item.verify)):
            return
        job = self._parts.jobs.prepare(entry.command)
        if isinstance(job, Outcome):
            # One that ran before and can no longer be asked about was not refused: it is not known how it ended.
            self._conclude(entry, indeterminate(f"{job.error}") if item.verify else job)
            return
        if self._hung is not None and self._is_blocked(self._hung, job, item):
            if not self._parts.stopping.is_set():
                text = f"an earlier run of this lane ({self.name}) still hangs; restart_agent frees it"
                blocked = indeterminate(text) if item.verify else _rejected("lane_blocked", text)
                self._conclude(entry, blocked)
            return
        settled = self._callbacks.begin(item)
        if settled is not None:
            if not item.is_written:
                self._conclude(entry, settled)
        elif item.verify:
            self._verify(item, job)
        else:
            self._run(item, job, entry)

    def _run(self, item: LaneItem, job: Job, entry: JournalEntry) -> None:
        if not item.is_started:
            if not self._start(entry):
                return
            # The commit may have waited for a full disk, or the process stood still.
            late = self._callbacks.too_late(entry)
            if late is not None:
                self._conclude(entry, late)
                return
        _log.info("command=%s handler=%s state=started attempt=%d", entry.command.id, job.handler, entry.attempts + 1)
        ended = self._run_job(job, entry, item.switch)
        if ended.outcome is None:
            _log.warning("command=%s handler=%s state=left_running: the agent stops", entry.command.id, job.handler)
            return
        outcome, within_s = ended.outcome, job.limits.timeout_s
        if job.contract is Contract.RESTARTS_DEVICE and not ended.is_settled and self._awaits_restart(entry, outcome):
            # It succeeds when the next process finds it started.
            if self._stops_within(within_s):
                return
            text = f"no_restart: {job.handler!r} asked for a restart that did not come within {within_s:g} s"
            outcome = Outcome(OutcomeStatus.FAILED, None, text)
        self._conclude(entry, outcome)

    def _verify(self, item: LaneItem, job: Job) -> None:
        """Ask the handler how an interrupted run ended, and act on the answer."""
        entry = item.entry
        # Counted before it begins: a hook that takes the agent down with it must come to an end.
        if not self._start(entry):
            return
        _log.info("command=%s handler=%s state=verifying", entry.command.id, job.handler)
        look = _VerifyJob(job)
        # A look changes nothing, so a cancel has nothing to end; it counts when the command would run.
        ended = self._run_job(look, entry, CancelSwitch())
        if ended.outcome is None:
            return
        if look.is_undone and ended.outcome.status is OutcomeStatus.SUCCEEDED:
            why = item.switch.reason
            if why is not None:
                self._conclude(entry, canceled(why, began=False))
            else:
                self._run(item, job, start_entry(entry, self._parts.clock.now()))
            return
        answer = look.answer
        if answer is None:
            text = f"the agent ended while it ran, and its verify hook did not know: {ended.outcome.error}"
            answer = indeterminate(text)
        self._conclude(entry, answer)

    def _start(self, entry: JournalEntry) -> bool:
        parts = self._parts
        return self._commit(lambda: parts.journal.start(entry.command.id, parts.clock.now()), "start")

    def _is_current(self, entry: JournalEntry) -> bool:
        """The journal still has this command as it was when it was handed over: no command runs twice by mistake."""
        try:
            now = self._parts.journal.known([entry.command.id]).get(entry.command.id)
        except StorageError as error:
            text = f"journal=failing: a command could not be read: {error}; it runs after the next start"
            self._failure_log.report("journal", text, level=logging.ERROR)
            return False
        return now is not None and now.state is entry.state and now.attempts == entry.attempts

    def _run_job(self, job: Job, entry: JournalEntry, switch: CancelSwitch) -> Ended:
        parts = self._parts
        # A run may last as long as its timeout; only beyond that the lane itself is stuck.
        self.patience_s = job.limits.timeout_s + job.unwind_s + _SLACK_S
        progress = Progress(entry.command.id, parts.on_progress, parts.clock, parts.progress_every_s)

        def look() -> None:
            progress.flush()
            self._callbacks.look()

        attempt = Attempt(
            command_id=entry.command.id,
            number=entry.attempts + 1,
            restarted=entry.attempts > 0,
            stopping=threading.Event(),
            report_progress=progress.report,
            cancel=switch,
            look=look,
        )
        try:
            ended = parts.runner.run(job, attempt, on_long=progress.report_long)
        finally:
            progress.close()
        if attempt.no_restart.is_set():
            ended = replace(ended, is_settled=True)
        if ended.hung is not None:
            self._hung = ended.hung
            if ended.outcome is not None:
                parts.health.put(self.name, "blocked", f"{job.handler} was given up and does not return")
        return ended

    def _awaits_restart(self, entry: JournalEntry, outcome: Outcome) -> bool:
        """The handler has asked for the restart: in its first run, or in a later one that the agent's stop ended."""
        is_open = entry.attempts == 0 or (outcome.result is None and self._parts.stopping.is_set())
        return is_open and outcome.status is OutcomeStatus.SUCCEEDED

    def _stops_within(self, seconds: float) -> bool:
        while seconds > 0:
            step_s = min(seconds, _LOOK_S)
            if self._parts.stopping.wait(step_s):
                return True
            seconds -= step_s
            self._callbacks.look()
        return False

    def _is_blocked(self, hung: threading.Thread, job: Job, item: LaneItem) -> bool:
        """Whether the run that hangs goes on to do so: as long as one run may take, its successors wait for it."""
        within_s = job.limits.timeout_s
        self.patience_s = within_s + _SLACK_S
        deadline_s = self._parts.clock.now().monotonic_s + within_s
        while hung.is_alive() and not self._parts.stopping.is_set() and item.settled is None:
            left_s = deadline_s - self._parts.clock.now().monotonic_s
            if left_s <= 0:
                return True
            hung.join(min(left_s, 0.5))
            self._callbacks.look()
        if hung.is_alive():
            return item.settled is None
        self._hung = None
        self._parts.health.put(self.name, "ok")
        return False

    def _conclude(self, entry: JournalEntry, outcome: Outcome) -> None:
        command_id, parts = entry.command.id, self._parts

        def finish() -> None:
            try:
                finished.append(parts.journal.finish(command_id, outcome, parts.clock.now()))
            except IllegalMove:
                # Concluded while it waited, or a write that failed is there after all, or a damaged journal lost it.
                known = parts.journal.known([command_id]).get(command_id)
                if known is None:
                    _log.error("command=%s state=forgotten: the journal lost it while it ran", command_id)
                elif known.state is CommandState.FINISHED:
                    finished.append(known)

        finished: list[JournalEntry] = []
        if self._commit(finish, "outcome") and finished:
            parts.on_finished(finished[-1])
            log_outcome(command_id, entry.handler, finished[-1].outcome or outcome)
            self._callbacks.concluded(command_id)

    def _commit(self, write: Callable[[], None], what: str) -> bool:
        """Write until it is written; False when the agent stops before that. Nothing runs that is not journaled."""
        while True:
            try:
                write()
            except StorageError as error:
                text = f"journal=failing: the {what} of a command could not be written: {error}; look at the disk"
                self._failure_log.report("journal", text, level=logging.ERROR)
                self.patience_s = float("inf")  # a full disk is reported; a restart would not mend it
                if self._parts.stopping.wait(_STORE_RETRY_S):
                    return False
            else:
                self._failure_log.recovered("journal", "journal=ok: commands can be written again")
                self.patience_s = _SLACK_S
                return True


class _VerifyJob:
    """A job that asks another one's handler how it ended.

    Attributes:
        answer: what it answered in time; None while it did not.
        is_undone: it was not done and may run.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self.handler = job.handler
        self.contract = job.contract
        self.limits: RunLimits = job.limits
        self.unwind_s = job.unwind_s
        self.answer: Outcome | None = None
        self.is_undone = False

    def run(self, attempt: Attempt) -> Outcome:
        """The answer, or what was raised instead of one."""
        answer = self._job.verify(attempt)
        self.answer, self.is_undone = answer, answer is None
        return Outcome(OutcomeStatus.SUCCEEDED)

    def verify(self, attempt: Attempt) -> Outcome | None:
        """Never asked: this is the question itself."""
        return self._job.verify(attempt)


def _rejected(code: str, text: str) -> Outcome:
    return Outcome(OutcomeStatus.REJECTED, None, f"{code}: {text}")


def log_outcome(command_id: str, handler: str, outcome: Outcome) -> None:
    """Write one log line about the end of a command."""
    level = logging.INFO if outcome.status is OutcomeStatus.SUCCEEDED else logging.WARNING
    why = f" reason={outcome.error!r}" if outcome.error else ""
    _log.log(level, "command=%s handler=%s state=%s%s", command_id, handler, outcome.status, why)
