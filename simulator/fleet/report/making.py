"""All reports of a run, from the files in its folder; also of a run that was killed or still goes on."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from pydantic_core import to_json

from agent.errors import ConfigurationError, InvalidMessage, StorageError
from agent.wire.encoding import parse_time, to_rfc3339
from simulator.exit_codes import ExitCode
from simulator.fleet.metrics.ages import shown_ages, stages_of
from simulator.fleet.metrics.recorder import Totals
from simulator.fleet.metrics.thresholds import ThresholdError, measured
from simulator.fleet.record import Operations, RunRecord, Span, Verdict, VerdictStatus
from simulator.fleet.report.figures import (
    Figures,
    FigureSet,
    Timeline,
    by_outcome,
    health_figures,
    percentiles,
    phase_at,
    run_figures,
)
from simulator.fleet.report.folder import (
    RUN_FILE,
    SECONDS_FILE,
    RunFolder,
    read_record,
    read_seconds,
    state_of,
    write_whole,
)
from simulator.fleet.report.formatting import finite, plural
from simulator.fleet.report.junit import junit_xml
from simulator.fleet.report.page import fleet_page

FILES: Final = {
    "report.html": "this page",
    "summary.json": "figures for scripts",
    "figures.csv": "a row for each operation and outcome, of the run and of each phase",
    "seconds.csv": "the same by second",
    "junit.xml": "phases, thresholds, audit and verdict for CI",
    "run.json": "the record",
    "seconds.jsonl": "its seconds",
}
"""What a run's folder holds in the end, beside its ledgers."""
_SECONDS_COLUMNS: Final = ("timestamp", "second", "phase", "faults", "workers_missing")
_PHASES_COLUMNS: Final = ("timestamp", "phase")
_DAMAGED: Final = "run.json or seconds.jsonl is damaged"


def finish_run(folder: RunFolder, record: RunRecord) -> tuple[str, ...]:
    """Write the record of a run that ended, and all its reports.

    Returns:
        What could not be written and why, a sentence each, such as on a full disk.

    Raises:
        ConfigurationError: the folder was damaged during the run.
    """
    try:
        folder.finish(record)
    except StorageError as error:
        return (str(error), *_make(folder.path, record))
    return _make(folder.path, record)


def make_reports(folder: Path) -> tuple[RunRecord, tuple[str, ...]]:
    """Make every report of the run in a folder anew.

    Returns:
        The run; one that did not end is made of its seconds. And what could not be written, see :func:`finish_run`.

    Raises:
        ConfigurationError: the folder holds no run, or a damaged one.
    """
    record = read_run(folder)
    return record, _make(folder, record)


def _make(folder: Path, record: RunRecord) -> tuple[str, ...]:
    timeline = Timeline.of(record)
    made: dict[str, Callable[[Path], None]] = {
        "seconds.csv": lambda path: write_table(path, _SECONDS_COLUMNS, _rows_of_seconds(record, timeline, folder)),
        "figures.csv": lambda path: write_table(path, _PHASES_COLUMNS, _rows_of_phases(record, timeline)),
        "junit.xml": lambda path: write_whole(path, junit_xml(record)),
        "summary.json": lambda path: write_whole(path, summary_json(record, timeline)),
        "report.html": lambda path: write_whole(path, fleet_page(record, timeline, [*FILES.items()][1:])),
    }  # the seconds first: while they are read, the timeline is made
    missing = []
    for name, write in made.items():
        try:
            write(folder / name)
        except StorageError as error:
            missing.append(str(error))
        except InvalidMessage as error:
            raise ConfigurationError([f"{folder}: {_DAMAGED}: {error}"]) from None
    return tuple(missing)


# --- a run that did not end -------------------------------------------------------------------------------------------


def read_run(folder: Path) -> RunRecord:
    """The record of the run in a folder, which is completed where the run did not end.

    Raises:
        ConfigurationError: the folder holds no run, or a damaged one.
    """
    record = read_record(folder)
    try:
        return record if record.ended_at else _completed(record, folder)
    except (InvalidMessage, ThresholdError) as error:
        raise ConfigurationError([f"{folder}: {_DAMAGED}: {error}"]) from None


def _completed(record: RunRecord, folder: Path) -> RunRecord:
    """The record of a run that did not end, out of the seconds that were written down."""
    if record.operations:
        raise ConfigurationError([f"{folder / RUN_FILE}: it has no end, and yet the sums of a run that ended"])
    totals = Totals(read_seconds(folder))
    seconds = totals.last + 1
    sentence = f"the run did not end: {state_of(folder)}; its figures cover {plural(seconds, 'second')}"
    found = replace(
        record,
        duration_s=float(seconds),
        phases=_until(record.phases, seconds),
        faults=_until(record.faults, seconds),
        partial=f"{plural(seconds, 'second')} were written down",
    )
    found = measured(found, totals, read_seconds(folder))
    if record.reasons is not None:
        cut = f"{RUN_FILE} was too large for the disk: the figures are those of {SECONDS_FILE}"
        verdict = replace(record.verdict, sentences=(*record.verdict.sentences, cut))
        return replace(found, thresholds=record.thresholds, partial=record.partial, verdict=verdict)
    missed = tuple(result.missed_text for result in found.thresholds if result.judged and not result.held)
    sentences = (sentence, *missed, "nothing was audited")
    return replace(found, verdict=Verdict(VerdictStatus.INTERRUPTED, int(ExitCode.INTERRUPTED), sentences))


def _until(spans: Iterable[Span], end_s: float) -> tuple[Span, ...]:
    """What of phases or faults was before a time."""
    return tuple(replace(each, end_s=min(each.end_s, end_s)) for each in spans if each.begin_s < end_s)


# --- tables -----------------------------------------------------------------------------------------------------------

Row = Mapping[str, Any]
"""Column to cell; None where there is nothing."""


def _rows_of_seconds(record: RunRecord, timeline: Timeline, folder: Path) -> Iterator[Row]:
    """Rows of all seconds, each of which is added to the timeline, too.

    ``phase`` is empty in a second that two phases share, as for thresholds. ``workers_missing`` counts workers that did
    not report the second: what they did is not in its figures.
    """
    for second in read_seconds(folder):
        timeline.add(second)
        at = second.second
        phase = phase_at(timeline.spans, at)
        place = {
            "timestamp": _instant(record, at),
            "second": at,
            "phase": phase.name if phase else None,
            "faults": "; ".join(span.name for span in record.faults if span.begin_s < at + 1 and span.end_s > at),
            "workers_missing": len({gap.worker for gap in record.gaps if gap.from_s <= at < gap.to_s}),
        }
        yield from _rows(second.operations, place)
    timeline.end()


def _rows_of_phases(record: RunRecord, timeline: Timeline) -> Iterator[Row]:
    """The whole run, whose phase is empty, and then each phase."""
    yield from _rows(record.operations, {"timestamp": _instant(record, 0.0), "phase": None})
    for span, operations in timeline.phases:
        yield from _rows(operations, {"timestamp": _instant(record, span.begin_s), "phase": span.name})


def _rows(operations: Operations, place: Row) -> Iterator[Row]:
    """A row for each operation and outcome, ages among them; ``place`` are the columns in front."""
    for outcome, figures in by_outcome({**operations, **shown_ages(operations)}):
        yield {**place, "operation": figures.name, "outcome": outcome.value, **_flat(figures)}


def _flat(figures: Figures) -> Row:
    """Figures with a column for each percentile, such as ``response_p50_s``; without rates, which counts say."""
    found: dict[str, Any] = {}
    for name, value in figures.as_dict().items():
        if isinstance(value, Mapping):
            found |= {f"{name.removesuffix('_s')}_{percent}_s": time_s for percent, time_s in value.items()}
        elif not name.endswith("_per_s"):
            found[name] = value
    return found


def write_table(path: Path, columns: Sequence[str], rows: Iterator[Row]) -> None:
    """Write rows as CSV (RFC 4180 with line feeds); the file has its name only when it is whole.

    Args:
        path: of the file.
        columns: in front of operation, outcome and figures.
        rows: taken to their end, also where the disk does not take them.

    Raises:
        StorageError: it could not be written.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        with new.open("w", encoding="utf-8", newline="") as file:
            every = (*columns, "operation", "outcome", *_flat(Figures("")))
            writer = csv.DictWriter(file, every, lineterminator="\n")
            writer.writeheader()
            writer.writerows(finite(row) for row in rows)
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        for _ in rows:
            pass
        raise StorageError(f"{path}: cannot be written: {error}") from None


def _instant(record: RunRecord, offset_s: float) -> str | None:
    """The time as RFC 3339; None where the record does not say when its load began."""
    try:
        return to_rfc3339(parse_time(record.load_began_at) + offset_s)
    except InvalidMessage:
        return None


# --- JSON -------------------------------------------------------------------------------------------------------------


def summary_json(record: RunRecord, timeline: Timeline) -> str:
    """The record with percentiles as numbers instead of histograms, for scripts; times in seconds."""
    document = asdict(replace(record, operations={}))
    del document["operations"]
    document["health"] = health_figures(record.health)
    document["figures"] = run_figures(record).as_dict()
    document["figures_by_phase"] = {
        span.name: FigureSet.of(operations, span.end_s - span.begin_s).as_dict() for span, operations in timeline.phases
    }
    document["command_stages"] = {name: percentiles(times) for name, times in stages_of(record.operations).items()}
    return to_json(document, indent=1, inf_nan_mode="null", fallback=str).decode() + "\n"
