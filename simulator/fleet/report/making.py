"""All reports of a run out of its folder: of one that ended, and of one that was killed or still goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigurationError, InvalidMessage, StorageError
from agent.wire.times import parse_time, to_rfc3339
from simulator.fleet.metrics.ages import shown_ages
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.thresholds import ThresholdError
from simulator.fleet.record import RunRecord, Second
from simulator.fleet.report.figures import by_outcome, percentiles
from simulator.fleet.report.folder import RunFolder, write_whole
from simulator.fleet.report.formatting import finite
from simulator.fleet.report.junit import junit_xml
from simulator.fleet.report.page import fleet_page
from simulator.fleet.report.tables import TABLES, CsvFile, Row, finding_rows, outcome_rows
from simulator.fleet.report.timeline import Timeline, phase_at
from simulator.fleet.report.unended_run import complete_interrupted_record
from simulator.fleet.report.writing import read_record, read_seconds

FILES: Final = {
    "report.html": "this page",
    "summary.json": "figures for scripts",
    **{name: what for name, (what, _) in TABLES.items()},
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

    Args:
        folder: of the run.
        record: of it.

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
    timeline = Timeline.of(record)
    with ExitStack() as opened:
        summary, phases, seconds, findings = (
            opened.enter_context(CsvFile(folder / name, columns)) for name, (_, columns) in TABLES.items()
        )
        for second in read_seconds(folder):
            timeline.add(second)
            seconds.add(_second_rows(record, timeline, second))
        timeline.end()
        summary.add(outcome_rows({**record.operations, **record.ages}))
        for span, operations in timeline.phases:
            phases.add(outcome_rows(operations, timestamp=_instant(record, span.begin_s), phase=span.name))
        findings.add(finding_rows(record))
    missing = [file.trouble for file in (seconds, summary, phases, findings)]
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
    return ReportResult(record, folder / "report.html", tuple(filter(None, missing)))


def _second_rows(record: RunRecord, timeline: Timeline, second: Second) -> Iterator[Row]:
    at = second.second
    phase = phase_at(timeline.spans, at)
    return outcome_rows(
        second.operations,
        timestamp=_instant(record, at),
        second=at,
        phase=phase.name if phase else None,
        faults="; ".join(span.name for span in record.faults if span.begin_s < at + 1 and span.end_s > at),
        workers_missing=len({gap.worker for gap in record.gaps if gap.from_s <= at < gap.to_s}),
    )


def _instant(record: RunRecord, offset_s: float) -> str | None:
    """The time as RFC 3339; None where the record does not say when its load began."""
    try:
        at_s = parse_time(record.load_began_at) + offset_s
    except InvalidMessage:
        return None
    return to_rfc3339(at_s) if math.isfinite(at_s) else None


def summary_json(record: RunRecord) -> str:
    """The record with percentiles as numbers instead of histograms, for scripts; times in seconds."""
    document = asdict(record)
    for member, operations in (("operations", record.operations), ("ages", shown_ages(record.ages))):
        found: dict[str, dict[str, Any]] = {}
        for outcome, figures in by_outcome(operations, record.duration_s):
            found.setdefault(figures.name, {})[outcome] = figures.as_dict()
        document[member] = found
    document["command_stages"] = {
        name: {"count": times.count, **percentiles(times)}
        for name, times in ((name, Histogram.decode(text)) for name, text in record.command_stages.items())
    }
    del document["health"]["send_lag"]
    return json.dumps(finite(document), indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"
