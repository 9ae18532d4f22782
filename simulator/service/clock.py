"""The service's one clock: quota windows, expiry, presence and rules all go by it, so one setting moves them all."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

LATEST_MS: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z: RFC 3339 writes no later time."""


class ServiceClock(Protocol):
    """Where the service gets the time from."""

    def now_ms(self) -> int:
        """This instant, milliseconds since the epoch."""
        ...


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        """This instant, milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


class ClockMode(StrEnum):
    """How the service's time goes by."""

    REAL = "real"
    """As the machine's."""
    OFFSET = "offset"
    """As fast as the machine's, from another instant."""
    FROZEN = "frozen"
    """It stands until it is advanced."""
    SCALED = "scaled"
    """Faster or slower than the machine's."""


@dataclass(frozen=True, slots=True)
class _TimeLine:
    """now = ``at_ms`` + (base - ``base_ms``) * ``rate``, for a mode."""

    mode: ClockMode
    at_ms: int
    base_ms: int
    rate: float


@dataclass(frozen=True, slots=True)
class ClockState:
    """How a clock goes on: from this instant, milliseconds since the epoch, in this mode."""

    mode: ClockMode
    now_ms: int
    rate: float


class SettableClock:
    """A clock on top of another one that can be set, stopped and sped up while the service runs.

    Readers in any thread see a whole course, since it is replaced in one assignment.
    """

    __slots__ = ("_base", "_course", "_held_ms")

    def __init__(self, base: ServiceClock) -> None:
        self._base = base
        self._held_ms: int | None = None
        self._course = _TimeLine(ClockMode.REAL, 0, 0, 1.0)

    @property
    def mode(self) -> ClockMode:
        """How time goes by."""
        return self._course.mode

    @property
    def rate(self) -> float:
        """Seconds of this clock for each second of the one below."""
        return self._course.rate

    def now_ms(self) -> int:
        """This instant, milliseconds since the epoch."""
        held_ms = self._held_ms
        if held_ms is not None:
            return held_ms
        course = self._course
        base_ms = self._base.now_ms()
        if course.mode is ClockMode.REAL:
            return base_ms
        return min(course.at_ms + int((base_ms - course.base_ms) * course.rate), LATEST_MS)

    def base_ms(self) -> int:
        """This instant on the clock that this one is derived from, milliseconds since the epoch."""
        return self._base.now_ms()

    def hold(self, now_ms: int) -> None:
        """Stand at this instant until :meth:`set` or :meth:`follow`, whatever the mode."""
        self._held_ms = now_ms

    def set(self, now_ms: int) -> None:
        """Go on from this instant in the same mode; ``real`` becomes ``offset``, since it is not real any more."""
        mode = ClockMode.OFFSET if self.mode is ClockMode.REAL else self.mode
        self.follow(mode, now_ms, self.rate)

    def quota_ms(self) -> int:
        """As :meth:`now_ms`, and while the clock is frozen as if it went on: a minute of a quota must come to its end,
        since ``Retry-After`` says when.
        """
        course = self._course
        if course.mode is not ClockMode.FROZEN or self._held_ms is not None:
            return self.now_ms()
        return min(course.at_ms + self._base.now_ms() - course.base_ms, LATEST_MS)

    def state(self) -> ClockState:
        """Where the clock stands, and how it goes on."""
        return ClockState(self.mode, self.now_ms(), self.rate)

    def restore(self, state: ClockState) -> None:
        """Go on as that clock did: the real one by the clock below, every other one from the instant where it stood."""
        if state.mode is ClockMode.REAL:
            self.follow_base()
        else:
            self.follow(state.mode, state.now_ms, state.rate)

    def follow_base(self) -> None:
        """Go by the clock below again, as at the start."""
        self.follow(ClockMode.REAL, self._base.now_ms())

    def follow(self, mode: ClockMode, at_ms: int, rate: float = 1.0) -> None:
        """From now on go by this mode, beginning at ``at_ms``; ``real`` goes by the clock below."""
        rates = {ClockMode.FROZEN: 0.0, ClockMode.SCALED: rate}
        self._course = _TimeLine(mode, at_ms, self._base.now_ms(), rates.get(mode, 1.0))
        self._held_ms = None
