"""The command engine: which lane a command goes to, how it is run, taken back, and taken up again after a crash.

Each handler has a lane, a thread that runs its commands one after the other, each in a thread of its own, so that one
that hangs costs its lane and nothing else. ``started`` is committed before a handler begins, its outcome before anybody
hears of it, and the cancel of a command that has begun as well.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.core.admission import CommandRules, SignaturePolicy
from agent.core.commands import (
    HandlerRule,
    IllegalMove,
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
from agent.errors import StorageError
from agent.handlers.base import AgentControls, CommandContext, Handler, HandlerFailed, HandlerRejected, Verified
from agent.handlers.registry import HandlerRegistry, ResultTooLarge, copy_result, read_payload
from agent.health import REPEAT_AFTER_S, FailureLog, RetryPolicy
from agent.runtime.actor import Actor, Context

_log = logging.getLogger(__name__)

STOP_GRACE_S: Final = 2.5
"""How long running commands may go on after the stop has begun."""
PROGRESS_EVERY_S: Final = 2.0
"""One report of progress in this time at most, for each command."""
PROGRESS_AFTER_S: Final = 3.0
"""A run that lasts longer and has reported nothing is reported as under way."""

# For commands whose handler left with the last configuration: they are only rejected.
_UNKNOWN_LANE: Final = "unknown"
# More than can ever be open: admission refuses what is beyond its bounds.
_ALL: Final = 10_000
# How long a lane may take beside its handler.
_SLACK_S: Final = 30.0
# So often a lane looks whether a run that hangs has come back.
_LOOK_S: Final = 0.2
_ERROR_CHARACTERS: Final = 1000


def command_rules(
    registry: HandlerRegistry, *, handler_key: str, runs_history: bool, signatures: SignaturePolicy | None = None
) -> CommandRules:
    """The rules of admission: which handlers there are, with their contracts and lanes."""

    def judge(payload: JsonObject) -> str | None:
        # The decision holds the store's thread, where no plug-in's code may run: its payload is checked in the run.
        try:
            registry.find(payload, handler_key)
        except HandlerRejected as refusal:
            return str(refusal)
        return None

    rules = {
        handler.name: HandlerRule(
            handler.contract,
            handler.lane or handler.name,
            start_timeout_s=handler.start_timeout_s,
            max_attempts=handler.max_attempts,
            verifies=handler.verifies(),
        )
        for handler in registry.ready.values()
    }
    return CommandRules(rules, judge, handler_key, runs_history=runs_history, signatures=signatures)


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
        context: what it shares with the other parts.
        handlers: those that a payload can name.
        rules: of admission, for these handlers.
        controls: what handlers may call of the agent.
        start_lane: starts a thread for a lane; RuntimeError when the process is out of threads.

    Attributes:
        stopping: set once no further command may begin.
        lock: guards the items.
    """

    def __init__(
        self,
        context: Context,
        handlers: HandlerRegistry,
        rules: CommandRules,
        controls: AgentControls,
        start_lane: Callable[[Lane], object],
    ) -> None:
        self.context = context
        self.handlers = handlers
        self.rules = rules
        self.controls = controls
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self._start_lane = start_lane
        self._journal = context.store.journal
        self._lanes: dict[str, Lane] = {}
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
        rule = self.rules.handlers.get(entry.handler)
        name = rule.lane if rule is not None else _UNKNOWN_LANE
        item = Item(replace(entry, command=without_payload(entry.command)), name, verify, canceled_by=entry.canceled_by)
        with self.lock:
            if command_id in self._items or command_id in self._held:
                return
            if self._must_wait_for_time(entry):
                self._held[command_id] = (entry, verify)
                _log.info("command=%s state=waiting: it may have expired, and the time is not known yet", command_id)
                return
            self._items[command_id] = item
            try:
                lane = self._lanes.get(name)
                if lane is None:
                    lane = Lane(name, self)
                    self._start_lane(lane)
                    self._lanes[name] = lane
                if not lane.post(item):
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
        for entry in self._journal.in_state(CommandState.STARTED, limit=_ALL):
            if is_held(entry):
                continue
            command_id, handler = entry.command.id, entry.handler
            recovery = recover(entry, self.rules.handlers.get(handler), process_started)
            if recovery.outcome is not None:
                error = recovery.outcome.error
                _log.warning("command=%s handler=%s state=interrupted reason=%r", command_id, handler, error)
                self._settle(entry, recovery.outcome)
                continue
            what = "its handler is asked how it ended" if recovery.verify else "it runs again"
            _log.info("command=%s handler=%s state=interrupted: %s", command_id, handler, what)
            self.dispatch(entry, verify=recovery.verify)
        for entry in self._journal.in_state(CommandState.RECEIVED, limit=_ALL):
            self.dispatch(entry)

    def _must_wait_for_time(self, entry: JournalEntry) -> bool:
        """Whether this command must not begin yet, since nobody knows whether it has expired.

        Within a boot the monotonic clock says that. After a reboot, with a wall clock that may stand anywhere, only the
        service or a synchronised clock can.
        """
        is_earlier = entry.command.expires_at is not None and entry.received.boot_id != self.context.clock.now().boot_id
        return is_earlier and self.context.time.now() is None

    def time_is_known(self) -> None:
        """Dispatch those that waited for it."""
        with self.lock:
            held, self._held = list(self._held.values()), {}
        for entry, verify in held:
            self.dispatch(entry, verify=verify)

    def lanes(self) -> list[Lane]:
        """The lanes that there are by now."""
        with self.lock:
            return list(self._lanes.values())

    def stop(self) -> None:
        """No further command begins; running ones are asked to end."""
        self.stopping.set()
        with self.lock:
            for item in self._items.values():
                if item.run is not None:
                    item.run.wake.set()
        for lane in self.lanes():
            lane.stop()

    # --- what is under way --------------------------------------------------------------------------------------------

    def is_busy(self) -> bool:
        """A command is under way."""
        return bool(self._items)

    def waiting(self) -> dict[str, int]:
        """Lane -> how many commands are in it, the running one included."""
        with self.lock:
            return dict(Counter(item.lane for item in self._items.values()))

    def under_way(self) -> dict[str, str | None]:
        """The ids of the commands in lanes, each with the service's word for its state when it was taken."""
        with self.lock:
            return {command_id: each.entry.command.status for command_id, each in self._items.items()}

    def too_late(self, entry: JournalEntry) -> Outcome | None:
        """The outcome ``expired`` or ``not_started_in_time`` of a command whose time is over; None while it may run."""
        rule, time_ = self.rules.handlers.get(entry.handler), self.context.time
        now, service_now_s = self.context.clock.now(), time_.now()
        if service_now_s is None:
            service_now_s = service_time_at_least(entry.command, entry.received, now)
        # Across a reboot the wait goes by true times, or by none.
        received, now = (replace(each, wall_s=time_.recorded_at(each) or 0.0) for each in (entry.received, now))
        start_timeout_s = rule.start_timeout_s if rule is not None else None
        return refuse_at_start(replace(entry, received=received), service_now_s, now, start_timeout_s)

    # --- taken back ---------------------------------------------------------------------------------------------------

    def cancel(self, command_id: str, why: str) -> str:
        """Take a command back: one that waits never runs, one that runs is asked to end.

        Args:
            command_id: the journal's id.
            why: who or what did, such as ``by command 17``.

        Returns:
            How it was found: ``waiting``, ``running``, ``over`` or ``unknown``.

        Raises:
            StorageError: the journal cannot be read or written; one that waits in a lane will not run all the same.
        """
        with self.lock:
            item = self._items.get(command_id)
            has_begun = item is not None and (item.has_begun or item.verify)
            if item is not None and not has_begun and item.outcome is None:
                item.outcome = canceled(why, began=False)
        if item is not None and has_begun:
            self._write_cancel(command_id, why)
            _log.warning("command=%s state=canceling reason=%r", command_id, why)
            with self.lock:
                item.canceled_by = item.canceled_by or why
                if item.run is not None:
                    item.run.wake.set()
            return "running"
        entry = self._journal.known([command_id]).get(command_id)
        if entry is None:
            return "unknown"
        if entry.state is CommandState.STARTED and item is None:
            self._write_cancel(command_id, why)  # the stop has left it behind: the next start finds both
            return "running"
        if entry.state not in {CommandState.RECEIVED, CommandState.STARTED}:
            return "over"
        return "waiting" if self._settle(entry, canceled(why, began=False)) else "over"

    def _write_cancel(self, command_id: str, why: str) -> None:
        """Remember it beyond a crash; where the journal fails, the cancel goes on without that."""
        try:
            self._journal.cancel(command_id, why)
        except StorageError as error:
            _log.error("journal=failing: a cancel is not remembered beyond a crash: %s", error)

    # --- the end ------------------------------------------------------------------------------------------------------

    def done(self, item: Item) -> None:
        """The lane has finished with a command, with or without an outcome."""
        with self.lock:
            self._items.pop(item.entry.command.id, None)

    def _settle(self, entry: JournalEntry, outcome: Outcome) -> bool:
        """Write the end of a command that did not run; False when there is one already."""
        try:
            finished = self._journal.finish(entry.command.id, outcome, self.context.clock.now())
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
        self.context.post_result(entry)


# --- one lane ---------------------------------------------------------------------------------------------------------


class Lane(Actor):
    """Runs the commands of one lane in order: journal ``started``, handler, journal the outcome.

    Args:
        name: of the lane.
        engine: keeps it fed.
    """

    capacity = 10_000
    max_step_s = _SLACK_S

    def __init__(self, name: str, engine: CommandEngine) -> None:
        super().__init__(f"lane:{name}", engine.context)
        self._engine = engine
        self._clock, self._health = engine.context.clock, engine.context.health
        self._journal = engine.context.store.journal
        self._hung: HandlerRun | None = None
        self._failure_log = FailureLog(_log, self.now_s, REPEAT_AFTER_S)

    def receive(self, message: Item) -> None:
        """Run one command."""
        try:
            if not self._engine.stopping.is_set():
                self._take(message)
        finally:
            self._engine.done(message)
            self.max_step_s = _SLACK_S

    def _take(self, item: Item) -> None:
        engine, command_id = self._engine, item.entry.command.id
        try:
            entry = self._journal.known([command_id]).get(command_id)
        except StorageError as error:
            text = f"journal=failing: a command could not be read: {error}; it runs after the next start"
            self._failure_log.report("journal", text, level=logging.ERROR)
            return
        if entry is None or (entry.state, entry.attempts) != (item.entry.state, item.entry.attempts):
            return  # not as it was when it was handed over: no command runs twice by mistake
        try:
            handler = engine.handlers.find(entry.command.payload, engine.rules.handler_key)
        except HandlerRejected as refusal:
            self._refuse(item, str(refusal))
            return
        if self._hung is not None and self._is_blocked(self._hung, handler.timeout_s):
            if not engine.stopping.is_set():
                text = f"an earlier run of this lane ({self.name}) still hangs; restart_agent frees it"
                self._refuse(item, f"lane_blocked: {text}")
            return
        with engine.lock:
            if item.outcome is None and not item.verify:
                item.outcome = engine.too_late(item.entry)
            item.has_begun = item.outcome is None
        if item.outcome is not None:
            self._conclude(entry, item.outcome)
        elif item.verify:
            self._verify(item, handler, entry)
        else:
            self._run_command(item, handler, entry)

    def _refuse(self, item: Item, text: str) -> None:
        # One that ran before and can no longer be asked about was not refused: it is not known how it ended.
        refused = Outcome(OutcomeStatus.REJECTED, error=text)
        self._conclude(item.entry, indeterminate(text) if item.verify else refused)

    def _run_command(self, item: Item, handler: Handler, entry: JournalEntry) -> None:
        command_id = entry.command.id
        if not self._commit(lambda: self._journal.start(command_id, self._clock.now()), "start"):
            return
        # The commit may have waited for a full disk, or the process stood still.
        late = self._engine.too_late(entry)
        if late is None and item.canceled_by is not None:
            late = canceled(item.canceled_by, began=False)
        if late is not None:
            self._conclude(entry, late)
            return
        _log.info("command=%s handler=%s state=started attempt=%d", command_id, handler.name, entry.attempts + 1)
        run = self._call(item, handler, entry)
        if run.is_left:
            _log.warning("command=%s handler=%s state=left_running: the agent stops", command_id, handler.name)
            return
        outcome = run.outcome()
        if handler.contract is Contract.RESTARTS_DEVICE and self._awaits_restart(run, entry, outcome):
            # It succeeds when the next process finds it started.
            if self._engine.stopping.wait(handler.timeout_s):
                return
            text = f"no_restart: {handler.name!r} asked for a restart that did not come within {handler.timeout_s:g} s"
            outcome = Outcome(OutcomeStatus.FAILED, None, text)
        self._conclude(entry, outcome)

    def _verify(self, item: Item, handler: Handler, entry: JournalEntry) -> None:
        """Ask the handler how an interrupted run ended, and act on the answer."""
        # Counted before it begins: a hook that takes the agent down with it must come to an end.
        command_id = entry.command.id
        if not self._commit(lambda: self._journal.start(command_id, self._clock.now()), "start"):
            return
        _log.info("command=%s handler=%s state=verifying", command_id, handler.name)
        run = self._call(item, handler, entry, verify=True)
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
            self._run_command(item, handler, start_entry(entry, self._clock.now()))

    # --- one run ------------------------------------------------------------------------------------------------------

    def _call(self, item: Item, handler: Handler, entry: JournalEntry, *, verify: bool = False) -> HandlerRun:
        """Call the handler, or its verify hook, in a thread of its own, within its limits."""
        # A run may last as long as its timeout; only beyond that the lane itself is stuck.
        self.max_step_s = handler.timeout_s + handler.stop_timeout_s + _SLACK_S
        run = HandlerRun(self._engine, handler, entry, verify=verify)
        with self._engine.lock:
            item.run = run
        try:
            run.start()
        except RuntimeError as error:  # the process is out of threads
            run.error, run.is_over = f"no_thread: no thread could be started: {error}", True
        else:
            self._wait(item, run, handler)
        finally:
            with self._engine.lock:
                item.run = None
        if not run.is_over:
            self._hung = run
            if not run.is_left:
                self._health.put(self.name, "blocked", f"{handler.name} was given up and does not return")
        return run

    def _wait(self, item: Item, run: HandlerRun, handler: Handler) -> None:
        """Wait for its end; for its limits, its cancel or the stop, and then as long as it may take to heed them."""
        begun_s = time.monotonic()
        timeout_at_s = begun_s + handler.timeout_s
        silence_s = float("inf") if handler.inactivity_timeout_s is None else handler.inactivity_timeout_s
        # When progress may be reported: what the handler says, or after a while that it is under way.
        report_at_s, long_at_s = begun_s, begun_s + PROGRESS_AFTER_S
        # A lane that was held up for longer than the limits (a busy machine, SIGSTOP) finds a run that has ended.
        while not run.is_over:
            now_s = time.monotonic()
            # A verify hook changes nothing, so a cancel has nothing to end: it counts when the command would run.
            if item.canceled_by is not None and not run.verify:
                run.why = canceled(item.canceled_by, began=True).error or ""
            elif now_s >= timeout_at_s:
                run.why = f"timeout: {handler.name!r} ran longer than {handler.timeout_s:g} s"
            elif now_s >= run.alive_s + silence_s:
                run.why = f"inactive: {handler.name!r} gave no sign of life for {silence_s:g} s"
            if run.why:
                run.stopping.set()
                run.join(handler.stop_timeout_s)
                if not run.is_over:
                    run.why += "; it has not returned, and its lane is blocked until it does"
                return
            if self._engine.stopping.is_set():
                run.stopping.set()
                run.join(STOP_GRACE_S)
                run.is_left = not run.is_over
                return
            if now_s >= (long_at_s if run.progress is None else report_at_s):
                progress, run.progress = run.progress, None
                self._engine.context.post_result(Report(item.entry.command.id, IN_PROGRESS, progress))
                report_at_s, long_at_s = now_s + PROGRESS_EVERY_S, float("inf")
            next_report_s = long_at_s if run.progress is None else report_at_s
            until_s = min(timeout_at_s, run.alive_s + silence_s, next_report_s)
            run.wake.wait(max(0.0, until_s - time.monotonic()))
            run.wake.clear()

    def _awaits_restart(self, run: HandlerRun, entry: JournalEntry, outcome: Outcome) -> bool:
        """The handler has asked for the restart: in its first run, or in a later one that the agent's stop ended."""
        is_open = entry.attempts == 0 or (outcome.result is None and self._engine.stopping.is_set())
        return is_open and outcome.status is OutcomeStatus.SUCCEEDED and not run.no_restart.is_set()

    def _is_blocked(self, hung: HandlerRun, within_s: float) -> bool:
        """Whether the run that hangs goes on to do so: as long as one run may take, its successor waits for it."""
        self.max_step_s = within_s + _SLACK_S
        until_s = time.monotonic() + within_s
        while hung.is_alive():
            if time.monotonic() >= until_s or self._engine.stopping.wait(_LOOK_S):
                return True
        self._hung = None
        self._health.put(self.name, "ok")
        return False

    # --- the journal --------------------------------------------------------------------------------------------------

    def _conclude(self, entry: JournalEntry, outcome: Outcome) -> None:
        command_id = entry.command.id
        finished: list[JournalEntry] = []

        def finish() -> None:
            try:
                finished.append(self._journal.finish(command_id, outcome, self._clock.now()))
            except IllegalMove:
                # Concluded while it waited, or a write that failed is there after all, or a damaged journal lost it.
                known = self._journal.known([command_id]).get(command_id)
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


class HandlerRun(threading.Thread):
    """One call of a handler, or of its verify hook; nothing that it raises leaves its thread.

    Attributes:
        verify: of the hook.
        stopping: set when the handler shall end.
        no_restart: set when a handler of the contract ``restarts_device`` had nothing to restart.
        wake: set at its end, its cancel, the stop, and when it has reported progress.
        alive_s: when it last gave a sign of life, ``time.monotonic()``.
        progress: its newest report of progress that nobody has taken.
        is_over: it has come back, or could not be begun.
        is_left: the agent stops and it did not end within the grace: the command stays ``started``.
        why: why it had to end, ``code: sentence``; empty when it ended by itself.
        result: how the command ended; None of a hook says that it was not done and may run.
        error: why the call brought no result.
    """

    def __init__(self, engine: CommandEngine, handler: Handler, entry: JournalEntry, *, verify: bool = False) -> None:
        super().__init__(name=f"run:{handler.name}", daemon=True)
        self.verify = verify
        self.stopping = threading.Event()
        self.no_restart = threading.Event()
        self.wake = threading.Event()
        self.alive_s = time.monotonic()
        self.progress: JsonObject | None = None
        self.is_over = self.is_left = False
        self.why = self.error = ""
        self.result: Outcome | None = None
        self._handler = handler
        key = engine.rules.handler_key
        self._members = {name: value for name, value in entry.command.payload.items() if name != key}
        command_id = entry.command.id
        self._log = HandlerLog(_log.getChild(handler.name), {"handler": handler.name, "command": command_id})
        self._command = CommandContext(
            command_id=command_id,
            device_id=engine.context.device_id,
            attempt=entry.attempts + 1,
            restarted=entry.attempts > 0,
            stopping=self.stopping,
            log=self._log,
            controls=engine.controls,
            report_progress=self._report_progress,
            heartbeat=self._give_sign_of_life,
            no_restart=self.no_restart.set,
        )

    def run(self) -> None:
        """Check the payload and call the handler."""
        self.alive_s = time.monotonic()
        try:
            payload = read_payload(self._handler, self._members)
            if self.verify:
                self._take_verified(self._handler.verify(payload, self._command))
            else:
                self.result = _outcome_of(self._handler.handle(payload, self._command), self._handler.name)
        except HandlerFailed as error:
            self.error = _bounded(str(error))
            if not self.verify:
                status = OutcomeStatus.REJECTED if isinstance(error, HandlerRejected) else OutcomeStatus.FAILED
                self.result = Outcome(status, error=self.error)
        except BaseException as error:  # noqa: BLE001 - whatever a plug-in raises ends its command and nothing else
            self._log.warning("the handler raised", exc_info=True)
            self.error = _bounded(f"handler_error: {type(error).__name__}: {error}")
        self.is_over = True
        self.wake.set()

    def outcome(self) -> Outcome:
        """How its command ends: by what it returned, or by why it had to end, with what it said about that."""
        own = self.result or Outcome(OutcomeStatus.FAILED, error=self.error or None)
        if not self.why:
            return own
        text = f"{self.why}; {own.error}" if own.error else self.why
        return Outcome(OutcomeStatus.FAILED, own.result if self.is_over else None, text)

    def _take_verified(self, found: object) -> None:
        if not isinstance(found, Verified):
            self.error = "it does not know" if found is None else "it returned no Verified"
        elif found.outcome is not None and found.outcome.error is not None:
            self.result = Outcome(found.outcome.status, error=_bounded(found.outcome.error))
        elif found.outcome is not None:
            self.result = _outcome_of(found.outcome.result, self._handler.name)

    def _report_progress(self, result: JsonObject) -> None:
        self._give_sign_of_life()
        try:
            self.progress = copy_result(result)
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


def _outcome_of(result: object, handler: str) -> Outcome:
    """What the handler returned, if it can travel as JSON."""
    if result is None:
        return Outcome(OutcomeStatus.SUCCEEDED)
    if not isinstance(result, dict):
        text = f"bad_result: {handler!r} returned {type(result).__name__}, not a JSON object or None; it did run"
        return Outcome(OutcomeStatus.FAILED, error=text)
    try:
        return Outcome(OutcomeStatus.SUCCEEDED, copy_result(result))
    except ResultTooLarge as error:
        return Outcome(OutcomeStatus.FAILED, error=f"result_too_large: {handler!r} did run, but {error}")
    except (TypeError, ValueError, RecursionError) as error:
        text = f"bad_result: {handler!r} returned what is no JSON: {error}; it did run"
        return Outcome(OutcomeStatus.FAILED, error=_bounded(text))


def _bounded(text: str) -> str:
    line = " ".join(text[: 4 * _ERROR_CHARACTERS].split())
    return line if len(line) <= _ERROR_CHARACTERS else f"{line[:_ERROR_CHARACTERS]}..."
