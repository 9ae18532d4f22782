"""The tables of a run, read by DuckDB: a row is one observation, and a cell one value."""

from __future__ import annotations

import csv
import errno
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.core.values import Contract, OutcomeStatus
from agent.wire.times import to_rfc3339
from simulator.cli import program
from simulator.fleet.audit.file_ledger import FileLedger
from simulator.fleet.audit.folder import AuditedDevice, ledger_path, write_devices
from simulator.fleet.audit.ledger_format import LedgerHeader
from simulator.fleet.record import AuditRecord, DeviceFinding, RunRecord, Span, StreamAudit
from simulator.fleet.report import table_files
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.making import FILES, finish_run
from tests.fleet_runs import Shape, a_run

Rows = Callable[[str, Path], list[tuple[object, ...]]]
BEGAN = datetime(2026, 3, 1, 12, 0, 5, 250_000, tzinfo=UTC)
PLAIN, SECONDS = a_run(Shape(duration_s=40, rate_per_s=60))
FAULTS = (
    Span("half-gone", "disconnect_storm", 16.0, 19.5, 3, {"devices": ["sim-1", "sim-2", "sim-3"], "share": 0.5}),
    Span("slow", "link_profile", 18.0, 24.0, 1, {"devices": ["sim-2"], "profile": "2g"}),
)
RECORD = replace(PLAIN, load_began_at=to_rfc3339(BEGAN.timestamp()), faults=FAULTS)
TABLES = sorted(Path(name).stem for name in FILES if name.endswith(".csv"))


def made(folder: Path, record: RunRecord = RECORD, formats: tuple[str, ...] = ("parquet",)) -> Path:
    with RunFolder(folder) as run:
        for second in SECONDS:
            run.append(second)
        assert finish_run(run, record, formats).missing == ()
    return folder


def with_ledger(folder: Path) -> Path:
    """Of three devices the first has two readings, 10 ms and 2 s old, and a command; the second one that is lost."""
    write_devices(folder, (AuditedDevice(n, f"id-{n}", f"sim-{n}") for n in range(3)))
    path = ledger_path(folder, 0)
    with FileLedger(path, LedgerHeader(0, 0, 3, round(BEGAN.timestamp() * 1000))) as ledger:
        ledger.reading_sent(0, 1, 7, recorded_ms=None, made_s=1.0, at_s=1.0)
        ledger.readings_accepted(0, [1], 1.01)
        ledger.reading_sent(0, 2, 7, recorded_ms=None, made_s=2.0, at_s=3.0)
        ledger.readings_resent(0, [2], 3.5, ambiguous=True)
        ledger.readings_accepted(0, [2], 4.0)
        ledger.reading_sent(1, 1, 7, recorded_ms=None, made_s=5.0, at_s=5.0)
        ledger.readings_accepted(1, [1], 5.5)
        ledger.command_received(0, "c1", 6.0)
        ledger.command_started(0, "c1", Contract.ONCE, 1, 6.0)
        ledger.command_finished(0, "c1", OutcomeStatus.SUCCEEDED, 6.1)
        ledger.command_reported(0, "c1", 6.2)
    return folder


READER = """
import json, sys
import duckdb
for line in sys.stdin:
    query, table = json.loads(line)
    found = duckdb.sql(query.replace("TABLE", f"'{table}'"))
    columns = zip(found.columns, found.types)
    shown = [f'epoch_ms("{name}")' if "TIMESTAMP" in str(kind) else f'"{name}"' for name, kind in columns]
    print(json.dumps(found.project(", ".join(shown)).fetchall()), flush=True)
"""
"""DuckDB in a process of its own: at the end of a process it complains about itself."""


@pytest.fixture(scope="module", name="rows")
def _rows() -> Iterator[Rows]:
    """What DuckDB answers; times as milliseconds since the epoch."""
    command = [sys.executable, "-c", READER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as reader:

        def answered(query: str, table: Path) -> list[tuple[object, ...]]:
            reader.stdin.write(json.dumps([query, str(table)]) + "\n")
            reader.stdin.flush()
            line = reader.stdout.readline()
            assert line, reader.stderr.read()
            return [tuple(row) for row in json.loads(line)]

        yield answered
        reader.stdin.close()
        reader.stderr.read()


def epoch_ms(after_s: float) -> int:
    return round(BEGAN.timestamp() * 1000 + after_s * 1000)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_another_program_groups_seconds_by_phase_fault_operation_and_outcome(rows, tmp_path, suffix):
    folder = made(tmp_path)
    found = rows(
        "select timestamp, second, phase, fault, faults, workers_missing, operation, outcome, count "
        "from TABLE where operation = 'http.poll' order by second, outcome",
        folder / f"seconds.{suffix}",
    )
    wanted = []
    for second in SECONDS:
        at = second.second
        faults = [fault.name for fault in FAULTS if fault.begin_s < at + 1 and fault.end_s > at]
        phase = "ramp" if at < 5 else "hold" if at < 30 else "storm"
        gap = RECORD.gaps[0]
        head = (
            epoch_ms(at), at, phase, faults[-1] if faults else None, len(faults),
            int(gap.from_s <= at < gap.to_s),
        )  # fmt: skip
        for outcome, tally in sorted(second.operations["http.poll"].items()):
            wanted.append((*head, "http.poll", str(outcome), tally.count))
    assert found == wanted
    assert {row[3] for row in found} == {None, "half-gone", "slow"}
    assert {row[4] for row in found} == {0, 1, 2}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_no_cell_of_any_table_holds_two_values(rows, tmp_path, suffix):
    folder = made(with_ledger(tmp_path))
    for name in TABLES:
        texts = [
            cell
            for row in rows("select * from TABLE", folder / f"{name}.{suffix}")
            for cell in row
            if isinstance(cell, str)
        ]
        assert not [text for text in texts if any(mark in text for mark in ";={,")], name
    total = sum(len(second.gauges) for second in SECONDS)
    assert rows("select count(*) as rows, count(distinct gauge) as gauges from TABLE", folder / f"gauges.{suffix}") == [
        (total, 4)
    ]


def test_both_formats_hold_the_same(rows, tmp_path):
    folder = made(with_ledger(tmp_path))
    for name in TABLES:
        by_csv = rows("select * from TABLE", folder / f"{name}.csv")
        by_parquet = rows("select * from TABLE", folder / f"{name}.parquet")
        assert len(by_csv) == len(by_parquet) > 0, name
        for one, other in zip(by_csv, by_parquet, strict=True):
            assert [cell is None for cell in one] == [cell is None for cell in other], name
            for a, b in zip(one, other, strict=True):
                if isinstance(b, str):
                    assert str(a) == b, "CSV has no types: a key that is a number looks like one"
                else:
                    assert a == (None if b is None else pytest.approx(b, rel=1e-5)), name


def test_the_devices_of_a_fault_are_rows_and_its_time_is_in_the_table_of_faults(rows, tmp_path):
    folder = made(tmp_path)
    assert rows("select fault, kind, device from TABLE", folder / "fault-devices.csv") == [
        ("half-gone", "disconnect_storm", "sim-1"),
        ("half-gone", "disconnect_storm", "sim-2"),
        ("half-gone", "disconnect_storm", "sim-3"),
        ("slow", "link_profile", "sim-2"),
    ]
    first, _ = rows("select timestamp, ended, phase, fault, devices from TABLE", folder / "faults.parquet")
    assert first == (epoch_ms(16), epoch_ms(19.5), "hold", "half-gone", 3)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_each_device_has_a_row_with_what_it_sent_its_ages_and_what_the_audit_found(rows, tmp_path, suffix):
    stream = StreamAudit(3, 3, 2, 1, 0, 0, 0, 0, 0)
    audit = AuditRecord(stream, None, complete=True, findings=(DeviceFinding("id-1", "sim-1", "lost", 1, ("1",)),))
    folder = made(with_ledger(tmp_path), replace(RECORD, audit=audit))
    found = rows(
        "select device, device_id, readings_sent, readings_accepted, readings_resent, age_p50_s, age_p99_s, "
        "commands_received, commands_succeeded, commands_reported, lost, altered from TABLE",
        folder / f"by-device.{suffix}",
    )
    assert found == [
        ("sim-0", "id-0", 2, 2, 1, 0.01, 2.0, 1, 1, 1, 0, 0),
        ("sim-1", "id-1", 1, 1, 0, 0.5, 0.5, 0, 0, 0, 1, 0),
        ("sim-2", "id-2", 0, 0, 0, None, None, 0, 0, 0, 0, 0),
    ]


@pytest.mark.parametrize("why", ["incomplete", "cut", "none"])
def test_a_device_that_the_audit_could_not_judge_is_not_said_to_have_lost_nothing(rows, tmp_path, why):
    finding = DeviceFinding("id-1", "sim-1", "lost", 1, ("1",))
    stream = StreamAudit(3, 3, 1, 2 if why == "cut" else 1, 0, 0, 0, 0, 0)
    audit = AuditRecord(stream, None, complete=why != "incomplete", findings=(finding,))
    folder = made(with_ledger(tmp_path), replace(RECORD, audit=None if why == "none" else audit))
    found = rows("select device, lost from TABLE", folder / "by-device.csv")
    assert found == [("sim-0", None), ("sim-1", None if why == "none" else 1), ("sim-2", None)]


def test_ages_of_history_are_left_out(rows, tmp_path):
    folder = made(with_ledger(tmp_path), replace(RECORD, kind="backfill"))
    assert rows("select count(age_p50_s) as aged, sum(readings_sent) as sent from TABLE", folder / "by-device.csv") == [
        (0, 3)
    ]


def test_without_pyarrow_parquet_is_refused_with_the_line_that_installs_it_and_nothing_is_sent(tmp_path, monkeypatch):
    folder = made(tmp_path / "run", formats=())
    assert not list(folder.glob("*.parquet"))
    monkeypatch.setattr(table_files, "find_spec", lambda _name: None)
    scenario = tmp_path / "small.yaml"
    scenario.write_text("scenario: small\nfleet: {devices: 1}\nphases: [{name: hold, kind: hold, duration_s: 1s}]\n")
    for given in (["report", str(folder)], ["run", str(scenario), "--local", "--out", str(tmp_path / "new")]):
        result = CliRunner().invoke(program, [*given, "--export", "parquet"], standalone_mode=False)
        assert getattr(result.exception, "exit_code", None) == 2
        assert "pip install '.[parquet]' in a clone of device-agent" in getattr(result.exception, "message", "")
    assert not (tmp_path / "new" / "run.json").exists()


def test_parquet_files_that_are_there_are_made_anew_with_all_others(rows, tmp_path):
    folder = made(tmp_path)
    document = json.loads((folder / "run.json").read_text())
    document["load_began_at"] = "2027-01-01T00:00:00.000Z"
    (folder / "run.json").write_text(json.dumps(document))
    assert CliRunner().invoke(program, ["report", str(folder)], standalone_mode=False).return_value == 0
    assert rows("select year(min(timestamp::date)) as year from TABLE", folder / "seconds.parquet") == [(2027,)]


def test_a_record_that_does_not_know_when_its_load_began_has_no_timestamps(rows, tmp_path):
    folder = made(tmp_path, replace(RECORD, load_began_at=""))
    with (folder / "seconds.csv").open(newline="") as file:
        assert {row["timestamp"] for row in csv.DictReader(file)} == {""}
    assert rows(
        "select count(timestamp) as dated, count(second) > 0 as numbered from TABLE", folder / "gauges.parquet"
    ) == [(0, True)]


def test_a_full_disk_costs_the_table_and_leaves_no_part_of_it(tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    def full(*_arguments, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with RunFolder(tmp_path) as run:
        for second in SECONDS:
            run.append(second)
        missing = finish_run(run, RECORD, ("parquet",)).missing
    assert len(missing) == 8
    assert all(sentence.endswith("No space left on device") for sentence in missing)
    assert not [path.name for path in tmp_path.iterdir() if "parquet" in path.name]
    assert (tmp_path / "seconds.csv").exists()
