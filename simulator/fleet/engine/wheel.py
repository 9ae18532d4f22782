"""A timer wheel: a hundred thousand timers on one timer of the loop.

Buckets of an eighth of a second, hashed by number, and a heap for the bucket that is now: filing an appointment costs
the same whether there are ten or a million, and each still fires at its exact time, in order. A bucket is emptied into
the heap when its time begins: a hundred thousand devices that come once a minute never make one long turn of the loop.
What most appointments of a load engine do is never happen (a time limit is set, and the answer comes), so that is what
is cheapest: one that is put off stays where it is filed and is looked at again when its bucket's time comes.

Source: G. Varghese, T. Lauck, "Hashed and Hierarchical Timing Wheels", 1987, scheme 6; the lazy moving is the Linux
kernel's habit with TCP timers.
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

_PER_S: Final = 8
"""Buckets in a second."""
NEVER: Final = math.inf
"""When a timer without an appointment is due."""
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
    """One appointment at a time, used again and again; subclasses implement :meth:`fire`.

    Attributes:
        due_s: when; infinite while there is no appointment. Belongs to the wheel.
    """

    __slots__ = ("_looked_at_s", "due_s")

    def __init__(self) -> None:
        self.due_s = NEVER
        self._looked_at_s = NEVER  # when its bucket begins; NEVER while it is in none

    def fire(self) -> None:
        """The time has come; :meth:`Wheel.at` may be called again from here."""
        raise TypeError(f"{type(self).__name__} does not say what happens when its time comes")


class Call(Timer):
    """An appointment that calls a function."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        super().__init__()
        self._callback = callback

    def fire(self) -> None:
        """Call the scheduled function."""
        self._callback()


class Wheel:
    """Appointments on one clock.

    Equal times fire in the order in which they were filed, the same in each run. What fires may make and cancel
    appointments, its own too; an exception out of it goes to whoever runs the clock, and the others still fire.

    Args:
        clock: time; :class:`LoopClock` unless a test brings its own.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._near: list[tuple[float, int, Timer]] = []
        self._near_number = int(clock.time() * _PER_S)
        self._buckets: dict[int, dict[Timer, None]] = {}
        self._numbers: list[int] = []  # a heap, of the buckets that are there
        self._serial = 0
        self._handle: Any = None
        self._armed_s = NEVER
        self._is_running = False

    def at(self, due_s: float, what: Timer | Callable[[], object]) -> Timer:
        """Make an appointment, or move the one that ``what`` has.

        Args:
            due_s: on the wheel's clock; what is past fires in the clock's next turn, infinity is never.
            what: a timer, or a function to call once.

        Returns:
            The timer, for :meth:`cancel` and for moving it.
        """
        timer = what if isinstance(what, Timer) else Call(what)
        timer.due_s = due_s
        # In a bucket that begins before that, it is looked at in time, and filed again then.
        if timer._looked_at_s > due_s:
            self._file(timer)
        return timer

    def cancel(self, timer: Timer) -> None:
        """Drop the appointment and its place; nothing happens where there is none.

        One that gets its next appointment soon had better set ``due_s`` to :data:`NEVER`: it keeps its place then, and
        both cost next to nothing.
        """
        timer.due_s = NEVER
        self._leave(timer)

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

    def _file(self, timer: Timer) -> None:
        if timer._looked_at_s != NEVER:
            self._leave(timer)
        number = int(timer.due_s * _PER_S)
        if number <= self._near_number:
            self._serial += 1
            heapq.heappush(self._near, (timer.due_s, self._serial, timer))
            wake_s = timer.due_s
        else:
            timer._looked_at_s = wake_s = number / _PER_S
            bucket = self._buckets.get(number)
            if bucket is None:
                self._buckets[number] = {timer: None}
                heapq.heappush(self._numbers, number)
            else:
                bucket[timer] = None
        if wake_s < self._armed_s and not self._is_running:
            self._arm(wake_s)

    def _leave(self, timer: Timer) -> None:
        if timer._looked_at_s == NEVER:
            return
        number = int(timer._looked_at_s * _PER_S)
        timer._looked_at_s = NEVER
        # In the heap it stays, and is known there by another time than its own; its bucket gives it up.
        bucket = self._buckets.get(number)
        if bucket is not None:
            bucket.pop(timer, None)

    def _arm(self, wake_s: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._armed_s = wake_s
        self._handle = None if wake_s == NEVER else self._clock.call_at(wake_s, self._turn)

    def _turn(self) -> None:
        """The clock calls: what is due fires, and the next call is arranged."""
        self._handle, self._armed_s, self._is_running = None, NEVER, True
        near = self._near
        try:
            now_s = self._clock.time()
            self._advance(int(now_s * _PER_S))
            left, pop = FIRES_PER_TURN, heapq.heappop
            while near and near[0][0] <= now_s and left:
                due_s, _, timer = pop(near)
                if timer.due_s == due_s:
                    timer.due_s = NEVER
                    left -= 1
                    timer.fire()
        finally:
            self._is_running = False
            self._arm(self._next_s())

    def _advance(self, number: int) -> None:
        """Empty the buckets whose time has begun."""
        self._near_number = max(number, self._near_number)
        while self._numbers and self._numbers[0] <= self._near_number:
            self._file_anew(self._buckets.pop(heapq.heappop(self._numbers)))

    def _file_anew(self, timers: Iterable[Timer]) -> None:
        """File what was in a bucket; what is near by now all at once, which costs less than one by one."""
        near, before, end_s = self._near, len(self._near), (self._near_number + 1) / _PER_S
        for timer in timers:
            timer._looked_at_s = NEVER
            if timer.due_s < end_s:
                self._serial += 1
                near.append((timer.due_s, self._serial, timer))
            elif timer.due_s != NEVER:
                self._file(timer)
        if len(near) != before:
            heapq.heapify(near)

    def _next_s(self) -> float:
        while self._near:
            due_s, _, timer = self._near[0]
            if timer.due_s == due_s:
                return due_s
            heapq.heappop(self._near)
        return self._numbers[0] / _PER_S if self._numbers else NEVER
