"""How far the generator can be trusted: what it notices of its own delays, second by second.

A late answer and a late generator look the same from outside. So each worker also watches its loop, its garbage
collector, its CPU and the time that the machine's host took away; these stand beside every result as its error bars.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from simulator.fleet.record import GeneratorHealth

LAG_EVERY_S: Final = 0.05
STOOD_STILL_S: Final = 1.0
"""What makes the load stood still when it comes so late: a shorter delay is a busy machine's."""
# Where there is no such clock, as on macOS, the monotonic one goes on while the machine sleeps.
_BOOT_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# A loop that stood still closes several seconds at once; shares of the moments between would mean nothing.
_SHORTEST_S: Final = 0.1
_FEWEST_TICKS: Final = 10
_STAT: Final = Path("/proc/stat")
_STEAL: Final = 7
"""Place of ``steal`` on the ``cpu`` line (proc_stat(5)): user nice system idle iowait irq softirq steal ..."""
_FIELDS: Final = 8
"""What comes after is counted in ``user`` and ``nice`` already."""
_LONG_S: Final = 0.01


def boot_time() -> float:
    """Seconds since the machine started, its sleep included: nobody sets this clock, and no signal stops it."""
    return time.clock_gettime(_BOOT_CLOCK)


class LoopLag:
    """How late a loop wakes up: a call every so often, and how long after its time it came.

    Args:
        loop: wakes up.
        every_s: between two calls.
        clock: goes on while the machine sleeps.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, every_s: float = LAG_EVERY_S, clock: Callable[[], float] = boot_time
    ) -> None:
        self._loop = loop
        self._every_s = every_s
        self._clock = clock
        self._due_s = 0.0
        self._worst_s = 0.0
        self._stood_still_s = self._taken_still_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure; in the loop's thread."""
        self._wait()

    def begin(self, at_s: float) -> None:
        """The load begins at ``at_s`` on the loop's clock: what was late before does not count."""
        self._worst_s = 0.0
        self._due_s = self._clock() + min(self._every_s, at_s - self._loop.time())

    def stop(self) -> None:
        """No calls any more; in the loop's thread."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take(self) -> float:
        """The worst lag since the last time, in seconds; a loop that hangs right now counts. From any thread."""
        overdue_s = self._clock() - self._due_s if self._timer is not None else 0.0
        worst_s, self._worst_s = max(self._worst_s, overdue_s, 0.0), 0.0
        return worst_s

    def take_stood_still(self) -> float:
        """How long the loop stood still since the last time, in seconds. From any thread."""
        whole_s = self._stood_still_s
        taken_s, self._taken_still_s = whole_s - self._taken_still_s, whole_s
        return taken_s

    def _wake(self) -> None:
        late_s = self._clock() - self._due_s
        self._worst_s = max(self._worst_s, late_s)
        if late_s >= STOOD_STILL_S:
            self._stood_still_s += late_s
        self._wait()

    def _wait(self) -> None:
        self._due_s = self._clock() + self._every_s
        self._timer = self._loop.call_at(self._loop.time() + self._every_s, self._wake)


class GcPauses:
    """How long the garbage collector stopped everything, by its own callbacks."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began_s: float | None = None
        self._worst_s = 0.0

    def start(self) -> None:
        """Begin to measure the generator's own health."""
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        """End measuring."""
        with suppress(ValueError):
            gc.callbacks.remove(self._note)

    def take(self) -> float:
        """The longest pause since the last time, in seconds."""
        worst_s, self._worst_s = self._worst_s, 0.0
        return worst_s

    def _note(self, phase: str, _info: Mapping[str, Any]) -> None:
        if phase == "start":
            self._began_s = self._clock()
        elif self._began_s is not None:
            self._worst_s = max(self._worst_s, self._clock() - self._began_s)
            self._began_s = None


class Share:
    """What part of a whole went by between two looks, in percent.

    Args:
        read: both so far.
        least: of the whole; when less went by, the share is what it was before.
    """

    def __init__(self, read: Callable[[], tuple[float, float]], least: float) -> None:
        self._read = read
        self._least = least
        self._before = read()
        self._percent = 0.0

    def take(self) -> float:
        """Percent since the last time."""
        now = self._read()
        part, whole = now[0] - self._before[0], now[1] - self._before[1]
        if whole >= self._least or whole < 0:
            self._percent = 100.0 * part / whole if whole > 0 else 0.0
            self._before = now
        return self._percent


def steal_ticks(read: Callable[[], str] = _STAT.read_text) -> tuple[float, float]:
    """The machine's CPU time that its host gave to others, and all of it; 0 of 0 where the kernel does not report it.

    Args:
        read: gives the text of ``/proc/stat``.
    """
    try:
        ticks = [float(text) for text in read().partition("\n")[0].split()[1 : 1 + _FIELDS]]
    except (OSError, ValueError):
        return 0.0, 0.0
    return (ticks[_STEAL], sum(ticks)) if len(ticks) == _FIELDS else (0.0, 0.0)


class HealthProbe:
    """The health of one worker: its loop, the garbage collector, the CPU that it takes and that the host took."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._lag = LoopLag(loop)
        self._pauses = GcPauses()
        self._steal = Share(steal_ticks, _FEWEST_TICKS)
        self._cpu = Share(lambda: (time.process_time(), time.monotonic()), _SHORTEST_S)

    def start(self) -> None:
        """Begin to measure; in the loop's thread."""
        self._lag.start()
        self._pauses.start()

    def begin(self, at_s: float) -> None:
        """The load begins at ``at_s`` on the loop's clock; in the loop's thread."""
        self._lag.begin(at_s)

    def stop(self) -> None:
        """Leave nothing behind; in the loop's thread."""
        self._lag.stop()
        self._pauses.stop()

    def take(self) -> GeneratorHealth:
        """Since the last time. From any thread, so that a loop that hangs is reported while it hangs."""
        return GeneratorHealth(
            loop_lag_max_s=self._lag.take(),
            gc_pause_max_s=self._pauses.take(),
            steal_percent=self._steal.take(),
            cpu_percent=self._cpu.take(),
            stood_still_s=self._lag.take_stood_still(),
        )


class GcFreeze:
    """Freezes what there is: whenever more devices live than ever before, and after a collection that took long.

    For a process of its own. What is garbage in that instant stays until the process ends: at most what one generation
    holds, each time; after a full collection, the only one that takes long, that is next to nothing.

    Args:
        pauses: measures how long the collector took; started here.
    """

    __slots__ = ("_most", "_pauses")

    def __init__(self, pauses: GcPauses | None = None) -> None:
        gc.collect()
        gc.freeze()
        self._most = 0
        self._pauses = pauses or GcPauses()
        self._pauses.start()

    def freeze(self, living: int) -> None:
        """Freeze the heap where the number of living devices asks for it; cheap, to be called once a second."""
        took_s = self._pauses.take()
        if living > self._most or took_s > _LONG_S:
            self._most = max(living, self._most)
            gc.freeze()

    def close(self) -> None:
        """The collector is watched no more; what is frozen stays so."""
        self._pauses.stop()
