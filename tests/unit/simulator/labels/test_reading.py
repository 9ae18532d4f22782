from __future__ import annotations

import pytest
from PIL import Image

from simulator.labels import LabelError, make_labels, read_label_files
from simulator.labels.symbol.encoding import Candidate, encode
from simulator.labels.symbol.png import draw_png


def _draw(path, text):
    path.write_bytes(draw_png(encode(text, Candidate(0, "M", None)), dots_per_module=4, dpi=300))
    return path


@pytest.fixture(name="labels")
def _labels(tmp_path):
    return make_labels(product_id="p-1", count=2, out=tmp_path / "labels", formats=["png"])


def test_a_folder_is_read_in_the_order_of_its_names(labels):
    reads = read_label_files(labels.folder)
    assert [read.label.device_identifier for read in reads] == ["SIM-000001", "SIM-000002"]
    assert [read.path for read in reads] == [label.png for label in labels.labels]
    assert all(read.problem == "" for read in reads)


def test_single_pictures_are_read_in_the_order_given(labels):
    reads = read_label_files([label.png for label in reversed(labels.labels)])
    assert [read.label.device_identifier for read in reads] == ["SIM-000002", "SIM-000001"]


def test_a_picture_in_colour_with_transparency_reads_as_on_white_paper(labels, tmp_path):
    picture = Image.open(labels.labels[0].png).convert("RGBA")
    clear = Image.new("RGBA", picture.size, (0, 0, 0, 0))
    mask = picture.convert("L").point(lambda value: 255 - value)
    clear.paste((0, 0, 0, 255), mask=mask)
    clear.save(tmp_path / "clear.png")
    (read,) = read_label_files(tmp_path / "clear.png")
    assert read.text == labels.labels[0].text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty"),
        (b"\x89PNG\r\n\x1a\nrubbish", "not a whole picture"),
        (b"<html>", "not a whole picture"),
    ],
)
def test_a_file_that_is_no_picture_is_an_entry_with_its_problem(tmp_path, labels, content, problem):
    (labels.folder / "bad.png").write_bytes(content)
    reads = read_label_files(labels.folder)
    assert len(reads) == 3
    bad = next(read for read in reads if read.path.name == "bad.png")
    assert bad.label is None
    assert problem in bad.problem


def test_a_picture_that_was_cut_short_is_an_entry_with_its_problem(labels, tmp_path):
    cut = tmp_path / "cut.png"
    cut.write_bytes(labels.labels[0].png.read_bytes()[:300])
    (read,) = read_label_files(cut)
    assert read.label is None
    assert "cut.png" in read.problem


@pytest.mark.parametrize("edge", [10_001, 20_000])
def test_a_picture_beyond_the_bound_is_not_inflated(tmp_path, edge):
    huge = tmp_path / "huge.png"
    Image.new("1", (edge, edge), 1).save(huge)
    (read,) = read_label_files(huge)
    assert "more than 50 million pixels" in read.problem


def test_a_picture_without_a_code_says_so(tmp_path):
    Image.new("L", (200, 200), 255).save(tmp_path / "blank.png")
    (read,) = read_label_files(tmp_path / "blank.png")
    assert "no QR code" in read.problem


def test_two_labels_in_one_picture_are_not_guessed_between(labels, tmp_path):
    first, second = (Image.open(label.png).convert("L") for label in labels.labels)
    both = Image.new("L", (first.width + second.width, first.height), 255)
    both.paste(first, (0, 0))
    both.paste(second, (first.width, 0))
    both.save(tmp_path / "both.png")
    (read,) = read_label_files(tmp_path / "both.png")
    assert "2 different QR codes" in read.problem


def test_a_code_that_is_no_label_keeps_its_text_and_says_why(tmp_path):
    (read,) = read_label_files(_draw(tmp_path / "menu.png", "https://example.test/menu"))
    assert read.text == "https://example.test/menu"
    assert read.label is None
    assert "not a device label" in read.problem


def test_a_missing_path_and_an_empty_folder_are_refused_with_the_fix(tmp_path):
    with pytest.raises(LabelError, match="does not exist: give"):
        read_label_files(tmp_path / "nowhere")
    with pytest.raises(LabelError, match="labels make"):
        read_label_files(tmp_path)
