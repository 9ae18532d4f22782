"""The device's own clocks, whether the machine knows that its wall clock is right, and the true time.

The monotonic clock is ``CLOCK_BOOTTIME`` where the system has it, so that the hours a laptop or a board sleeps count:
a command that expired during suspend is expired. Source: clock_gettime(2), random(4).
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.core.timekeeping import BootTime, ServiceTime, is_plausible
from agent.core.values import Moment

if TYPE_CHECKING:
    from agent.ports import Clock
    from agent.store.store import BootTimes


_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_SYNCHRONIZED: Final = Path("/run/systemd/timesync/synchronized")
# Of <sys/timex.h>: what adjtimex answers, and the bit of its status, while the clock is not kept.
_TIME_ERROR: Final = 5
_STA_UNSYNC: Final = 0x40


class SystemClock:
    """The :class:`~agent.ports.Clock` of this machine. Thread-safe."""

    def __init__(self) -> None:
        self._boot_id = read_boot_id()
        self._monotonic = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> Moment:
        """This instant on both clocks."""
        return Moment(time.clock_gettime(self._monotonic), time.time(), self._boot_id)


def is_synchronized(marker: Path = _SYNCHRONIZED) -> bool:
    """Whether a time service has set the wall clock since the boot and keeps it: systemd-timesyncd, chrony, ntpd.

    systemd-timesyncd leaves a file (systemd-timesyncd.service(8)); all of them set a flag of the kernel, which is
    dropped after hours without them (adjtimex(2)). False where nobody can say.
    """
    if marker.exists():
        return True
    if sys.platform != "linux":
        return False
    # Longer than any struct timex; all zeros change nothing; ``status`` is behind modes, offset, freq and two errors.
    buffer = (ctypes.c_long * 64)()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(buffer))
    except (OSError, AttributeError):
        return False
    status = ctypes.c_int.from_buffer(buffer, 5 * ctypes.sizeof(ctypes.c_long)).value
    return 0 <= state < _TIME_ERROR and not status & _STA_UNSYNC


def read_boot_id(path: Path = _BOOT_ID) -> str:
    """The kernel's id of this boot.

    Where it is not known an id of this process stands in: then every start counts as a new boot, which only makes the
    agent more careful.
    """
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, ValueError):
        text = ""
    return text or f"process-{uuid.uuid4()}"


# --- the true time ----------------------------------------------------------------------------------------------------

_log = logging.getLogger(__name__)

PART: Final = "clock"

# A better guess is written down when it differs by this much, or when the last writing was so long ago: it may have
# failed, and crystals drift.
_WRITE_BEYOND_S: Final = 0.25
_WRITE_EVERY_S: Final = 3600.0
_WARN_BEYOND_S: Final = 2.0


class ServiceClock:
    """What time it is at the service, and what time it was in earlier boots. Thread-safe.

    Args:
        clock: the device's own clocks.
        trust_wall: the device's wall clock is known to be right.
        is_synchronized: whether the machine says that its wall clock is right by now.
        times: what earlier processes and boots have learned, and where this one's goes.
        on_state: called with the state of the device's clock, a word and a sentence.

    Attributes:
        estimate: the service's time, as far as it is known now.
        on_known: called once the time becomes known, from the thread of :meth:`observe` or :meth:`ask_machine`. May be
            set later.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        trust_wall: bool = False,
        is_synchronized: Callable[[], bool] = lambda: False,
        times: BootTimes | None = None,
        on_state: Callable[[str, str], object] = lambda _state, _detail: None,
    ) -> None:
        self._clock = clock
        self._is_synchronized = is_synchronized
        self._times = times
        self._on_state = on_state
        self._lock = threading.Lock()
        now = clock.now()
        self._earlier: Mapping[str, BootTime] = {} if times is None else times.known()
        self._written = self._earlier.get(now.boot_id)
        self.estimate = ServiceTime(trust_wall, now.boot_id if self._written else "", self._written)
        self._is_guess = False
        self.on_known: Callable[[], object] = lambda: None

    def observe(self, server_time: float, round_trip_s: float = 0.0) -> None:
        """An answer with this ``Date`` arrived just now; see :meth:`agent.core.timekeeping.ServiceTime.observe`."""
        self._learn(server_time, self._clock.now(), round_trip_s)

    def ask_machine(self) -> None:
        """Ask the machine whether its clock was set, while the time is not known from elsewhere."""
        now = self._clock.now()
        if self.estimate.boot_time is None and is_plausible(now.wall_s) and self._is_synchronized():
            self._learn(now.wall_s, now, is_guess=True)

    def now(self) -> float | None:
        """The service's clock now, epoch seconds; None when it is not known."""
        return self.estimate.at(self._clock.now())

    def recorded_at(self, moment: Moment) -> float | None:
        """When something happened, also in an earlier boot, for the wire; None when it is not known."""
        # By what is written down, so that the date of a reading is the same after a restart.
        time = self.estimate if self._written is None else replace(self.estimate, boot_time=self._written)
        found = time.recorded_at(moment)
        if found is None and moment.boot_id in self._earlier:
            return self._earlier[moment.boot_id].date(moment)
        if found is None and moment.boot_id == self._clock.now().boot_id:
            self._on_state("unknown", "the time is not known yet, so what is sent says that its time is not known")
        return found

    def _learn(self, server_time: float, now: Moment, round_trip_s: float = 0.0, *, is_guess: bool = False) -> None:
        with self._lock:
            before = self.estimate
            if is_guess and before.boot_time is not None:
                return
            # What only the machine believed gives way to the first answer of the service.
            base = replace(before, boot_time=None) if self._is_guess else before
            after = base.observe(server_time, now, round_trip_s)
            found, written = after.boot_time, self._written
            if found is None or after is base:
                return
            self.estimate, self._is_guess = after, is_guess
            is_worth_it = (
                written is None
                or abs(found.offset_s - written.offset_s) > _WRITE_BEYOND_S
                or found.at_s - written.at_s > _WRITE_EVERY_S
            )
            if is_worth_it:
                self._written = found
        if is_worth_it:
            if self._times is not None:
                self._times.learn(now.boot_id, found)
            self._describe(now, found, is_new=before.boot_time is None)
        if before.boot_time is None:
            self.on_known()

    def _describe(self, now: Moment, found: BootTime, *, is_new: bool) -> None:
        off_s = now.wall_s - found.date(now)
        text = ""
        if abs(off_s) > _WARN_BEYOND_S:
            way = "ahead of" if off_s > 0 else "behind"
            text = (
                f"the device's clock is {abs(off_s):.0f} s {way} the true time, and what is sent carries the true one: "
                "switch on its time synchronisation"
            )
            if is_new:
                _log.warning("clock=wrong %s", text)
        self._on_state("ok", text)
