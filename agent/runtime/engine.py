"""The command engine: which lane a command goes to, how it is taken back, and taken up again after a crash.

Each handler has a lane, a thread that runs its commands one after the other, each in a thread of its own. ``started``
is committed before a handler begins, its outcome before anybody hears of it, and the cancel of a command that has begun
as well.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from agent.core.admission import CommandRules, FirstContact, SignaturePolicy
from agent.core.commands import (
    HandlerRule,
    IllegalMove,
    RunLimits,
    canceled,
    indeterminate,
    recover,
    refuse_at_start,
    start_entry,
    without_payload,
)
from agent.core.timekeeping import service_time_at_least
from agent.core.values import (
    IN_PROGRESS,
    CommandState,
    Contract,
    JournalEntry,
    JsonObject,
    Moment,
    Outcome,
    OutcomeStatus,
    Report,
)
from agent.errors import AgentError, StorageError
from agent.handlers.base import AgentControls, CommandContext, Handler, HandlerFailed, HandlerRejected, Verified
from agent.handlers.registry import HandlerRegistry, ResultTooLarge, copy_result, read_payload
from agent.ports import Clock
from agent.retry import RetryPolicy
from agent.runtime.actor import Actor
from agent.runtime.health import REPEAT_AFTER_S, FailureLog, Health
from agent.store.journal import Journal

_log = logging.getLogger(__name__)

# For commands whose handler left with the last configuration: they are only rejected.
_UNKNOWN_LANE: Final = "unknown"
# More than can ever be open: admission refuses what is beyond its bounds.
_ALL: Final = 10_000

WAITING: Final = "waiting"
RUNNING: Final = "running"
OVER: Final = "over"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What the engine needs of the agent.

    Attributes:
        find: the handler that a payload names; raises HandlerRejected where there is none.
        service_now: the service's clock, epoch seconds; None when it is not known.
        wall_of: the time of a moment, epoch seconds; None when it is not known.
        post_result: called with a command whose result waits to be reported, and with progress, which may be lost.
        stop_grace_s: how long running handlers may go on after the stop.
        progress_every_s: one report of progress in this time at most, for each command.
        progress_after_s: a run that lasts longer and has reported nothing is reported as under way.
    """

    journal: Journal
    rules: CommandRules
    find: Callable[[JsonObject], Handler]
    clock: Clock
    health: Health
    service_now: Callable[[], float | None]
    wall_of: Callable[[Moment], float | None]
    post_result: Callable[[JournalEntry | Report], object]
    device_id: str
    controls: AgentControls
    stop_grace_s: float = 2.5
    progress_every_s: float = 1.0
    progress_after_s: float = 3.0


@dataclass(slots=True, eq=False)
class Item:
    """A command in its lane; the engine's lock guards what changes.

    Attributes:
        entry: as it was before this run, without its payload: the journal has that.
        verify: a crash interrupted it, so its handler is first asked how it ended.
        has_begun: its lane runs it.
        outcome: how it ended without a run; None while it may run.
        canceled_by: who took it back once it had begun.
        run: the call of its handler that goes on.
    """

    entry: JournalEntry
    lane: str
    verify: bool
    has_begun: bool = False
    outcome: Outcome | None = None
    canceled_by: str | None = None
    run: HandlerRun | None = None


class CommandEngine:
    """Takes commands to their lanes. Thread-safe.

    Args:
        parts: what it needs.
        start_lane: starts a thread for a lane and returns how to post a command to it, which is False once that is
            closed; RuntimeError when the process is out of threads.

    Attributes:
        stopping: set once no further command may begin.
    """

    def __init__(self, parts: EngineParts, start_lane: Callable[[Actor], Callable[[Item], bool]]) -> None:
        self.parts = parts
        self.stopping = threading.Event()
        self._start_lane = start_lane
        self._lock = threading.Lock()
        self._lanes: dict[str, Callable[[Item], bool]] = {}
        self._items: dict[str, Item] = {}
        # Those that may have expired before this boot, until the time is known.
        self._held: dict[str, tuple[JournalEntry, bool]] = {}

    # --- into the lanes -----------------------------------------------------------------------------------------------

    def dispatch(self, entry: JournalEntry, *, verify: bool = False) -> None:
        """Put a ``received`` command, or a ``started`` one that shall run again, into its lane; twice is once.

        Args:
            entry: as the journal has it.
            verify: its handler is first asked how it ended.
        """
        command_id = entry.command.id
        rule = self.parts.rules.handlers.get(entry.handler)
        lane = rule.lane if rule is not None else _UNKNOWN_LANE
        item = Item(replace(entry, command=without_payload(entry.command)), lane, verify, canceled_by=entry.canceled_by)
        with self._lock:
            if command_id in self._items or command_id in self._held:
                return
            if self._must_wait_for_time(entry):
                self._held[command_id] = (entry, verify)
                _log.info("command=%s state=waiting: it may have expired, and the time is not known yet", command_id)
                return
            self._items[command_id] = item
            try:
                if lane not in self._lanes:
                    self._lanes[lane] = self._start_lane(Lane(lane, self))
                if not self._lanes[lane](item):
                    del self._items[command_id]  # the agent stops: the next start finds it in the journal
                return
            except RuntimeError as error:  # the process is out of threads
                del self._items[command_id]
                fault = f"no_thread: no thread could be started for its lane: {error}"
        try:
            self._settle(entry, indeterminate(fault) if verify else Outcome(OutcomeStatus.FAILED, None, fault))
        except StorageError as error:
            _log.error("journal=failing: the end of command %s could not be written: %s", command_id, error)

    def resume(
        self, process_started: Moment, *, is_held: Callable[[JournalEntry], bool] = lambda _entry: False
    ) -> None:
        """Take up the commands of an earlier process: conclude or run again what it had started, dispatch the others.

        Args:
            process_started: when this process began.
            is_held: a started command that this start neither runs nor concludes.

        Raises:
            StorageError: the journal cannot be read or written.
        """
        parts = self.parts
        for entry in parts.journal.in_state(CommandState.STARTED, limit=_ALL):
            if is_held(entry):
                continue
            command_id, handler = entry.command.id, entry.handler
            recovery = recover(entry, parts.rules.handlers.get(handler), process_started)
            if recovery.outcome is not None:
                error = recovery.outcome.error
                _log.warning("command=%s handler=%s state=interrupted reason=%r", command_id, handler, error)
                parts.post_result(parts.journal.finish(command_id, recovery.outcome, parts.clock.now()))
                continue
            what = "its handler is asked how it ended" if recovery.verify else "it runs again"
            _log.info("command=%s handler=%s state=interrupted: %s", command_id, handler, what)
            self.dispatch(entry, verify=recovery.verify)
        for entry in parts.journal.in_state(CommandState.RECEIVED, limit=_ALL):
            self.dispatch(entry)

    def _must_wait_for_time(self, entry: JournalEntry) -> bool:
        """Whether this command must not begin yet, since nobody knows whether it has expired.

        Within a boot the monotonic clock says that. After a reboot, with a wall clock that may stand anywhere, only the
        service or a synchronised clock can.
        """
        is_earlier = entry.command.expires_at is not None and entry.received.boot_id != self.parts.clock.now().boot_id
        return is_earlier and self.parts.service_now() is None

    def time_is_known(self) -> None:
        """Dispatch those that waited for it."""
        with self._lock:
            held, self._held = list(self._held.values()), {}
        for entry, verify in held:
            self.dispatch(entry, verify=verify)

    def stop(self) -> None:
        """No further command begins; running ones are asked to end."""
        self.stopping.set()
        with self._lock:
            for item in self._items.values():
                if item.run is not None:
                    item.run.wake.set()

    # --- what is under way --------------------------------------------------------------------------------------------

    def is_busy(self) -> bool:
        """A command is under way."""
        return bool(self._items)

    def waiting(self) -> dict[str, int]:
        """Lane -> how many commands are in it, the running one included."""
        with self._lock:
            return dict(Counter(item.lane for item in self._items.values()))

    def under_way(self) -> dict[str, str | None]:
        """The ids of the commands in lanes, each with the service's word for its state when it was taken."""
        with self._lock:
            return {command_id: each.entry.command.status for command_id, each in self._items.items()}

    def expire_waiting(self) -> None:
        """Conclude those that have waited too long. Called again and again while a lane makes others wait."""
        late: list[tuple[JournalEntry, Outcome]] = []
        with self._lock:
            for item in self._items.values():
                if item.has_begun or item.verify or item.outcome is not None:
                    continue
                item.outcome = self.too_late(item.entry)
                if item.outcome is not None:
                    late.append((item.entry, item.outcome))
        for entry, outcome in late:
            try:
                self._settle(entry, outcome)
            except StorageError:
                _log.debug("command=%s its lane will write its end", entry.command.id)

    def too_late(self, entry: JournalEntry) -> Outcome | None:
        """The outcome ``expired`` or ``not_started_in_time`` of a command whose time is over; None while it may run."""
        parts = self.parts
        rule = parts.rules.handlers.get(entry.handler)
        now, service_now_s = parts.clock.now(), parts.service_now()
        if service_now_s is None:
            service_now_s = service_time_at_least(entry.command, entry.received, now)
        # Across a reboot the wait goes by true times, or by none.
        received, now = (replace(each, wall_s=parts.wall_of(each) or 0.0) for each in (entry.received, now))
        start_timeout_s = rule.start_timeout_s if rule is not None else None
        return refuse_at_start(replace(entry, received=received), service_now_s, now, start_timeout_s)

    # --- taken back ---------------------------------------------------------------------------------------------------

    def cancel(self, command_id: str, why: str) -> str:
        """Take a command back: one that waits never runs, one that runs is asked to end.

        Args:
            command_id: the journal's id.
            why: who or what did, such as ``by command 17``.

        Returns:
            How it was found: :data:`WAITING`, :data:`RUNNING`, :data:`OVER` or :data:`UNKNOWN`.

        Raises:
            StorageError: the journal cannot be read or written; one that waits in a lane will not run all the same.
        """
        with self._lock:
            item = self._items.get(command_id)
            has_begun = item is not None and (item.has_begun or item.verify)
            if item is not None and not has_begun and item.outcome is None:
                item.outcome = canceled(why, began=False)
        if item is not None and has_begun:
            self._write_cancel(command_id, why)
            _log.warning("command=%s state=canceling reason=%r", command_id, why)
            with self._lock:
                item.canceled_by = item.canceled_by or why
                if item.run is not None:
                    item.run.wake.set()
            return RUNNING
        entry = self.parts.journal.known([command_id]).get(command_id)
        if entry is None:
            return UNKNOWN
        if entry.state is CommandState.STARTED and item is None:
            self._write_cancel(command_id, why)  # the stop has left it behind: the next start finds both
            return RUNNING
        if entry.state not in {CommandState.RECEIVED, CommandState.STARTED}:
            return OVER
        return WAITING if self._settle(entry, canceled(why, began=False)) else OVER

    def _write_cancel(self, command_id: str, why: str) -> None:
        """Remember it beyond a crash; where the journal fails, the cancel goes on without that."""
        try:
            self.parts.journal.cancel(command_id, why)
        except StorageError as error:
            _log.error("journal=failing: a cancel is not remembered beyond a crash: %s", error)

    # --- the lanes' side ----------------------------------------------------------------------------------------------

    def begin(self, item: Item) -> Outcome | None:
        """Begin an item: None when it shall run now, else its outcome without a run."""
        with self._lock:
            if item.outcome is None and not item.verify:
                item.outcome = self.too_late(item.entry)
            item.has_begun = item.outcome is None
            return item.outcome

    def begin_run(self, item: Item, run: HandlerRun | None) -> None:
        """Note which call of a handler a cancel or the stop has to wake; None for none."""
        with self._lock:
            item.run = run

    def done(self, item: Item) -> None:
        """The lane has finished with a command, with or without an outcome."""
        with self._lock:
            self._items.pop(item.entry.command.id, None)

    def _settle(self, entry: JournalEntry, outcome: Outcome) -> bool:
        """Write the end of a command that did not run; False when there is one already."""
        try:
            finished = self.parts.journal.finish(entry.command.id, outcome, self.parts.clock.now())
        except IllegalMove:
            return False
        self.concluded(finished)
        return True

    def concluded(self, entry: JournalEntry) -> None:
        """The outcome of a command is in the journal: log and report it."""
        outcome = entry.outcome or Outcome(OutcomeStatus.FAILED)
        level = logging.INFO if outcome.status is OutcomeStatus.SUCCEEDED else logging.WARNING
        why = f" reason={outcome.error!r}" if outcome.error else ""
        _log.log(level, "command=%s handler=%s state=%s%s", entry.command.id, entry.handler, outcome.status, why)
        self.parts.post_result(entry)


# --- one lane ---------------------------------------------------------------------------------------------------------


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


# --- one call of a handler --------------------------------------------------------------------------------------------


_ERROR_CHARACTERS: Final = 1000

Work = Callable[[Handler, JsonObject, CommandContext], Outcome | None]
"""What to do with a handler, its payload without the member that names it, and the context of the run."""


class HandlerRun(threading.Thread):
    """One call of a handler.

    Attributes:
        stopping: set when the handler shall end.
        no_restart: set when a handler of the contract ``restarts_device`` had nothing to restart.
        wake: set at its end, its cancel, the stop, and when it has reported progress.
        alive_s: when it last gave a sign of life, ``time.monotonic()``.
        is_over: it has come back.
        is_left: the agent stops and it did not end within the grace: the command stays ``started``.
        is_unstarted: it never began.
        why: why it had to end, ``code: sentence``; empty when it ended by itself.
        result: what it returned.
        error: what it raised, as text.
    """

    def __init__(self, parts: EngineParts, handler: Handler, entry: JournalEntry, work: Work) -> None:
        super().__init__(name=f"run:{handler.name}", daemon=True)
        self.command_id = command_id = entry.command.id
        self.handler = handler.name
        self.stopping = threading.Event()
        self.no_restart = threading.Event()
        self.wake = threading.Event()
        self.alive_s = time.monotonic()
        self.is_over = self.is_left = self.is_unstarted = False
        self.why = self.error = ""
        self.result: Outcome | None = None
        self._progress: JsonObject | None = None
        self._log = HandlerLog(_log.getChild(handler.name), {"handler": handler.name, "command": command_id})
        context = CommandContext(
            command_id=command_id,
            device_id=parts.device_id,
            attempt=entry.attempts + 1,
            restarted=entry.attempts > 0,
            stopping=self.stopping,
            log=self._log,
            controls=parts.controls,
            report_progress=self._report_progress,
            heartbeat=self._give_sign_of_life,
            no_restart=self.no_restart.set,
        )
        key = parts.rules.handler_key
        members = {name: value for name, value in entry.command.payload.items() if name != key}
        self._work = partial(work, handler, members, context)

    def run(self) -> None:
        """Call the handler; nothing that it raises leaves here."""
        self.alive_s = time.monotonic()
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - whatever a plug-in raises ends its command and nothing else
            self.error = f"{type(error).__name__}: {error}"
        self.is_over = True
        self.wake.set()

    def do_not_start(self, outcome: Outcome) -> None:
        """It never begins, and this is how its command ends."""
        self.is_unstarted = True
        self.why = outcome.error or ""
        self.result = outcome

    def outcome(self) -> Outcome:
        """How its command ends: by what it returned, or by why it had to end, with what it said about that."""
        own = self.result or Outcome(OutcomeStatus.FAILED, None, f"handler_error: {self.error}" if self.error else None)
        if not self.why or self.is_unstarted:
            return own
        text = f"{self.why}; {own.error}" if own.error else self.why
        return Outcome(OutcomeStatus.FAILED, own.result if self.is_over else None, text)

    @property
    def has_progress(self) -> bool:
        """It has reported progress that nobody has taken."""
        return self._progress is not None

    def take_progress(self) -> JsonObject | None:
        """The newest report of progress, once; None when there is none."""
        progress, self._progress = self._progress, None
        return progress

    def _report_progress(self, result: JsonObject) -> None:
        self._give_sign_of_life()
        try:
            self._progress = copy_result(result)
        except ResultTooLarge as error:
            self._log.warning("its progress is left out: %s", error)
        except (TypeError, ValueError, RecursionError) as error:
            self._log.warning("its progress is no JSON and is left out: %s", error)
        self.wake.set()

    def _give_sign_of_life(self) -> None:
        self.alive_s = time.monotonic()


class HandlerLog(logging.LoggerAdapter[logging.Logger]):
    """Adds handler and command to each line of a handler's log (:mod:`agent.app.logs`)."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """See :meth:`logging.LoggerAdapter.process`."""
        # Not into the text itself: an id from outside may hold a percent sign.
        return msg, {**kwargs, "extra": {**(kwargs.get("extra") or {}), "members": dict(self.extra or {})}}


def command_rules(
    registry: HandlerRegistry, *, handler_key: str, first_contact: str, signatures: SignaturePolicy | None = None
) -> CommandRules:
    """The rules of admission: which handlers there are, with their contracts and lanes."""

    def judge(payload: JsonObject) -> str | None:
        # The decision holds the store's thread, where no plug-in's code may run: its payload is checked in the run.
        try:
            registry.find(payload, handler_key)
        except HandlerRejected as refusal:
            return str(refusal)
        return None

    return CommandRules(
        handlers={handler.name: rule_of(handler) for handler in registry.ready.values()},
        judge=judge,
        handler_key=handler_key,
        first_contact=FirstContact(first_contact),
        signatures=signatures,
    )


def rule_of(handler: Handler) -> HandlerRule:
    """What admission and recovery need of a handler."""
    return HandlerRule(
        handler.contract,
        handler.lane or handler.name,
        start_timeout_s=handler.start_timeout_s,
        max_attempts=handler.max_attempts,
        verifies=handler.verifies(),
    )


class VerifyInconclusive(AgentError):
    """A verify hook does not know how the command ended."""


def call_handler(handler: Handler, members: JsonObject, context: CommandContext) -> Outcome:
    """Check the payload and run the handler; whatever they raise becomes an outcome.

    Args:
        handler: runs it.
        members: the payload without the member that names the handler.
        context: of this run.
    """
    try:
        result = handler.handle(read_payload(handler, members), context)
    except HandlerFailed as error:
        status = OutcomeStatus.REJECTED if isinstance(error, HandlerRejected) else OutcomeStatus.FAILED
        return Outcome(status, error=_bounded(str(error)))
    except (Exception, SystemExit) as error:
        context.log.warning("the handler raised", exc_info=True)
        return Outcome(OutcomeStatus.FAILED, error=_bounded(f"handler_error: {type(error).__name__}: {error}"))
    return _outcome_of(result, handler.name)


def ask_handler(handler: Handler, members: JsonObject, context: CommandContext) -> Outcome | None:
    """Ask the handler how an earlier run of the command ended; None when it was not done and may run.

    Raises:
        Exception: the handler does not know; the text says why.
    """
    try:
        found = handler.verify(read_payload(handler, members), context)
    except HandlerRejected as error:
        raise VerifyInconclusive(str(error)) from error
    if not isinstance(found, Verified):
        raise VerifyInconclusive("it does not know" if found is None else "it returned no Verified")
    if found.outcome is None:
        return None
    if found.outcome.error is not None:
        return Outcome(found.outcome.status, error=_bounded(found.outcome.error))
    return _outcome_of(found.outcome.result, handler.name)


def _outcome_of(result: object, handler: str) -> Outcome:
    """What the handler returned, if it can travel as JSON."""
    if result is None:
        return Outcome(OutcomeStatus.SUCCEEDED)
    if not isinstance(result, dict):
        text = f"bad_result: {handler!r} returned {type(result).__name__}, not a JSON object or None; it did run"
        return Outcome(OutcomeStatus.FAILED, error=text)
    try:
        copied: JsonObject = copy_result(result)
    except ResultTooLarge as error:
        return Outcome(OutcomeStatus.FAILED, error=f"result_too_large: {handler!r} did run, but {error}")
    except (TypeError, ValueError, RecursionError) as error:
        text = f"bad_result: {handler!r} returned what is no JSON: {error}; it did run"
        return Outcome(OutcomeStatus.FAILED, error=_bounded(text))
    return Outcome(OutcomeStatus.SUCCEEDED, copied)


def _bounded(text: str) -> str:
    line = " ".join(text[: 4 * _ERROR_CHARACTERS].split())
    return line if len(line) <= _ERROR_CHARACTERS else f"{line[:_ERROR_CHARACTERS]}..."
