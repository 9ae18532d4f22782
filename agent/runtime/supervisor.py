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
from typing import TYPE_CHECKING, Final

from agent.errors import EXIT_CRASHED, EXIT_STOPPED
from agent.ports import Clock, Notifier

if TYPE_CHECKING:
    from agent.ports import Notifier


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


class NullNotifier:
    """The :class:`~agent.ports.Notifier` when no service manager listens."""

    def ready(self) -> None:
        """The agent does its job from now on. See :class:`agent.ports.Notifier`."""

    def status(self, text: str) -> None:
        """One line for a person. See :class:`agent.ports.Notifier`."""

    def alive(self) -> None:
        """Feed the watchdog. See :class:`agent.ports.Notifier`."""

    def stopping(self) -> None:
        """Stop has begun. See :class:`agent.ports.Notifier`."""

    def reloading(self) -> None:
        """A configuration is being taken over; :meth:`ready` says that it is done."""

    @property
    def watchdog_interval_s(self) -> float | None:
        """How often :meth:`alive` must come; None without a watchdog. See :class:`agent.ports.Notifier`."""
        return None


class SdNotifier:
    """The :class:`~agent.ports.Notifier` of systemd. Thread-safe; a datagram that cannot be sent is lost.

    Args:
        address: of ``$NOTIFY_SOCKET``: a path, or ``@`` and an abstract name.
        watchdog_s: within which time systemd wants to hear from us, seconds; None when it does not watch.

    Raises:
        ValueError: the address is neither of the two.
    """

    def __init__(self, address: str, watchdog_s: float | None = None) -> None:
        if address[:1] not in {"@", "/"} or len(address) < 2:
            raise ValueError(f"NOTIFY_SOCKET {address!r} is neither a path nor an abstract name")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0))
        # A service manager that does not read must not stop the agent.
        self._socket.setblocking(False)

    def ready(self) -> None:
        """The agent does its job from now on. See :class:`agent.ports.Notifier`."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """One line for a person. See :class:`agent.ports.Notifier`; cut to one line."""
        self._send(f"STATUS={' '.join(text.split())[:_STATUS_CHARACTERS]}")

    def alive(self) -> None:
        """Feed the watchdog. See :class:`agent.ports.Notifier`."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Stop has begun. See :class:`agent.ports.Notifier`."""
        self._send("STOPPING=1")

    def reloading(self) -> None:
        """A configuration is being taken over; :meth:`ready` says that it is done.

        See :class:`agent.ports.Notifier`; with the time, by which systemd knows an old message (sd_notify(3)).
        """
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    @property
    def watchdog_interval_s(self) -> float | None:
        """How often :meth:`alive` must come; None without a watchdog.

        See :class:`agent.ports.Notifier`: half of what systemd allows, as it recommends.
        """
        return None if self._watchdog_s is None else self._watchdog_s / 2

    def close(self) -> None:
        """Close the notification socket."""
        self._socket.close()

    def _send(self, text: str) -> None:
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError as error:
            _log.debug("%s could not be sent to the service manager: %s", text, error)


def make_notifier(environ: Mapping[str, str], process_id: int | None = None) -> Notifier:
    """The notifier that the environment asks for.

    Args:
        environ: ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` count.
        process_id: who we are; this process by default. A watchdog that is meant for another process is not ours.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return NullNotifier()
    own_id = os.getpid() if process_id is None else process_id
    try:
        return SdNotifier(address, _watchdog_s(environ, own_id))
    except (ValueError, OSError) as error:
        _log.warning("nothing is sent to the service manager: %s", error)
        return NullNotifier()


def _watchdog_s(environ: Mapping[str, str], own_id: int) -> float | None:
    wanted = environ.get("WATCHDOG_USEC", "")
    meant_for = environ.get("WATCHDOG_PID", "")
    is_number = wanted.isascii() and wanted.isdigit() and len(wanted) <= _USEC_DIGITS
    if not is_number or int(wanted) == 0 or (meant_for and meant_for != str(own_id)):
        return None
    return int(wanted) / 1e6
