"""Progress of registering the devices, with an estimate before it begins and one by the measured rate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from simulator.fleet.plan.forecast_text import clock
from simulator.fleet.report.live import RunView
from simulator.fleet.scenario.preparation import REGISTERED_PER_S

_MEASURED_AFTER_S: Final = 5.0
_STAGE: Final = "preparing devices"


class Registering:
    """Called with the number of registered and of wanted devices, first when nothing is registered yet by this run.

    Args:
        view: shows it.
        now: monotonic seconds.
    """

    def __init__(self, view: RunView, now: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._now = now
        self._first: tuple[float, int] | None = None
        self._is_measured = False
        self.done = self.whole = 0
        """How many are registered at least, and how many are wanted."""

    def __call__(self, done: int, whole: int) -> None:
        """Show it."""
        now_s, missing = self._now(), whole - done
        self.done, self.whole = done, whole
        if self._first is None:
            self._first = now_s, done
            if missing:
                about = clock(math.ceil(missing / REGISTERED_PER_S))
                self._view.note(f"registering {missing:,} devices: about {about} at {REGISTERED_PER_S:g}/s")
        elif not self._is_measured and missing:
            since_s, before = self._first
            if now_s - since_s >= _MEASURED_AFTER_S and done > before:
                self._is_measured = True
                rate = (done - before) / (now_s - since_s)
                left = clock(math.ceil(missing / rate))
                self._view.note(f"the service registers {rate:.0f} devices/s: about {left} to go")
        self._view.stage(_STAGE, done, whole)
