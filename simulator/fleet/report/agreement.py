"""Whether a run's folder fits together: a record that its own seconds contradict, or that contradicts itself, proves
nothing. Where a worker's seconds are gaps, or the run ended early, sums cannot agree, and the record says so already.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

from simulator.fleet.audit.folder import has_ledgers
from simulator.fleet.metrics.ages import ages_of
from simulator.fleet.metrics.stages import stages_of, without_stages
from simulator.fleet.metrics.threshold_judging import judge_thresholds
from simulator.fleet.metrics.thresholds import parse
from simulator.fleet.record import (
    CHECKS,
    EXIT_CODES,
    STORM,
    Operations,
    RunRecord,
    Second,
    ThresholdResult,
    Verdict,
    VerdictStatus,
)
from simulator.fleet.report.formatting import plural
from simulator.fleet.report.timeline import Totals
from simulator.fleet.report.writing import RUN_FILE, SECONDS_FILE, read_seconds
from simulator.fleet.verdict import RunFindings, judge_run
from simulator.yaml_document import read_document

_SHOWN: Final = 5
_LOOKED_AT: Final = 1_000_000
"""Missing seconds of one hole that are looked at one by one: eleven days."""


class Agreement:
    """Adds the seconds of a run up on their way, and holds the sums against its record.

    Args:
        record: of the run.
        folder: of the run.
    """

    def __init__(self, record: RunRecord, folder: Path) -> None:
        self._record = record
        self._folder = folder
        self._totals = Totals()
        self._missing: list[int] = []
        self._uncounted = 0
        # At least as many as the run lasted; workers may have had their last words later.
        self._seconds = max(record.seconds, math.ceil(record.duration_s))

    def passed_on(self, seconds: Iterable[Second]) -> Iterator[Second]:
        """The same seconds again, each added on the way."""
        for second in seconds:
            self._note_missing(second.second)
            self._totals.take(second)
            yield second
        if not self._record.partial:
            self._note_missing(self._seconds)

    def doubts(self) -> tuple[str, ...]:
        """What does not fit together, one sentence each, once all seconds went by.

        Raises:
            ThresholdError: the record has a threshold that is none.
        """
        record = self._record
        if record.partial and record.ended_at:
            # What such a run left is judged as what it is; its last seconds may not have been written.
            return tuple(_contradictions(record, self._folder))
        found = [*self._lacking(), *_contradictions(record, self._folder)]
        if not self._missing and not record.gaps and not record.partial:
            found += self._differing()
        return tuple(found or self._judged_otherwise())

    def _note_missing(self, until: int) -> None:
        gaps, begin = self._record.gaps, self._totals.last_second + 1
        end = min(until, begin + _LOOKED_AT)  # a damaged number may be any
        self._uncounted += max(0, until - end)
        self._missing += [
            second for second in range(begin, end) if not any(gap.from_s <= second < gap.to_s for gap in gaps)
        ]

    def _lacking(self) -> Iterator[str]:
        if self._missing:
            whole = max(self._seconds, self._totals.last_second + 1)
            yield (
                f"{SECONDS_FILE} lacks {len(self._missing) + self._uncounted:,} of {plural(whole, 'second')} "
                f"({_few([str(each) for each in self._missing])}), and no gap of the run accounts for them"
            )

    def _differing(self) -> Iterator[str]:
        record, found = self._record, self._totals.operations
        differing = [*_differing(without_stages(found), record.operations), *_differing(ages_of(found), record.ages)]
        if stages_of(found) != record.command_stages:
            differing.append("the stages of commands")
        health = record.health
        if self._totals.requests != (health.intended, health.sent, health.undelivered):
            differing.append("the generator's requests")
        if differing:
            yield f"{SECONDS_FILE} and {RUN_FILE} differ: {_few(differing)}"

    def _judged_otherwise(self) -> Iterator[str]:
        """Thresholds with another result than in the record; only of sums that agree."""
        record = self._record
        if record.gaps or record.partial or not record.thresholds:
            return
        wanted = [parse(result.expression) for result in record.thresholds]
        again = judge_thresholds(
            wanted, replace(record, operations=self._totals.operations), read_seconds(self._folder)
        )
        for result, recorded in zip(again, record.thresholds, strict=True):
            if not _is_same(result, recorded):
                yield f"{RUN_FILE} says of the threshold {recorded.expression!r} what its seconds and its audit do not"


def doubts_of(record: RunRecord, folder: Path) -> tuple[str, ...]:
    """What does not fit together in the folder of a run, one sentence each; see :class:`Agreement`.

    Raises:
        ConfigurationError: a second is damaged.
        InvalidMessage: a histogram is.
        ThresholdError: a threshold is none.
    """
    agreement = Agreement(record, folder)
    for _ in agreement.passed_on(read_seconds(folder)):
        pass
    return agreement.doubts()


def doubted(verdict: Verdict, sentences: Sequence[str]) -> Verdict:
    """A verdict when something of the run is missing that it was given without: one that passed is inconclusive.

    Args:
        verdict: as it was.
        sentences: what is missing, and why; none leaves the verdict as it was.
    """
    if not sentences:
        return verdict
    if verdict.word is not VerdictStatus.PASSED:
        return Verdict(verdict.word, verdict.exit_code, (*verdict.sentences, *sentences))
    word = VerdictStatus.INCONCLUSIVE
    return Verdict(word, int(EXIT_CODES[word]), (*sentences, *verdict.sentences))


def _contradictions(record: RunRecord, folder: Path) -> Iterator[str]:
    """Where the record contradicts itself, or the ledgers beside it."""
    verdict, audit = record.verdict, record.audit
    if verdict.exit_code != EXIT_CODES[verdict.word]:
        yield f"{RUN_FILE}: the verdict {verdict.word} does not have the exit code {verdict.exit_code}"
    streams = () if audit is None else (audit.readings, audit.commands, audit.registrations)
    wrong = any(each.lost or each.doubled or each.altered or each.unknown for each in streams if each is not None)
    if wrong and verdict.word not in {VerdictStatus.LOST, VerdictStatus.INTERRUPTED}:
        yield f"{RUN_FILE}: the verdict is {verdict.word}, and its audit has findings"
    if verdict.word is VerdictStatus.PASSED:
        if audit is not None and (not audit.complete or audit.failures):
            yield f"{RUN_FILE}: the verdict is passed, and its audit is not"
        if not all(result.held for result in record.thresholds):
            yield f"{RUN_FILE}: the verdict is passed, and a threshold did not hold"
        if record.gaps or record.partial:
            yield f"{RUN_FILE}: the verdict is passed, and the run is not whole"
        yield from _unproven(record)
    yield from _without_reason(record)
    late = max((phase.end_s for phase in record.phases), default=0.0)
    if late > record.duration_s + 1:
        yield f"{RUN_FILE} has a phase until {late:.0f} s, and ended after {record.duration_s:.0f} s"
    if other := [name for name, (one, two) in _of_scenario(record).items() if one != two]:
        yield f"{RUN_FILE} is not of the scenario in it: {', '.join(other)}"
    if audit is None and record.ended_at and has_ledgers(folder):
        yield f"{RUN_FILE} has no audit, and ledgers are beside it: 'fleet-simulator audit' makes one"


def _without_reason(record: RunRecord) -> Iterator[str]:
    """Where the verdict is not the one that follows from the reasons that are kept beside it."""
    verdict, reasons = record.verdict, record.reasons
    if reasons is None or not record.ended_at:
        return
    follows = judge_run(RunFindings(record.audit, record.thresholds, record.gaps, record.partial, reasons))
    # What was missing when the reports were made is added to a verdict, and takes a pass away.
    was_doubted = follows.word is VerdictStatus.PASSED and verdict.word is VerdictStatus.INCONCLUSIVE
    if verdict.word is not follows.word and not was_doubted:
        yield f"{RUN_FILE}: the verdict is {verdict.word}, and what is kept of its reasons comes to {follows.word}"
    elif record.version == version("device-agent"):  # another version may say the same in other words
        missing = [sentence for sentence in follows.sentences if sentence not in verdict.sentences]
        if missing:
            yield f"{RUN_FILE}: the verdict does not say what its reasons come to: {_few(missing)}"
        elif (
            len(verdict.sentences) > len(follows.sentences) and not was_doubted and verdict.word is VerdictStatus.PASSED
        ):
            yield f"{RUN_FILE}: the verdict is passed, and says more than its reasons come to"


def _unproven(record: RunRecord) -> Iterator[str]:
    """Where a storm or a limiter's test passed, although its results are missing or say otherwise."""
    found = record.extras.get(record.kind)
    if record.kind == CHECKS:
        outcomes = [each.get("outcome") for each in found.values()] if isinstance(found, Mapping) else []
        held = f"{outcomes.count('held')} of {len(outcomes)} checks of the limiter held"
        stated = () if record.reasons is None else record.reasons.held
        if "broken" in outcomes or not any(each.startswith(held) for each in stated):
            yield f"{RUN_FILE}: the verdict is passed, and its checks of the limiter are not those that held"
    elif record.kind == STORM:
        numbers = found if isinstance(found, Mapping) else {}
        audit = None if record.audit is None else record.audit.registrations
        if audit is None or numbers.get("labels") != audit.sent:
            yield f"{RUN_FILE}: the verdict is passed, and its labels are not those of its audit"
        if numbers.get("races") != numbers.get("races_decided"):
            yield f"{RUN_FILE}: the verdict is passed, and not every race was decided"


def _of_scenario(record: RunRecord) -> Mapping[str, tuple[object, object]]:
    """Differences between the record and the scenario in it; none of a scenario that is a program."""
    document = read_document(record.scenario_text.encode("utf-8", "replace")).value
    if not isinstance(document, dict):
        return {}
    fleet = document.get("fleet")
    devices = fleet.get("devices", record.devices) if isinstance(fleet, dict) else record.devices
    return {
        "scenario": (document.get("scenario"), record.name),
        "devices": (devices, record.devices),
        "thresholds": (document.get("thresholds") or [], [result.expression for result in record.thresholds]),
    }


def _differing(found: Operations, recorded: Operations) -> Iterator[str]:
    """Operations and outcomes of which two sums are not the same."""
    for name in sorted(found.keys() | recorded.keys()):
        here, there = found.get(name, {}), recorded.get(name, {})
        for outcome in sorted(here.keys() | there.keys()):
            one, other = here.get(outcome), there.get(outcome)
            if one != other:
                counts = tuple(0 if each is None else each.count for each in (one, other))
                what = f"{counts[0]:,} and {counts[1]:,}" if counts[0] != counts[1] else "the times"
                yield f"{name} {outcome} ({what})"


def _is_same(one: ThresholdResult, other: ThresholdResult) -> bool:
    if (one.held, one.judged, one.at_s, one.observed is None) != (
        other.held,
        other.judged,
        other.at_s,
        other.observed is None,
    ):
        return False
    return one.observed is None or other.observed is None or math.isclose(one.observed, other.observed)


def _few(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
