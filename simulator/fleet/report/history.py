"""Many runs of one scenario in the order of their time: headline figures, and which run is worse than those before it.

The rule: a figure is worse where it is further from the median of the last :data:`BASELINE_MAX` comparable runs before
it than :data:`FAR` times their median distance from it, and at least the margin away. Runs vary from one to the next
more than within themselves, so the runs themselves are the measure, and no interval of one. One run that is far off
moves no median: what became worse is marked run after run, until half of those before are like that.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from simulator.fleet.metrics.ages import COMMAND_AGE, READING_AGE
from simulator.fleet.metrics.subjects import HELD
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import RunRecord, VerdictStatus
from simulator.fleet.report.compare import FigureKind, Finding, disagreements, read_run, scenario_differences, unfit
from simulator.fleet.report.figures import run_figures
from simulator.fleet.report.formatting import plural
from simulator.fleet.report.writing import RUN_FILE

BASELINE_MIN: Final = 5
"""Fewer runs say too little about how runs vary."""
BASELINE_MAX: Final = 10
FAR: Final = 5.0
"""Times the median distance: 3.4 standard deviations where runs vary normally."""
MARGIN: Final = 10.0
"""Percent."""


@dataclass(frozen=True, slots=True)
class Headline:
    """A figure that each run has one number of.

    Attributes:
        figure: times and shares are better when they are lower, rates when they are higher.
    """

    name: str
    figure: FigureKind


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure of one run, and what it was held against.

    Attributes:
        value: seconds, per second, or a share of 1; NaN where the run has none.
        median: of the runs before it; NaN with too few.
        limit: beyond this it is worse; NaN with too few.
        against: how many runs it was held against.
    """

    value: float
    finding: Finding
    median: float = math.nan
    limit: float = math.nan
    against: int = 0


@dataclass(frozen=True, slots=True)
class HistoryRun:
    """One run of a history.

    Attributes:
        folder: of the run.
        unjudged: why it is held against none, and none against it; empty for a run that is.
        figures: by the name of the headline.
    """

    folder: Path
    record: RunRecord
    unjudged: str
    figures: Mapping[str, ComparedFigure]

    def names(self, finding: Finding) -> tuple[str, ...]:
        """The figures of this finding."""
        return tuple(name for name, judged in self.figures.items() if judged.finding is finding)

    @property
    def has_lost(self) -> bool:
        """Whether data was lost or changed."""
        return self.record.verdict.word is VerdictStatus.LOST


@dataclass(frozen=True, slots=True)
class History:
    """Runs of one scenario, the latest last.

    Attributes:
        margin: in percent.
        notes: what a reader has to know before believing any of it.
    """

    scenario: str
    runs: tuple[HistoryRun, ...]
    headlines: tuple[Headline, ...]
    margin: float
    notes: tuple[str, ...]

    @property
    def latest(self) -> HistoryRun:
        """The run that it is all about."""
        return self.runs[-1]

    @property
    def is_worse(self) -> bool:
        """Whether the latest run is worse than those before it, or lost data."""
        return self.latest.has_lost or bool(self.latest.names(Finding.WORSE))

    @property
    def unjudged(self) -> str:
        """Why the latest run cannot be judged; empty when it can."""
        if self.latest.unjudged:
            return f"the latest run {self.latest.unjudged}"
        if all(judged.finding is Finding.TOO_FEW for judged in self.latest.figures.values()):
            return f"fewer than {BASELINE_MIN} runs before the latest one can be compared with it"
        return ""


def history_of(
    folders: Sequence[Path], *, scenario: str | None = None, margin: float = MARGIN, anyway: bool = False
) -> History:
    """The history of the runs in some folders.

    Args:
        folders: of runs, or folders whose folders are runs.
        scenario: runs of this name only.
        margin: see :class:`History`.
        anyway: compare runs of scenarios that differ from that of the latest run, too.

    Raises:
        ConfigurationError: no two runs, runs of scenarios of several names, or a folder that holds none.
    """
    found, notes = _read(folders)
    if scenario is not None:
        found = [each for each in found if each[1].name == scenario]
    names = Counter(record.name for _, record in found)
    if len(names) > 1:
        found_names = ", ".join(f"{name} ({count})" for name, count in sorted(names.items()))
        raise ConfigurationError([f"runs of several scenarios: {found_names}: choose one with --scenario"])
    if len(found) < 2:
        whose = f" of the scenario {scenario}" if scenario else ""
        where = ", ".join(map(str, folders))
        raise ConfigurationError([f"{where}: {plural(len(found), 'run')}{whose}: a history takes two or more"])
    found.sort(key=lambda each: (each[1].began_at, str(each[0])))
    latest = found[-1][1]
    runs = [
        HistoryRun(folder, record, _unjudged(folder, record, latest, anyway=anyway), {}) for folder, record in found
    ]
    headlines = _headlines(record for _, record in found)
    judged = _judged(runs, headlines, margin)
    return History(latest.name, judged, headlines, margin, (*notes, *_notes(judged, latest, anyway=anyway)))


def _read(folders: Sequence[Path]) -> tuple[list[tuple[Path, RunRecord]], list[str]]:
    """The runs, each once, and which folders are left out."""
    found: dict[Path, tuple[Path, RunRecord]] = {}
    left_out = []
    for folder in folders:
        if (folder / RUN_FILE).exists():
            found[folder.resolve()] = folder, read_run(folder)
            continue
        inner = sorted(path.parent for path in folder.glob(f"*/{RUN_FILE}"))
        if not inner:
            raise ConfigurationError([f"{folder}: neither a run ({RUN_FILE} is not there) nor a folder of runs"])
        for each in inner:
            try:
                found[each.resolve()] = each, read_run(each)
            except ConfigurationError as error:
                left_out.append(f"left out: {error.faults[0]}")
    return list(found.values()), left_out


def _unjudged(folder: Path, record: RunRecord, latest: RunRecord, *, anyway: bool) -> str:
    if reason := unfit(record):
        return reason
    if differing := () if anyway else scenario_differences(record, latest):
        return f"is of another scenario than the latest one ({', '.join(differing)} differ)"
    try:
        found = disagreements(folder, record)
    except ConfigurationError as error:  # its record could be read, so that its place in the order is known
        found = tuple(error.faults)
    return f"has files that do not fit together: {'; '.join(found)}" if found else ""


def _notes(runs: Sequence[HistoryRun], latest: RunRecord, *, anyway: bool) -> Iterator[str]:
    if anyway and any(scenario_differences(run.record, latest) for run in runs):
        yield "the scenarios differ"
    compared = [run.record for run in runs if not run.unjudged]
    for what in ("seed", "machine", "version", "target", "workers", "level", "transport"):
        values = sorted({str(getattr(record, what)) for record in compared})
        if len(values) > 1:
            yield f"the {what} differs: {', '.join(values)}"


# --- the figures ------------------------------------------------------------------------------------------------------


def _headlines(records: Iterable[RunRecord]) -> tuple[Headline, ...]:
    """The headline figures that any of the runs has, the most important first."""
    kinds = {name: figure for record in records for name, (figure, _) in headline_values(record).items()}
    first = ("readings.age p50", "readings.age p99", "readings accepted per second", "commands.age p99", "errors")
    names = [*(name for name in first if name in kinds), *sorted(kinds.keys() - set(first))]
    return tuple(Headline(name, kinds[name]) for name in names)


def headline_values(record: RunRecord) -> dict[str, tuple[FigureKind, float]]:
    """The headline figures of a run over its whole time; one that nothing was measured of is missing."""
    found: dict[str, tuple[FigureKind, float]] = {}
    figures = run_figures(record)
    ages = {age.name: age.figures for age in figures.ages if age.is_whole}
    for name, percents in ((READING_AGE, (50.0, 99.0)), (COMMAND_AGE, (99.0,))):
        for percent in percents if name in ages and ages[name].response.count else ():
            found[f"{name} p{percent:g}"] = FigureKind.TIME, ages[name].response.percentile(percent)
    played_s = record.duration_s if record.drained_from_s is None else record.drained_from_s
    if READING_AGE in ages and OutcomeClass.OK in ages[READING_AGE].counts and played_s > 0:
        found["readings accepted per second"] = FigureKind.RATE, ages[READING_AGE].good / played_s
    if every := figures.whole.total - figures.whole.limited:
        found["errors"] = FigureKind.SHARE, figures.whole.errors / every
    for name, each in figures.operations.items():
        if name not in HELD and each.response.count:
            found[f"{name} p99"] = FigureKind.TIME, each.response.percentile(99.0)
    return found


# --- the rule ---------------------------------------------------------------------------------------------------------


def _judged(runs: Sequence[HistoryRun], headlines: Sequence[Headline], margin: float) -> tuple[HistoryRun, ...]:
    baselines: dict[str, list[float]] = {headline.name: [] for headline in headlines}
    found = []
    for run in runs:
        values = headline_values(run.record)
        figures = {}
        for headline in headlines:
            value, baseline = values.get(headline.name, (headline.figure, math.nan))[1], baselines[headline.name]
            judged = _judge(value, baseline[-BASELINE_MAX:], headline.figure, margin)
            if run.unjudged or (run.has_lost and judged.finding is Finding.BETTER):
                judged = replace(judged, finding=Finding.NOT_JUDGED)
            elif not math.isnan(value) and not run.has_lost:
                baseline.append(value)
            figures[headline.name] = judged
        found.append(replace(run, figures=figures))
    return tuple(found)


def _judge(value: float, baseline: Sequence[float], figure: FigureKind, margin: float) -> ComparedFigure:
    if math.isnan(value) or len(baseline) < BASELINE_MIN:
        return ComparedFigure(value, Finding.TOO_FEW, against=len(baseline))
    median = statistics.median(baseline)
    # Of shares a tenth of the margin in percentage points, as where two runs are compared.
    away = margin / 1000 if figure is FigureKind.SHARE else median * margin / 100
    away = max(away, FAR * statistics.median(abs(each - median) for each in baseline))
    high, low = median + away, median - away
    above, below = value > high, value < low
    is_worse, is_better = (below, above) if figure is FigureKind.RATE else (above, below)
    finding = Finding.WORSE if is_worse else Finding.BETTER if is_better else Finding.NOT_SHOWN
    return ComparedFigure(value, finding, median, max(low, 0.0) if figure is FigureKind.RATE else high, len(baseline))
