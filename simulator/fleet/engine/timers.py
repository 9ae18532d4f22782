"""A hundred thousand timers on one timer of the loop, each at its exact time and in order.

They stand in one heap. What most timers of a load engine do is never fire (a time limit is set, and the answer comes),
so that is what is cheapest: one that is put off keeps its place in the heap, and gets another when that one's time
comes. One that is set to an earlier time gets a second place, and goes back to the first when it is put off again: a
device that polls each second and reads its sensor each hour has two places, not thousands.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

Item = TypeVar("Item")

NEVER: Final = math.inf
"""When a timer that is not set is due."""
FIRES_PER_TURN: Final = 64
"""After so many the loop gets a turn: requests leave, and answers are read (and timed), while a crowd wakes up."""


class Clock(Protocol):
    """Time, and to be called at a time. Seconds, monotonic."""

    def time(self) -> float:
        """The loop's time, seconds, monotonic."""
        ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> Any:
        """Call once, not before ``when``; what comes back has a ``cancel``."""
        ...


class LoopClock:
    """The clock of a running loop, to the nanosecond.

    uvloop's own ``time()`` is the millisecond in which the loop's turn began, and its ``call_at`` rounds to the nearest
    one; this clock reads the system's monotonic clock, the same one, and is never early.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self.time = time.monotonic

    def call_at(self, when: float, callback: Callable[[], None], /) -> asyncio.Handle:
        """Call once, not before ``when``; up to a millisecond after it, as fine as loops wait."""
        # The loop counts from its own idea of now, which may be a whole turn old.
        wait_s = when - self.time()
        if wait_s <= 0:
            return self._loop.call_soon(callback)
        return self._loop.call_later(math.ceil(wait_s * 1000) / 1000, callback)


class Timer:
    """Fires once each time it is set; subclasses implement :meth:`fire`.

    Attributes:
        due_s: when; :data:`NEVER` while it is not set.
    """

    __slots__ = ("_later_s", "_placed_s", "due_s")

    def __init__(self) -> None:
        self.due_s = NEVER
        self._placed_s = NEVER  # its place in the heap
        self._later_s = NEVER  # another place, which it has from before

    def stop(self) -> None:
        """Fire no more, until it is set again."""
        self.due_s = NEVER

    def fire(self) -> None:
        """The time has come; it may be set again from here."""
        raise TypeError(f"{type(self).__name__} does not say what happens when its time comes")


class Call(Timer):
    """A timer that calls a function."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        super().__init__()
        self._callback = callback

    def fire(self) -> None:
        """Call the function."""
        self._callback()


class Timers:
    """All timers on one clock.

    What fires may set timers, itself too; an exception out of it goes to whoever runs the clock, and the others still
    fire.

    Args:
        clock: time; :class:`LoopClock` unless a test brings its own.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Timer]] = []
        self._serial = 0  # equal times come in the order in which they were placed
        self._handle: Any = None
        self._armed_s = NEVER
        self._is_running = False

    def at(self, due_s: float, what: Timer | Callable[[], object]) -> Timer:
        """Set a timer, also one that is set to another time.

        Args:
            due_s: on the clock; what is past fires in the clock's next turn, infinity is never.
            what: a timer, or a function to call once.
        """
        timer = what if isinstance(what, Timer) else Call(what)
        timer.due_s = due_s
        if due_s < timer._placed_s:
            self._place(timer)
        return timer

    def for_each(
        self, items: Iterable[Item], call: Callable[[Item], object], done: Callable[[], object] | None = None
    ) -> None:
        """Call something for each of many: :data:`FIRES_PER_TURN` now, and as many in each turn of the loop after it.

        Args:
            items: read as they are needed.
            call: with each of them.
            done: called after the last one.
        """
        left = iter(items)

        def go_on() -> None:
            some = list(islice(left, FIRES_PER_TURN))
            for item in some:
                call(item)
            if len(some) == FIRES_PER_TURN:
                self._clock.call_at(self._clock.time(), go_on)
            elif done is not None:
                done()

        go_on()

    def _place(self, timer: Timer) -> None:
        due_s = timer.due_s
        if due_s >= timer._later_s:
            timer._placed_s, timer._later_s = timer._later_s, NEVER
            return
        if timer._placed_s < timer._later_s:
            timer._later_s = timer._placed_s
        timer._placed_s = due_s
        self._serial += 1
        heapq.heappush(self._heap, (due_s, self._serial, timer))
        if due_s < self._armed_s and not self._is_running:
            self._arm(due_s)

    def _arm(self, wake_s: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._armed_s = wake_s
        self._handle = None if wake_s == NEVER else self._clock.call_at(wake_s, self._turn)

    def _turn(self) -> None:
        """The clock calls: what is due fires, and the next call is arranged."""
        self._handle, self._armed_s, self._is_running = None, NEVER, True
        heap, now_s, left = self._heap, self._clock.time(), FIRES_PER_TURN
        try:
            while heap and heap[0][0] <= now_s and left:
                placed_s, _, timer = heapq.heappop(heap)
                if timer._placed_s != placed_s:  # it was set to an earlier time since, and has another place
                    if timer._later_s == placed_s:
                        timer._later_s = NEVER
                    continue
                timer._placed_s = NEVER
                if timer.due_s <= now_s:
                    timer.due_s = NEVER
                    left -= 1
                    timer.fire()
                elif timer.due_s != NEVER:
                    self._place(timer)
        finally:
            self._is_running = False
            self._arm(heap[0][0] if heap else NEVER)
