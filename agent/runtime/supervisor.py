"""The main thread's work: wait for a signal, a crash or a wish to restart; feed the service manager meanwhile.

READY and WATCHDOG say that sensors, store and command lanes make progress. Neither hangs on the cloud: a service that
is down is no ill health of this device, and a restart would not bring it back.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from types import FrameType
from typing import Final

from agent.errors import EXIT_CRASHED, EXIT_STOPPED
from agent.ports import Clock

CRASHED: Final = "crashed"
"""A part's state in the health, in the moment between its crash and the end of the process."""
CRASHED_TEXT: Final = "an error ended this thread, so the process ends, to be started anew: report the log's traceback"

_log = logging.getLogger(__name__)

_CHECK_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the agent ends, and with which exit code."""

    reason: str
    exit_code: int


class Supervisor:
    """Waits for the end and keeps the service manager informed. Every method may be called from any thread.

    Args:
        notifier: of the service manager, or none.
        clock: for the timers.
        on_change: called in the main thread after :meth:`changed`, to write the status down; returns the status line.
        on_crash: called with the name of a thread that has crashed, from that thread.
    """

    def __init__(
        self,
        notifier: Notifier,
        clock: Clock,
        *,
        on_change: Callable[[], str],
        on_crash: Callable[[str], object] = lambda _name: None,
    ) -> None:
        self._notifier = notifier
        self._clock = clock
        self._on_change = on_change
        self._on_crash = on_crash
        self._ending: Ending | None = None
        self._is_changed = False
        self._was_stuck = False
        self._watched: list[tuple[str, Callable[[], float]]] = []
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()
        self._lock = threading.Lock()
        # A pipe, since only a file descriptor wakes the main thread for sure: the kernel may hand a signal to any
        # thread, or between the last look at the wishes and the wait for them.
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)

    def watch(self, name: str, stuck_for_s: Callable[[], float]) -> None:
        """Feed the watchdog only while this makes progress: ``stuck_for_s`` returns 0."""
        self._watched.append((name, stuck_for_s))

    def end(self, reason: str, exit_code: int) -> None:
        """Ask for the end; the first one counts. From signal handlers, too."""
        self._ending = self._ending or Ending(reason, exit_code)
        self._wake()

    def crashed(self, service: str) -> None:
        """A thread was ended by an exception: the process ends and is started anew. From that thread."""
        self._on_crash(service)
        self.end(f"service {service} crashed", EXIT_CRASHED)

    def changed(self) -> None:
        """The state of some part changed; many changes at once are one."""
        if not self._is_changed:
            self._is_changed = True
            self._wake()

    def schedule(self, delay_s: float, call: Callable[[], object]) -> None:
        """Have ``call`` called once in the main thread, that long from now on the monotonic clock."""
        with self._lock:
            heapq.heappush(self._timers, (self._clock.now().monotonic_s + delay_s, next(self._numbers), call))
        self._wake()

    def wait(self, timeout_s: float) -> Ending | None:
        """Wait for the end before anything runs; None when it did not come within ``timeout_s``."""
        deadline_s = self._clock.now().monotonic_s + timeout_s
        while self._ending is None and (left_s := deadline_s - self._clock.now().monotonic_s) > 0:
            self._sleep(left_s)
        return self._ending

    def run(self) -> Ending:
        """Send READY, then wait for the end."""
        self._notifier.ready()
        self._notifier.status(self._on_change())
        interval_s = self._notifier.watchdog_interval_s
        check_s = _CHECK_S if interval_s is None else min(interval_s, _CHECK_S)
        while self._ending is None:
            if self._is_changed:
                self._is_changed = False
                self._notifier.status(self._on_change())
            if self._makes_progress():
                self._notifier.alive()
            self._sleep(min(check_s, self._run_timers()))
        return self._ending

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end the agent in order; a second one at once."""

        def handle(number: int, _frame: FrameType | None) -> None:
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

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake anyway; closed: it has ended
            os.write(self._wake_writer, b"\0")

    def _sleep(self, timeout_s: float) -> None:
        """Wait until :meth:`_wake` or a signal, at most so long."""
        select.select([self._wake_reader], [], [], max(0.0, timeout_s))
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_reader, 4096):
                pass

    def _run_timers(self) -> float:
        """Call what is due; in how many seconds the next timer is."""
        while True:
            with self._lock:
                left_s = self._timers[0][0] - self._clock.now().monotonic_s if self._timers else _CHECK_S
                if left_s > 0:
                    return left_s
                call = heapq.heappop(self._timers)[2]
            call()

    def _makes_progress(self) -> bool:
        stuck = [(name, stuck_s) for name, stuck_for_s in list(self._watched) if (stuck_s := stuck_for_s())]
        if stuck and not self._was_stuck:
            text = "watchdog=not_fed service=%s has made no progress for %.0f s longer than it may: %s"
            _log.error(text, *stuck[0], "the service manager restarts the agent if this lasts")
        self._was_stuck = bool(stuck)
        return not stuck


# --- the service manager ----------------------------------------------------------------------------------------------

_STATUS_CHARACTERS: Final = 512
_USEC_DIGITS: Final = 18


class Notifier:
    """Tells the service manager how this program is; nothing where none listens, or its address is wrong. Thread-safe.

    A datagram of ``NAME=value`` lines to the socket that it names in the environment; one that cannot be sent is lost.
    Source: sd_notify(3), sd_watchdog_enabled(3).

    Args:
        environ: ``NOTIFY_SOCKET`` (a path, or ``@`` and an abstract name), ``WATCHDOG_USEC`` and ``WATCHDOG_PID``
            count: a watchdog that is meant for another process is not ours.

    Attributes:
        watchdog_interval_s: how often :meth:`alive` must come, half of what systemd allows; None without a watchdog.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self.watchdog_interval_s: float | None = None
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if not address:
            return
        if address[0] not in "@/" or len(address) < 2:
            _log.warning(
                "nothing is sent to the service manager: NOTIFY_SOCKET %r is no path or abstract name", address
            )
            return
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # A service manager that does not read must not stop the agent.
        self._socket.setblocking(False)
        wanted = environ.get("WATCHDOG_USEC", "")
        is_number = wanted.isascii() and wanted.isdigit() and len(wanted) <= _USEC_DIGITS
        if is_number and int(wanted) and environ.get("WATCHDOG_PID", "") in {"", str(os.getpid())}:
            self.watchdog_interval_s = int(wanted) / 2e6

    def ready(self) -> None:
        """The program does its job from now on."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """One line for a person."""
        self._send(f"STATUS={' '.join(text.split())[:_STATUS_CHARACTERS]}")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """The stop has begun."""
        self._send("STOPPING=1")

    def reloading(self) -> None:
        """A configuration is being taken over; :meth:`ready` says that it is done."""
        # With the time, by which systemd knows an old message.
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()

    def _send(self, text: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(text.encode(), self._address)
        except (OSError, ValueError) as error:
            _log.debug("%s could not be sent to the service manager: %s", text, error)
