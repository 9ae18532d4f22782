"""The dispatcher: which lane a command goes to, which lanes there are, who waits, and who is taken back.

The journal is the queue. What does not fit into a lane's mailbox stays there as ``received`` and is fetched when the
lane has room again, so nothing is lost and memory stays bounded. A cancel of a command that has begun is kept in the
journal, too, so that a crash does not undo it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from agent.core.commands import IllegalMove, canceled, indeterminate, refuse_at_start
from agent.core.timekeeping import service_time_at_least
from agent.core.triage import CommandRules
from agent.core.values import CommandState, Contract, JournalEntry, Outcome, OutcomeStatus
from agent.errors import StorageError
from agent.runtime.lanes import LANE_CAPACITY, Lane, LaneItem, LaneParts, log_outcome
from agent.runtime.service import Actor

if TYPE_CHECKING:
    from agent.store.journal import Journal

CANCELS_SETTING: Final = "canceled"
"""Name of the journal's setting: a JSON object, command id -> who took it back."""

_KEPT_MAX: Final = 100


class Cancels:
    """The cancels of commands that have no outcome yet, with their reasons. Thread-safe."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._kept: dict[str, str] = {}

    def load(self) -> dict[str, str]:
        """What an earlier process left: command id -> who took it back.

        Raises:
            StorageError: the journal cannot be read.
        """
        try:
            kept = json.loads(self._journal.setting(CANCELS_SETTING) or "{}")
        except ValueError:
            kept = {}
        with self._lock:
            self._kept = {str(each): str(why) for each, why in kept.items()} if isinstance(kept, dict) else {}
            return dict(self._kept)

    def add(self, command_id: str, why: str) -> None:
        """Remember it; the oldest go beyond a bound. A journal that fails is logged: the cancel goes on without it."""
        with self._lock:
            self._kept[command_id] = why
            while len(self._kept) > _KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            self._write()

    def drop(self, command_id: str) -> None:
        """The command has its outcome."""
        with self._lock:
            if self._kept.pop(command_id, None) is not None:
                self._write()

    def _write(self) -> None:
        try:
            self._journal.put_setting(CANCELS_SETTING, json.dumps(self._kept) if self._kept else None)
        except StorageError as error:
            _log.error("journal=failing: a cancel is not remembered beyond a crash: %s", error)


_log = logging.getLogger(__name__)

CONTROL_LANE: Final = "cancel"
"""The lane of what ends other commands: shared with no other, also beyond the cap on lanes."""

# For commands whose handler left with the last configuration: they are only rejected.
_UNKNOWN_LANE: Final = "unknown"

WAITING: Final = "waiting"
RUNNING: Final = "running"
OVER: Final = "over"
UNKNOWN: Final = "unknown"


class Post(Protocol):
    """A running service, as far as the dispatcher uses it."""

    def post(self, message: LaneItem) -> bool:
        """Post a message; False when the mailbox is full or closed."""
        ...


class Dispatcher:
    """Hands commands to lanes. Thread-safe.

    Args:
        parts: what lanes share.
        rules: which handler runs in which lane, and how long a command may wait for it.
        start_lane: starts a service for an actor.
        max_lanes: beyond this many, further lanes' commands share the last one.
    """

    def __init__(
        self,
        parts: LaneParts,
        rules: CommandRules,
        start_lane: Callable[[Actor], Post],
        max_lanes: int,
    ) -> None:
        self._parts = parts
        self._rules = rules
        self._start_lane = start_lane
        self._max_lanes = max_lanes
        self._lock = threading.Lock()
        self._lanes: dict[str, Post] = {}
        # By command id: what is in a lane, or claimed for one.
        self._items: dict[str, LaneItem] = {}
        # Command id -> lane, of what waits in the journal alone.
        self._behind: dict[str, str] = {}
        self.cancels = Cancels(parts.journal)

    # --- into the lanes ---------------------------------------------------------------------------------------------

    def claim(self, entry: JournalEntry) -> bool:
        """Keep a free lane for a new command, which may then be admitted as ``started``: one commit instead of two.

        Only for an idempotent handler. Should the agent end between that commit and the handler's first step, the
        command runs at the next start; a handler that may run ``once`` would be concluded without having run.

        Returns:
            True when the lane is its own. :meth:`dispatch` or :meth:`release` must follow.
        """
        rule = self._rules.handlers.get(entry.handler)
        if rule is None or rule.contract is not Contract.IDEMPOTENT:
            return False
        with self._lock:
            name = self._shared(rule.lane)
            is_taken = any(self._shared(each.lane) == name for each in self._items.values())
            if self._behind or is_taken or self._parts.stopping.is_set():
                return False
            self._items[entry.command.id] = LaneItem(entry, rule.lane, is_started=True)
            return True

    def release(self, command_ids: Iterable[str]) -> None:
        """Claimed, and then not admitted."""
        with self._lock:
            for command_id in command_ids:
                self._items.pop(command_id, None)

    def dispatch(self, entry: JournalEntry, *, claimed: bool = False, verify: bool = False) -> bool:
        """Put a ``received`` command, or a ``started`` one that shall run again, into its lane.

        Args:
            entry: as the journal has it, or had it before it was claimed.
            claimed: see :meth:`claim`; the journal has it as ``started`` by now.
            verify: its handler is first asked how it ended.

        Returns:
            False when the lane is full: the command waits in the journal and is fetched later. True when no thread
            could be started for its lane, too: it has failed with ``no_thread`` then.
        """
        command_id = entry.command.id
        with self._lock:
            if command_id in self._items and not claimed:
                return True
            rule = self._rules.handlers.get(entry.handler)
            lane = rule.lane if rule is not None else _UNKNOWN_LANE
            item = self._items.get(command_id) or LaneItem(entry, lane, verify=verify)
            # Counted here, so that a claimed place is there when its command comes.
            has_room = claimed or self._count(lane) < LANE_CAPACITY
            is_in, fault = False, ""
            try:
                if has_room:
                    name = self._shared(lane)
                    if name not in self._lanes:
                        self._lanes[name] = self._start_lane(Lane(name, self._parts, self))
                    is_in = self._lanes[name].post(item)
            except RuntimeError as error:  # the process is out of threads
                self._items.pop(command_id, None)
                fault = f"no_thread: no thread could be started for its lane: {error}"
            if is_in:
                self._items[command_id] = item
                self._behind.pop(command_id, None)
            elif not fault:
                self._behind[command_id] = lane
        if fault:
            self._give_up(entry, indeterminate(fault) if verify else Outcome(OutcomeStatus.FAILED, None, fault))
        return is_in or bool(fault)

    def refill(self) -> None:
        """Fetch from the journal what did not fit before."""
        with self._lock:
            self._behind.clear()
        try:
            waiting = self._parts.journal.in_state(CommandState.RECEIVED)
        except StorageError as error:
            _log.error("journal=failing: waiting commands could not be read: %s", error)
            return
        for entry in waiting:
            self.dispatch(entry)

    # --- what is under way ------------------------------------------------------------------------------------------

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

    # --- taken back -------------------------------------------------------------------------------------------------

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
            has_begun = item is not None and (item.began or item.verify)
            if item is not None and not has_begun and item.settled is None:
                item.settled = canceled(why, began=False)
        if item is not None and has_begun:
            self.cancels.add(command_id, why)
            _log.warning("command=%s state=canceling reason=%r", command_id, why)
            item.switch.pull(why)
            return RUNNING
        entry = self._parts.journal.known([command_id]).get(command_id)
        if entry is None:
            return UNKNOWN
        if entry.state is CommandState.STARTED and item is None:
            self.cancels.add(command_id, why)  # the stop has left it behind: the next start finds both
            return RUNNING
        if entry.state not in {CommandState.RECEIVED, CommandState.STARTED}:
            return OVER
        return WAITING if self._settle(entry, canceled(why, began=False)) else OVER

    def resume_canceled(self, entry: JournalEntry, why: str) -> None:
        """:meth:`dispatch` for a verification whose command was taken back before the crash: it will not run."""
        self.dispatch(entry, verify=True)
        with self._lock:
            item = self._items.get(entry.command.id)
        if item is not None:
            item.switch.pull(why)

    def stop(self) -> None:
        """No further command begins; running ones are asked to end."""
        self._parts.stop()

    # --- the lanes' side: see agent.runtime.lanes.LaneCallbacks ------------------------------------------------------

    def begin(self, item: LaneItem) -> Outcome | None:
        """Begin an item: None when it shall run now, else its outcome without a run."""
        with self._lock:
            if item.settled is None and not item.verify:
                item.settled = self.too_late(item.entry)
            item.began = item.settled is None
            return item.settled

    def too_late(self, entry: JournalEntry) -> Outcome | None:
        """The outcome ``expired`` of a command whose time is over; None while it may run."""
        rule = self._rules.handlers.get(entry.handler)
        start_timeout_s = rule.start_timeout_s if rule is not None else None
        now, service_now_s = self._parts.clock.now(), self._parts.service_now()
        if service_now_s is None:
            service_now_s = service_time_at_least(entry.command, entry.received, now)
        # Across a reboot the wait goes by true times, or by none.
        wall_of = self._parts.wall_of
        received, now = (replace(each, wall_s=wall_of(each) or 0.0) for each in (entry.received, now))
        return refuse_at_start(replace(entry, received=received), service_now_s, now, start_timeout_s)

    def look(self) -> None:
        """Conclude those that have waited too long. Called again and again while a lane makes others wait."""
        late: list[tuple[JournalEntry, Outcome]] = []
        with self._lock:
            for item in self._items.values():
                if item.began or item.verify or item.is_started or item.settled is not None:
                    continue
                item.settled = self.too_late(item.entry)
                if item.settled is not None:
                    late.append((item.entry, item.settled))
        for entry, outcome in late:
            try:
                self._settle(entry, outcome)
            except StorageError:
                _log.debug("command=%s its lane will write its end", entry.command.id)

    def concluded(self, command_id: str) -> None:
        """Note that the outcome of a command is in the journal."""
        self.cancels.drop(command_id)

    def done(self, command_id: str) -> None:
        """Note that the lane has finished with a command, with or without an outcome."""
        with self._lock:
            item = self._items.pop(command_id, None)
            is_time = False
            if item is not None and self._behind:
                lane = self._shared(item.lane)
                is_awaited = any(self._shared(each) == lane for each in self._behind.values())
                is_time = is_awaited and self._count(item.lane) <= LANE_CAPACITY // 2
        if is_time and not self._parts.stopping.is_set():
            self.refill()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _settle(self, entry: JournalEntry, outcome: Outcome) -> bool:
        """Write the end of a command that did not run; False when there is one already."""
        command_id, parts = entry.command.id, self._parts
        try:
            finished = parts.journal.finish(command_id, outcome, parts.clock.now())
        except IllegalMove:
            return False
        with self._lock:
            self._behind.pop(command_id, None)
            item = self._items.get(command_id)
            if item is not None:
                item.is_written = True
        log_outcome(command_id, entry.handler, outcome)
        parts.on_finished(finished)
        return True

    def _give_up(self, entry: JournalEntry, outcome: Outcome) -> None:
        try:
            self._settle(entry, outcome)
        except StorageError as error:
            _log.error("journal=failing: the end of command %s could not be written: %s", entry.command.id, error)

    def _shared(self, lane: str) -> str:
        """The lane that this one's commands run in: its own, or beyond the cap the last one."""
        if lane in self._lanes or lane == CONTROL_LANE:
            return lane
        others = [name for name in self._lanes if name != CONTROL_LANE]
        return others[-1] if len(others) >= self._max_lanes else lane

    def _count(self, lane: str) -> int:
        name = self._shared(lane)
        return sum(self._shared(each.lane) == name for each in self._items.values())
