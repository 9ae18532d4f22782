"""Records of runs: what was written is what is read back, and a damaged file is told by its line."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace

import pytest

from agent.errors import ConfigurationError, StorageError
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import GeneratorHealth, RunRecord, Second, Span, Tally, Verdict, VerdictStatus
from simulator.fleet.report.folder import RunFolder, read_record, read_seconds, record_text, second_line

TALLY = Tally(3, 2, "abc", "def")
SECOND = Second(0, {"http.poll": {OutcomeClass.LIMITED: TALLY}}, {"online": 5.0}, GeneratorHealth(intended=3, sent=3))
RECORD = RunRecord(
    name="steady", kind="devices", seed=1, digest="d", transport="http_poll", workers=2, devices=10,
    began_at="2026-01-01T00:00:00Z", ended_at="2026-01-01T00:01:00Z", duration_s=60.0, machine="m", version="1",
    target="http://127.0.0.1:1", verdict=Verdict(VerdictStatus.LOST, 4, ("one reading is lost",)),
    phases=(Span("hold", "hold", 0.0, 60.0),), faults=(Span("f", "disconnect_storm", 1.0, 2.0, 5, {"share": 0.5}),),
    operations=SECOND.operations, health=GeneratorHealth(), extras={"backfill": {"edges": [1, None]}},
)  # fmt: skip


def broken(text: str, **members: object) -> str:
    return json.dumps({**json.loads(text), **members})


def faults_of(call, *arguments) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        list(call(*arguments) or ())
    return caught.value.faults


def test_what_is_written_is_read_back(tmp_path):
    seconds = [replace(SECOND, second=number) for number in (0, 1, 5)]
    with RunFolder(tmp_path / "run") as folder:
        folder.keep(RECORD)
        assert read_record(folder.path) == replace(RECORD, ended_at="")
        for second in seconds:
            folder.append(second)
        assert list(read_seconds(folder.path)) == seconds, "a run that goes on can be read, too"
        folder.finish(RECORD)
    assert read_record(folder.path) == RECORD
    assert list(read_seconds(folder.path)) == seconds


def test_a_folder_that_holds_a_run_is_not_written_over(tmp_path):
    with RunFolder(tmp_path):
        pass
    assert "holds a run already" in faults_of(RunFolder, tmp_path)[0]
    (tmp_path / "file").write_text("")
    assert "cannot be used" in faults_of(RunFolder, tmp_path / "file" / "run")[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "format is None"),
        (broken(record_text(RECORD), format="fleet-run/9"), "use the version that wrote it"),
        (broken(record_text(RECORD), seed="1"), "run.json: seed: input should be a valid integer"),
        (broken(record_text(RECORD), verdict={"word": "fine", "exit_code": 0}), "run.json: verdict.word: input should"),
    ],
)
def test_a_damaged_record_is_told_by_its_member(text, said, tmp_path):
    (tmp_path / "run.json").write_text(text)
    assert said in faults_of(read_record, tmp_path)[0]


def test_a_damaged_second_is_told_by_its_line_and_half_a_last_one_is_left_out(tmp_path):
    line = second_line(SECOND)
    path = tmp_path / "seconds.jsonl"
    later = second_line(replace(SECOND, second=1))
    path.write_text(line + later + later[:40])
    assert [second.second for second in read_seconds(tmp_path)] == [0, 1]
    path.write_text(line + later[:40] + "\n" + later)
    assert f"{path}:2: the whole: invalid JSON" in faults_of(read_seconds, tmp_path)[0]
    path.write_text(line + later.replace('"count":3', '"count":"3"'))
    assert f"{path}:2: operations.http.poll.limited.count" in faults_of(read_seconds, tmp_path)[0]
    path.write_text(line + later.replace("limited", "sluggish"))
    assert "operations.http.poll.sluggish" in faults_of(read_seconds, tmp_path)[0]
    path.write_text(later + line)
    assert "second 0 comes after second 1" in faults_of(read_seconds, tmp_path)[0]
    path.write_bytes(b"\xff\xfe\n")
    assert f"{path}:1" in faults_of(read_seconds, tmp_path)[0]
    path.unlink()
    assert list(read_seconds(tmp_path)) == []
    assert "not there" in faults_of(read_record, tmp_path)[0]


def test_a_full_disk_costs_the_second_and_not_the_file(tmp_path, monkeypatch):
    real = os.write

    def half_then_full(fd: int, data: bytes) -> int:
        if len(data) < len(second_line(SECOND)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[:30])

    with RunFolder(tmp_path) as folder:
        folder.append(SECOND)
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", half_then_full)
            with pytest.raises(StorageError, match="second 1 could not be written: .*No space"):
                folder.append(replace(SECOND, second=1))
        folder.append(replace(SECOND, second=2))
    assert [second.second for second in read_seconds(tmp_path)] == [0, 2]
