from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from simulator.labels import LabelError, make_labels
from simulator.labels.batch.ledger import Ledger

TAKING = """
    import random, sys
    from pathlib import Path
    from simulator.labels.batch.ledger import Ledger

    path, name, total = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    pick, ledger, left = random.Random(name), Ledger(path), total
    while left:
        count = min(left, pick.randint(1, int(sys.argv[4])))
        folder = Path(f"/nowhere/{name}/{left}")
        own = ledger.take(product_id="p", template="T{serial}", count=count, folder=folder).reservation
        print(own.first_serial, own.count)
        left -= count
"""


def _take(ledger, folder="/a", **changes):
    given = {"product_id": "p", "template": "T{serial}", "count": 10, "folder": ledger._path.parent / folder}
    return ledger.take(**{**given, **changes})


@pytest.fixture(name="ledger")
def _ledger(tmp_path):
    return Ledger(tmp_path / "new" / "serials.jsonl")


def test_serials_follow_each_other_and_begin_at_1(ledger):
    assert [_take(ledger, f"/{n}").reservation.first_serial for n in range(3)] == [1, 11, 21]


def test_each_product_and_template_counts_for_itself(ledger):
    _take(ledger)
    assert _take(ledger, product_id="q").reservation.first_serial == 1
    assert _take(ledger, template="U{serial}").reservation.first_serial == 1
    assert _take(ledger, "/b").reservation.first_serial == 11


def test_an_interrupted_batch_gets_its_own_serials_back_and_another_folder_others(ledger):
    first = _take(ledger)
    assert _take(ledger) == type(first)(first.reservation, again=True)
    assert not _take(ledger, "/b").again
    assert not _take(ledger, count=11).again


def test_a_finished_batch_keeps_its_serials_while_its_folder_holds_it(ledger, tmp_path):
    own = _take(ledger, tmp_path).reservation
    ledger.made(own)
    ledger.made(own)
    (tmp_path / "manifest.json").write_text("{}")
    assert _take(ledger, tmp_path).again
    (tmp_path / "manifest.json").unlink()
    assert _take(ledger, tmp_path).reservation.first_serial == 11
    assert [r.made for r in ledger.reservations()] == [True, False]


def test_serials_asked_for_by_number_are_refused_when_one_of_them_is_taken(ledger):
    _take(ledger, first_serial=100)
    for first in (91, 100, 105, 109):
        with pytest.raises(LabelError, match=r"serials 100 to 109 are taken .*give 110 or more"):
            _take(ledger, "/b", first_serial=first)
    assert _take(ledger, "/b", first_serial=90).reservation.first_serial == 90
    assert _take(ledger, "/c").reservation.first_serial == 110


@pytest.mark.parametrize("cut_bytes", range(1, 60, 7))
def test_a_torn_last_line_is_said_marked_and_never_counted(ledger, cut_bytes):
    _take(ledger)
    _take(ledger, "/b")
    path = ledger._path
    path.write_bytes(path.read_bytes()[:-cut_bytes])
    taken = _take(ledger, "/c")
    assert taken.reservation.first_serial == 11
    assert "cut short" in taken.note
    again = _take(ledger, "/d")
    assert (again.reservation.first_serial, again.note) == (21, "")
    assert json.loads(path.read_bytes().splitlines()[2])["event"] == "torn"


@pytest.mark.parametrize("damage", [b"rubbish\n", b"[]\n", b'{"event": "made", "number": 99}\n', b'{"event": "x"}\n'])
def test_a_damaged_ledger_hands_out_nothing_and_names_the_line(ledger, damage):
    _take(ledger)
    path = ledger._path
    path.write_bytes(path.read_bytes() + damage + path.read_bytes())
    before = path.read_bytes()
    with pytest.raises(LabelError, match="line 2: no entry of a serial ledger; nothing was handed out"):
        _take(ledger, "/b")
    assert path.read_bytes() == before


def test_the_ledger_is_only_ever_appended_to(ledger):
    seen = b""
    for n in range(5):
        ledger.made(_take(ledger, f"/{n}").reservation)
        now = ledger._path.read_bytes()
        assert now.startswith(seen)
        seen = now


def test_a_ledger_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LabelError, match="give another --ledger"):
        _take(Ledger(tmp_path / "file" / "serials.jsonl"), tmp_path)
    with pytest.raises(LabelError, match="give another --ledger"):
        _take(Ledger(tmp_path), tmp_path)


def test_two_processes_never_get_the_same_serial(tmp_path):
    total = 400
    commands = [
        [sys.executable, "-c", textwrap.dedent(TAKING), str(tmp_path / "s.jsonl"), name, str(total), "20"]
        for name in ("left", "right")
    ]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    outputs = [process.communicate(timeout=1200)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    runs = [tuple(map(int, line.split())) for output in outputs for line in output.splitlines()]
    serials = [serial for first, count in runs for serial in range(first, first + count)]
    assert len(serials) == len(set(serials)) == 2 * total
    assert sorted(serials) == list(range(1, 2 * total + 1))


def _make(out, ledger, **changes):
    given = {"product_id": "p", "count": 3, "out": out, "formats": ["png"], "size_mm": 9}
    return make_labels(**{**given, "ledger": ledger, **changes})


def test_two_batches_with_one_ledger_never_overlap_and_a_resumed_one_keeps_its_serials(tmp_path):
    ledger = tmp_path / "serials.jsonl"
    _make(tmp_path / "a", ledger)

    def blow(done, total):
        raise RuntimeError("power")

    with pytest.raises(RuntimeError):
        _make(tmp_path / "b", ledger, on_progress=blow)
    third = _make(tmp_path / "c", ledger)
    second = _make(tmp_path / "b", ledger)
    assert [label.order.serial for label in second.labels] == [4, 5, 6]
    assert [label.order.serial for label in third.labels] == [7, 8, 9]
    assert any("reserved for this folder already" in note for note in second.warnings)
    assert [r.made for r in Ledger(ledger).reservations()] == [True, True, True]
    assert json.loads(second.manifest_json.read_text())["batch"]["reservation"] == 2


def test_what_cannot_be_made_takes_no_serial(tmp_path):
    for changes in ({"size_mm": 1}, {"count": 0}, {"template": "fixed"}, {"formats": ["gif"]}):
        with pytest.raises(LabelError):
            _make(tmp_path / "a", tmp_path / "serials.jsonl", **changes)
    assert not (tmp_path / "serials.jsonl").exists()
