"""A search for the limit: step by step, until one does not hold its thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.fleet.metrics.health import Saturation
from simulator.fleet.metrics.recorder import Totals
from simulator.fleet.metrics.thresholds import judge_thresholds, parse
from simulator.fleet.record import RunRecord, Search, SearchStep, Second, StepWord
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.phases import StepsPhase


class LimitSearch:
    """The steps that were judged so far, and the seconds of the one under way.

    Args:
        scenario: what is run.
        phase: the search in it.

    Attributes:
        found: the result so far.
        seconds: of the step under way.
    """

    def __init__(self, scenario: Scenario, phase: StepsPhase) -> None:
        unit = "devices" if scenario.kind == "devices" else "requests/s"
        self.found = Search(phase.name, unit, phase.to)
        self.seconds: list[Second] = []
        self._scenario = scenario
        self._thresholds = [parse(each) for each in phase.until_broken]

    def judge(self, level: float, record: RunRecord, doubts: Sequence[str]) -> bool:
        """Whether a step holds, by its seconds.

        Args:
            level: how many devices, or requests per second.
            record: of the run; the last phase is the step.
            doubts: why the step cannot be judged, one sentence each.
        """
        span = record.phases[-1]
        # Only seconds that lie wholly in this step count.
        held = [each for each in self.seconds if span.begin_s <= each.second and each.second + 1 <= span.end_s]
        totals, saturation = Totals(held), Saturation()
        for second in held:
            saturation.add(second)
        is_open, is_pooled = bool(self._scenario.arrivals), self._scenario.target.is_pooled
        assessment = saturation.assess(totals, is_open=is_open, is_pooled=is_pooled)
        record = replace(record, phases=(span,), operations=totals.operations, drained_from_s=None)
        results = judge_thresholds(self._thresholds, record, held)
        broken = (*assessment.failures, *(each.missed_text for each in results if not each.held))
        doubts = (*assessment.saturated, *doubts)
        word = StepWord.UNJUDGED if doubts else StepWord.BROKE if broken else StepWord.HELD
        steps = (*self.found.steps, SearchStep(level, word, doubts or broken, results))
        self.found = replace(self.found, steps=steps)
        if word is StepWord.HELD:
            self.found = replace(self.found, largest_held=level)
        return word is StepWord.HELD
