"""The command engine: which lane a command goes to, how it is taken back, and taken up again after a crash.

Each handler has a lane, a thread that runs its commands one after the other (:mod:`agent.runtime.lane`). ``started`` is
committed before a handler begins, its outcome before anybody hears of it, and the cancel of a command that has begun as
well.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from agent.core.admission import CommandRules
from agent.core.commands import (
    IllegalMove,
    canceled,
    indeterminate,
    recover,
    refuse_at_start,
    without_payload,
)
from agent.core.timekeeping import service_time_at_least
from agent.core.values import CommandState, JournalEntry, JsonObject, Moment, Outcome, OutcomeStatus, Report
from agent.errors import StorageError
from agent.handlers.base import AgentControls, Handler
from agent.ports import Clock
from agent.runtime.handler_run import HandlerRun
from agent.runtime.health import Health
from agent.runtime.lane import Lane
from agent.runtime.service import Actor
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
