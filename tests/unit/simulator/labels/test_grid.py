"""Sheets: what one can buy, what one measures oneself, and what a printer shifts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulator.labels.errors import LabelError
from simulator.labels.printing.grid import grid_from, read_grid
from simulator.labels.printing.options import PrintOptions, parse_label_mm

SMALL = {"columns": 5, "rows": 13, "label_width_mm": 38.1, "label_height_mm": 21.2}
OWN = {"columns": 3, "rows": 4, "label_width_mm": 50, "label_height_mm": 30}


def test_a_grid_of_ones_own_is_centred_and_close_unless_it_says_otherwise():
    grid = grid_from(OWN, "own")
    assert (grid.left_mm, grid.top_mm) == (30.0, 88.5)
    assert grid.cell(7) == (0, 80.0, 148.5)
    shifted = grid_from(
        {**OWN, "page": "letter", "left_mm": 5, "top_mm": 6.5, "pitch_x_mm": 52, "pitch_y_mm": 31}, "own"
    )
    assert shifted.cell(7) == (0, 57.0, 68.5)
    assert shifted.page_width_mm == 215.9


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"columns": 5}, "take 250 mm of the page's width of 210 mm: fewer or smaller labels"),
        ({"rows": 12}, "take 360 mm of the page's height of 297 mm"),
        ({"pitch_x_mm": 49}, "labels of 50 mm overlap at pitch_x_mm 49: at least 50 mm"),
        ({"left_mm": 61}, "take 211 mm"),
        ({"colums": 3}, "unknown key 'colums': did you mean columns?"),
        ({"zzz": 3}, "known are page,"),
        ({"columns": None}, "lacks columns: add it, a number"),
        ({"label_width_mm": None}, "lacks label_width_mm: add it, in millimetres"),
        ({"columns": 2.5}, "columns is 2.5: give a whole number, at least 1"),
        ({"rows": True}, "rows is True"),
        ({"top_mm": -1}, "top_mm is -1: give a number of millimetres, at least 0"),
        ({"label_height_mm": float("nan")}, "label_height_mm is nan"),
        ({"label_height_mm": "30 mm"}, "label_height_mm is '30 mm'"),
        ({"page": "a0"}, "no paper 'a0': there is a4, letter"),
        ({"columns": 5000, "rows": 5000}, "25000000 labels on a page"),
    ],
)
def test_a_grid_that_cannot_be_is_refused_with_what_to_change(changes, words):
    with pytest.raises(LabelError) as problem:
        grid_from({**OWN, **changes}, "own.yaml")
    assert words in str(problem.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read the grid"),
        (b"- 1\n", "is no mapping"),
        (b"a: [", "is no YAML"),
        (b"\xff\xfe\xfa", "no YAML"),
    ],
)
def test_a_file_that_is_no_grid_is_refused_in_one_line(tmp_path, content, words):
    path = tmp_path / "grid.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LabelError) as problem:
        read_grid(path)
    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_grid_file_is_read(tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_text("columns: 3\nrows: 4\nlabel_width_mm: 50\nlabel_height_mm: 30\n")
    assert read_grid(path) == grid_from(OWN, "own")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PrintOptions(paper="a0"), "no paper 'a0'"),
        (lambda: PrintOptions(label_mm=(50, 3)), "--label-mm has an edge of 3: give 5 to 1000"),
        (lambda: parse_label_mm("50"), "--label-mm is '50': give width and height in millimetres, such as 50x25"),
        (lambda: PrintOptions(grid=grid_from(SMALL, "small")).sheet_grid(25), "38.1 x 21.2 mm: at most --size-mm 19.2"),
    ],
)
def test_options_that_cannot_be_are_refused_with_what_to_give(make, words):
    with pytest.raises(LabelError) as problem:
        make()
    assert words in str(problem.value)


def test_a_code_is_as_large_as_the_smallest_of_its_labels_holds():
    options = PrintOptions(grid=grid_from(SMALL, "small"), label_mm=parse_label_mm("40 x 16"))
    assert options.fitting_size_mm(["png"]) == 25
    assert options.fitting_size_mm(["png", "pdf"]) == 19.2
    assert options.fitting_size_mm(["pdf", "zpl"]) == 14


PAGE = Path(__file__).parents[4] / "docs" / "labels.md"


def test_the_grid_file_of_the_page_about_labels_is_one(tmp_path):
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "grid.yaml"
    path.write_text(example)
    assert read_grid(path).cell(5) == (0, 8 + 48.5, 12 + 30)
