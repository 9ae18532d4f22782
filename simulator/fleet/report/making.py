"""All reports of a run out of its folder: of one that ended, and of one that was killed or still goes on."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigurationError, InvalidMessage, StorageError
from agent.wire.encoding import parse_time, to_rfc3339
from simulator.exit_codes import ExitCode
from simulator.fleet.metrics.ages import requests_of, shown_ages, stages_of
from simulator.fleet.metrics.recorder import Totals
from simulator.fleet.metrics.thresholds import ThresholdError, measured
from simulator.fleet.record import Operations, RunRecord, Second, Verdict, VerdictStatus
from simulator.fleet.report.figures import Figures, Timeline, by_outcome, percentiles, phase_at
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


@dataclass(frozen=True, slots=True)
class ReportResult:
    """What was made.

    Attributes:
        record: the run; of one that did not end, made of its seconds.
        page: ``report.html``.
        missing: what could not be written and why, a sentence each, such as on a full disk.
    """

    record: RunRecord
    page: Path
    missing: tuple[str, ...] = ()


def finish_run(folder: RunFolder, record: RunRecord) -> ReportResult:
    """Write the record of a run that ended, and all its reports; what the disk does not take is listed as missing.

    Raises:
        ConfigurationError: somebody damaged the folder during the run.
    """
    missing = []
    try:
        folder.finish(record)
    except StorageError as error:
        missing.append(str(error))
    made = _make(folder.path, record)
    return replace(made, missing=(*missing, *made.missing))


def make_reports(folder: Path) -> ReportResult:
    """Make every report of the run in a folder anew; see :func:`finish_run` for what cannot be written.

    Raises:
        ConfigurationError: the folder holds no run, or a damaged one.
    """
    return _make(folder, read_record(folder))


def _make(folder: Path, record: RunRecord) -> ReportResult:
    try:
        return _make_each(folder, record if record.ended_at else complete_interrupted_record(record, folder))
    except (InvalidMessage, ThresholdError) as error:
        raise ConfigurationError([f"{folder}: run.json or seconds.jsonl is damaged: {error}"]) from None


def _make_each(folder: Path, record: RunRecord) -> ReportResult:
    timeline, missing = Timeline.of(record), []
    try:
        write_table(folder / "seconds.csv", ("timestamp", "second", "phase", "faults", "workers_missing"),
                    _rows_of_seconds(record, timeline, folder))  # fmt: skip
    except StorageError as error:
        missing.append(str(error))
    timeline.end()
    texts = {
        "junit.xml": junit_xml(record),
        "summary.json": summary_json(record),
        "report.html": fleet_page(record, timeline, tuple(FILES.items())[1:]),
    }
    for name, text in texts.items():
        try:
            write_whole(folder / name, text)
        except StorageError as error:
            missing.append(str(error))
    try:
        write_table(folder / "figures.csv", ("timestamp", "phase"), _rows_of_phases(record, timeline))
    except StorageError as error:
        missing.append(str(error))
    return ReportResult(record, folder / "report.html", tuple(missing))


# --- a run that did not end -------------------------------------------------------------------------------------------


def complete_interrupted_record(record: RunRecord, folder: Path) -> RunRecord:
    """The record of a run that did not end, completed out of the seconds that were written down.

    Raises:
        ConfigurationError: a second is damaged, or the record has what only that of a run that ended has.
    """
    if record.operations:
        raise ConfigurationError([f"{folder / RUN_FILE}: it has no end, and yet the sums of a run that ended"])
    totals = Totals(read_seconds(folder))
    seconds = totals.last + 1
    sentence = f"the run did not end: {state_of(folder)}; its figures cover {plural(seconds, 'second')}"
    found = replace(
        record,
        duration_s=float(seconds),
        phases=tuple(replace(each, end_s=min(each.end_s, seconds)) for each in record.phases if each.begin_s < seconds),
        faults=tuple(replace(each, end_s=min(each.end_s, seconds)) for each in record.faults if each.begin_s < seconds),
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
        yield from _rows(second.operations, **_place(record, timeline, second))


def _place(record: RunRecord, timeline: Timeline, second: Second) -> Row:
    at = second.second
    phase = phase_at(timeline.spans, at)
    return {
        "timestamp": _instant(record, at),
        "second": at,
        "phase": phase.name if phase else None,
        "faults": "; ".join(span.name for span in record.faults if span.begin_s < at + 1 and span.end_s > at),
        "workers_missing": len({gap.worker for gap in record.gaps if gap.from_s <= at < gap.to_s}),
    }


def _rows_of_phases(record: RunRecord, timeline: Timeline) -> Iterator[Row]:
    """The whole run, whose phase is empty, and then each phase."""
    yield from _rows(record.operations, timestamp=_instant(record, 0.0), phase=None)
    for span, operations in timeline.phases:
        yield from _rows(operations, timestamp=_instant(record, span.begin_s), phase=span.name)


def _rows(operations: Operations, **more: Any) -> Iterator[Row]:
    """A row for each operation and outcome, ages among them; ``more`` are columns in front."""
    for outcome, figures in by_outcome({**operations, **shown_ages(operations)}):
        yield {**more, "operation": figures.name, "outcome": outcome.value, **_flat(figures.as_dict())}


def _flat(figures: Mapping[str, Any]) -> dict[str, Any]:
    """``response_s`` of several percentiles as ``response_p50_s`` and so on; rates of one outcome say nothing more."""
    found: dict[str, Any] = {}
    for name, value in figures.items():
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
            every = (*columns, "operation", "outcome", *_flat(Figures.of("", ()).as_dict()))
            writer = csv.DictWriter(file, every, lineterminator="\n")
            writer.writeheader()
            for row in rows:
                writer.writerow({name: _cell(value) for name, value in row.items()})
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        for _ in rows:
            pass
        raise StorageError(f"{path}: cannot be written: {error}") from None


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.6g}"
    return str(value)


def _instant(record: RunRecord, offset_s: float) -> str | None:
    """The time as RFC 3339; None where the record does not say when its load began."""
    try:
        at_s = parse_time(record.load_began_at) + offset_s
    except InvalidMessage:
        return None
    return to_rfc3339(at_s) if math.isfinite(at_s) else None


# --- JSON -------------------------------------------------------------------------------------------------------------


def summary_json(record: RunRecord) -> str:
    """The record with percentiles as numbers instead of histograms, for scripts; times in seconds."""
    document = asdict(record)
    for member, operations in (("operations", requests_of(record.operations)), ("ages", shown_ages(record.operations))):
        found: dict[str, dict[str, Any]] = {}
        for outcome, figures in by_outcome(operations, record.duration_s):
            found.setdefault(figures.name, {})[outcome] = figures.as_dict()
        document[member] = found
    document["command_stages"] = {
        name: {"count": times.count, **percentiles(times)} for name, times in stages_of(record.operations).items()
    }
    del document["health"]["send_lag"]
    return json.dumps(finite(document), indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"
