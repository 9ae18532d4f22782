"""Clocks of several machines: how far the workers' are ahead of the coordinator's, and whether one jumps meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

ROUNDS: Final = 5
"""How often each worker is asked; the answer that took the shortest time counts."""

WALL_CLOCK_S: Final = 5.0
"""Further off, a wall clock gives readings times that an audit cannot take."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How far a worker's monotonic clock is ahead of the coordinator's.

    Attributes:
        ahead_s: by so much; exactly 0 where the measurement allows that it is the same clock, as it is on one machine.
        error_s: it is off by so much at most: half of the time from question to answer.
    """

    ahead_s: float = 0.0
    error_s: float = 0.0


@dataclass(slots=True)
class Clocks:
    """Questions and answers of all workers.

    Attributes:
        offsets: the best measurement of each worker that has answered.
    """

    offsets: dict[int, ClockOffset] = field(default_factory=dict)
    _asked_s: dict[tuple[int, int], float] = field(default_factory=dict)

    def asked(self, worker: int, number: int, now_s: float) -> None:
        """A question leaves."""
        self._asked_s[worker, number] = now_s

    def answered(self, worker: int, number: int, read_s: float, now_s: float) -> None:
        """Take an answer; one to a question that was not asked, or that came before, is left out.

        Args:
            worker: who answers.
            number: of the question.
            read_s: what its clock showed.
            now_s: when the answer came.
        """
        asked_s = self._asked_s.pop((worker, number), None)
        if asked_s is None:
            return
        ahead_s, error_s = read_s - (asked_s + now_s) / 2, (now_s - asked_s) / 2
        # One machine has one such clock; the middle between question and answer would only add its error.
        found = ClockOffset(0.0 if abs(ahead_s) <= error_s else ahead_s, error_s)
        before = self.offsets.get(worker)
        if before is None or found.error_s < before.error_s:
            self.offsets[worker] = found

    def of(self, worker: int) -> ClockOffset:
        """The offset of a worker."""
        return self.offsets.get(worker, ClockOffset())

    def has_open(self, living: tuple[int, ...]) -> bool:
        """Whether an answer of one of these workers is still to come."""
        return any(worker in living for worker, _ in self._asked_s)


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
        self._is_said = False

    def look(self) -> str | None:
        """How far it is from where it was to be, in words, where that is more than :data:`WALL_CLOCK_S`; once."""
        set_s = self._wall() - self._monotonic() - self._apart_s
        if self._is_said or abs(set_s) <= WALL_CLOCK_S:
            return None
        self._is_said = True
        way = "ahead" if set_s > 0 else "back"
        cause = "it was set, or the machine slept" if set_s > 0 else "it was set"
        return f"the clock of its machine jumped {way} by {abs(set_s):.0f} s in the middle of the run: {cause}"
