"""The wall clock of a machine: how far it is from the monotonic one, and whether it jumps in the middle of a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

WALL_CLOCK_S: Final = 5.0
"""Further off, a wall clock gives readings times that an audit cannot take."""


class WallClock:
    """Notices that the wall clock of this machine jumps while something goes by it.

    Args:
        wall: seconds since the epoch.
        monotonic: the clock that nobody sets.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._apart_s = wall() - monotonic()
        self._is_reported = False

    def new_jump(self) -> str | None:
        """The first jump of more than :data:`WALL_CLOCK_S`, in words; None before it and after it was reported."""
        set_s = self._wall() - self._monotonic() - self._apart_s
        if self._is_reported or abs(set_s) <= WALL_CLOCK_S:
            return None
        self._is_reported = True
        way = "ahead" if set_s > 0 else "back"
        cause = "it was set, or the machine slept" if set_s > 0 else "it was set"
        return f"the clock of its machine jumped {way} by {abs(set_s):.0f} s in the middle of the run: {cause}"
