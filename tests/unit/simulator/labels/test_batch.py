from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from pathlib import Path

import pytest

from simulator.labels import LabelError, LabelsExist, UnreadableLabel, make_labels, read_label_files
from simulator.labels.batch.folder import LabelFolder, file_stem
from simulator.labels.symbol.decoders import Zxing
from simulator.labels.symbol.svg import draw_svg

PRODUCT = "0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11"


def _make(out, **changes):
    return make_labels(**{"product_id": PRODUCT, "count": 3, "out": out, **changes})


def _contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


class _Blind:
    name = "blind"

    def read(self, image):
        return ()


def test_a_batch_is_pictures_drawings_a_sheet_and_two_manifests(tmp_path):
    batch = _make(tmp_path / "new" / "folder")
    names = {f"SIM-{n:06d}.{kind}" for n in (1, 2, 3) for kind in ("png", "svg")}
    assert set(_contents(batch.folder)) == {*names, "sheet.pdf", "manifest.csv", "manifest.json"}
    assert [label.identifier for label in batch.labels] == ["SIM-000001", "SIM-000002", "SIM-000003"]
    assert batch.decoders[0] == "zxing"
    assert all(set(label.verdicts) == set(batch.decoders) for label in batch.labels)
    assert batch.retaken == 0


def test_the_pictures_read_back_as_the_labels_that_were_asked_for(tmp_path):
    batch = _make(tmp_path, template="Gerät {serial:03d} \N{SNOWMAN}/a", first_serial=41)
    reads = read_label_files(tmp_path)
    assert sorted(read.label.device_identifier for read in reads) == [
        f"Gerät {n:03d} \N{SNOWMAN}/a" for n in (41, 42, 43)
    ]
    assert {read.text for read in reads} == {label.text for label in batch.labels}
    assert {read.label.product_id for read in reads} == {PRODUCT}


def test_equal_input_gives_equal_bytes_in_every_file(tmp_path):
    _make(tmp_path / "a")
    _make(tmp_path / "b")
    assert _contents(tmp_path / "a") == _contents(tmp_path / "b")


def test_making_the_same_batch_again_touches_no_label(tmp_path):
    batch = _make(tmp_path)
    before = {path: path.stat().st_ino for path in tmp_path.glob("*.png")}
    _make(tmp_path)
    assert {path: path.stat().st_ino for path in tmp_path.glob("*.png")} == before
    assert len(batch.labels) == 3


def test_a_batch_that_was_interrupted_is_completed_by_making_it_again(tmp_path):
    _make(tmp_path / "whole", count=6)
    done = []

    class _PowerCutError(Exception):
        pass

    def cut(number, total):
        done.append((number, total))
        if number == 4:
            raise _PowerCutError

    with pytest.raises(_PowerCutError):
        _make(tmp_path / "cut", count=6, on_progress=cut)
    assert not (tmp_path / "cut" / "manifest.json").exists()
    with pytest.raises(LabelsExist, match="--replace"):
        _make(tmp_path / "cut", count=7)
    _make(tmp_path / "cut", count=6)
    assert _contents(tmp_path / "cut") == _contents(tmp_path / "whole")
    assert done == [(1, 6), (2, 6), (3, 6), (4, 6)]


def test_another_batch_in_the_folder_is_never_overwritten_silently(tmp_path):
    _make(tmp_path)
    before = _contents(tmp_path)
    with pytest.raises(LabelsExist, match=f"another batch, of product '{PRODUCT}'.*--replace"):
        _make(tmp_path, product_id="other")
    assert _contents(tmp_path) == before


def test_replacing_a_batch_leaves_nothing_of_it(tmp_path):
    _make(tmp_path, count=5)
    _make(tmp_path, count=2, formats=["png"], product_id="other", replace=True)
    assert set(_contents(tmp_path)) == {"SIM-000001.png", "SIM-000002.png", "manifest.csv", "manifest.json"}
    assert {read.label.product_id for read in read_label_files(tmp_path)} == {"other"}


@pytest.mark.parametrize("name", ["SIM-000002.png", "sheet.pdf", "manifest.csv", "manifest.json"])
def test_somebody_elses_file_of_the_same_name_is_never_overwritten_silently(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(LabelsExist, match=f"{name}.*--replace"):
        _make(tmp_path)
    assert (tmp_path / name).read_text() == "mine"
    _make(tmp_path, replace=True)
    assert (tmp_path / name).read_bytes() != b"mine"


def test_a_manifest_that_names_files_elsewhere_removes_nothing_there(tmp_path):
    outside = tmp_path / "outside.png"
    outside.write_text("precious")
    own = tmp_path / "labels"
    own.mkdir()
    (own / "notes.txt").write_text("precious")
    entries = [{"png": "../outside.png"}, {"png": str(outside)}, {"svg": "notes.txt"}]
    (own / "manifest.json").write_text(json.dumps({"batch": {"product_id": "x"}, "files": {}, "labels": entries}))
    _make(own, replace=True)
    assert outside.read_text() == (own / "notes.txt").read_text() == "precious"


@pytest.mark.parametrize(
    "damage",
    ["[]", '{"labels": 3, "batch": {}}', '{"labels": [1], "batch": {}}', "\\xff", '{"batch": 1, "labels": []}'],
)
def test_a_manifest_that_is_none_is_refused_in_one_line(tmp_path, damage):
    (tmp_path / "manifest.json").write_text(damage)
    with pytest.raises(LabelsExist, match="--replace") as caught:
        _make(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_table_and_the_document_say_the_same(tmp_path):
    batch = _make(tmp_path)
    document = json.loads(batch.manifest_json.read_text())
    table = list(csv.DictReader(io.StringIO(batch.manifest_csv.read_text(), newline="")))
    assert document["batch"]["product_id"] == PRODUCT
    assert len(table) == len(document["labels"]) == 3
    for row, entry, label in zip(table, document["labels"], batch.labels, strict=True):
        assert row["text"] == entry["text"] == label.text
        assert row["modules_sha256"] == entry["modules_sha256"] == label.matrix.sha256()
        assert row["zxing"] == entry["verdicts"]["zxing"] == "read"
        assert int(row["candidates_missed"]) == entry["candidates_missed"] == label.missed
        assert float(row["module_mm"]) == pytest.approx(label.module_mm, abs=1e-4)
        assert (tmp_path / row["svg"]).read_bytes() == draw_svg(
            label.matrix, module_mm=label.module_mm, title=label.identifier
        )


def test_the_manifest_records_that_a_candidate_was_missed(tmp_path):
    class _Once:
        name = "once"
        shown = 0

        def read(self, image):
            self.shown += 1
            return () if self.shown % 2 else Zxing().read(image)

    batch = _make(tmp_path, count=1, decoders=(Zxing(), _Once()))
    (entry,) = json.loads(batch.manifest_json.read_text())["labels"]
    assert entry["candidates_missed"] > 0
    assert entry["verdicts"] == {"zxing": "read", "once": "read"}
    assert batch.retaken == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"count": 0}, "count is 0: give 1 or more"),
        ({"product_id": ""}, "product id is empty"),
        ({"product_id": "p" * 5000}, "more than the limit"),
        ({"product_id": "\N{GRINNING FACE}" * 512, "formats": ["png"]}, "more than"),
        ({"product_id": "p" * 513}, "a label takes 512"),
        ({"product_id": "p" * 512, "size_mm": 10, "formats": ["png"]}, "would fit"),
        ({"formats": []}, "give one or more of png, svg, pdf"),
        ({"formats": ["png", "gif"]}, "gif asked for"),
        ({"size_mm": 500}, "at most --size-mm"),
        ({"template": "no-serial"}, "same identifier"),
        ({"profile": "x"}, "no payload profile"),
    ],
)
def test_bad_input_is_one_line_that_names_the_fix_and_makes_nothing(tmp_path, changes, words):
    with pytest.raises(LabelError, match=words) as caught:
        _make(tmp_path / "out", **changes)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_label_that_no_decoder_reads_is_never_written(tmp_path):
    with pytest.raises(UnreadableLabel):
        _make(tmp_path / "out", decoders=(Zxing(), _Blind()))
    assert not (tmp_path / "out").exists()


def test_an_out_that_is_a_file_is_refused_with_the_fix(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LabelError, match="give another --out"):
        _make(tmp_path / "file")
    with pytest.raises(LabelError, match="give another --out"):
        _make(tmp_path / "file" / "below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused_with_the_fix(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(LabelError, match=r"permission denied.*--out"):
        _make(tmp_path)


def test_a_disk_that_takes_no_more_is_one_line_and_leaves_no_half_file(tmp_path):
    folder = LabelFolder(tmp_path, {}, replace=False, endings=(".png",))
    (tmp_path / "taken").mkdir()
    with pytest.raises(LabelError, match="cannot write"):
        folder.files.write("taken/x" * 100, b"data")
    folder.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".unfinished", "taken"]


def test_file_names_are_safe_short_and_different():
    assert file_stem("SIM-000001") == "SIM-000001"
    assert file_stem("../../etc/passwd") == "%2E.%2F..%2Fetc%2Fpasswd"
    assert file_stem("a b\N{SNOWMAN}") == "a%20b%E2%98%83"
    long = [file_stem("x" * 300 + end) for end in "ab"]
    assert long[0] != long[1]
    assert all(len(stem) < 200 for stem in long)
