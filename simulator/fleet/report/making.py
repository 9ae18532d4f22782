"""All reports of a run out of its folder: of one that ended, and of one that was killed or still goes on."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from agent.errors import ConfigurationError, InvalidMessage, StorageError
from simulator.exit_codes import ExitCode
from simulator.fleet.metrics.ages import ages_of
from simulator.fleet.metrics.judging import judge, missed_text
from simulator.fleet.metrics.stages import stages_of, without_stages
from simulator.fleet.metrics.subjects import ThresholdError
from simulator.fleet.metrics.thresholds import parse
from simulator.fleet.record import RunRecord, Verdict, Word
from simulator.fleet.report.agreement import Agreement, doubted
from simulator.fleet.report.by_phase import ByPhase
from simulator.fleet.report.exports import (
    checks_of,
    passed_on_as_csv,
    passed_on_as_generator_csv,
    phases_csv,
    summary_csv,
    summary_json,
)
from simulator.fleet.report.folder import RunFolder, write_whole
from simulator.fleet.report.page import fleet_page
from simulator.fleet.report.page.plots import spans_with_drain
from simulator.fleet.report.prometheus import record_metrics
from simulator.fleet.report.timeline import Totals, slice_width_s, slices_of
from simulator.fleet.report.words import plural
from simulator.fleet.report.writing import RUN_FILE, read_record, read_seconds
from simulator.report.junit import junit_xml

FILES: Final = {
    "report.html": "this page",
    "summary.json": "figures for scripts",
    "summary.csv": "a row for each operation and outcome",
    "phases.csv": "the same by phase",
    "seconds.csv": "the same by second",
    "generator.csv": "the generator and the gauges by second",
    "junit.xml": "thresholds and audit for CI",
    "metrics.prom": "for Prometheus",
    "run.json": "the record",
    "seconds.jsonl": "its seconds",
}
"""What a run's folder holds in the end."""


@dataclass(frozen=True, slots=True)
class Made:
    """What was made.

    Attributes:
        record: the run; of one that did not end, what its seconds tell.
        page: ``report.html``.
        missing: what could not be written and why, a sentence each, such as on a full disk.
        doubts: what in the folder does not fit together, a sentence each; the verdict of ``record`` has them.
    """

    record: RunRecord
    page: Path
    missing: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def finish_run(folder: RunFolder, record: RunRecord) -> Made:
    """Write the record of a run that ended, and all its reports; what the disk does not take is told as missing.

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


def make_reports(folder: Path) -> Made:
    """Make every report of the run in a folder anew; see :func:`finish_run` for what cannot be written.

    Raises:
        ConfigurationError: the folder holds no run, or a damaged one.
    """
    record = read_record(folder)
    return _make(folder, record)


def _make(folder: Path, record: RunRecord) -> Made:
    try:
        return _make_each(folder, record if record.ended_at else unended(record, folder))
    except (InvalidMessage, ThresholdError) as error:
        raise ConfigurationError([f"{folder}: run.json or seconds.jsonl is damaged: {error}"]) from None


def _make_each(folder: Path, record: RunRecord) -> Made:
    width_s = slice_width_s(record.duration_s)
    tables = [_Growing(folder / name) for name in ("seconds.csv", "generator.csv")]
    try:
        agreement = Agreement(record, folder)
        seconds = agreement.passed_on(read_seconds(folder))
        seconds = passed_on_as_generator_csv(passed_on_as_csv(seconds, tables[0]), tables[1])
        by_phase = ByPhase(spans_with_drain(record))
        slices = tuple(slices_of(by_phase.passed_on(seconds), width_s))
    finally:
        for table in tables:
            table.close()
    missing = [table.trouble for table in tables if table.trouble]
    doubts = agreement.doubts()
    record = replace(record, verdict=doubted(record.verdict, doubts))
    files = tuple((name, what) for name, what in FILES.items() if name != "report.html")
    texts = {
        "junit.xml": junit_xml(checks_of(record)),
        "summary.csv": summary_csv({**record.operations, **record.ages}),
        "phases.csv": phases_csv(by_phase.phases),
        "summary.json": summary_json(record),
        "metrics.prom": record_metrics(record),
        "report.html": fleet_page(record, slices, width_s, files, by_phase.phases),
    }
    for name, text in texts.items():
        try:
            write_whole(folder / name, text)
        except StorageError as error:
            missing.append(str(error))
    return Made(record, folder / "report.html", tuple(missing), doubts)


def unended(record: RunRecord, folder: Path) -> RunRecord:
    """The record of a run that did not end, completed out of its seconds.

    Raises:
        ConfigurationError: a second is damaged, or the record has what only that of a run that ended has.
    """
    if record.operations or record.audit is not None:
        raise ConfigurationError([f"{folder / RUN_FILE}: it has no end, and yet what only a run has that ended"])
    totals = Totals()
    for second in read_seconds(folder):
        totals.take(second)
    seconds = totals.last_second + 1
    told = (
        f"the run did not end: it was killed, or it still goes on; this is what {plural(seconds, 'second')} of it tell"
    )
    found = replace(
        record,
        duration_s=float(seconds),
        operations=without_stages(totals.operations),
        command_stages=stages_of(totals.operations),
        ages=ages_of(totals.operations),
        health=totals.health,
        phases=tuple(replace(each, end_s=min(each.end_s, seconds)) for each in record.phases if each.begin_s < seconds),
        faults=tuple(replace(each, end_s=min(each.end_s, seconds)) for each in record.faults if each.begin_s < seconds),
        partial=f"{plural(seconds, 'second')} were written down",
    )
    wanted = [parse(result.expression) for result in record.thresholds]
    results = judge(wanted, replace(found, operations=totals.operations), read_seconds(folder))
    missed = tuple(map(missed_text, (result for result in results if result.judged and not result.held)))
    return replace(
        found,
        thresholds=results,
        verdict=Verdict(Word.INTERRUPTED, int(ExitCode.INTERRUPTED), (told, *missed, "nothing was audited")),
    )


class _Growing:
    """A file that is written piece by piece and has its name only when it is whole.

    Trouble of the disk ends the file and is told in the end: whoever writes has other things to do as well.

    Attributes:
        trouble: why the file is not there; empty when it is.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new = path.with_name(f".{path.name}.new")
        self._file: IO[str] | None = None
        self.trouble = ""
        try:
            self._file = self._new.open("w", encoding="utf-8", newline="")
        except OSError as error:
            self._give_up(error)

    def write(self, text: str) -> None:
        """Add a piece."""
        if self._file is not None:
            try:
                self._file.write(text)
            except OSError as error:
                self._give_up(error)

    def close(self) -> None:
        """Give the file its name."""
        if self._file is not None:
            try:
                self._file.close()
                self._new.replace(self._path)
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.trouble = f"{self._path}: cannot be written: {error}"
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
        with contextlib.suppress(OSError):
            self._new.unlink(missing_ok=True)
        self._file = None
