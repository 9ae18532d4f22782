"""Whether the generator, and not the target, was the limit: then a run is not judged.

A second is *strained* when requests left late and the generator itself shows why: a core that is used up, a loop that
woke late, a pause of the garbage collector, time that the host took. Requests that left late without any of that were
waiting for a connection, which the target held.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.record import GeneratorHealth, Second


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


LIMITS: Final = Limits()


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


@dataclass(slots=True)
class _Worst:
    """The worst of the strained seconds."""

    cpu_percent: float = 0.0
    loop_lag_s: float = 0.0
    gc_pause_s: float = 0.0
    steal_percent: float = 0.0

    def take(self, health: GeneratorHealth) -> None:
        self.cpu_percent = max(self.cpu_percent, health.cpu_percent)
        self.loop_lag_s = max(self.loop_lag_s, health.loop_lag_max_s)
        self.gc_pause_s = max(self.gc_pause_s, health.gc_pause_max_s)
        self.steal_percent = max(self.steal_percent, health.steal_percent)


class Saturation:
    """Watches the seconds of a run.

    Args:
        limits: see :class:`Limits`.
    """

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._seconds = self._strained = self._held = 0
        self._intended = self._sent = self._undelivered = 0
        self._stood_still_s = 0.0
        self._lag = Histogram()
        self._worst = _Worst()

    def feed(self, second: Second) -> None:
        """Take the figures of the next second."""
        health = second.health
        self._seconds += 1
        self._intended += health.intended
        self._sent += health.sent
        self._undelivered += health.undelivered
        self._stood_still_s += health.stood_still_s
        self._lag.add_encoded(health.send_lag)
        if not self._left_late(health):
            return
        if self._shows_why(health):
            self._strained += 1
            self._worst.take(health)
        else:
            self._held += 1

    def assess(self, *, is_open: bool, is_pooled: bool = True, stood_still_s: float = 0.0) -> Assessment:
        """Assess the generator by the figures so far.

        Args:
            is_open: the scenario has open arrivals, which keep their rate whatever the target does.
            is_pooled: devices share connections, so that more of them would help.
            stood_still_s: how long the process that conducts the workers did nothing.
        """
        kept, lost = self._rate_sentences(), self._undelivered_sentences()
        still_s = max(self._stood_still_s, stood_still_s)
        still = (_still_sentence(still_s),) if still_s >= self._limits.stood_still_s else ()
        is_strained = self._strained > max(1.0, self._limits.strained_share * self._seconds)
        strain = (self._strain_sentence(),) if is_strained else ()
        if strain or (still and still_s > self._limits.stood_still_share * self._seconds):
            return Assessment(saturated=(*still, *strain, *kept, *lost), stood_still=still)
        notes = (*still, *((self._strain_sentence(),) if self._strained else ()))
        late = self._lag.count > 0 and self._lag.percentile(99) > self._limits.send_lag_p99_s
        if late and self._held:
            kept = (self._held_sentence(is_pooled=is_pooled), *kept)
        if is_open:
            return Assessment(failures=(*kept, *lost), notes=notes, stood_still=still)
        # Commands come at their time as well, whatever else the scenario has.
        return Assessment(failures=lost, notes=(*kept, *notes), stood_still=still)

    def _left_late(self, health: GeneratorHealth) -> bool:
        missing = health.intended - health.sent
        fell_behind = health.intended > 0 and missing > self._limits.rate_error * health.intended + 1
        return health.send_lag_p99_s > self._limits.send_lag_p99_s or fell_behind

    def _shows_why(self, health: GeneratorHealth) -> bool:
        return (
            health.cpu_percent >= self._limits.cpu_percent
            or health.loop_lag_max_s >= self._limits.pause_s
            or health.gc_pause_max_s >= self._limits.pause_s
            or health.steal_percent >= self._limits.steal_percent
        )

    def _rate_sentences(self) -> tuple[str, ...]:
        if self._sent >= self._intended * (1 - self._limits.rate_error):
            return ()
        share = 100 * self._sent / self._intended
        return (
            f"the rate was not kept: {self._sent:,} of {self._intended:,} intended requests went out ({share:.1f} %)",
        )

    def _undelivered_sentences(self) -> tuple[str, ...]:
        if self._undelivered <= self._limits.rate_error * self._intended:
            return ()
        requests = f"{self._undelivered:,} of {self._intended:,} intended requests"
        return (f"{requests} never ended: when the run was over they were not sent, or had no answer",)

    def _strain_sentence(self) -> str:
        worst, limits = self._worst, self._limits
        signs = [
            (worst.cpu_percent >= limits.cpu_percent, f"a worker used {worst.cpu_percent:.0f} % of its core"),
            (worst.loop_lag_s >= limits.pause_s, f"a loop woke up {duration(worst.loop_lag_s)} late"),
            (worst.gc_pause_s >= limits.pause_s, f"the garbage collector paused for {duration(worst.gc_pause_s)}"),
            (worst.steal_percent >= limits.steal_percent, f"the host took {worst.steal_percent:.0f} % of the CPU"),
        ]
        said = ", ".join(text for is_so, text in signs if is_so)
        fix = "use more workers or machines, or a lower rate"
        has_steal = worst.steal_percent >= limits.steal_percent and worst.cpu_percent < limits.cpu_percent
        if has_steal or (worst.cpu_percent < limits.idle_percent and worst.gc_pause_s < limits.pause_s):
            # A loop wakes late as well where others take the CPU: more workers would not mend that.
            used = "" if has_steal else f"the workers used {worst.cpu_percent:.0f} % of a core at most: "
            fix = f"{used}run it again where neither the host nor other programs need that CPU"
        return (
            f"the generator was the limit in {self._strained} of {self._seconds} s: {said}; {self._lag_words()}: {fix}"
        )

    def _held_sentence(self, *, is_pooled: bool) -> str:
        fix = ": target.connections: per_device, or a larger number, would keep the rate" if is_pooled else ""
        return (
            f"the target held the connections in {self._held} of {self._seconds} s: {self._lag_words()} while the "
            f"generator had time{fix}"
        )

    def _lag_words(self) -> str:
        if not self._lag.count:
            return "nothing was answered"
        return f"1 % of all requests left {duration(self._lag.percentile(99))} late or later"


def assess(seconds: Iterable[Second], *, is_open: bool, is_pooled: bool = True, limits: Limits = LIMITS) -> Assessment:
    """A whole run at once: see :meth:`Saturation.assess`."""
    saturation = Saturation(limits)
    for second in seconds:
        saturation.feed(second)
    return saturation.assess(is_open=is_open, is_pooled=is_pooled)


def _still_sentence(seconds: float) -> str:
    return (
        f"the generator stood still for {duration(seconds)} and made no load meanwhile: it was stopped, the machine "
        "slept, or other programs took its CPU or disk: run it again where none of that happens"
    )


def duration(seconds: float) -> str:
    """A duration for a person: ``12 ms``, ``3.4 s``."""
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
