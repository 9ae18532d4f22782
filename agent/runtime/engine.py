"""The command engine: which lane a command goes to, how it is run there, taken back, and taken up again after a crash.

Each handler has a lane, a thread that runs its commands one after the other. A handler runs in a thread of its own, so
that one that hangs costs its lane and nothing else. The journal is the queue: what does not fit into a lane waits there
as ``received`` and is fetched when the lane has room. ``started`` is committed before a handler begins, its outcome
before anybody hears of it, and the cancel of a command that has begun as well.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from agent.core.commands import IllegalMove, RunLimits, canceled, indeterminate, recover, refuse_at_start, start_entry
from agent.core.timekeeping import service_time_at_least
from agent.core.triage import CommandRules
from agent.core.values import (
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
from agent.handlers.base import AgentControls, CommandContext, Handler, HandlerRejected
from agent.handlers.payloads import ResultTooLarge, copy_result
from agent.runtime.failure_log import REPEAT_AFTER_S, FailureLog
from agent.runtime.handler_call import ask_handler, call_handler
from agent.runtime.health import Health
from agent.runtime.retry_policy import RetryPolicy
from agent.runtime.service import Actor

if TYPE_CHECKING:
    from agent.ports import Clock
    from agent.store.journal import Journal

_log = logging.getLogger(__name__)

LANE_CAPACITY: Final = 64
"""How many commands may be in one lane, the running one included; the others wait in the journal."""

CONTROL_LANE: Final = "cancel"
"""The lane of what ends other commands: shared with no other, also beyond the cap on lanes."""

# For commands whose handler left with the last configuration: they are only rejected.
_UNKNOWN_LANE: Final = "unknown"

CANCELS_SETTING: Final = "canceled"
"""Name of the journal's setting: a JSON object, command id -> who took it back. Of commands without an outcome."""

WAITING: Final = "waiting"
RUNNING: Final = "running"
OVER: Final = "over"
UNKNOWN: Final = "unknown"

IN_PROGRESS: Final = "in_progress"

_CANCELS_MAX: Final = 100
_SLACK_S: Final = 30.0
# While a handler runs, its lane looks this often after those that wait behind it.
_LOOK_S: Final = 1.0


class Post(Protocol):
    """A running lane: :class:`~agent.runtime.service.ServiceThread`, or in tests one without a thread."""

    def post(self, message: Item) -> bool:
        """Post a command; False when the mailbox is full or closed."""
        ...


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What the engine needs of the agent.

    Attributes:
        find: the handler that a payload names, or why there is none.
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


class Item:
    """A command in its lane; the engine's lock guards what changes.

    Attributes:
        entry: as it was before this run.
        lane: its own lane's name, also where it shares another.
        verify: a crash interrupted it, so its handler is first asked how it ended.
        has_begun: its lane runs it.
        outcome: how it ended without a run; None while it may run.
        is_written: the journal has that end.
        canceled_by: who took it back once it had begun.
        run: the call of its handler that goes on.
    """

    __slots__ = ("canceled_by", "entry", "has_begun", "is_written", "lane", "outcome", "run", "verify")

    def __init__(self, entry: JournalEntry, lane: str, *, verify: bool) -> None:
        self.entry = entry
        self.lane = lane
        self.verify = verify
        self.has_begun = False
        self.outcome: Outcome | None = None
        self.is_written = False
        self.canceled_by: str | None = None
        self.run: Run | None = None


class CommandEngine:
    """Takes commands to their lanes. Thread-safe.

    Args:
        parts: what it needs.
        start_lane: starts a service for a lane; RuntimeError when the process is out of threads.
        max_lanes: beyond this many, further lanes' commands share the last one.

    Attributes:
        stopping: set once no further command may begin.
    """

    def __init__(self, parts: EngineParts, start_lane: Callable[[Actor], Post], max_lanes: int = 8) -> None:
        self.parts = parts
        self.stopping = threading.Event()
        self._start_lane = start_lane
        self._max_lanes = max_lanes
        self._lock = threading.Lock()
        self._lanes: dict[str, Post] = {}
        self._items: dict[str, Item] = {}
        # Command id -> lane, of what waits in the journal alone.
        self._behind: dict[str, str] = {}
        # Those that may have expired before this boot, until the time is known.
        self._held: dict[str, tuple[JournalEntry, bool]] = {}
        self._cancels: dict[str, str] = {}

    # --- into the lanes -----------------------------------------------------------------------------------------------

    def dispatch(self, entry: JournalEntry, *, verify: bool = False) -> bool:
        """Put a ``received`` command, or a ``started`` one that shall run again, into its lane.

        Args:
            entry: as the journal has it.
            verify: its handler is first asked how it ended.

        Returns:
            False when the lane is full: the command waits in the journal and is fetched later. True when no thread
            could be started for its lane, too: it has failed with ``no_thread`` then.
        """
        command_id, fault = entry.command.id, ""
        with self._lock:
            if command_id in self._items or command_id in self._held:
                return True
            rule = self.parts.rules.handlers.get(entry.handler)
            item = Item(entry, rule.lane if rule is not None else _UNKNOWN_LANE, verify=verify)
            if verify:
                item.canceled_by = self._cancels.get(command_id)  # before the crash: it will not run
            is_in = False
            try:
                if self._count(item.lane) < LANE_CAPACITY:
                    name = self._shared(item.lane)
                    if name not in self._lanes:
                        self._lanes[name] = self._start_lane(Lane(name, self))
                    is_in = self._lanes[name].post(item)
            except RuntimeError as error:  # the process is out of threads
                fault = f"no_thread: no thread could be started for its lane: {error}"
            if is_in:
                self._items[command_id] = item
                self._behind.pop(command_id, None)
            elif not fault:
                self._behind[command_id] = item.lane
        if fault:
            try:
                self._settle(entry, indeterminate(fault) if verify else Outcome(OutcomeStatus.FAILED, None, fault))
            except StorageError as error:
                _log.error("journal=failing: the end of command %s could not be written: %s", command_id, error)
        return is_in or bool(fault)

    def refill(self) -> None:
        """Fetch from the journal what did not fit before."""
        with self._lock:
            self._behind.clear()
        try:
            waiting = self.parts.journal.in_state(CommandState.RECEIVED)
        except StorageError as error:
            _log.error("journal=failing: waiting commands could not be read: %s", error)
            return
        for entry in waiting:
            self.dispatch(entry)

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
        parts, taken_back = self.parts, self._load_cancels()
        for entry in parts.journal.in_state(CommandState.STARTED):
            if is_held(entry):
                continue
            command_id, why = entry.command.id, taken_back.pop(entry.command.id, None)
            recovery = recover(entry, parts.rules.handlers.get(entry.handler), process_started, canceled_by=why)
            if recovery.outcome is not None:
                error = recovery.outcome.error
                _log.warning("command=%s handler=%s state=interrupted reason=%r", command_id, entry.handler, error)
                parts.post_result(parts.journal.finish(command_id, recovery.outcome, parts.clock.now()))
                self._drop_cancel(command_id)
                continue
            what = "its handler is asked how it ended" if recovery.verify else "it runs again"
            _log.info("command=%s handler=%s state=interrupted: %s", command_id, entry.handler, what)
            self.dispatch(entry, verify=recovery.verify)
        for command_id in taken_back:
            self._drop_cancel(command_id)  # it had its outcome before the crash
        self.refill()

    # --- what is under way --------------------------------------------------------------------------------------------

    def is_busy(self) -> bool:
        """A command is under way."""
        return bool(self._items)

    def waiting(self) -> dict[str, int]:
        """Lane -> how many commands are in it, the running one included."""
        counts: dict[str, int] = {}
        with self._lock:
            for lane in (*(each.lane for each in self._items.values()), *self._behind.values()):
                counts[lane] = counts.get(lane, 0) + 1
        return counts

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

    def stop(self) -> None:
        """No further command begins; running ones are asked to end."""
        self.stopping.set()
        with self._lock:
            for item in self._items.values():
                if item.run is not None:
                    item.run.wake.set()

    # --- waiting for the time -----------------------------------------------------------------------------------------

    def waits_for_time(self, item: Item) -> bool:
        """Whether this command must not begin yet, since nobody knows whether it has expired.

        Within a boot the monotonic clock says that. After a reboot, with a wall clock that may stand anywhere, only the
        service or a synchronised clock can. It stays in the journal as it is.
        """
        entry = item.entry
        if entry.command.expires_at is None or entry.received.boot_id == self.parts.clock.now().boot_id:
            return False
        with self._lock:
            # Asked with the lock held: a thread that learns the time now finds it in here, or it does not wait.
            if self.parts.service_now() is not None:
                return False
            self._held[entry.command.id] = (entry, item.verify)
        _log.info("command=%s state=waiting: it may have expired, and the time is not known yet", entry.command.id)
        return True

    def time_is_known(self) -> None:
        """Dispatch those that waited for it."""
        with self._lock:
            held, self._held = list(self._held.values()), {}
        for entry, verify in held:
            self.dispatch(entry, verify=verify)

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
            self._keep_cancel(command_id, why)
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
            self._keep_cancel(command_id, why)  # the stop has left it behind: the next start finds both
            return RUNNING
        if entry.state not in {CommandState.RECEIVED, CommandState.STARTED}:
            return OVER
        return WAITING if self._settle(entry, canceled(why, began=False)) else OVER

    def _load_cancels(self) -> dict[str, str]:
        try:
            kept = json.loads(self.parts.journal.setting(CANCELS_SETTING) or "{}")
            self._cancels = {str(each): str(why) for each, why in kept.items()}
        except (ValueError, AttributeError):
            self._cancels = {}
        return dict(self._cancels)

    def _keep_cancel(self, command_id: str, why: str) -> None:
        with self._lock:
            self._cancels[command_id] = why
            while len(self._cancels) > _CANCELS_MAX:
                del self._cancels[next(iter(self._cancels))]
        self._write_cancels()

    def _drop_cancel(self, command_id: str) -> None:
        with self._lock:
            was_kept = self._cancels.pop(command_id, None) is not None
        if was_kept:
            self._write_cancels()

    def _write_cancels(self) -> None:
        """Remember them beyond a crash; where the journal fails, the cancel goes on without that."""
        with self._lock:
            text = json.dumps(self._cancels) if self._cancels else None
        try:
            self.parts.journal.put_setting(CANCELS_SETTING, text)
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

    def begin_run(self, item: Item, run: Run | None) -> None:
        """Note which call of a handler a cancel or the stop has to wake; None for none."""
        with self._lock:
            item.run = run

    def concluded(self, entry: JournalEntry) -> None:
        """The outcome of a command is in the journal: report it."""
        self.parts.post_result(entry)
        self._drop_cancel(entry.command.id)

    def done(self, item: Item) -> None:
        """The lane has finished with a command, with or without an outcome."""
        with self._lock:
            self._items.pop(item.entry.command.id, None)
            lane = self._shared(item.lane)
            is_awaited = any(self._shared(each) == lane for each in self._behind.values())
            is_time = is_awaited and self._count(item.lane) <= LANE_CAPACITY // 2
        if is_time and not self.stopping.is_set():
            self.refill()

    def _settle(self, entry: JournalEntry, outcome: Outcome) -> bool:
        """Write the end of a command that did not run; False when there is one already."""
        command_id, parts = entry.command.id, self.parts
        try:
            finished = parts.journal.finish(command_id, outcome, parts.clock.now())
        except IllegalMove:
            return False
        with self._lock:
            self._behind.pop(command_id, None)
            if (item := self._items.get(command_id)) is not None:
                item.is_written = True
        log_outcome(finished)
        parts.post_result(finished)
        return True

    def _shared(self, lane: str) -> str:
        """The lane that this one's commands run in: its own, or beyond the cap the last one."""
        if lane in self._lanes or lane == CONTROL_LANE:
            return lane
        others = [name for name in self._lanes if name != CONTROL_LANE]
        return others[-1] if len(others) >= self._max_lanes else lane

    def _count(self, lane: str) -> int:
        name = self._shared(lane)
        return sum(self._shared(each.lane) == name for each in self._items.values())


class Lane(Actor):
    """Runs the commands of one lane in order: journal ``started``, handler, journal the outcome.

    Args:
        name: of the lane.
        engine: keeps it fed.
    """

    capacity = LANE_CAPACITY

    def __init__(self, name: str, engine: CommandEngine) -> None:
        super().__init__(f"lane:{name}")
        self._engine = engine
        self._parts = engine.parts
        self._hung: Run | None = None
        self._failure_log = FailureLog(_log, lambda: self._parts.clock.now().monotonic_s, REPEAT_AFTER_S)
        self.max_step_s = _SLACK_S

    def receive(self, message: Item) -> None:
        """Run one command."""
        try:
            if not self._engine.stopping.is_set():
                self._take(message)
        finally:
            self._engine.done(message)
            self.max_step_s = _SLACK_S

    def _take(self, item: Item) -> None:
        entry, engine = item.entry, self._engine
        if not self._is_current(entry) or engine.waits_for_time(item):
            return
        try:
            handler = self._parts.find(entry.command.payload)
        except HandlerRejected as refusal:
            # One that ran before and can no longer be asked about was not refused: it is not known how it ended.
            refused = Outcome(OutcomeStatus.REJECTED, error=str(refusal))
            self._conclude(entry, indeterminate(str(refusal)) if item.verify else refused)
            return
        if self._hung is not None and self._is_blocked(self._hung, item, handler.timeout_s):
            if not engine.stopping.is_set():
                text = f"an earlier run of this lane ({self.name}) still hangs; restart_agent frees it"
                rejected = Outcome(OutcomeStatus.REJECTED, error=f"lane_blocked: {text}")
                self._conclude(entry, indeterminate(text) if item.verify else rejected)
            return
        outcome = engine.begin(item)
        if outcome is not None:
            if not item.is_written:
                self._conclude(entry, outcome)
        elif item.verify:
            self._verify(item, handler)
        else:
            self._run(item, handler, entry)

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
            if self._stops_within(handler.timeout_s):
                return
            text = f"no_restart: {handler.name!r} asked for a restart that did not come within {handler.timeout_s:g} s"
            outcome = Outcome(OutcomeStatus.FAILED, None, text)
        self._conclude(entry, outcome)

    def _verify(self, item: Item, handler: Handler) -> None:
        """Ask the handler how an interrupted run ended, and act on the answer."""
        entry = item.entry
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

    def _call(
        self,
        item: Item,
        handler: Handler,
        entry: JournalEntry,
        work: Callable[[Handler, JsonObject, CommandContext], Outcome | None],
        canceled_by: Callable[[], str | None],
    ) -> Run:
        """Run this in a thread of its own, within its limits."""
        stop_timeout_s = handler.stop_timeout_s
        # A run may last as long as its timeout; only beyond that the lane itself is stuck.
        self.max_step_s = handler.timeout_s + stop_timeout_s + _SLACK_S
        run = Run(self._parts, handler, entry, work)
        self._engine.begin_run(item, run)
        try:
            self._wait(run, RunLimits(handler.timeout_s, handler.inactivity_timeout_s), stop_timeout_s, canceled_by)
        finally:
            run.progress.close()
            self._engine.begin_run(item, None)
        if not run.is_over and not run.is_unstarted:
            self._hung = run
            if not run.is_left:
                self._parts.health.put(self.name, "blocked", f"{handler.name} was given up and does not return")
        return run

    def _wait(self, run: Run, limits: RunLimits, stop_timeout_s: float, canceled_by: Callable[[], str | None]) -> None:
        """Wait for its end; for its limits, its cancel or the stop, and then as long as it may take to heed them."""
        parts, begun_s = self._parts, time.monotonic()
        long_at_s = begun_s + parts.progress_after_s
        if (who := canceled_by()) is not None:
            run.do_not_start(canceled(who, began=False))
            return
        try:
            run.start()
        except RuntimeError as error:  # the process is out of threads
            text = f"no_thread: no thread could be started: {error}"
            run.do_not_start(Outcome(OutcomeStatus.FAILED, None, text))
            return
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
            if now_s >= long_at_s:
                long_at_s = float("inf")
                run.progress.report_long()
            run.progress.flush()
            self._engine.expire_waiting()
            until_s = min(limits.ends_at(begun_s, run.alive_s), now_s + _LOOK_S, long_at_s)
            run.wake.wait(max(0.0, until_s - time.monotonic()))
            run.wake.clear()

    def _awaits_restart(self, run: Run, entry: JournalEntry, outcome: Outcome) -> bool:
        """The handler has asked for the restart: in its first run, or in a later one that the agent's stop ended."""
        is_open = entry.attempts == 0 or (outcome.result is None and self._engine.stopping.is_set())
        return is_open and outcome.status is OutcomeStatus.SUCCEEDED and not run.no_restart.is_set()

    def _stops_within(self, seconds: float) -> bool:
        while seconds > 0:
            step_s = min(seconds, _LOOK_S)
            if self._engine.stopping.wait(step_s):
                return True
            seconds -= step_s
            self._engine.expire_waiting()
        return False

    def _is_blocked(self, hung: Run, item: Item, within_s: float) -> bool:
        """Whether the run that hangs goes on to do so: as long as one run may take, its successors wait for it."""
        self.max_step_s = within_s + _SLACK_S
        deadline_s = time.monotonic() + within_s
        while hung.is_alive() and not self._engine.stopping.is_set() and item.outcome is None:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return True
            hung.join(min(left_s, 0.5))
            self._engine.expire_waiting()
        if hung.is_alive():
            return item.outcome is None
        self._hung = None
        self._parts.health.put(self.name, "ok")
        return False

    # --- the journal --------------------------------------------------------------------------------------------------

    def _is_current(self, entry: JournalEntry) -> bool:
        """The journal still has this command as it was when it was handed over: no command runs twice by mistake."""
        try:
            now = self._parts.journal.known([entry.command.id]).get(entry.command.id)
        except StorageError as error:
            text = f"journal=failing: a command could not be read: {error}; it runs after the next start"
            self._failure_log.report("journal", text, level=logging.ERROR)
            return False
        return now is not None and now.state is entry.state and now.attempts == entry.attempts

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
            log_outcome(finished[-1])
            self._engine.concluded(finished[-1])

    def _commit(self, write: Callable[[], None], what: str) -> bool:
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


class Run(threading.Thread):
    """One call of a handler in a thread of its own.

    Attributes:
        stopping: set when the handler shall end.
        no_restart: set when a handler of the contract ``restarts_device`` had nothing to restart.
        wake: set at its end, its cancel and the stop.
        alive_s: when it last gave a sign of life, ``time.monotonic()``.
        is_over: it has come back.
        is_left: the agent stops and it did not end within the grace: the command stays ``started``.
        is_unstarted: it never began.
        why: why it had to end, ``code: sentence``; empty when it ended by itself.
        result: what it returned.
        error: what it raised, as text.
    """

    def __init__(
        self,
        parts: EngineParts,
        handler: Handler,
        entry: JournalEntry,
        work: Callable[[Handler, JsonObject, CommandContext], Outcome | None],
    ) -> None:
        super().__init__(name=f"run:{handler.name}", daemon=True)
        command_id = entry.command.id
        self.handler = handler.name
        self.stopping = threading.Event()
        self.no_restart = threading.Event()
        self.wake = threading.Event()
        self.progress = Progress(command_id, parts.post_result, parts.clock, parts.progress_every_s)
        self.alive_s = time.monotonic()
        self.is_over = self.is_left = self.is_unstarted = False
        self.why = self.error = ""
        self.result: Outcome | None = None
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

    def _report_progress(self, result: JsonObject) -> None:
        self._give_sign_of_life()
        try:
            self.progress.report(copy_result(result))
        except ResultTooLarge as error:
            self._log.warning("its progress is left out: %s", error)
        except (TypeError, ValueError, RecursionError) as error:
            self._log.warning("its progress is no JSON and is left out: %s", error)

    def _give_sign_of_life(self) -> None:
        self.alive_s = time.monotonic()


class Progress:
    """Reports of progress of one run, bounded in rate, and none after its end. Thread-safe.

    The newest report counts: one that comes too soon waits for its turn, in the place of the one that waited before.
    """

    def __init__(self, command_id: str, post: Callable[[Report], object], clock: Clock, every_s: float) -> None:
        self._command_id = command_id
        self._post = post
        self._clock = clock
        self._every_s = every_s
        self._lock = threading.Lock()
        self._waiting: Report | None = None
        self._not_before_s = float("-inf")
        self._is_closed = False

    def report(self, result: JsonObject | None) -> None:
        """Send this progress, now or when its turn comes."""
        with self._lock:
            self._waiting = Report(self._command_id, IN_PROGRESS, result)
        self.flush()

    def report_long(self) -> None:
        """Send that the run is under way, unless it has reported something before."""
        if self._waiting is None and self._not_before_s == float("-inf"):
            self.report(None)

    def flush(self) -> None:
        """Send what waits, if its time has come."""
        now_s = self._clock.now().monotonic_s
        with self._lock:
            if self._waiting is None or self._is_closed or now_s < self._not_before_s:
                return
            self._not_before_s = now_s + self._every_s
            # Below the lock, so that nothing is posted once close() has returned.
            self._post(self._waiting)
            self._waiting = None

    def close(self) -> None:
        """Send nothing more: the outcome comes next."""
        with self._lock:
            self._is_closed = True


class HandlerLog(logging.LoggerAdapter[logging.Logger]):
    """Adds handler and command to each line of a handler's log (:mod:`agent.app.logs`)."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """See :meth:`logging.LoggerAdapter.process`."""
        # Not into the text itself: an id from outside may hold a percent sign.
        return msg, {**kwargs, "extra": {**(kwargs.get("extra") or {}), "members": dict(self.extra or {})}}


def log_outcome(entry: JournalEntry) -> None:
    """Write one log line about the end of a command."""
    outcome = entry.outcome or Outcome(OutcomeStatus.FAILED)
    level = logging.INFO if outcome.status is OutcomeStatus.SUCCEEDED else logging.WARNING
    why = f" reason={outcome.error!r}" if outcome.error else ""
    _log.log(level, "command=%s handler=%s state=%s%s", entry.command.id, entry.handler, outcome.status, why)
