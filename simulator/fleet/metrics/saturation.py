"""Whether the generator, and not the target, was the limit: then a run is not judged.

A second is *strained* when requests left late and the generator itself shows why: a core that is used up, a loop that
woke late, a pause of the garbage collector, time that the host took. Requests that left late without any of that were
waiting for a connection, which the target held.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.merging import Totals, merge_health
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
