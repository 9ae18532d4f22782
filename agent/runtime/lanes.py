"""Lanes: each runs its commands one after the other; the dispatcher makes them on demand and keeps them fed.

The journal is the queue. What does not fit into a lane's mailbox stays there as ``received`` and is fetched when the
lane has room again, so nothing is lost and memory stays bounded.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from agent.core.commands import CommandRules, refuse_at_start
from agent.core.values import CommandState, Contract, JournalEntry, JsonObject, Outcome, OutcomeStatus, Report
from agent.errors import StorageError
from agent.ports import Clock, Journal
from agent.runtime.complaints import Complaints
from agent.runtime.health import Health
from agent.runtime.jobs import Attempt, Ended, Hung, Job, JobRunner, Jobs
from agent.runtime.service import Actor

_log = logging.getLogger(__name__)

IN_PROGRESS: Final = "in_progress"
_STORE_RETRY_S: Final = 1.0
_SLACK_S: Final = 30.0
# For commands whose handler left with the last configuration: they are only rejected.
_UNKNOWN_LANE: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Errand:
    """A command on its way into its lane.

    Attributes:
        entry: as it was before this run.
        is_started: the journal has it as ``started`` already: the commit that admitted it did that, too.
    """

    entry: JournalEntry
    is_started: bool = False


class Post(Protocol):
    """A running service, as far as the dispatcher sees it."""

    def post(self, message: Errand) -> bool:
        """Post a message; False when the mailbox is full or closed."""
        ...


class LaneParts:
    """What all lanes share.

    Args:
        service_now: the service's clock, epoch seconds; None when nobody can say.
        on_finished: this command's result waits for the uplink.
        on_progress: how a running command goes; may be lost.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        jobs: Jobs,
        runner: JobRunner,
        clock: Clock,
        health: Health,
        service_now: Callable[[], float | None],
        on_finished: Callable[[JournalEntry], object],
        on_progress: Callable[[Report], object],
        repeat_after_s: float = 300.0,
    ) -> None:
        self.journal = journal
        self.jobs = jobs
        self.runner = runner
        self.clock = clock
        self.health = health
        self.service_now = service_now
        self.on_finished = on_finished
        self.on_progress = on_progress
        self.repeat_after_s = repeat_after_s
        self.stopping = threading.Event()


class Lane(Actor):
    """Runs the commands of one lane in order.

    Args:
        on_done: told the id of each command that this lane is through with.
    """

    capacity = 64

    def __init__(self, name: str, parts: LaneParts, on_done: Callable[[str], None]) -> None:
        super().__init__(f"lane:{name}")
        self._parts = parts
        self._on_done = on_done
        self._hung: Hung | None = None
        self._complaints = Complaints(_log, lambda: parts.clock.now().monotonic_s, parts.repeat_after_s)
        self.patience_s = _SLACK_S

    def receive(self, message: Errand) -> None:
        """Run one command: journal ``started``, handler, journal the outcome."""
        try:
            if not self._parts.stopping.is_set():
                self._run(message.entry, is_started=message.is_started)
        finally:
            self._on_done(message.entry.command.id)

    def _run(self, entry: JournalEntry, *, is_started: bool) -> None:
        parts, command_id = self._parts, entry.command.id
        if not is_started and not self._is_current(entry):
            return
        expired = refuse_at_start(entry, parts.service_now())
        if expired is not None:
            self._conclude(entry, expired)
            return
        job = parts.jobs.prepare(entry.command)
        if isinstance(job, Outcome):
            self._conclude(entry, job)
            return
        if self._is_blocked(job):
            if parts.stopping.is_set():
                return
            text = f"an earlier run of this lane ({self.name}) still hangs; restart_agent frees it"
            self._conclude(entry, _rejected("lane_blocked", text))
            return
        if not is_started and not self._commit(lambda: parts.journal.start(command_id, parts.clock.now()), "start"):
            return
        # A run may last as long as its timeout; only beyond that the lane itself is stuck.
        self.patience_s = job.timeout_s + _SLACK_S
        _log.info("command=%s handler=%s state=started attempt=%d", command_id, job.handler, entry.attempts + 1)
        ended = self._run_job(job, entry)
        self._take_end(entry, job, ended)
        self.patience_s = _SLACK_S

    def _is_current(self, entry: JournalEntry) -> bool:
        """The journal still has this command as it was when it was handed over: no command runs twice by mistake."""
        try:
            now = self._parts.journal.known([entry.command.id]).get(entry.command.id)
        except StorageError as error:
            text = f"journal=failing: a command could not be read: {error}; it runs after the next start"
            self._complaints.tell("journal", text, level=logging.ERROR)
            return False
        return now is not None and now.state is entry.state and now.attempts == entry.attempts

    def _run_job(self, job: Job, entry: JournalEntry) -> Ended:
        report = self._parts.on_progress
        started_wall_s = self._parts.clock.now().wall_s

        def report_progress(result: JsonObject | None) -> None:
            report(Report(entry.command.id, IN_PROGRESS, result, started_at=started_wall_s))

        attempt = Attempt(
            command_id=entry.command.id,
            number=entry.attempts + 1,
            restarted=entry.attempts > 0,
            stopping=threading.Event(),
            report_progress=report_progress,
        )
        return self._parts.runner.run(job, attempt, on_long=lambda: report_progress(None))

    def _take_end(self, entry: JournalEntry, job: Job, ended: Ended) -> None:
        command_id = entry.command.id
        if ended.hung is not None:
            self._hung = ended.hung
        if ended.outcome is None:
            _log.warning("command=%s handler=%s state=left_running: the agent stops", command_id, job.handler)
            return
        if job.contract is Contract.RESTARTS_DEVICE and self._awaits_restart(entry, ended.outcome):
            # Its success is that somebody comes after us and finds it started.
            if self._parts.stopping.wait(job.timeout_s):
                return
            text = f"no_restart: {job.handler!r} asked for a restart that did not come within {job.timeout_s:g} s"
            self._conclude(entry, Outcome(OutcomeStatus.FAILED, None, text))
            return
        self._conclude(entry, ended.outcome)
        if self._hung is not None:
            self._parts.health.put(self.name, "blocked", f"{job.handler} ran into its timeout and does not return")

    def _awaits_restart(self, entry: JournalEntry, outcome: Outcome) -> bool:
        """The handler has asked for the restart: in its first run, or in a later one that the agent's stop ended."""
        is_open = entry.attempts == 0 or (outcome.result is None and self._parts.stopping.is_set())
        return is_open and _went_well(outcome)

    def _is_blocked(self, job: Job) -> bool:
        if self._hung is None:
            return False
        # It may return after all: as long as one run may take, its successors wait for it.
        self.patience_s = job.timeout_s + _SLACK_S
        deadline_s = self._parts.clock.now().monotonic_s + job.timeout_s
        while self._hung.is_alive() and not self._parts.stopping.is_set():
            left_s = deadline_s - self._parts.clock.now().monotonic_s
            if left_s <= 0:
                return True
            self._hung.join(min(left_s, 0.5))
        if self._hung.is_alive():
            return True
        self._hung = None
        self._parts.health.put(self.name, "ok")
        return False

    def _conclude(self, entry: JournalEntry, outcome: Outcome) -> None:
        command_id, parts = entry.command.id, self._parts

        def finish() -> None:
            finished.append(parts.journal.finish(command_id, outcome, parts.clock.now()))

        finished: list[JournalEntry] = []
        if self._commit(finish, "outcome"):
            parts.on_finished(finished[-1])
            level = logging.INFO if outcome.status is OutcomeStatus.SUCCEEDED else logging.WARNING
            why = f" reason={outcome.error!r}" if outcome.error else ""
            _log.log(level, "command=%s handler=%s state=%s%s", command_id, entry.handler, outcome.status, why)

    def _commit(self, write: Callable[[], None], what: str) -> bool:
        """Write until it is written; False when the agent stops before that. Nothing runs that is not journaled."""
        while True:
            try:
                write()
            except StorageError as error:
                text = f"journal=failing: the {what} of a command could not be written: {error}; look at the disk"
                self._complaints.tell("journal", text, level=logging.ERROR)
                self.patience_s = float("inf")  # a full disk is told, not cured by a restart
                if self._parts.stopping.wait(_STORE_RETRY_S):
                    return False
            else:
                self._complaints.settle("journal", "journal=ok: commands can be written again")
                self.patience_s = _SLACK_S
                return True


class Dispatcher:
    """Hands commands to lanes.

    Args:
        parts: what lanes share.
        rules: which handler runs in which lane.
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
        # Command id -> its lane.
        self._queued: dict[str, str] = {}
        self._is_behind = False

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
            lane = self._lane_of(entry)
            if self._is_behind or lane in self._queued.values() or self._parts.stopping.is_set():
                return False
            self._queued[entry.command.id] = lane
            return True

    def release(self, command_ids: Iterable[str]) -> None:
        """Claimed, and then not admitted."""
        with self._lock:
            for command_id in command_ids:
                self._queued.pop(command_id, None)

    def dispatch(self, entry: JournalEntry, *, claimed: bool = False) -> bool:
        """Put a ``received`` command, or a ``started`` one that shall run again, into its lane.

        Args:
            entry: as the journal has it, or had it before it was claimed.
            claimed: see :meth:`claim`; the journal has it as ``started`` by now.

        Returns:
            False when the lane is full: the command waits in the journal and is fetched later.
        """
        command_id = entry.command.id
        with self._lock:
            if command_id in self._queued and not claimed:
                return True
            lane = self._lane_of(entry)
            # Counted here, so that a claimed place is there when its command comes.
            has_room = claimed or list(self._queued.values()).count(lane) < Lane.capacity
            if has_room and self._lane(lane).post(Errand(entry, is_started=claimed)):
                self._queued[command_id] = lane
                return True
            self._is_behind = True
            return False

    def refill(self) -> None:
        """Fetch from the journal what did not fit before."""
        try:
            waiting = self._parts.journal.in_state(CommandState.RECEIVED)
        except StorageError as error:
            _log.error("journal=failing: waiting commands could not be read: %s", error)
            return
        for entry in waiting:
            self.dispatch(entry)

    def is_busy(self) -> bool:
        """A command is under way."""
        return bool(self._queued)

    def stop(self) -> None:
        """No further command begins; running ones are told to end."""
        self._parts.stopping.set()
        self._parts.runner.stop()

    def _lane_of(self, entry: JournalEntry) -> str:
        rule = self._rules.handlers.get(entry.handler)
        name = rule.lane if rule else _UNKNOWN_LANE
        is_one_too_many = name not in self._lanes and len(self._lanes) >= self._max_lanes
        return list(self._lanes)[-1] if is_one_too_many else name

    def _lane(self, name: str) -> Post:
        if name not in self._lanes:
            self._lanes[name] = self._start_lane(Lane(name, self._parts, self._done))
        return self._lanes[name]

    def _done(self, command_id: str) -> None:
        with self._lock:
            self._queued.pop(command_id, None)
            is_time = self._is_behind and len(self._queued) <= Lane.capacity // 2
            if is_time:
                self._is_behind = False
        if is_time and not self._parts.stopping.is_set():
            self.refill()


def _rejected(code: str, text: str) -> Outcome:
    return Outcome(OutcomeStatus.REJECTED, None, f"{code}: {text}")


def _went_well(outcome: Outcome) -> bool:
    return outcome.status is OutcomeStatus.SUCCEEDED
