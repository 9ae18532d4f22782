"""A job: one command with the handler that will run it, as the lanes see it, and the thread that runs it."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from agent.core.values import Command, Contract, JsonObject, Outcome, OutcomeStatus

_log = logging.getLogger(__name__)

_UNWIND_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a job.

    Attributes:
        number: 1 for the first.
        restarted: the process or boot that started this command is no more.
        stopping: set when the handler shall end.
        report_progress: tells the service how far it is.
    """

    command_id: str
    number: int
    restarted: bool
    stopping: threading.Event
    report_progress: Callable[[JsonObject], None]


class Job(Protocol):
    """A command whose payload is valid, with its handler."""

    @property
    def handler(self) -> str:
        """The handler's name."""
        ...

    @property
    def contract(self) -> Contract:
        """What a crash in the middle means."""
        ...

    @property
    def timeout_s(self) -> float:
        """How long one run may take, seconds."""
        ...

    def run(self, attempt: Attempt) -> Outcome:
        """Run the handler; whatever it raises becomes an outcome."""
        ...


class Jobs(Protocol):
    """What the handlers' registry does for the lanes."""

    def prepare(self, command: Command) -> Job | Outcome:
        """A job, or the outcome ``rejected`` with its reason. Runs no handler code."""
        ...


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run came back to its lane.

    Attributes:
        outcome: None when the agent stops and the handler did not end within the grace: the command stays ``started``.
        hung: the thread that did not come back; None when it did.
    """

    outcome: Outcome | None
    hung: threading.Thread | None = None


class JobRunner:
    """Runs jobs in threads of their own, so that a handler that hangs costs its lane and nothing else.

    Args:
        stop_grace_s: how long a running handler may go on after :meth:`stop`, seconds.
        progress_after_s: after this long a run counts as long, and ``on_long`` is called once.
        unwind_s: how long a handler may take to return after its timeout, seconds.
    """

    def __init__(self, *, stop_grace_s: float, progress_after_s: float = 3.0, unwind_s: float = _UNWIND_S) -> None:
        self._stop_grace_s = stop_grace_s
        self._progress_after_s = progress_after_s
        self._unwind_s = unwind_s
        self._lock = threading.Lock()
        self._stopped = False
        self._runs: set[_Run] = set()

    def run(self, job: Job, attempt: Attempt, on_long: Callable[[], None]) -> Ended:
        """Run the job and wait for its end, its timeout or the stop."""
        run = _Run(job, attempt)
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
        """Tell all running handlers to end, and their lanes to wait no longer than the grace."""
        with self._lock:
            self._stopped = True
            for run in self._runs:
                run.wake("stop")

    def _wait(self, run: _Run, on_long: Callable[[], None]) -> Ended:
        run.start()
        timeout_s = run.job.timeout_s
        first_s = min(self._progress_after_s, timeout_s)
        event = run.wait(first_s)
        if event is None and timeout_s > first_s:
            on_long()
            event = run.wait(timeout_s - first_s)
        if event == "done":
            return Ended(run.outcome)
        run.attempt.stopping.set()
        if event == "stop":
            return Ended(run.outcome) if run.wait_done(self._stop_grace_s) else Ended(None, run.thread)
        returned = run.wait_done(self._unwind_s)
        result = run.outcome.result if run.outcome is not None else None
        text = f"timeout: {run.job.handler!r} ran longer than {timeout_s:g} s"
        if not returned:
            text += " and has not returned; its lane is blocked until it does"
        return Ended(Outcome(OutcomeStatus.FAILED, result, text), None if returned else run.thread)


class _Run:
    """One thread that runs one job; its lane waits for what comes first: done or stop."""

    def __init__(self, job: Job, attempt: Attempt) -> None:
        self.job = job
        self.attempt = attempt
        self.outcome: Outcome | None = None
        self._events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._main, name=f"run:{job.handler}", daemon=True)

    def start(self) -> None:
        try:
            self.thread.start()
        except RuntimeError as error:  # the process is out of threads
            self.outcome = Outcome(OutcomeStatus.FAILED, None, f"no_thread: no thread could be started: {error}")
            self._events.put("done")

    def wake(self, event: str) -> None:
        self._events.put(event)

    def wait(self, timeout_s: float) -> str | None:
        with contextlib.suppress(queue.Empty):
            return self._events.get(timeout=max(0.0, timeout_s))
        return None

    def wait_done(self, timeout_s: float) -> bool:
        while (event := self.wait(timeout_s)) is not None:
            if event == "done":
                return True
        return False

    def _main(self) -> None:
        try:
            self.outcome = self.job.run(self.attempt)
        except BaseException as error:  # noqa: BLE001 - whatever a plug-in raises ends its command and nothing else
            _log.debug("handler %s raised", self.job.handler, exc_info=True)
            self.outcome = Outcome(OutcomeStatus.FAILED, None, f"handler_error: {type(error).__name__}: {error}")
        self._events.put("done")
