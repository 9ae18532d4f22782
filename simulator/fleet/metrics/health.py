"""How far the generator can be trusted: what it notices of its own delays, second by second.

A late answer and a late generator look the same from outside. So each worker also watches its loop, its garbage
collector, its CPU and the time that the machine's host took away; these stand beside every result as its error bars.

Where the generator, and not the target, was the limit, a run is not judged. A second is *strained* when requests left
late and the generator itself shows why: a core that is used up, a loop that woke late, a pause of the garbage
collector, time that the host took. Requests that left late without any of that were waiting for a connection, which the
target held.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import Totals, merge_health
from simulator.fleet.record import GeneratorHealth, Second

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


# --- was it the limit? ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits beyond which the generator's own figures are not trusted.

    Attributes:
        send_lag_p99_s: from intended to sent.
        pause_s: of the loop or the garbage collector.
        cpu_percent: of one core.
        steal_percent: of the machine.
        idle_percent: of one core; a worker that used less was not held up by its own work.
        strained_share: of all seconds; beyond it the run is inconclusive. One second alone never is.
        rate_error: of what open arrivals asked for.
        stood_still_s: a generator that made no load for less is well.
        stood_still_share: of the run; beyond it the run is inconclusive, below only if something failed: nobody knows
            whose fault that was.
    """

    send_lag_p99_s: float = 0.05
    pause_s: float = 0.1
    cpu_percent: float = 95.0
    steal_percent: float = 10.0
    idle_percent: float = 50.0
    strained_share: float = 0.05
    rate_error: float = 0.005
    stood_still_s: float = 1.0
    stood_still_share: float = 0.005


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Assessment:
    """What the generator's health means for the verdict; each a tuple of sentences, empty when all is well.

    Attributes:
        saturated: the generator was the limit: the run is inconclusive.
        failures: open arrivals did not keep their rate, and it was not the generator's fault: the run failed.
        notes: worth knowing, and no reason for either.
        stood_still: that the generator made no load for a while, where that is worth knowing; among ``saturated`` or
            ``notes`` as well.
    """

    saturated: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stood_still: tuple[str, ...] = ()


class Saturation:
    """Sorts the seconds of a run: strained ones, and those in which the target held the connections."""

    def __init__(self) -> None:
        self._strained = self._held = 0
        self._worst = GeneratorHealth()

    def add(self, second: Second) -> None:
        """Take the figures of the next second."""
        health = second.health
        fell_behind = health.intended - health.sent > LIMITS.rate_error * health.intended + 1
        if health.send_lag_p99_s <= LIMITS.send_lag_p99_s and not fell_behind:
            return
        if (
            health.cpu_percent >= LIMITS.cpu_percent
            or health.loop_lag_max_s >= LIMITS.pause_s
            or health.gc_pause_max_s >= LIMITS.pause_s
            or health.steal_percent >= LIMITS.steal_percent
        ):
            self._strained += 1
            self._worst = merge_health([self._worst, health])
        else:
            self._held += 1

    def assess(
        self, totals: Totals, *, is_open: bool, is_pooled: bool = True, stood_still_s: float = 0.0
    ) -> Assessment:
        """Assess the generator by the figures so far.

        Args:
            totals: of the same seconds.
            is_open: the scenario has open arrivals, which keep their rate whatever the target does.
            is_pooled: devices share connections, so that more of them would help.
            stood_still_s: how long the process that conducts the workers did nothing.
        """
        health, seconds = totals.health, totals.seconds
        kept, lost = _rate_sentences(health), _undelivered_sentences(health)
        still_s = max(health.stood_still_s, stood_still_s)
        still = (_still_sentence(still_s),) if still_s >= LIMITS.stood_still_s else ()
        strain = (self._strain_sentence(health, seconds),) if self._strained else ()
        is_strained = self._strained > max(1.0, LIMITS.strained_share * seconds)
        if is_strained or (still and still_s > LIMITS.stood_still_share * seconds):
            return Assessment((*still, *(strain if is_strained else ()), *kept, *lost), stood_still=still)
        if self._held and health.send_lag_p99_s > LIMITS.send_lag_p99_s:
            fix = ": target.connections: per_device, or a larger number, would keep the rate" if is_pooled else ""
            held = f"the target held the connections in {self._held} of {seconds} s: {_lag_text(health)}"
            kept = (f"{held} while the generator had time{fix}", *kept)
        if is_open:
            return Assessment(failures=(*kept, *lost), notes=(*still, *strain), stood_still=still)
        # Commands come at their time as well, whatever else the scenario has.
        return Assessment(failures=lost, notes=(*kept, *still, *strain), stood_still=still)

    def _strain_sentence(self, health: GeneratorHealth, seconds: int) -> str:
        worst = self._worst
        signs = [
            (worst.cpu_percent >= LIMITS.cpu_percent, f"a worker used {worst.cpu_percent:.0f} % of its core"),
            (worst.loop_lag_max_s >= LIMITS.pause_s, f"a loop woke up {_duration(worst.loop_lag_max_s)} late"),
            (
                worst.gc_pause_max_s >= LIMITS.pause_s,
                f"the garbage collector paused for {_duration(worst.gc_pause_max_s)}",
            ),
            (worst.steal_percent >= LIMITS.steal_percent, f"the host took {worst.steal_percent:.0f} % of the CPU"),
        ]
        why = ", ".join(text for is_so, text in signs if is_so)
        fix = "use more workers or machines, or a lower rate"
        has_steal = worst.steal_percent >= LIMITS.steal_percent and worst.cpu_percent < LIMITS.cpu_percent
        if has_steal or (worst.cpu_percent < LIMITS.idle_percent and worst.gc_pause_max_s < LIMITS.pause_s):
            # A loop wakes late as well where others take the CPU: more workers would not mend that.
            used = "" if has_steal else f"the workers used {worst.cpu_percent:.0f} % of a core at most: "
            fix = f"{used}run it again where neither the host nor other programs need that CPU"
        return f"the generator was the limit in {self._strained} of {seconds} s: {why}; {_lag_text(health)}: {fix}"


def _rate_sentences(health: GeneratorHealth) -> tuple[str, ...]:
    if health.sent >= health.intended * (1 - LIMITS.rate_error):
        return ()
    share = 100 * health.sent / health.intended
    return (
        f"the rate was not kept: {health.sent:,} of {health.intended:,} intended requests went out ({share:.1f} %)",
    )


def _undelivered_sentences(health: GeneratorHealth) -> tuple[str, ...]:
    if health.undelivered <= LIMITS.rate_error * health.intended:
        return ()
    requests = f"{health.undelivered:,} of {health.intended:,} intended requests"
    return (f"{requests} never ended: when the run was over they were not sent, or had no answer",)


def _still_sentence(seconds: float) -> str:
    return (
        f"the generator stood still for {_duration(seconds)} and made no load meanwhile: it was stopped, the machine "
        "slept, or other programs took its CPU or disk: run it again where none of that happens"
    )


def _lag_text(health: GeneratorHealth) -> str:
    if not Histogram.decode(health.send_lag).count:
        return "nothing was answered"
    return f"1 % of all requests left {_duration(health.send_lag_p99_s)} late or later"


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
