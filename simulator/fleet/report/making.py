"""All reports of a run out of its folder: of one that ended, and of one that was killed or still goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from agent.errors import ConfigurationError, InvalidMessage, StorageError
from simulator.exit_codes import ExitCode
from simulator.fleet.metrics.stages import stages_of, without_stages
from simulator.fleet.record import RunRecord, Verdict, Word
from simulator.fleet.report.exports import (
    checks_of,
    passed_on_as_csv,
    passed_on_as_generator_csv,
    summary_csv,
    summary_json,
)
from simulator.fleet.report.folder import write_whole
from simulator.fleet.report.page import fleet_page
from simulator.fleet.report.prometheus import record_metrics
from simulator.fleet.report.timeline import Totals, slice_width_s, slices_of
from simulator.fleet.report.words import plural
from simulator.fleet.report.writing import read_record, read_seconds
from simulator.report.junit import junit_xml

FILES: Final = {
    "report.html": "this page",
    "summary.json": "figures for scripts",
    "summary.csv": "a row for each operation and outcome",
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
    """What :func:`make_reports` made.

    Attributes:
        record: the run; of one that did not end, what its seconds tell.
        page: ``report.html``.
    """

    record: RunRecord
    page: Path


def make_reports(folder: Path) -> Made:
    """Make every report of the run in a folder anew.

    Raises:
        ConfigurationError: the folder holds no run, or a damaged one.
        StorageError: a report could not be written; those before it are.
    """
    try:
        return _make_reports(folder)
    except InvalidMessage as error:
        raise ConfigurationError([f"{folder}: run.json or seconds.jsonl is damaged: {error}"]) from None


def _make_reports(folder: Path) -> Made:
    record = read_record(folder)
    if not record.ended_at:
        record = unended(record, folder)
    width_s = slice_width_s(record.duration_s)
    with _growing(folder / "seconds.csv") as by_second, _growing(folder / "generator.csv") as generator:
        seconds = passed_on_as_generator_csv(passed_on_as_csv(read_seconds(folder), by_second), generator)
        slices = tuple(slices_of(seconds, width_s))
    files = tuple((name, what) for name, what in FILES.items() if name != "report.html")
    texts = {
        "summary.csv": summary_csv(record.operations),
        "summary.json": summary_json(record),
        "junit.xml": junit_xml(checks_of(record)),
        "metrics.prom": record_metrics(record),
        "report.html": fleet_page(record, slices, width_s, files),
    }
    for name, text in texts.items():
        write_whole(folder / name, text)
    return Made(record, folder / "report.html")


def unended(record: RunRecord, folder: Path) -> RunRecord:
    """The record of a run that did not end, completed out of its seconds.

    Raises:
        ConfigurationError: a second is damaged.
    """
    totals = Totals()
    for second in read_seconds(folder):
        totals.take(second)
    seconds = totals.last_second + 1
    told = (
        f"the run did not end: it was killed, or it still goes on; this is what {plural(seconds, 'second')} of it tell"
    )
    return replace(
        record,
        duration_s=float(seconds),
        operations=without_stages(totals.operations),
        command_stages=stages_of(totals.operations),
        health=totals.health,
        phases=tuple(replace(each, end_s=min(each.end_s, seconds)) for each in record.phases if each.begin_s < seconds),
        faults=tuple(replace(each, end_s=min(each.end_s, seconds)) for each in record.faults if each.begin_s < seconds),
        verdict=Verdict(Word.INTERRUPTED, int(ExitCode.INTERRUPTED), (told, "nothing was audited")),
    )


@contextlib.contextmanager
def _growing(path: Path) -> Iterator[IO[str]]:
    """A file that is written line by line and has its name only when it is whole."""
    new = path.with_name(f".{path.name}.new")
    try:
        with new.open("w", encoding="utf-8", newline="") as file:
            yield file
        new.replace(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error}") from None
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
