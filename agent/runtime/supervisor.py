"""The main thread's work: wait for a signal, a crash or a wish to restart; feed the service manager meanwhile.

READY and WATCHDOG say that scheduler, store and command lanes make progress. Neither hangs on the cloud: a service that
is down is no ill health of this device, and a restart would not bring it back.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent.exit_codes import EXIT_CRASHED, EXIT_STOPPED

if TYPE_CHECKING:
    from agent.ports import Clock, Notifier

CRASHED: Final = "crashed"
"""A part's state in the health, in the moment between its crash and the end of the process."""
CRASHED_TEXT: Final = "an error ended this thread, so the process ends, to be started anew: report the log's traceback"

_log = logging.getLogger(__name__)

_CHECK_S: Final = 30.0
_NAP_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the agent ends, and with which exit code."""

    reason: str
    exit_code: int


Probe = Callable[[float], str | None]
"""Given seconds on the monotonic clock: why one part makes no progress, or None when it does."""


class Supervisor:
    """Waits for the end and keeps the service manager informed.

    Args:
        notifier: of the service manager, or none.
        clock: for the probes.
        probes: what must make progress; the watchdog is fed only while all of them do.
        on_change: called in the main thread after :meth:`changed`, to write the status down; returns the status line.
        on_crash: called with the name of a thread that has crashed, from that thread.
        asleep_s: how long this machine has been suspended since its boot, seconds.
    """

    def __init__(
        self,
        notifier: Notifier,
        clock: Clock,
        *,
        probes: Iterable[Probe] = (),
        on_change: Callable[[], str],
        on_crash: Callable[[str], object] = lambda _name: None,
        asleep_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._notifier = notifier
        self._clock = clock
        self._probes = list(probes)
        self._on_change = on_change
        self._on_crash = on_crash
        self._asleep_s = asleep_s
        self._slept_s = asleep_s()
        self._wakers: list[Callable[[], object]] = []
        # A pipe, since only a file descriptor wakes the main thread for sure: the kernel may hand a signal to any
        # thread, or between the last look at the queue and the wait for it.
        self._events: deque[Ending | None] = deque()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._is_change_noted = threading.Event()
        self._was_stuck = False
        self._appointments: list[tuple[float, int, Callable[[], object]]] = []
        self._appointments_made = 0
        self._lock = threading.Lock()

    def watch(self, probe: Probe) -> None:
        """Add something that must make progress. From any thread."""
        with self._lock:
            self._probes.append(probe)

    def on_resumed_from_sleep(self, wake: Callable[[], object]) -> None:
        """Call this soon after the machine was suspended: the clock counts sleep, and waits do not. From any thread."""
        with self._lock:
            self._wakers.append(wake)

    def end(self, reason: str, exit_code: int) -> None:
        """Ask for the end; the first one counts. From any thread and from signal handlers."""
        self._put(Ending(reason, exit_code))

    def crashed(self, service: str) -> None:
        """A thread was ended by an exception: the process ends and is started anew. From that thread."""
        self._on_crash(service)
        self.end(f"service {service} crashed", EXIT_CRASHED)

    def changed(self) -> None:
        """The state of some part changed. From any thread; many at once are one."""
        if not self._is_change_noted.is_set():
            self._is_change_noted.set()
            self._put(None)

    def schedule(self, delay_s: float, call: Callable[[], object]) -> None:
        """Have ``call`` called once in the main thread, that long from now on the monotonic clock. From any thread."""
        due_s = self._clock.now().monotonic_s + delay_s
        with self._lock:
            self._appointments_made += 1
            self._appointments.append((due_s, self._appointments_made, call))
            self._appointments.sort(key=lambda each: each[:2])
        self.changed()

    def wait(self, timeout_s: float) -> Ending | None:
        """Wait for the end before anything runs; None when it did not come within ``timeout_s``."""
        deadline_s = self._clock.now().monotonic_s + timeout_s
        while (left_s := deadline_s - self._clock.now().monotonic_s) > 0:
            for event in self._take(left_s):
                if event is not None:
                    return event
        return None

    def run(self) -> Ending:
        """Send READY, then wait for the end."""
        self._notifier.ready()
        self._write_status()
        interval_s = self._notifier.watchdog_interval_s
        timeout_s = _CHECK_S if interval_s is None else min(interval_s, _CHECK_S)
        while True:
            if self._makes_progress():
                self._notifier.alive()
            for event in self._take(self._until_next_timer(timeout_s)):
                if event is not None:
                    return event
                self._is_change_noted.clear()
                self._write_status()
            self._run_timers()

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end the agent in order; a second one at once."""

        def handle(number: int, _frame: Any) -> None:
            signal.signal(number, signal.SIG_DFL)
            self.end(f"{signal.Signals(number).name} received", EXIT_STOPPED)

        before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
        wake_before = signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wake_before)
            for number, handler in before.items():
                signal.signal(number, handler)

    def close(self) -> None:
        """Close the pipe that wakes the main thread."""
        reader, writer = self._wake_reader, self._wake_writer
        # A thread that was left behind must not write into whatever gets this number next.
        self._wake_reader = self._wake_writer = -1
        os.close(reader)
        os.close(writer)

    def _put(self, event: Ending | None) -> None:
        self._events.append(event)
        with contextlib.suppress(OSError):  # full: it is awake anyway; closed: it has ended
            os.write(self._wake_writer, b"\0")

    def _take(self, timeout_s: float) -> Iterator[Ending | None]:
        """What happened, waiting for it up to ``timeout_s`` when nothing has yet."""
        select.select([self._wake_reader], [], [], timeout_s)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_reader, 4096):
                pass
        while self._events:
            yield self._events.popleft()

    def _until_next_timer(self, timeout_s: float) -> float:
        with self._lock:
            if not self._appointments:
                return timeout_s
            return min(timeout_s, max(0.0, self._appointments[0][0] - self._clock.now().monotonic_s))

    def _run_timers(self) -> None:
        now_s = self._clock.now().monotonic_s
        while True:
            with self._lock:
                if not self._appointments or self._appointments[0][0] > now_s:
                    return
                call = self._appointments.pop(0)[2]
            call()

    def _makes_progress(self) -> bool:
        asleep_s = self._asleep_s()
        if asleep_s - self._slept_s > _NAP_S:
            _log.info("machine=awake it slept for %.0f s", asleep_s - self._slept_s)
            self._slept_s = asleep_s
            with self._lock:
                wakers = list(self._wakers)
            for wake in wakers:
                wake()
            return True  # no progress while the machine sleeps
        now_s = self._clock.now().monotonic_s
        with self._lock:
            probes = list(self._probes)
        stuck = [reason for probe in probes if (reason := probe(now_s)) is not None]
        if stuck and not self._was_stuck:
            _log.error("watchdog=not_fed reason=%r: the service manager restarts the agent if this lasts", stuck[0])
        self._was_stuck = bool(stuck)
        return not stuck

    def _write_status(self) -> None:
        self._notifier.status(self._on_change())
