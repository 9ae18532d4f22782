"""A search for the limit while it goes on: each step is judged by the seconds in which it was held."""

from __future__ import annotations

from dataclasses import replace

from simulator.fleet.metrics.judging import judge_thresholds, missed_text
from simulator.fleet.metrics.merging import Totals
from simulator.fleet.metrics.saturation import Saturation
from simulator.fleet.metrics.thresholds import parse
from simulator.fleet.record import Search, SearchStep, Second, Span, StepWord, ThresholdResult
from simulator.fleet.run.run import Run
from simulator.fleet.scenario.model import StepsPhase


class SearchUnderWay:
    """Judges the steps of a search, one after the other.

    Args:
        run: whose record gets what is found.
        settings: of the search.
    """

    def __init__(self, run: Run, settings: StepsPhase) -> None:
        self._run = run
        self._thresholds = [parse(expression) for expression in settings.until_broken]
        self._seconds: list[Second] = []
        self._is_held = False
        self._stood_still_s = 0.0
        unit = "devices" if run.scenario.kind == "devices" else "requests/s"
        self._search = Search(settings.name, unit, settings.to)
        run.update(search=self._search)

    def begin_step(self) -> None:
        """The seconds of a step come from now on, behind the last ones of its ramp."""
        self._is_held = True
        self._stood_still_s = self._run.stood_still_s

    def take(self, second: Second) -> None:
        """The next second of the run."""
        if self._is_held:
            self._seconds.append(second)

    def end_step(self, level: float, span: Span) -> bool:
        """Judge a step that has been held.

        Args:
            level: of the step.
            span: when it was held.

        Returns:
            Whether it held.
        """
        run = self._run
        # As for phases: what fell into two of them belongs to none.
        held = [each for each in self._seconds if span.begin_s <= each.second and each.second + 1 <= span.end_s]
        self._seconds, self._is_held = [], False
        totals, saturation = Totals(), Saturation()
        for second in held:
            totals.add(second)
            saturation.add(second)
        assessment = saturation.assess(
            totals,
            is_open=bool(run.scenario.arrivals),
            is_pooled=run.scenario.target.is_pooled,
            stood_still_s=run.stood_still_s - self._stood_still_s,
        )
        record = replace(run.record, phases=(span,), operations=totals.operations, drained_from_s=None)
        results = judge_thresholds(self._thresholds, record, held)
        missing = [f"worker {gap.worker} did not report: {gap.reason}" for gap in run.merger.gaps]
        broken = (*assessment.failures, *(missed_text(each) for each in results if not each.held))
        if doubts := (*assessment.saturated, *run.broken, *missing):
            self._note(level, StepWord.UNJUDGED, doubts, results)
        else:
            self._note(level, StepWord.BROKE if broken else StepWord.HELD, broken, results)
        return not (doubts or broken)

    def _note(self, level: float, word: StepWord, why: tuple[str, ...], results: tuple[ThresholdResult, ...]) -> None:
        largest = level if word is StepWord.HELD else self._search.largest_held
        steps = (*self._search.steps, SearchStep(level, word, why, results))
        self._search = replace(self._search, steps=steps, largest_held=largest)
        self._run.update(search=self._search)
