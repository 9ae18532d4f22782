"""Two runs of one scenario held against each other: what is shown to be better or worse, and what is not shown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import numpy as np

from agent.errors import ConfigurationError, InvalidMessage
from simulator.fleet.metrics.ages import READING_AGE, is_age, with_shown_ages
from simulator.fleet.metrics.histogram import SHORTEST_S
from simulator.fleet.metrics.stages import STAGE_OPERATIONS
from simulator.fleet.metrics.subjects import ThresholdError
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import RunRecord, Second, Span, VerdictStatus
from simulator.fleet.report.agreement import doubts_of
from simulator.fleet.report.formatting import percentile_name
from simulator.fleet.report.resampling import BLOCKS_MIN, DRAWINGS, Block, Drawings, Drawn, Sample, Stretch, blocks_of
from simulator.fleet.report.unended_run import complete_interrupted_record
from simulator.fleet.report.writing import read_record, read_seconds
from simulator.yaml_document import read_document

COMPARED: Final = (50.0, 95.0, 99.0, 99.9)
CONFIDENCE: Final = 99.0
MARGIN: Final = 1.0
"""Percent; a smaller difference is none that anybody cares about."""
_BEYOND_MIN: Final = 10
"""Answers beyond a percentile, below which it is not compared."""
_NOT_THE_SCENARIO: Final = ("target", "workers", "description", "seed", "thresholds")
_SEED_A: Final = 1
_SEED_B: Final = 2


class Finding(StrEnum):
    """The comparison of one figure."""

    BETTER = "better"
    WORSE = "worse"
    NOT_SHOWN = "no difference shown"
    TOO_FEW = "too few to say"
    NOT_JUDGED = "not judged"
    """One of the runs says nothing of its target, or what looks better comes of a run that lost data."""


class FigureKind(StrEnum):
    """What a figure is, for how it is shown and which way is better."""

    RATE = "rate"
    TIME = "time"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of one operation in both runs.

    Attributes:
        name: such as ``p99`` or ``ok per second``.
        a, b: answers per second, seconds, or a share of 1.
        change: from A to B in percent of A, with its interval; for shares in percentage points. None when A is 0.
    """

    operation: str
    name: str
    figure: FigureKind
    a: Estimate
    b: Estimate
    change: Estimate | None
    finding: Finding


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two runs.

    Attributes:
        compared: the phases that were compared.
        warnings: what a reader has to know before believing any of it.
        only_a, only_b: operations that only one of them has.
        inconclusive: a generator was at its limit, so that this compares generators; or the files of a run do not fit
            together.
    """

    a: RunRecord
    b: RunRecord
    compared: tuple[str, ...]
    confidence: float
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    unjudged: tuple[str, ...]
    broken: tuple[str, ...]

    @property
    def is_worse(self) -> bool:
        """Whether B is worse in anything."""
        return bool(self.broken) or self.count(Finding.WORSE) > 0

    def count(self, finding: Finding) -> int:
        """How many figures are compared."""
        return sum(each.finding is finding for each in self.differences)


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings of a comparison of two runs: phase, confidence and margin.

    Attributes:
        phase: compare this one only; None takes all but ramps.
        anyway: compare runs of different scenarios, too.
        confidence: of the intervals, percent.
        margin: see :data:`MARGIN`.
        drawings: of the bootstrap.
    """

    phase: str | None = None
    anyway: bool = False
    confidence: float = CONFIDENCE
    margin: float = MARGIN
    drawings: int = DRAWINGS


def compare_runs(folder_a: Path, folder_b: Path, terms: Terms) -> Comparison:
    """Compare the runs in two folders.

    Raises:
        ConfigurationError: a folder holds no run or a damaged one, the scenarios differ, or there is no such phase.
    """
    a, b = (read_run(folder) for folder in (folder_a, folder_b))
    differing = scenario_differences(a, b)
    if differing and not terms.anyway:
        text = f"{folder_a} and {folder_b} are runs of different scenarios ({', '.join(differing)} differ)"
        raise ConfigurationError([f"{text}: --anyway compares them all the same"])
    drawn_a, drawn_b = (
        Drawings(_blocks(folder, record, terms), seed, terms.drawings)
        for folder, record, seed in ((folder_a, a, _SEED_A), (folder_b, b, _SEED_B))
    )
    doubts = {label: disagreements(folder, each) for label, folder, each in (("A", folder_a, a), ("B", folder_b, b))}
    names_a, names_b = (_operations(drawn.blocks) for drawn in (drawn_a, drawn_b))
    reasons = {"A": unfit(a), "B": unfit(b)}
    unjudged = [f"{label} {reason}" for label, reason in reasons.items() if reason]
    unjudged += [f"{label}: {each}" for label, found in doubts.items() for each in found]
    return Comparison(
        a,
        b,
        tuple(span.name for span in chosen_phases(a, terms.phase)) or ("the whole run",),
        terms.confidence,
        tuple(
            _with_enough_samples(difference, b, is_judged=not unjudged)
            for name in sorted(names_a & names_b, key=lambda name: (name != READING_AGE, not is_age(name), name))
            for difference in _differences(name, drawn_a, drawn_b, terms)
        ),
        (*unjudged, *_warnings(a, b, differing)),
        tuple(sorted(names_a - names_b)),
        tuple(sorted(names_b - names_a)),
        tuple(unjudged),
        () if unjudged else tuple(_broken(a, b)),
    )


def unfit(record: RunRecord) -> str:
    """Why a run proves nothing about its target, as the rest of a sentence about it; empty when it does."""
    why = record.verdict.sentences[0] if record.verdict.sentences else ""
    if record.verdict.word is VerdictStatus.INCONCLUSIVE:
        return f"is inconclusive: {why or 'its generator was the limit, or not everything was seen'}"
    if record.partial or record.verdict.word in {VerdictStatus.INTERRUPTED, VerdictStatus.UNREACHABLE}:
        return f"did not run to its end: {record.partial or why or record.verdict.word}"
    return ""


def _with_enough_samples(difference: Difference, b: RunRecord, *, is_judged: bool) -> Difference:
    # Whoever loses data has less to do: what looks better then is no merit.
    is_bought = b.verdict.word is VerdictStatus.LOST and difference.finding is Finding.BETTER
    if is_bought or not is_judged:
        return replace(difference, finding=Finding.NOT_JUDGED)
    return difference


def _broken(a: RunRecord, b: RunRecord) -> Iterator[str]:
    if b.verdict.word is VerdictStatus.LOST and a.verdict.word is not VerdictStatus.LOST:
        yield "B lost or changed data, and A did not"
    held = {result.expression for result in a.thresholds if result.judged and result.held}
    for result in b.thresholds:
        if result.expression in held and result.judged and not result.held:
            yield f"the threshold {result.expression} held in A, and does not in B"


def scenario_differences(a: RunRecord, b: RunRecord) -> tuple[str, ...]:
    """Keys in which two scenarios differ; none when both ran the same plan.

    Another target, seed or number of workers is no other scenario: that is what comparisons are made for.
    """
    if a.digest == b.digest:
        return ()
    one, other = (_scenario(record) for record in (a, b))
    if not isinstance(one, dict) or not isinstance(other, dict):
        return () if a.scenario_text == b.scenario_text else ("their texts",)
    keys = sorted({*one, *other} - set(_NOT_THE_SCENARIO))
    return tuple(key for key in keys if one.get(key) != other.get(key))


def chosen_phases(record: RunRecord, phase: str | None) -> tuple[Span, ...]:
    """The phases to compare: the named one, or all but ramps; all when there are only ramps, none when there are none.

    Raises:
        ConfigurationError: there is no such phase.
    """
    if phase is not None:
        found = tuple(span for span in record.phases if span.name == phase)
        if not found:
            names = ", ".join(span.name for span in record.phases) or "none"
            raise ConfigurationError([f"--phase {phase}: the run {record.name} has no such phase; it has {names}"])
        return found
    return tuple(span for span in record.phases if span.kind != "ramp") or record.phases


def read_run(folder: Path) -> RunRecord:
    """The record of the run in a folder; of one that did not end, made of its seconds.

    Raises:
        ConfigurationError: the folder holds no run or a damaged one.
    """
    record = read_record(folder)
    return record if record.ended_at else complete_interrupted_record(record, folder)


def disagreements(folder: Path, record: RunRecord) -> tuple[str, ...]:
    """Where the files of a run contradict each other, one sentence each; see :func:`doubts_of`.

    Raises:
        ConfigurationError: the record or its seconds are damaged.
    """
    try:
        return doubts_of(record, folder)
    except (InvalidMessage, ThresholdError) as error:
        raise ConfigurationError([f"{folder}: run.json or seconds.jsonl is damaged: {error}"]) from None


def _scenario(record: RunRecord) -> Any:
    return read_document(record.scenario_text.encode("utf-8", "replace")).value


def _blocks(folder: Path, record: RunRecord, terms: Terms) -> list[Block]:
    spans = chosen_phases(record, terms.phase)

    def is_chosen(second: Second) -> bool:
        middle = second.second + 0.5
        # A second that a worker is missing in says less about the target than about the generator.
        return (not spans or bool(_under_way(spans, middle))) and not any(
            gap.from_s <= middle < gap.to_s for gap in record.gaps
        )

    stretches = [_stretch(record, second) for second in range(math.ceil(record.duration_s))]
    sizes = Counter(stretches)

    def stretch_of(second: int) -> tuple[Stretch, int]:
        here = stretches[second] if 0 <= second < len(stretches) else ()
        return here, sizes[here]

    try:
        seconds = (replace(each, operations=with_shown_ages(each.operations)) for each in read_seconds(folder))
        return blocks_of(filter(is_chosen, seconds), stretch_of)
    except InvalidMessage as error:
        raise ConfigurationError([f"{folder}: seconds.jsonl is damaged: {error}"]) from None


def _under_way(spans: Sequence[Span], at_s: float) -> tuple[str, ...]:
    return tuple(span.name for span in spans if span.begin_s <= at_s < span.end_s)


def _stretch(record: RunRecord, second: int) -> Stretch:
    return _under_way((*record.phases, *record.faults), second + 0.5)


def _operations(blocks: Sequence[Block]) -> set[str]:
    return {name for block in blocks for name in block.counts}


def _differences(name: str, drawn_a: Drawings, drawn_b: Drawings, terms: Terms) -> Iterator[Difference]:
    a, b = Sample(drawn_a, name), Sample(drawn_b, name)
    enough = min(len(drawn_a.blocks), len(drawn_b.blocks)) >= BLOCKS_MIN

    def made(
        label: str, figure: FigureKind, one: tuple[float, Drawn], two: tuple[float, Drawn], *, said: bool
    ) -> Difference:
        change = _change(figure, one, two, terms.confidence)
        finding = _finding(figure, change, terms.margin) if said and enough else Finding.TOO_FEW
        of_a, of_b = (_estimate(*each, terms.confidence) for each in (one, two))
        return Difference(name, label, figure, of_a, of_b, change, finding)

    ok, limited = (OutcomeClass.OK,), (OutcomeClass.LIMITED,)
    # The stages of a command are no requests of their own: how many there are says nothing that commands do not.
    if name not in STAGE_OPERATIONS:
        yield made("ok per second", FigureKind.RATE, a.rate(ok), b.rate(ok), said=True)
    if a.rate(limited)[0] or b.rate(limited)[0]:
        yield made("limited (429)", FigureKind.SHARE, _limited(a), _limited(b), said=True)
    if a.error_share()[0] or b.error_share()[0]:
        yield made("errors", FigureKind.SHARE, a.error_share(), b.error_share(), said=True)
    if not a.answers or not b.answers:
        return
    fewest = min(a.answers, b.answers)
    for percent, one, two in zip(COMPARED, a.percentiles(COMPARED), b.percentiles(COMPARED), strict=True):
        if one[0] < SHORTEST_S and two[0] < SHORTEST_S:
            continue
        beyond = fewest * (100 - percent) / 100
        yield made(percentile_name(percent), FigureKind.TIME, one, two, said=beyond >= _BEYOND_MIN)


def _limited(sample: Sample) -> tuple[float, Drawn]:
    (ok, ok_drawn), (limited, limited_drawn) = (
        sample.rate((kind,)) for kind in (OutcomeClass.OK, OutcomeClass.LIMITED)
    )
    whole = np.maximum(ok_drawn + limited_drawn, 1e-12)
    return limited / ((ok + limited) or 1.0), limited_drawn / whole


def _estimate(value: float, drawn: Drawn, confidence: float) -> Estimate:
    low, high = _interval(drawn, confidence)
    return Estimate(float(value), low, high)


def _change(figure: FigureKind, a: tuple[float, Drawn], b: tuple[float, Drawn], confidence: float) -> Estimate | None:
    """From A to B in percent; of shares in percentage points."""
    if figure is FigureKind.SHARE:
        return _estimate(100 * (b[0] - a[0]), 100 * (b[1] - a[1]), confidence)
    if not a[0] > 0 or not np.all(a[1] > 0):
        return None
    return _estimate(100 * (b[0] / a[0] - 1), 100 * (b[1] / a[1] - 1), confidence)


def _interval(drawn: Drawn, confidence: float) -> tuple[float, float]:
    tail = (100 - confidence) / 2
    low, high = np.nanpercentile(drawn, (tail, 100 - tail)) if not np.all(np.isnan(drawn)) else (math.nan, math.nan)
    return float(low), float(high)


def _finding(figure: FigureKind, change: Estimate | None, margin: float) -> Finding:
    if change is None:
        return Finding.TOO_FEW
    # A share is in percentage points: one of errors is a lot, so a tenth of the margin is the least of it.
    least = margin / 10 if figure is FigureKind.SHARE else margin
    if change.low <= 0 <= change.high or abs(change.value) < least:
        return Finding.NOT_SHOWN
    is_more = change.value > 0
    return Finding.BETTER if is_more is (figure is FigureKind.RATE) else Finding.WORSE


def _warnings(a: RunRecord, b: RunRecord, differing: Sequence[str]) -> Iterator[str]:
    if differing:
        yield f"the scenarios differ: {', '.join(differing)}"
    for label, record in (("A", a), ("B", b)):
        if record.verdict.word is VerdictStatus.LOST:
            yield f"{label} lost or changed data" + ("; nothing of it is called better" if label == "B" else "")
        if record.gaps:
            yield f"{label} has gaps; their seconds are left out"
    for what in ("seed", "machine", "version", "workers", "level", "transport"):
        one, other = getattr(a, what), getattr(b, what)
        if one != other:
            yield f"the {what} differs: {one} and {other}"
