"""The device's clock: possible at all, and kept in step."""

from __future__ import annotations

import time
from typing import Final

from agent.core.timekeeping import is_plausible
from agent.doctor.findings import Check, Finding, failed, ok, warning
from agent.doctor.subject import Subject

# 2100-01-01: no device of today shows that rightly.
_LATEST_S: Final = 4_102_444_800.0
SET_IT: Final = "let the network set it: timedatectl set-ntp true, or install systemd-timesyncd or chrony"
_SYNCHRONISED: Final = "/run/systemd/timesync/synchronized"


def _clock_plausible(subject: Subject) -> Finding:
    wall_s = subject.wall()
    seen = f"it shows {shown(wall_s)}"
    if not is_plausible(wall_s):
        cause = "it was never set since the start: a board without a battery, and no time from the network yet"
        return failed(seen, cause, SET_IT)
    if wall_s > _LATEST_S:
        return failed(seen, "it lies far in the future: the battery-backed clock was set wrong", SET_IT)
    return ok(seen)


def _clock_synchronised(subject: Subject) -> Finding:
    if subject.is_synchronized(subject.path(_SYNCHRONISED)):
        return ok("a time service keeps it in step with the network")
    cause = "no time service has set it since the start, or its servers (UDP port 123) cannot be reached"
    return warning("it runs by itself", cause, SET_IT)


def shown(wall_s: float) -> str:
    """A moment as a person reads it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_s))


CHECKS: Final = (
    Check("clock_plausible", "this machine's clock", _clock_plausible),
    Check("clock_synchronised", "whether a time service keeps it right", _clock_synchronised),
)
