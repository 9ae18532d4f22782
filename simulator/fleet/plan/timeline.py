"""The phases on a time line: planned, and as they really began where a barrier kept the next one waiting.

Seconds count from the begin of the first phase.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.phases import Phase, RampPhase


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """One phase.

    Attributes:
        index: in the scenario's list.
        end_s: the planned one, or later where its barrier kept the run waiting.
        duration_s: as planned: a ramp takes so long, and what is left until ``end_s`` is the wait at its barrier.
        online_from, online_to: share of the fleet that is switched on at its begin and its end.
        rate_factor: of arrivals and commands.
        waits: it has a barrier at its end.
    """

    index: int
    name: str
    begin_s: float
    end_s: float
    duration_s: float
    online_from: float
    online_to: float
    rate_factor: float
    waits: bool = False

    def online_at(self, offset_s: float) -> float:
        """Share of the fleet that is switched on so long after its begin; storms and reboots apart."""
        if offset_s >= self.duration_s:
            return self.online_to
        return self.online_from + (self.online_to - self.online_from) * max(offset_s, 0.0) / self.duration_s


@dataclass(frozen=True, slots=True)
class Timeline:
    """All phases, one after the other without a gap."""

    spans: tuple[PhaseSpan, ...]

    @classmethod
    def of(cls, scenario: Scenario) -> Timeline:
        """The time line as it is planned, without waits."""
        spans: list[PhaseSpan] = []
        for index, phase in enumerate(scenario.phases):
            begin_s = spans[-1].end_s if spans else 0.0
            before = spans[-1].online_to if spans else _at_the_begin(phase)
            after = phase.to if isinstance(phase, RampPhase) else before
            end_s = begin_s + phase.duration_s
            spans.append(
                PhaseSpan(
                    index,
                    phase.name,
                    begin_s,
                    end_s,
                    phase.duration_s,
                    before,
                    after,
                    phase.rate_factor,
                    phase.until is not None,
                )
            )
        return cls(tuple(spans))

    @classmethod
    def lasting(cls, phases: Iterable[tuple[str, float, bool]]) -> Timeline:
        """The time line of phases of which name, planned duration and whether they wait are known, and no more."""
        spans: list[PhaseSpan] = []
        for index, (name, duration_s, waits) in enumerate(phases):
            begin_s = spans[-1].end_s if spans else 0.0
            spans.append(PhaseSpan(index, name, begin_s, begin_s + duration_s, duration_s, 1.0, 1.0, 1.0, waits))
        return cls(tuple(spans))

    @property
    def end_s(self) -> float:
        """The end of the last phase."""
        return self.spans[-1].end_s

    def entered(self, index: int, at_s: float) -> Timeline:
        """The time line on which phase ``index`` began at ``at_s``: the one before it lasted until then.

        Raises:
            ValueError: the phase before it had not run its time.
        """
        late_s = at_s - self.spans[index].begin_s
        if index == 0 or late_s < -1e-6:
            raise ValueError(f"phase {index} cannot begin at {at_s:g} s")
        spans: list[PhaseSpan] = list(self.spans[:index])
        spans[-1] = replace(spans[-1], end_s=at_s)
        for span in self.spans[index:]:
            begin_s = spans[-1].end_s
            spans.append(replace(span, begin_s=begin_s, end_s=begin_s + (span.end_s - span.begin_s)))
        return Timeline(tuple(spans))

    def barrier_from(self, index: int) -> int:
        """The first phase from this one on that has a barrier; the last one where none has.

        When the phases after it begin, nobody knows before it opens.
        """
        return next((span.index for span in self.spans[index:] if span.waits), len(self.spans) - 1)

    def waiting(self, index: int, until_s: float) -> Timeline:
        """The time line in phase ``index``, as if the next barrier stayed closed until ``until_s``."""
        barrier = self.barrier_from(index)
        if not self.spans[barrier].waits or until_s <= self.spans[barrier].end_s:
            return self
        if barrier + 1 < len(self.spans):
            return self.entered(barrier + 1, until_s)
        return Timeline((*self.spans[:barrier], replace(self.spans[barrier], end_s=until_s)))

    def moved(self, planned_s: float, planned: Timeline, entered: int) -> float | None:
        """When that happens here which was planned for ``planned_s`` on another time line of the same phases.

        Args:
            planned_s: the time there.
            planned: the other time line.
            entered: the phase that has begun; None comes back for what is planned behind a barrier that may still wait.
        """
        index = _phase_at(planned.spans, planned_s)
        if index > self.barrier_from(entered):
            return None
        return self.spans[index].begin_s + planned_s - planned.spans[index].begin_s

    def phase_at(self, time_s: float) -> PhaseSpan:
        """The phase that runs at this time; the last one also afterwards."""
        return self.spans[_phase_at(self.spans, time_s)]

    def online_at(self, time_s: float) -> float:
        """Share of the fleet that is switched on, storms and reboots apart."""
        span = self.phase_at(time_s)
        return span.online_at(time_s - span.begin_s)


def _at_the_begin(phase: Phase) -> float:
    return 0.0 if isinstance(phase, RampPhase) else 1.0


def _phase_at(spans: Sequence[PhaseSpan], time_s: float) -> int:
    return max(bisect.bisect_right([span.begin_s for span in spans], time_s) - 1, 0)
