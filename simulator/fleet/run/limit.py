"""Was the generator the limit? And, in a search: does the target hold this step?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.fleet.metrics.health import Assessment, Saturation
from simulator.fleet.metrics.recorder import Totals
from simulator.fleet.metrics.thresholds import judge_thresholds, parse
from simulator.fleet.record import RunRecord, Search, SearchStep, Second, StepWord
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.phases import StepsPhase


def assess(scenario: Scenario, saturation: Saturation, totals: Totals) -> Assessment:
    """Whether the generator was the limit in the seconds that both were made of."""
    return saturation.assess(totals, is_open=bool(scenario.arrivals), is_pooled=scenario.target.is_pooled)


class LimitSearch:
    """A search for the limit, step by step.

    Args:
        scenario: what is run.
        phase: the search in it.

    Attributes:
        found: what came of it so far.
        seconds: of the step that is played now.
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
            level: of the step.
            record: of the run; the last phase is the step.
            doubts: why its seconds prove nothing, one sentence each.
        """
        span = record.phases[-1]
        # Only seconds that lie wholly in this step count.
        held = [each for each in self.seconds if span.begin_s <= each.second and each.second + 1 <= span.end_s]
        totals, saturation = Totals(held), Saturation()
        for second in held:
            saturation.add(second)
        assessment = assess(self._scenario, saturation, totals)
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
