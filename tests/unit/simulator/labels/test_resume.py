"""A batch that was interrupted, killed or made by many processes comes out the same."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from simulator.labels import LabelError, LabelsExist, make_labels
from simulator.labels.batch.folder import JOURNAL
from simulator.labels.batch.manifest import read_manifest
from simulator.labels.processes import run_ordered
from simulator.labels.symbol.decoders import GrayImage, Zxing, ask
from tests.unit.simulator.labels import decoders_that_end

MADE = """
    import os, signal, sys
    from simulator.labels import make_labels

    def kill(done, total):
        if done == int(sys.argv[2]):
            os.kill(os.getpid(), int(sys.argv[3]))

    make_labels(product_id="p", count=int(sys.argv[4]), out=sys.argv[1], formats=["png", "pdf"], decoders=["zxing"],
                size_mm=9, jobs=2, on_progress=kill)
"""


def _contents(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def _make(out, **changes):
    given = {"product_id": "p", "count": 8, "out": out, "formats": ["png"], "decoders": ["zxing"], "size_mm": 9}
    return make_labels(**{**given, **changes})


def _make_and_signal(out, at, number, count=220):
    """A process of its own that is signalled at a label; its workers hold its pipes, so this waits for them, too."""
    command = [sys.executable, "-c", textwrap.dedent(MADE), str(out), str(at), str(int(number)), str(count)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


class _Blown(Exception):
    pass


def _blow_at(number):
    def blow(done, total):
        if done == number:
            raise _Blown

    return blow


def test_a_batch_that_was_killed_is_completed_to_the_same_bytes_and_what_was_proven_is_not_made_again(tmp_path):
    count = int(os.environ.get("LABELS_KILLED", "220"))
    whole = _make(tmp_path / "whole", count=count, formats=["png", "pdf"])
    killed = _make_and_signal(tmp_path / "cut", count // 2, signal.SIGKILL, count)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "cut" / "manifest.json").exists()
    batch = _make(tmp_path / "cut", count=count, formats=["png", "pdf"])
    assert count // 2 - 50 <= batch.resumed < count
    assert _contents(tmp_path / "cut") == _contents(tmp_path / "whole")
    assert whole.resumed == 0


def test_a_resume_shows_its_progress_while_it_reads_what_is_there(tmp_path):
    with pytest.raises(_Blown):
        _make(tmp_path, on_progress=_blow_at(5))
    (tmp_path / "SIM-000002.png").unlink()
    told = []
    assert _make(tmp_path, on_progress=lambda done, total: told.append((done, total))).resumed == 4
    assert told == [(done, 8) for done in range(1, 9)], "four are read, the lost one and three more are made"


def test_ctrl_c_ends_two_workers_without_a_word_and_the_same_command_goes_on(tmp_path):
    interrupted = _make_and_signal(tmp_path, 110, signal.SIGINT)
    assert interrupted.returncode != 0
    assert "KeyboardInterrupt" in interrupted.stderr.splitlines()[-1]
    assert interrupted.stderr.count("Traceback") == 1
    assert not list(tmp_path.glob(".*.tmp"))
    assert _make(tmp_path, count=220, formats=["png", "pdf"]).resumed >= 60


def test_one_process_and_several_write_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("simulator.labels.batch.making._LABELS_PER_WORKER_MIN", 1)
    _make(tmp_path / "one", count=40)
    _make(tmp_path / "two", count=40, jobs=2)
    assert _contents(tmp_path / "one") == _contents(tmp_path / "two")


def test_a_picture_that_was_lost_or_changed_while_the_batch_was_interrupted_is_made_again(tmp_path):
    _make(tmp_path / "whole")
    cut = tmp_path / "cut"
    with pytest.raises(_Blown):
        _make(cut, on_progress=_blow_at(6))
    (cut / "SIM-000002.png").unlink()
    (cut / "SIM-000004.png").write_bytes(b"torn")
    assert _make(cut).resumed == 4
    assert _contents(cut) == _contents(tmp_path / "whole")


@pytest.mark.parametrize("cut_bytes", [1, 40])
def test_a_torn_last_line_of_the_journal_costs_one_label(tmp_path, cut_bytes):
    with pytest.raises(_Blown):
        _make(tmp_path, on_progress=_blow_at(5))
    journal = tmp_path / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-cut_bytes])
    assert _make(tmp_path).resumed == 4


def test_a_journal_of_another_panel_is_not_believed(tmp_path):
    with pytest.raises(_Blown):
        _make(tmp_path, on_progress=_blow_at(5))
    assert _make(tmp_path, decoders=(Zxing("another"),)).resumed == 0


def test_an_unfinished_batch_is_not_overwritten_by_another_unless_replaced_and_then_leaves_nothing(tmp_path):
    with pytest.raises(_Blown):
        _make(tmp_path, on_progress=_blow_at(5))
    with pytest.raises(LabelsExist, match=r"unfinished batch of product 'p'.*--replace"):
        _make(tmp_path, product_id="other")
    with pytest.raises(_Blown):
        _make(tmp_path, product_id="other", count=3, replace=True, on_progress=_blow_at(2))
    _make(tmp_path, product_id="other", count=3, replace=True)
    assert sorted(_contents(tmp_path)) == [
        *("SIM-000001.png", "SIM-000002.png", "SIM-000003.png"),
        *("manifest.csv", "manifest.json"),
    ]


def test_two_processes_never_work_in_one_folder(tmp_path):
    def again(done, total):
        with pytest.raises(LabelError, match="another process makes labels in"):
            _make(tmp_path)
        raise _Blown

    with pytest.raises(_Blown):
        _make(tmp_path, on_progress=again)


def test_what_a_killed_process_was_writing_is_swept_away(tmp_path):
    (tmp_path / ".SIM-000001.png.4711.tmp").write_bytes(b"half")
    (tmp_path / ".mine.tmp").write_bytes(b"somebody else's")
    _make(tmp_path)
    assert sorted(path.name for path in tmp_path.glob(".*")) == [".mine.tmp"]


def test_a_manifest_is_read_line_by_line_and_a_foreign_layout_as_a_whole(tmp_path):
    batch = _make(tmp_path)
    read = read_manifest(batch.manifest_json)
    document = json.loads(batch.manifest_json.read_text())
    assert list(read.labels()) == list(read.labels()) == document["labels"]
    (tmp_path / "other.json").write_text(json.dumps(document, indent=4))
    assert list(read_manifest(tmp_path / "other.json").labels()) == document["labels"]
    (tmp_path / "short.json").write_bytes(batch.manifest_json.read_bytes()[:-6])
    with pytest.raises(ValueError, match="cut short"):
        list(read_manifest(tmp_path / "short.json").labels())


def test_a_panel_of_objects_stays_in_one_process(tmp_path):
    with pytest.raises(LabelError, match="jobs=1"):
        _make(tmp_path, decoders=(Zxing(),), jobs=2)
    with pytest.raises(LabelError, match="jobs is 0"):
        _make(tmp_path, jobs=0)


def test_a_lone_decoder_is_said_in_the_batch_and_in_the_manifest(tmp_path):
    batch = _make(tmp_path / "alone")
    assert "one decoder alone, zxing" in batch.warnings[0]
    assert json.loads(batch.manifest_json.read_text())["warnings"] == list(batch.warnings)


class _Double:
    """Doubles numbers; 7 is refused, 13 ends the process."""

    def start(self):
        def do(number):
            if number == 7:
                raise LabelError("seven")
            if number == 13:
                import os

                os._exit(3)
            return number * 2

        return do


def test_results_come_in_the_order_of_their_tasks_and_a_problem_after_all_before_it(monkeypatch):
    portions = [[1, 2], [3], [4, 5, 6], [7, 8], [9]]
    for jobs in (1, 2):
        results = []
        with pytest.raises(LabelError, match="seven"):
            results.extend(run_ordered(_Double(), iter(portions), jobs))
        assert results == [2, 4, 6, 8, 10, 12]


def test_a_worker_that_dies_is_one_clear_line():
    with pytest.raises(LabelError, match=r"worker process ended by itself \(exit code 3\)"):
        list(run_ordered(_Double(), iter([[1], [13], [2]]), 2))


class _Reads:
    """Has a decoder that never answers read a picture; 0 is read by zxing, 1 by the one that hangs."""

    def start(self):
        decoders = decoders_that_end.make_hanging_panel()
        return lambda number: len(ask(decoders[number], GrayImage(30, 30, bytes(900))))


def test_a_decoder_that_never_answers_ends_the_batch_with_one_clear_line():
    results = run_ordered(_Reads(), iter([[0], [1], [0]]), 2, answer_s=0.5)
    assert next(results) == 0
    with pytest.raises(
        LabelError, match="a decoder gave no answer in time and its process was ended: what is made stays"
    ):
        next(results)
