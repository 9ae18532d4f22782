"""All reports of a run out of its folder: of one that ended, and of one that was killed or still goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError, InvalidMessage, StorageError
from simulator.fleet.audit.folder import has_ledgers
from simulator.fleet.metrics.ages import shown_ages
from simulator.fleet.metrics.subjects import ThresholdError
from simulator.fleet.record import RunRecord, Second
from simulator.fleet.report.agreement import Agreement, doubted
from simulator.fleet.report.devices import BY_DEVICE, by_device_rows
from simulator.fleet.report.exports import summary_json
from simulator.fleet.report.folder import RunFolder, write_whole
from simulator.fleet.report.formatting import error_text
from simulator.fleet.report.page import fleet_page
from simulator.fleet.report.page.plots import spans_with_drain
from simulator.fleet.report.prometheus.of_record import RecordCounting
from simulator.fleet.report.run_checks import checks_of
from simulator.fleet.report.table_files import PARQUET, OpenTable, check_formats
from simulator.fleet.report.tables import (
    FAULT_DEVICES,
    FAULTS,
    FINDINGS,
    GAUGES,
    GENERATOR,
    PHASES,
    SECONDS,
    SUMMARY,
    Moments,
    Row,
    RunTable,
    fault_device_rows,
    fault_rows,
    finding_rows,
    gauge_rows,
    generator_row,
    phase_rows,
    second_rows,
    summary_rows,
)
from simulator.fleet.report.timeline import ByPhase, slice_width_s, slices_of
from simulator.fleet.report.unended_run import complete_interrupted_record
from simulator.fleet.report.writing import read_record, read_seconds
from simulator.report_parts.junit import junit_xml

_OTHERS: Final = ("summary.json", "junit.xml", "metrics.prom", "run.json", "seconds.jsonl")

FILES: Final = {
    "report.html": "this page",
    "summary.json": "figures for scripts",
    **{
        f"{sheet.name}.csv": sheet.what
        for sheet in (SUMMARY, PHASES, SECONDS, GENERATOR, GAUGES, FAULTS, FAULT_DEVICES, FINDINGS, BY_DEVICE)
    },
    "junit.xml": "phases, thresholds, audit and verdict for CI",
    "metrics.prom": "for Prometheus",
    "run.json": "the record",
    "seconds.jsonl": "its seconds",
}
"""What a run's folder holds in the end; ``by-device.csv`` where there are ledgers."""


@dataclass(frozen=True, slots=True)
class ReportResult:
    """What was made.

    Attributes:
        record: the run; of one that did not end, made of its seconds.
        page: ``report.html``.
        missing: what could not be written and why, a sentence each, such as on a full disk.
        doubts: what in the folder does not fit together, a sentence each; the verdict of ``record`` has them.
    """

    record: RunRecord
    page: Path
    missing: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def finish_run(folder: RunFolder, record: RunRecord, formats: Collection[str] = ()) -> ReportResult:
    """Write the record of a run that ended, and all its reports; what the disk does not take is listed as missing.

    Args:
        folder: of the run.
        record: of it.
        formats: of tables, beside CSV; see :data:`~simulator.fleet.report.table_files.FORMATS`.

    Raises:
        ConfigurationError: somebody damaged the folder during the run.
    """
    missing = []
    try:
        folder.finish(record)
    except StorageError as error:
        missing.append(str(error))
    made = _make(folder.path, record, formats)
    return replace(made, missing=(*missing, *made.missing))


def make_reports(folder: Path, formats: Collection[str] = ()) -> ReportResult:
    """Make every report of the run in a folder anew; see :func:`finish_run` for what cannot be written.

    Raises:
        ConfigurationError: the folder holds no run, or a damaged one.
    """
    return _make(folder, read_record(folder), formats)


def _make(folder: Path, record: RunRecord, formats: Collection[str]) -> ReportResult:
    try:
        return _make_each(folder, record if record.ended_at else complete_interrupted_record(record, folder), formats)
    except (InvalidMessage, ThresholdError) as error:
        raise ConfigurationError([f"{folder}: run.json or seconds.jsonl is damaged: {error}"]) from None


def _make_each(folder: Path, record: RunRecord, formats: Collection[str]) -> ReportResult:
    if any(folder.glob(f"*.{PARQUET}")):  # made before: none of the tables may be older than the others
        formats = {*formats, PARQUET}
        check_formats(formats)
    width_s = slice_width_s(record.duration_s)
    spans = spans_with_drain(record)
    moments, by_phase, counting = Moments(record, spans), ByPhase(spans), RecordCounting(record.faults, spans)
    tables, agreement = _Tables(folder, formats), Agreement(record, folder)
    with tables.opened(SECONDS) as seconds, tables.opened(GENERATOR) as generator, tables.opened(GAUGES) as gauges:

        def written() -> Iterator[Second]:
            for second in agreement.passed_on(read_seconds(folder)):
                seconds.add(second_rows(second, moments))
                generator.add((generator_row(second, moments),))
                gauges.add(gauge_rows(second, moments))
                yield second

        slices = tuple(slices_of(by_phase.passed_on(counting.passed_on(written())), width_s))
    doubts = agreement.doubts()
    record = replace(record, verdict=doubted(record.verdict, doubts))
    tables.write(SUMMARY, summary_rows({**record.operations, **shown_ages(record.ages)}))
    tables.write(PHASES, phase_rows(by_phase.phases, moments))
    tables.write(FAULTS, fault_rows(record, moments))
    tables.write(FAULT_DEVICES, fault_device_rows(record, moments))
    tables.write(FINDINGS, finding_rows(record))
    if has_ledgers(folder):
        tables.write_by_device(record)
    missing = list(tables.missing)
    files = [(name, FILES[f"{Path(name).stem}.csv"]) for name in tables.names]
    files += [(name, FILES[name]) for name in _OTHERS]
    texts = {
        "junit.xml": junit_xml(checks_of(record)),
        "summary.json": summary_json(record),
        "metrics.prom": counting.text(record),
        "report.html": fleet_page(record, slices, width_s, tuple(files), by_phase.phases),
    }
    for name, text in texts.items():
        try:
            write_whole(folder / name, text)
        except StorageError as error:
            missing.append(str(error))
    return ReportResult(record, folder / "report.html", tuple(missing), doubts)


class _Tables:
    """The tables of a run, and what became of them.

    Attributes:
        names: of the files that are there.
        missing: what could not be written and why.
    """

    def __init__(self, folder: Path, formats: Collection[str]) -> None:
        self._folder = folder
        self._formats = formats
        self.names: list[str] = []
        self.missing: list[str] = []

    @contextlib.contextmanager
    def opened(self, sheet: RunTable) -> Iterator[OpenTable]:
        """A table to add rows to."""
        made = OpenTable(self._folder, sheet, self._formats)
        with made:
            yield made
        self.names += made.names
        self.missing += made.missing

    def write(self, sheet: RunTable, rows: Iterable[Row]) -> None:
        """A table as a whole."""
        with self.opened(sheet) as made:
            made.add(rows)

    def write_by_device(self, record: RunRecord) -> None:
        """The table of devices, out of the ledgers; nothing else of the report stands on them."""
        try:
            self.write(BY_DEVICE, by_device_rows(self._folder, record))
        except (ConfigurationError, StorageError) as error:
            self.missing.append(f"{self._folder / BY_DEVICE.name}.csv: cannot be made: {error_text(error)}")
