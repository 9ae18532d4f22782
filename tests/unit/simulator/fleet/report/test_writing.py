"""Records of runs: what was written is what is read back, and a damaged file is told by its line."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace

import pytest

from agent.errors import ConfigurationError, StorageError
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import GeneratorHealth, Second, Tally
from simulator.fleet.report.folder import RunFolder, read_record, read_seconds, record_text, second_line
from tests.support.fleet_runs import Shape, a_run, kept

RECORD, _ = a_run(Shape(duration_s=10, rate_per_s=5))
SECOND = Second(0, {"http.poll": {OutcomeClass.LIMITED: Tally(3, 2, "abc", "def")}}, {"online": 5.0}, GeneratorHealth())
LINE, LATER = second_line(SECOND), second_line(replace(SECOND, second=1))


def record_with(**members: object) -> str:
    return json.dumps({**json.loads(record_text(RECORD)), **members})


def faults_of(call, *arguments) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        list(call(*arguments) or ())
    return caught.value.faults


def test_what_is_written_is_read_back_also_while_the_run_goes_on(tmp_path):
    seconds = [replace(SECOND, second=number) for number in (0, 1, 5)]
    for name, ends in (("on", False), ("ended", True)):
        folder = kept(tmp_path / name, RECORD, seconds, ends=ends)
        assert read_record(folder) == (RECORD if ends else replace(RECORD, ended_at=""))
        assert list(read_seconds(folder)) == seconds


@pytest.mark.parametrize("name", ["run.json", "seconds.jsonl", "run.sqlite", "ledger-000.sqlite"])
def test_a_folder_that_holds_some_of_a_run_is_not_written_over(name, tmp_path):
    (tmp_path / name).touch()
    assert "holds a run already" in faults_of(RunFolder, tmp_path)[0]
    (tmp_path / "file").write_text("")
    assert "cannot be used" in faults_of(RunFolder, tmp_path / "file" / "run")[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "format is None"),
        (record_with(format="fleet-run/9"), "use the version that wrote it"),
        (record_with(seed="1"), "run.json: seed: input should be a valid integer"),
        (record_with(verdict={"word": "fine", "exit_code": 0}), "run.json: verdict.word: input should"),
    ],
)
def test_a_damaged_record_is_told_by_its_member(text, said, tmp_path):
    (tmp_path / "run.json").write_text(text)
    assert said in faults_of(read_record, tmp_path)[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LINE + LATER[:40] + "\n" + LATER, ":2: the whole: invalid JSON"),
        (LINE + LATER.replace('"count":3', '"count":"3"'), ":2: operations.http.poll.limited.count"),
        (LINE + LATER.replace("limited", "sluggish"), ":2: operations.http.poll.sluggish"),
        (LATER + LINE, ":2: second 0 comes after second 1"),
        ("\udcff\n", ":1"),
    ],
)
def test_a_damaged_second_is_told_by_its_line(text, said, tmp_path):
    (tmp_path / "seconds.jsonl").write_bytes(text.encode(errors="surrogateescape"))
    assert f"seconds.jsonl{said}" in faults_of(read_seconds, tmp_path)[0]


def test_half_a_last_second_is_left_out_and_an_empty_folder_holds_no_run(tmp_path):
    assert list(read_seconds(tmp_path)) == []
    assert "not there" in faults_of(read_record, tmp_path)[0]
    (tmp_path / "seconds.jsonl").write_text(LINE + LATER + LATER[:40])
    assert [second.second for second in read_seconds(tmp_path)] == [0, 1]


def test_a_full_disk_costs_the_second_and_not_the_file(tmp_path, monkeypatch):
    real = os.write

    def half_then_full(fd: int, data: bytes) -> int:
        if len(data) < len(LINE):
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
