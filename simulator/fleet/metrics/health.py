"""How far the generator can be trusted: what it notices of its own delays, second by second.

A late answer and a late generator look the same from outside. So each worker also watches its loop, its CPU and the
time that the machine's host took away; these stand beside every result as its error bars. A pause of the garbage
collector shows as a loop that wakes late.

Where the generator, and not the target, was the limit, a run is not judged. A second is *strained* when requests left
late and the generator itself shows why: a core that is used up, a loop that woke late, time that the host took.
Requests that left late without any of that were waiting for a connection, which the target held.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import Totals, merge_health
from simulator.fleet.record import GeneratorHealth, Second

_LAG_EVERY_S: Final = 0.05
STOOD_STILL_S: Final = 1.0
"""A loop that wakes up this late stood still; a shorter delay is only a busy machine."""
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
_OLDEST: Final = 2
"""The generation that only a full collection looks at."""


def boot_time() -> float:
    """Seconds since the machine started, its sleep included; this clock is never set."""
    return time.clock_gettime(_BOOT_CLOCK)


class Share:
    """What part of a whole went by between two looks, in percent.

    Args:
        read: returns part and whole, both from the beginning.
        least: when the whole grew by less than this, the last share is given once more.
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


def steal_ticks() -> tuple[float, float]:
    """The machine's CPU time that its host gave to others, and all of it; 0 of 0 where the kernel does not tell."""
    try:
        ticks = [float(text) for text in _STAT.read_text().partition("\n")[0].split()[1 : 1 + _FIELDS]]
    except (OSError, ValueError):
        return 0.0, 0.0
    return (ticks[_STEAL], sum(ticks)) if len(ticks) == _FIELDS else (0.0, 0.0)


class HealthProbe:
    """The health of one worker: how late its loop wakes up, the CPU that it takes, and what the host took.

    The loop is called every so often. How long after its time a call comes is the loop's lag.

    Args:
        loop: of the worker; made in its thread.
        clock: goes on while the machine sleeps.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = boot_time) -> None:
        self._loop = loop
        self._clock = clock
        self._worst_s = 0.0
        self._stood_still_s = self._taken_still_s = 0.0
        self._steal = Share(steal_ticks, _FEWEST_TICKS)
        self._cpu = Share(lambda: (time.process_time(), time.monotonic()), _SHORTEST_S)
        self._wait()

    def begin(self, at_s: float) -> None:
        """The load begins at ``at_s`` on the loop's clock: what was late before does not count."""
        self._worst_s = 0.0
        self._due_s = self._clock() + min(_LAG_EVERY_S, at_s - self._loop.time())

    def stop(self) -> None:
        """No calls any more; in the loop's thread."""
        self._timer.cancel()
        self._due_s = math.inf

    def take(self) -> GeneratorHealth:
        """Since the last time. From any thread, so that a loop that hangs is reported while it hangs."""
        worst_s, self._worst_s = max(self._worst_s, self._clock() - self._due_s, 0.0), 0.0
        whole_s = self._stood_still_s
        stood_still_s, self._taken_still_s = whole_s - self._taken_still_s, whole_s
        return GeneratorHealth(
            loop_lag_max_s=worst_s,
            steal_percent=self._steal.take(),
            cpu_percent=self._cpu.take(),
            stood_still_s=stood_still_s,
        )

    def _wake(self) -> None:
        late_s = self._clock() - self._due_s
        self._worst_s = max(self._worst_s, late_s)
        if late_s >= STOOD_STILL_S:
            self._stood_still_s += late_s
        self._wait()

    def _wait(self) -> None:
        self._due_s = self._clock() + _LAG_EVERY_S
        self._timer = self._loop.call_at(self._loop.time() + _LAG_EVERY_S, self._wake)


class GcFreeze:
    """Freezes what a full collection left, so that the next one need not look through all devices again.

    For a process that only makes load: after a full collection almost nothing is garbage that would be kept in vain.
    """

    def __init__(self) -> None:
        gc.callbacks.append(self._freeze)
        gc.collect()

    def close(self) -> None:
        """Freeze no more; what is frozen stays so."""
        gc.callbacks.remove(self._freeze)

    def _freeze(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase == "stop" and info["generation"] == _OLDEST:
            gc.freeze()


# --- was it the limit? ------------------------------------------------------------------------------------------------


LAG_P99_S: Final = 0.05
"""From intended to sent: in a second with more than this, either the generator was late or the target held it up."""
RATE_ERROR: Final = 0.005
"""Share of the intended requests that may be missing."""
STRAINED_SHARE: Final = 0.05
"""Of all seconds; beyond it the run is inconclusive. One second alone never is."""
STOOD_STILL_SHARE: Final = 0.005
"""Of the run; beyond it the run is inconclusive, below only if something failed, since the cause is not known then."""
_IDLE_PERCENT: Final = 50.0
"""Of one core; a worker that used less was not held up by its own work."""
_SIGNS: Final[Mapping[str, tuple[float, Callable[[float], str]]]] = {
    "cpu_percent": (95.0, lambda percent: f"a worker used {percent:.0f} % of its core"),
    "loop_lag_max_s": (0.1, lambda lag_s: f"a loop woke up {_duration(lag_s)} late"),
    "steal_percent": (10.0, lambda percent: f"the host took {percent:.0f} % of the CPU"),
}
"""Figures of the generator's health: from which value on each shows that the generator was the limit, and its words."""


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
        fell_behind = health.intended - health.sent > RATE_ERROR * health.intended + 1
        if health.send_lag_p99_s <= LAG_P99_S and not fell_behind:
            return
        if _signs(health):
            self._strained += 1
            self._worst = merge_health([self._worst, health])
        else:
            self._held += 1

    def assess(self, totals: Totals, *, is_open: bool, is_pooled: bool = True) -> Assessment:
        """Assess the generator by the figures so far.

        Args:
            totals: of the same seconds.
            is_open: the scenario has open arrivals, which keep their rate whatever the target does.
            is_pooled: devices share connections, so that more of them would help.
        """
        health, seconds = totals.health, totals.seconds
        kept, lost = _rate_sentences(health), _undelivered_sentences(health)
        still_s = health.stood_still_s
        still = (_still_sentence(still_s),) if still_s >= STOOD_STILL_S else ()
        strain = (self._strain_sentence(health, seconds),) if self._strained else ()
        is_strained = self._strained > max(1.0, STRAINED_SHARE * seconds)
        if is_strained or (still and still_s > STOOD_STILL_SHARE * seconds):
            return Assessment((*still, *(strain if is_strained else ()), *kept, *lost), stood_still=still)
        if self._held and health.send_lag_p99_s > LAG_P99_S:
            fix = ": a larger target.connections, or none, would keep the rate" if is_pooled else ""
            held = f"the target held the connections in {self._held} of {seconds} s: {_lag_text(health)}"
            kept = (f"{held} while the generator had time{fix}", *kept)
        if is_open:
            return Assessment(failures=(*kept, *lost), notes=(*still, *strain), stood_still=still)
        # Commands come at their time as well, whatever else the scenario has.
        return Assessment(failures=lost, notes=(*kept, *still, *strain), stood_still=still)

    def _strain_sentence(self, health: GeneratorHealth, seconds: int) -> str:
        signs = _signs(self._worst)
        fix = "use more workers or machines, or a lower rate"
        if "steal_percent" in signs and "cpu_percent" not in signs:
            fix = _ELSEWHERE
        elif self._worst.cpu_percent < _IDLE_PERCENT:
            # A loop wakes late as well where others take the CPU: more workers would not mend that.
            fix = f"the workers used {self._worst.cpu_percent:.0f} % of a core at most: {_ELSEWHERE}"
        why = ", ".join(signs.values())
        return f"the generator was the limit in {self._strained} of {seconds} s: {why}; {_lag_text(health)}: {fix}"


_ELSEWHERE: Final = "run it again where neither the host nor other programs need that CPU"


def _signs(health: GeneratorHealth) -> dict[str, str]:
    """What shows that the generator was the limit, by the name of the figure."""
    figures = {name: getattr(health, name) for name in _SIGNS}
    return {name: text(figures[name]) for name, (limit, text) in _SIGNS.items() if figures[name] >= limit}


def _rate_sentences(health: GeneratorHealth) -> tuple[str, ...]:
    if health.sent >= health.intended * (1 - RATE_ERROR):
        return ()
    share = 100 * health.sent / health.intended
    return (
        f"the rate was not kept: {health.sent:,} of {health.intended:,} intended requests went out ({share:.1f} %)",
    )


def _undelivered_sentences(health: GeneratorHealth) -> tuple[str, ...]:
    if health.undelivered <= RATE_ERROR * health.intended:
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
