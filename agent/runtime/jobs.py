"""A job is one command with the handler that will run it; :class:`JobRunner` runs it in a thread, within its limits."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from agent.core.commands import RunLimits, canceled
from agent.core.values import Command, Contract, JsonObject, Outcome, OutcomeStatus, Report

if TYPE_CHECKING:
    from agent.ports import Clock

_log = logging.getLogger(__name__)

# While a handler runs, its lane looks this often after those that wait behind it.
_LOOK_S: Final = 1.0

IN_PROGRESS: Final = "in_progress"


class CancelSwitch:
    """Whether one command was canceled, and the callback that wakes its lane then. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake: Callable[[], None] | None = None
        self.reason: str | None = None

    def pull(self, reason: str) -> None:
        """Cancel the command; the first reason stays."""
        with self._lock:
            if self.reason is not None:
                return
            self.reason = reason
            wake = self._wake
        if wake is not None:
            wake()

    def connect(self, wake: Callable[[], None]) -> None:
        """Set the callback; called at once when the switch was pulled before."""
        with self._lock:
            self._wake = wake
            was_pulled = self.reason is not None
        if was_pulled:
            wake()


class Progress:
    """Reports of progress of one run, bounded in rate, and none after its end. Thread-safe.

    The newest report counts: one that comes too soon waits for its turn, in the place of the one that waited before.

    Args:
        command_id: of which command.
        post: takes a report; it may lose it.
        clock: both clocks.
        every_s: one report in this time at most, seconds.
    """

    def __init__(self, command_id: str, post: Callable[[Report], object], clock: Clock, every_s: float) -> None:
        self._command_id = command_id
        self._post = post
        self._clock = clock
        self._every_s = every_s
        self._lock = threading.Lock()
        self._waiting: Report | None = None
        self._not_before_s = float("-inf")
        self._is_over = False

    def report(self, result: JsonObject) -> None:
        """Send this progress, now or when its turn comes."""
        with self._lock:
            self._waiting = self._report(result)
        self.flush()

    def report_long(self) -> None:
        """Send that the run is under way, unless it has reported something before."""
        with self._lock:
            is_news = self._waiting is None and self._not_before_s == float("-inf")
            if is_news:
                self._waiting = self._report(None)
        self.flush()

    def flush(self) -> None:
        """Send what waits, if its time has come."""
        now_s = self._clock.now().monotonic_s
        with self._lock:
            if self._waiting is None or self._is_over or now_s < self._not_before_s:
                return
            self._not_before_s = now_s + self._every_s
            # Below the lock, so that nothing is posted once close() has returned.
            self._post(self._waiting)
            self._waiting = None

    def close(self) -> None:
        """Send nothing more: the outcome comes next."""
        with self._lock:
            self._is_over = True

    def _report(self, result: JsonObject | None) -> Report:
        return Report(self._command_id, IN_PROGRESS, result)


class LastActivity:
    """Time of a run's last sign of life, seconds on the monotonic clock."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def give(self) -> None:
        """Note that the run is alive now."""
        self.at_s = time.monotonic()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a job.

    Attributes:
        number: 1 for the first.
        restarted: the process or boot that started this command is no more.
        stopping: set when the handler shall end.
        report_progress: reports to the service how far the run is.
        cancel: ends the run when it is pulled.
        life: where the run gives its signs of life.
        look: called about once a second while the run goes on.
        no_restart: set when a handler of the contract ``restarts_device`` had nothing to restart.
    """

    command_id: str
    number: int
    restarted: bool
    stopping: threading.Event
    report_progress: Callable[[JsonObject], None]
    cancel: CancelSwitch = field(default_factory=CancelSwitch)
    life: LastActivity = field(default_factory=LastActivity)
    look: Callable[[], None] = lambda: None
    no_restart: threading.Event = field(default_factory=threading.Event)


class Job(Protocol):
    """A command whose payload is valid, with its handler."""

    @property
    def handler(self) -> str:
        """The handler's name."""
        ...

    @property
    def contract(self) -> Contract:
        """The handler's contract: what happens to the command after a crash in the middle of a run."""
        ...

    @property
    def limits(self) -> RunLimits:
        """How long one run may take."""
        ...

    @property
    def unwind_s(self) -> float:
        """How long it may take to end once it was asked to, seconds."""
        ...

    def run(self, attempt: Attempt) -> Outcome:
        """Run the handler; whatever it raises becomes an outcome."""
        ...

    def verify(self, attempt: Attempt) -> Outcome | None:
        """Ask the handler how an earlier run of the command ended; None when it was not done and may run.

        Raises:
            Exception: the handler does not know; the text says why.
        """
        ...


class Jobs(Protocol):
    """Makes jobs out of commands; the handlers' registry is behind it."""

    def prepare(self, command: Command) -> Job | Outcome:
        """A job, or the outcome ``rejected`` with its reason. Runs no handler code."""
        ...


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run came back to its lane.

    Attributes:
        outcome: None when the agent stops and the handler did not end within the grace: the command stays ``started``.
        hung: the thread of a run that did not come back; None when it did.
        is_settled: the handler said that nothing is to be restarted.
    """

    outcome: Outcome | None
    hung: threading.Thread | None = None
    is_settled: bool = False


class JobRunner:
    """Runs each job in a thread of its own, so that a handler that hangs costs its lane and nothing else.

    Args:
        stop_grace_s: how long a running handler may go on after :meth:`stop`, seconds.
        progress_after_s: after this long a run counts as long, and ``on_long`` is called once.
    """

    def __init__(self, *, stop_grace_s: float, progress_after_s: float = 3.0) -> None:
        self._stop_grace_s = stop_grace_s
        self._progress_after_s = progress_after_s
        self._lock = threading.Lock()
        self._stopped = False
        self._runs: set[_Run] = set()

    def run(self, job: Job, attempt: Attempt, on_long: Callable[[], None]) -> Ended:
        """Run the job and wait for its end, its limits, its cancel or the stop."""
        run = _Run(job, attempt)
        attempt.cancel.connect(lambda: run.wake("cancel"))
        with self._lock:
            self._runs.add(run)
            if self._stopped:
                run.wake("stop")
        try:
            return self._wait(run, on_long)
        finally:
            with self._lock:
                self._runs.discard(run)

    def stop(self) -> None:
        """Ask all running handlers to end, and let their lanes wait no longer than the grace."""
        with self._lock:
            self._stopped = True
            for run in self._runs:
                run.wake("stop")

    def _wait(self, run: _Run, on_long: Callable[[], None]) -> Ended:
        attempt, limits = run.attempt, run.job.limits
        begun_s = time.monotonic()
        long_at_s: float | None = begun_s + self._progress_after_s
        attempt.life.give()
        if attempt.cancel.reason is not None:
            return Ended(canceled(attempt.cancel.reason, began=False))
        try:
            run.start()
        except RuntimeError as error:  # the process is out of threads
            return Ended(Outcome(OutcomeStatus.FAILED, None, f"no_thread: no thread could be started: {error}"))
        while True:
            now_s = time.monotonic()
            fault = limits.fault(run.job.handler, begun_s, attempt.life.at_s, now_s)
            # A lane that was held up for longer than the limits (a busy machine, SIGSTOP) finds a run that has ended.
            if fault is not None and run.outcome is None:
                return self._unwind(run, fault)
            if long_at_s is not None and now_s >= long_at_s:
                long_at_s = None
                on_long()
            until_s = min(limits.ends_at(begun_s, attempt.life.at_s), now_s + _LOOK_S)
            event = run.wait((until_s if long_at_s is None else min(until_s, long_at_s)) - now_s)
            if event == "done":
                return Ended(run.outcome)
            if event == "cancel":
                why = canceled(attempt.cancel.reason or "", began=True).error
                return self._unwind(run, why or "")
            if event == "stop":
                attempt.stopping.set()
                return Ended(run.outcome) if run.wait_done(self._stop_grace_s) else Ended(None, run)
            attempt.look()

    def _unwind(self, run: _Run, why: str) -> Ended:
        """Ask the handler to end, and wait as long as it may take for that."""
        run.attempt.stopping.set()
        if not run.wait_done(run.job.unwind_s):
            why += "; it has not returned, and its lane is blocked until it does"
            return Ended(Outcome(OutcomeStatus.FAILED, None, why), run)
        own = run.outcome or Outcome(OutcomeStatus.FAILED)
        return Ended(Outcome(OutcomeStatus.FAILED, own.result, f"{why}; {own.error}" if own.error else why))


class _Run(threading.Thread):
    """One job in a thread of its own; its lane waits for what comes first: done, cancel or stop."""

    def __init__(self, job: Job, attempt: Attempt) -> None:
        super().__init__(name=f"run:{job.handler}", daemon=True)
        self.job = job
        self.attempt = attempt
        self.outcome: Outcome | None = None
        self._events: queue.SimpleQueue[str] = queue.SimpleQueue()

    def wake(self, event: str) -> None:
        self._events.put(event)

    def wait(self, timeout_s: float) -> str | None:
        with contextlib.suppress(queue.Empty):
            return self._events.get(timeout=max(0.0, timeout_s))
        return None

    def wait_done(self, timeout_s: float) -> bool:
        until_s = time.monotonic() + timeout_s
        while (event := self.wait(until_s - time.monotonic())) is not None:
            if event == "done":
                return True
        return False

    def run(self) -> None:
        try:
            self.outcome = self.job.run(self.attempt)
        except BaseException as error:  # noqa: BLE001 - whatever a plug-in raises ends its command and nothing else
            _log.debug("handler %s raised", self.job.handler, exc_info=True)
            self.outcome = Outcome(OutcomeStatus.FAILED, None, f"handler_error: {type(error).__name__}: {error}")
        self.wake("done")
