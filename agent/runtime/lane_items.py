"""What the dispatcher and the lanes share: a command's item, and what all lanes have.

Apart from :mod:`agent.runtime.lanes`, which is imported with the first command.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from agent.core.values import JournalEntry, Moment, Outcome, OutcomeStatus, Report
from agent.runtime.health import Health

if TYPE_CHECKING:
    from agent.ports import Clock, Journal
    from agent.runtime.jobs import JobRunner, Jobs

_log = logging.getLogger(__name__)

LANE_CAPACITY: Final = 64
"""How many commands may be in one lane, the running one included; the others wait in the journal."""


class CancelSwitch:
    """Whether one command was taken back, and who wakes when it is. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake: Callable[[], None] | None = None
        self.reason: str | None = None

    def pull(self, reason: str) -> None:
        """Take the command back; the first reason stays."""
        with self._lock:
            if self.reason is not None:
                return
            self.reason = reason
            wake = self._wake
        if wake is not None:
            wake()

    def connect(self, wake: Callable[[], None]) -> None:
        """Whom to wake; at once when it was pulled before."""
        with self._lock:
            self._wake = wake
            was_pulled = self.reason is not None
        if was_pulled:
            wake()


class LaneItem:
    """A command on its way through its lane. Shared with the dispatcher, which guards ``began`` and ``settled``.

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


class LaneParts:
    """What all lanes share.

    Args:
        make_runner: makes what runs the handlers; called once, with the first command.
        service_now: the service's clock, epoch seconds; None when nobody can say.
        on_finished: this command's result waits to be reported.
        on_progress: how a running command goes; may be lost.
        wall_of: when a moment was, epoch seconds; None when nobody can say.
        holds: True for an item that must not begin yet; whoever says so dispatches it again.
        progress_every_s: one report of progress in this time at most, for each command, seconds.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        jobs: Jobs,
        make_runner: Callable[[], JobRunner],
        clock: Clock,
        health: Health,
        service_now: Callable[[], float | None],
        on_finished: Callable[[JournalEntry], object],
        on_progress: Callable[[Report], object],
        wall_of: Callable[[Moment], float | None] = lambda moment: moment.wall_s,
        holds: Callable[[JournalEntry, bool], bool] = lambda _entry, _verify: False,
        progress_every_s: float = 1.0,
        repeat_after_s: float = 300.0,
    ) -> None:
        self.wall_of = wall_of
        self.holds = holds
        self.journal = journal
        self.jobs = jobs
        self._make_runner = make_runner
        self._runner: JobRunner | None = None
        self._lock = threading.Lock()
        self.clock = clock
        self.health = health
        self.service_now = service_now
        self.on_finished = on_finished
        self.on_progress = on_progress
        self.progress_every_s = progress_every_s
        self.repeat_after_s = repeat_after_s
        self.stopping = threading.Event()

    def runner(self) -> JobRunner:
        """What runs the handlers."""
        with self._lock:
            if self._runner is None:
                self._runner = self._make_runner()
                if self.stopping.is_set():
                    self._runner.stop()
            return self._runner

    def stop(self) -> None:
        """No further command begins; running ones are told to end."""
        self.stopping.set()
        with self._lock:
            if self._runner is not None:
                self._runner.stop()


def tell_outcome(command_id: str, handler: str, outcome: Outcome) -> None:
    """One log line about the end of a command."""
    level = logging.INFO if outcome.status is OutcomeStatus.SUCCEEDED else logging.WARNING
    why = f" reason={outcome.error!r}" if outcome.error else ""
    _log.log(level, "command=%s handler=%s state=%s%s", command_id, handler, outcome.status, why)
