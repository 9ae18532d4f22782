"""The device's own clocks, and whether the machine knows that its wall clock is right.

The monotonic clock is ``CLOCK_BOOTTIME`` where the system has it, so that the hours a laptop or a board sleeps count:
a command that expired during suspend is expired. Source: clock_gettime(2), random(4).
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent.core.values import Moment

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_SYNCHRONIZED: Final = Path("/run/systemd/timesync/synchronized")
# Of <sys/timex.h>: what adjtimex answers, and the bit of its status, while the clock is not kept.
_TIME_ERROR: Final = 5
_STA_UNSYNC: Final = 0x40


class SystemClock:
    """The :class:`~agent.ports.Clock` of this machine. Thread-safe.

    Args:
        boot_id: of this boot; by default the system is asked, once.
    """

    def __init__(self, boot_id: str | None = None) -> None:
        self._boot_id = boot_id or read_boot_id()
        self._monotonic = _monotonic_clock()

    def now(self) -> Moment:
        """This instant on both clocks."""
        return Moment(self._monotonic(), time.time(), self._boot_id)


def is_synchronized(marker: Path = _SYNCHRONIZED) -> bool:
    """Whether a time service has set the wall clock since the boot and keeps it: systemd-timesyncd, chrony, ntpd.

    systemd-timesyncd leaves a file (systemd-timesyncd.service(8)); all of them set a flag of the kernel, which is
    dropped after hours without them (adjtimex(2)). False where nobody can say.
    """
    return marker.exists() or _kernel_says_synchronized()


def _kernel_says_synchronized() -> bool:
    """``adjtimex(2)`` with nothing to change."""
    if sys.platform != "linux":
        return False
    # Longer than any struct timex; ``status`` is behind modes, offset, freq, maxerror and esterror.
    buffer = (ctypes.c_long * 64)()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(buffer))
    except (OSError, AttributeError):
        return False
    status = ctypes.c_int.from_buffer(buffer, 5 * ctypes.sizeof(ctypes.c_long)).value
    return 0 <= state < _TIME_ERROR and not status & _STA_UNSYNC


def read_boot_id(path: Path = _BOOT_ID) -> str:
    """The kernel's id of this boot.

    macOS has none but knows when it booted. Where neither is known an id of this process stands in: then every start
    counts as a new boot, which only makes the agent more careful.
    """
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, ValueError):
        text = ""
    return text or _boot_session() or f"process-{uuid.uuid4()}"


def _boot_session() -> str:
    """``kern.bootsessionuuid`` of macOS; empty elsewhere."""
    try:
        found = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, timeout=2.0, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.decode("ascii", "replace").strip()


def _monotonic_clock() -> Callable[[], float]:
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    if boot_time is None:
        return time.monotonic
    try:
        time.clock_gettime(boot_time)
    except OSError:
        return time.monotonic
    return lambda: time.clock_gettime(boot_time)
