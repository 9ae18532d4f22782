"""One lane of the command engine: runs the commands of one handler in order."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from agent.core.commands import IllegalMove, RunLimits, canceled, indeterminate, start_entry
from agent.core.values import IN_PROGRESS, CommandState, Contract, JournalEntry, Outcome, OutcomeStatus, Report
from agent.errors import StorageError
from agent.handlers.base import Handler, HandlerRejected
from agent.retry import RetryPolicy
from agent.runtime.failure_log import REPEAT_AFTER_S, FailureLog
from agent.runtime.handler_run import HandlerRun, Work, ask_handler, call_handler
from agent.runtime.service import Actor

if TYPE_CHECKING:
    from agent.runtime.engine import CommandEngine, Item

_log = logging.getLogger(__name__)

_SLACK_S: Final = 30.0
# While a handler runs, its lane checks this often whether those that wait behind it have expired.
_CHECK_S: Final = 1.0


class Lane(Actor):
    """Runs the commands of one lane in order: journal ``started``, handler, journal the outcome.

    A handler runs in a thread of its own, so that one that hangs costs its lane and nothing else.

    Args:
        name: of the lane.
        engine: keeps it fed.
    """

    capacity = 10_000
    max_step_s = _SLACK_S

    def __init__(self, name: str, engine: CommandEngine) -> None:
        super().__init__(f"lane:{name}")
        self._engine = engine
        self._parts = engine.parts
        self._hung: HandlerRun | None = None
        self._failure_log = FailureLog(_log, lambda: self._parts.clock.now().monotonic_s, REPEAT_AFTER_S)

    def receive(self, message: Item) -> None:
        """Run one command."""
        try:
            if not self._engine.stopping.is_set():
                self._take(message)
        finally:
            self._engine.done(message)
            self.max_step_s = _SLACK_S

    def _take(self, item: Item) -> None:
        engine = self._engine
        entry = self._read(item.entry)
        if entry is None:
            return
        try:
            handler = self._parts.find(entry.command.payload)
        except HandlerRejected as refusal:
            self._refuse(item, str(refusal))
            return
        if self._hung is not None and self._is_blocked(self._hung, item, handler.timeout_s):
            if not engine.stopping.is_set():
                text = f"an earlier run of this lane ({self.name}) still hangs; restart_agent frees it"
                self._refuse(item, f"lane_blocked: {text}")
            return
        outcome = engine.begin(item)
        if outcome is not None:
            self._conclude(entry, outcome)
        elif item.verify:
            self._verify(item, handler, entry)
        else:
            self._run(item, handler, entry)

    def _refuse(self, item: Item, text: str) -> None:
        # One that ran before and can no longer be asked about was not refused: it is not known how it ended.
        refused = Outcome(OutcomeStatus.REJECTED, error=text)
        self._conclude(item.entry, indeterminate(text) if item.verify else refused)

    def _run(self, item: Item, handler: Handler, entry: JournalEntry) -> None:
        if not self._start(entry):
            return
        # The commit may have waited for a full disk, or the process stood still.
        late = self._engine.too_late(entry)
        if late is not None:
            self._conclude(entry, late)
            return
        command_id = entry.command.id
        _log.info("command=%s handler=%s state=started attempt=%d", command_id, handler.name, entry.attempts + 1)
        run = self._call(item, handler, entry, call_handler, lambda: item.canceled_by)
        if run.is_left:
            _log.warning("command=%s handler=%s state=left_running: the agent stops", command_id, handler.name)
            return
        outcome = run.outcome()
        if handler.contract is Contract.RESTARTS_DEVICE and self._awaits_restart(run, entry, outcome):
            # It succeeds when the next process finds it started.
            if self._becomes(self._engine.stopping.is_set, handler.timeout_s):
                return
            text = f"no_restart: {handler.name!r} asked for a restart that did not come within {handler.timeout_s:g} s"
            outcome = Outcome(OutcomeStatus.FAILED, None, text)
        self._conclude(entry, outcome)

    def _verify(self, item: Item, handler: Handler, entry: JournalEntry) -> None:
        """Ask the handler how an interrupted run ended, and act on the answer."""
        # Counted before it begins: a hook that takes the agent down with it must come to an end.
        if not self._start(entry):
            return
        _log.info("command=%s handler=%s state=verifying", entry.command.id, handler.name)
        # It changes nothing, so a cancel has nothing to end; it counts when the command would run.
        run = self._call(item, handler, entry, ask_handler, lambda: None)
        if run.is_left:
            return
        if run.why or run.error:
            text = f"the agent ended while it ran, and its verify hook did not know: {run.why or run.error}"
            self._conclude(entry, indeterminate(text))
        elif run.result is not None:
            self._conclude(entry, run.result)
        elif item.canceled_by is not None:
            self._conclude(entry, canceled(item.canceled_by, began=False))
        else:
            self._run(item, handler, start_entry(entry, self._parts.clock.now()))

    # --- one run ------------------------------------------------------------------------------------------------------

    def _call(
        self, item: Item, handler: Handler, entry: JournalEntry, work: Work, canceled_by: Callable[[], str | None]
    ) -> HandlerRun:
        """Run this in a thread of its own, within its limits."""
        # A run may last as long as its timeout; only beyond that the lane itself is stuck.
        self.max_step_s = handler.timeout_s + handler.stop_timeout_s + _SLACK_S
        run = HandlerRun(self._parts, handler, entry, work)
        self._engine.begin_run(item, run)
        try:
            self._wait(
                run, RunLimits(handler.timeout_s, handler.inactivity_timeout_s), handler.stop_timeout_s, canceled_by
            )
        finally:
            self._engine.begin_run(item, None)
        if not run.is_over and not run.is_unstarted:
            self._hung = run
            if not run.is_left:
                self._parts.health.put(self.name, "blocked", f"{handler.name} was given up and does not return")
        return run

    def _wait(
        self, run: HandlerRun, limits: RunLimits, stop_timeout_s: float, canceled_by: Callable[[], str | None]
    ) -> None:
        """Wait for its end; for its limits, its cancel or the stop, and then as long as it may take to heed them."""
        parts, begun_s = self._parts, time.monotonic()
        if (who := canceled_by()) is not None:
            run.do_not_start(canceled(who, began=False))
            return
        try:
            run.start()
        except RuntimeError as error:  # the process is out of threads
            text = f"no_thread: no thread could be started: {error}"
            run.do_not_start(Outcome(OutcomeStatus.FAILED, None, text))
            return
        # When progress may be reported: what the handler says, or after a while that it is under way.
        report_at_s, long_at_s = begun_s, begun_s + parts.progress_after_s
        # A lane that was held up for longer than the limits (a busy machine, SIGSTOP) finds a run that has ended.
        while not run.is_over:
            now_s = time.monotonic()
            who = canceled_by()
            if who is not None:
                run.why = canceled(who, began=True).error or ""
            else:
                run.why = limits.fault(run.handler, begun_s, run.alive_s, now_s) or ""
            if run.why:
                run.stopping.set()
                run.join(stop_timeout_s)
                if not run.is_over:
                    run.why += "; it has not returned, and its lane is blocked until it does"
                return
            if self._engine.stopping.is_set():
                run.stopping.set()
                run.join(parts.stop_grace_s)
                run.is_left = not run.is_over
                return
            if now_s >= (report_at_s if run.has_progress else long_at_s):
                parts.post_result(Report(run.command_id, IN_PROGRESS, run.take_progress()))
                report_at_s, long_at_s = now_s + parts.progress_every_s, float("inf")
            self._engine.expire_waiting()
            next_s = report_at_s if run.has_progress else long_at_s
            until_s = min(limits.ends_at(begun_s, run.alive_s), now_s + _CHECK_S, next_s)
            run.wake.wait(max(0.0, until_s - time.monotonic()))
            run.wake.clear()

    def _awaits_restart(self, run: HandlerRun, entry: JournalEntry, outcome: Outcome) -> bool:
        """The handler has asked for the restart: in its first run, or in a later one that the agent's stop ended."""
        is_open = entry.attempts == 0 or (outcome.result is None and self._engine.stopping.is_set())
        return is_open and outcome.status is OutcomeStatus.SUCCEEDED and not run.no_restart.is_set()

    def _is_blocked(self, hung: HandlerRun, item: Item, within_s: float) -> bool:
        """Whether the run that hangs goes on to do so: as long as one run may take, its successors wait for it."""
        stopping = self._engine.stopping
        self.max_step_s = within_s + _SLACK_S
        is_over = self._becomes(
            lambda: stopping.is_set() or item.outcome is not None or not hung.is_alive(), within_s, 0.2
        )
        if hung.is_alive():
            return not is_over or item.outcome is None
        self._hung = None
        self._parts.health.put(self.name, "ok")
        return False

    def _becomes(self, condition: Callable[[], bool], within_s: float, every_s: float = _CHECK_S) -> bool:
        """Whether this becomes true in time; meanwhile those that wait in the lanes may expire."""
        deadline_s = time.monotonic() + within_s
        while not condition():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            self._engine.stopping.wait(min(left_s, every_s))
            self._engine.expire_waiting()
        return True

    # --- the journal --------------------------------------------------------------------------------------------------

    def _read(self, before: JournalEntry) -> JournalEntry | None:
        """The entry, if it is as it was when it was handed over: no command runs twice by mistake."""
        try:
            now = self._parts.journal.known([before.command.id]).get(before.command.id)
        except StorageError as error:
            text = f"journal=failing: a command could not be read: {error}; it runs after the next start"
            self._failure_log.report("journal", text, level=logging.ERROR)
            return None
        return now if now is not None and (now.state, now.attempts) == (before.state, before.attempts) else None

    def _start(self, entry: JournalEntry) -> bool:
        parts = self._parts
        return self._commit(lambda: parts.journal.start(entry.command.id, parts.clock.now()), "start")

    def _conclude(self, entry: JournalEntry, outcome: Outcome) -> None:
        command_id, parts = entry.command.id, self._parts
        finished: list[JournalEntry] = []

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

        if self._commit(finish, "outcome") and finished:
            self._engine.concluded(finished[-1])

    def _commit(self, write: Callable[[], object], what: str) -> bool:
        """Write until it is written; False when the agent stops before that. Nothing runs that is not journaled."""
        retries = RetryPolicy(base_s=1.0, cap_s=2.0)
        while True:
            try:
                write()
            except StorageError as error:
                text = f"journal=failing: the {what} of a command could not be written: {error}; look at the disk"
                self._failure_log.report("journal", text, level=logging.ERROR)
                self.max_step_s = float("inf")  # a full disk is reported; a restart would not mend it
                if self._engine.stopping.wait(retries.failed()):
                    return False
            else:
                self._failure_log.recovered("journal", "journal=ok: commands can be written again")
                self.max_step_s = _SLACK_S
                return True
