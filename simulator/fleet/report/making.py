"""All reports of a run out of its folder: of one that ended, and of one that was killed or still goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError, InvalidMessage, StorageError
from simulator.fleet.metrics.ages import shown_ages
from simulator.fleet.metrics.thresholds import ThresholdError
from simulator.fleet.record import RunRecord, Second
from simulator.fleet.report.exports import summary_json
from simulator.fleet.report.folder import RunFolder, write_whole
from simulator.fleet.report.page import fleet_page
from simulator.fleet.report.page.plots import spans_with_drain
from simulator.fleet.report.run_checks import checks_of
from simulator.fleet.report.tables import (
    FINDINGS,
    PHASES,
    SECONDS,
    SUMMARY,
    CsvFile,
    Moments,
    Row,
    RunTable,
    finding_rows,
    phase_rows,
    second_rows,
    summary_rows,
)
from simulator.fleet.report.timeline import ByPhase, slice_width_s, slices_of
from simulator.fleet.report.unended_run import complete_interrupted_record
from simulator.fleet.report.writing import read_record, read_seconds
from simulator.report_parts.junit import junit_xml

FILES: Final = {
    "report.html": "this page",
    "summary.json": "figures for scripts",
    **{table.name: table.what for table in (SUMMARY, PHASES, SECONDS, FINDINGS)},
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
    width_s = slice_width_s(record.duration_s)
    spans = spans_with_drain(record)
    moments, by_phase = Moments(record, spans), ByPhase(spans)
    with CsvFile(folder, SECONDS) as seconds:

        def written() -> Iterator[Second]:
            for second in read_seconds(folder):
                seconds.add(second_rows(second, moments))
                yield second

        slices = tuple(slices_of(by_phase.passed_on(written()), width_s))
    tables: dict[RunTable, Iterable[Row]] = {
        SUMMARY: summary_rows({**record.operations, **shown_ages(record.ages)}),
        PHASES: phase_rows(by_phase.phases, moments),
        FINDINGS: finding_rows(record),
    }
    missing = [seconds.trouble]
    for table, rows in tables.items():
        with CsvFile(folder, table) as file:
            file.add(rows)
        missing.append(file.trouble)
    texts = {
        "junit.xml": junit_xml(checks_of(record)),
        "summary.json": summary_json(record),
        "report.html": fleet_page(record, slices, width_s, tuple(FILES.items())[1:], by_phase.phases),
    }
    for name, text in texts.items():
        try:
            write_whole(folder / name, text)
        except StorageError as error:
            missing.append(str(error))
    return ReportResult(record, folder / "report.html", tuple(filter(None, missing)))
