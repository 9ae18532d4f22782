"""How a run ends: a drain that is cut off, a later audit, a full disk: the record says it, and so do the reports."""

from __future__ import annotations

import asyncio
import errno
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import StorageError
from simulator.fleet.metrics.recorder import Totals
from simulator.fleet.record import (
    AuditRecord,
    CommandEnds,
    Reasons,
    RunRecord,
    StreamAudit,
    ThresholdResult,
    Verdict,
    VerdictStatus,
)
from simulator.fleet.report.folder import RunFolder, read_record, record_text
from simulator.fleet.report.making import make_reports
from simulator.fleet.run.lifecycle import ended_otherwise, merge_audit
from simulator.fleet.verdict import judge_run
from simulator.fleet.workload.base import Leftover
from simulator.fleet.workload.fleet import FleetWorkload
from tests.support.fleet_runs import Shape, a_run
from tests.support.virtual_fleet.scenarios import CONTEXTS, Looker

PLAIN, SECONDS = a_run(Shape(duration_s=40, rate_per_s=60, good=True))
CLEAN = StreamAudit(10, 10, 10, 0, 0, 0, 0)
WHOLE = AuditRecord(CLEAN, None, complete=True)
CUT = AuditRecord(None, None, complete=False, unjudged=("the service answered 503",))
LOSSY = AuditRecord(replace(CLEAN, stored=8, lost=2), None, complete=True)
TOTALS = Totals(SECONDS)


def run_with(audit: AuditRecord | None, reasons: Reasons | None = None) -> RunRecord:
    """A run of which seconds, figures and verdict fit together."""
    reasons = reasons or Reasons()
    held = audit is not None and audit.complete and not (audit.readings and audit.readings.lost)
    lost = 0.0 if held else None
    threshold = ThresholdResult(
        "audit.lost == 0", held=held, observed=lost, reason="" if held else "no audit", judged=lost is not None
    )
    measured = replace(PLAIN, operations=TOTALS.operations, health=TOTALS.health, scenario_text="")
    found = replace(measured, audit=audit, thresholds=(threshold,), reasons=reasons)
    return replace(found, verdict=judge_run(found))


def kept(folder: Path, record: RunRecord, *, ends: bool = True) -> Path:
    with RunFolder(folder) as run:
        begun = replace(record, operations={}, reasons=None)
        run.keep(replace(begun, verdict=Verdict(VerdictStatus.INTERRUPTED, 130, ("not ended",))))
        for second in SECONDS:
            run.append(second)
        if ends:
            run.finish(record)
    return folder


def test_a_drain_that_does_not_end_in_time_fails_the_run(tmp_path, monkeypatch):
    async def drain(*_given: object) -> Leftover:
        await asyncio.sleep(3600)
        return Leftover()

    monkeypatch.setattr(FleetWorkload, "drain", drain)
    phases = [{"name": "hold", "kind": "hold", "duration_s": 5}]
    record = Looker(tmp_path)({**CONTEXTS["core-poll"], "phases": phases, "drain_s": 5}).run.record
    assert record.verdict.word is VerdictStatus.FAILED
    cut = "the drain of worker 0 was cut off: what its devices still held is not known"
    assert cut in record.verdict.sentences


def test_an_audit_that_was_cut_short_and_made_later_makes_the_run_pass(tmp_path):
    folder = kept(tmp_path / "run", run_with(CUT))
    assert read_record(folder).verdict.word is VerdictStatus.INCONCLUSIVE
    assert merge_audit(folder, WHOLE)[0] == f"the run: passed, exit code 0; {folder / 'report.html'}"
    record = read_record(folder)
    assert (record.verdict.word, record.audit) == (VerdictStatus.PASSED, WHOLE)
    assert [result.held for result in record.thresholds] == [True]
    assert record.audited_at
    page = (folder / "report.html").read_text()
    assert "audit: nothing lost, doubled or altered" in page
    assert "503" in page
    assert "<dt>Audited again</dt>" in page
    assert 'failures="0"' in (folder / "junit.xml").read_text()


@pytest.mark.parametrize(
    ("reasons", "word"),
    [
        (Reasons(failures=("the barrier never opened",)), VerdictStatus.FAILED),
        (Reasons(unreachable="the target went away"), VerdictStatus.UNREACHABLE),
    ],
)
def test_what_else_the_run_found_stays(reasons, word, tmp_path):
    folder = kept(tmp_path / "run", run_with(CUT, reasons))
    merge_audit(folder, WHOLE)
    assert read_record(folder).verdict.word is word


def test_a_run_that_was_killed_has_an_end_by_its_audit(tmp_path):
    folder = kept(tmp_path / "run", run_with(None), ends=False)
    (folder / ".running").write_bytes(b"")
    merge_audit(folder, LOSSY)
    record = make_reports(folder)[0]
    assert (record.verdict.word, record.verdict.exit_code) == (VerdictStatus.LOST, 4)
    assert "the run did not end: it was killed; its figures cover 40 seconds" in record.verdict.sentences
    assert record.operations == TOTALS.operations
    assert not (folder / ".running").exists()


def test_a_run_that_still_goes_on_keeps_its_record_and_its_report_says_that_it_goes_on(tmp_path):
    with RunFolder(tmp_path / "run") as run:
        run.keep(replace(run_with(None), operations={}, reasons=None))
        run.append(SECONDS[0])
        before = (tmp_path / "run" / "run.json").read_bytes()
        assert "still goes on" in merge_audit(tmp_path / "run", WHOLE)[0]
        assert (tmp_path / "run" / "run.json").read_bytes() == before
        first = make_reports(tmp_path / "run")[0].verdict.sentences[0]
        assert first == "the run did not end: it still goes on; its figures cover 1 second"
    assert not (tmp_path / "run" / ".running").exists()


@pytest.mark.parametrize("room", [1_000_000, 8_000])
def test_a_disk_that_is_full_at_the_end_still_takes_what_happened(room, tmp_path, monkeypatch):
    """The disk has as much room as the run gives back at its end: for the record, or for its verdict alone."""
    record = run_with(WHOLE, Reasons(failures=("seconds are missing in the run's folder: no space left",)))

    def write(path, text, *_more, **_options):
        if len(text) > room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return path.write_text(text)

    with RunFolder(tmp_path / "run") as run:
        run.keep(record)
        for second in SECONDS:
            run.append(second)
        reserved = (tmp_path / "run" / ".running").stat().st_size
        assert reserved == 1024 * 1024
        assert (tmp_path / "run" / ".running").stat().st_blocks * 512 >= reserved, "and it is no hole"
        with monkeypatch.context() as patched:
            patched.setattr("simulator.whole_files.write_whole", write)
            with nullcontext() if room > len(record_text(record)) else pytest.raises(StorageError):
                run.finish(record)
        assert (tmp_path / "run" / ".running").stat().st_size == 0, "given back before the record is written"
    found = make_reports(tmp_path / "run")[0]
    assert (found.verdict.word, found.verdict.exit_code) == (VerdictStatus.FAILED, 1)
    assert found.verdict.sentences[0] == "seconds are missing in the run's folder: no space left"
    assert found.audit == WHOLE
    assert found.operations == record.operations


def ping(ends, *, expect="succeeded", unanswered=0):
    return CommandEnds("ping", expect, 10, 0, unanswered, ends)


STRANGERS = CommandEnds("", "any", 0, 0, 0, {"succeeded": 8})
"""Commands that came to devices under ids that no order was answered with."""
SHOULD = "of 10 commands 'ping' that should have ended as"


@pytest.mark.parametrize(
    ("streams", "told"),
    [
        ([ping({"succeeded": 10})], []),
        ([ping({"expired": 10})], [f"{SHOULD} succeeded: 10 expired"]),
        ([ping({"open": 10})], [f"{SHOULD} succeeded: 10 had not ended"]),
        ([ping({"expired": 10}, expect="expired")], []),
        ([ping({"succeeded": 10}, expect="expired")], [f"{SHOULD} expired: 10 succeeded"]),
        ([ping({"failed": 10}, expect="any")], []),
        ([ping({}, unanswered=10)], ["none of 10 commands 'ping' is known to have ended as succeeded"]),
        # They may be those that stayed open.
        ([ping({"open": 8}), STRANGERS], []),
        ([ping({"open": 10}), STRANGERS], [f"{SHOULD} succeeded: 2 had not ended"]),
        ([ping({}, unanswered=10), STRANGERS], []),
    ],
)
def test_every_other_end_of_commands_than_the_expected_one_is_told(streams, told):
    assert list(ended_otherwise(streams, whole=True)) == told
