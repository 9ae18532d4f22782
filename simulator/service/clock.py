"""The service's one clock, and the work that falls due by it: one setting moves quota, expiry, presence and rules."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

log = logging.getLogger(__name__)

LATEST_MS: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z: RFC 3339 writes no later time."""
TURN_S: Final = 0.02
"""An advance over very many instants lets others go on so often."""
STOPS_MAX: Final = 100_000
"""Instants that one advance visits at most; what is left is carried out at the end, in its own order."""


class ServiceClock(Protocol):
    """Where the service gets the time from: the machine, or a test's own clock."""

    def now_ms(self) -> int:
        """This instant, milliseconds since the epoch."""
        ...


class SystemClock:
    """The machine's clock."""

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


@dataclass(frozen=True, slots=True)
class ClockState:
    """How a clock goes on: from this instant, milliseconds since the epoch, in this mode."""

    mode: ClockMode
    now_ms: int


class SettableClock:
    """A clock on top of another one that can be set and stopped while the service runs.

    Args:
        base: the machine's clock, or a test's.
    """

    def __init__(self, base: ServiceClock) -> None:
        self._base = base
        self.mode = ClockMode.REAL
        self._at_ms = 0
        self._base_ms = 0
        self._standing_ms: int | None = None

    def now_ms(self) -> int:
        """This instant, milliseconds since the epoch."""
        if self._standing_ms is not None:
            return self._standing_ms
        if self.mode is ClockMode.REAL:
            return self._base.now_ms()
        if self.mode is ClockMode.FROZEN:
            return self._at_ms
        return self._moved_ms()

    def quota_ms(self) -> int:
        """As :meth:`now_ms`, and while the clock is frozen as if it went on: a minute of a quota must come to its end,
        since ``Retry-After`` says when.
        """
        return self._moved_ms() if self.mode is ClockMode.FROZEN else self.now_ms()

    def _moved_ms(self) -> int:
        return min(self._at_ms + self._base.now_ms() - self._base_ms, LATEST_MS)

    def base_ms(self) -> int:
        """This instant on the clock below, milliseconds since the epoch."""
        return self._base.now_ms()

    def follow(self, mode: ClockMode, at_ms: int) -> None:
        """From now on go by this mode, beginning at ``at_ms``; ``real`` goes by the clock below."""
        self.mode, self._at_ms, self._base_ms, self._standing_ms = mode, at_ms, self._base.now_ms(), None

    def follow_base(self) -> None:
        """Go by the clock below again, as at the start."""
        self.follow(ClockMode.REAL, self._base.now_ms())

    def state(self) -> ClockState:
        """Where the clock stands, and how it goes on."""
        return ClockState(self.mode, self.now_ms())

    def restore(self, state: ClockState) -> None:
        """Go on as that clock did: the real one by the clock below, every other one from the instant where it stood."""
        self.follow(state.mode, state.now_ms)

    def stand(self, now_ms: int) -> None:
        """Stand at this instant until :meth:`move_to`, whatever the mode."""
        self._standing_ms = now_ms

    def move_to(self, now_ms: int) -> None:
        """Go on from this instant in the same mode; ``real`` becomes ``offset``, since it is not real any more."""
        self.follow(ClockMode.OFFSET if self.mode is ClockMode.REAL else self.mode, now_ms)


class Timers:
    """Work that falls due by the service's clock: ends of commands, rules that have held, scripted devices."""

    def __init__(self, clock: SettableClock) -> None:
        self._clock = clock
        self._sources: list[tuple[Callable[[], int | None], Callable[[int], None]]] = []
        self.moving = asyncio.Lock()
        """Held by who sets or advances the clock."""

    def add(self, next_due: Callable[[], int | None], run: Callable[[int], None]) -> None:
        """Add a source of work. Sources that are due at the same instant run in the order of adding.

        Args:
            next_due: when its next work falls due, milliseconds since the epoch; None for never.
            run: carries out all that is due at an instant.
        """
        self._sources.append((next_due, run))

    def next_due_ms(self) -> int | None:
        """The next instant at which anything falls due."""
        return min((at for at in (next_due() for next_due, _ in self._sources) if at is not None), default=None)

    def run_due(self, now_ms: int) -> bool:
        """Carry out what is due; False when some of it failed, which is logged and tried again at the next call."""
        done = True
        for next_due, run in self._sources:
            try:
                at = next_due()
                if at is not None and at <= now_ms:
                    run(now_ms)
            except Exception:  # a full disk must not end the others' work
                log.exception("the service's regular work failed; it is tried again")
                done = False
        return done

    async def advance(self, to_ms: int) -> None:
        """Move the clock to ``to_ms``, standing still at each instant at which something falls due on the way.

        Others are served in between; call it while :attr:`moving` is held, so that nobody else moves the clock.
        """
        turn_ends_s = time.monotonic() + TURN_S
        for _ in range(STOPS_MAX):
            at = self.next_due_ms()
            if at is None or at > to_ms:
                break
            now_ms = max(at, self._clock.now_ms())
            self._clock.stand(now_ms)
            if not self.run_due(now_ms):
                break
            if time.monotonic() > turn_ends_s:
                await asyncio.sleep(0)
                turn_ends_s = time.monotonic() + TURN_S
        self._clock.move_to(to_ms)
        self.run_due(to_ms)
