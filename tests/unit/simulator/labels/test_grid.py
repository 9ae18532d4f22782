"""Sheets: what one can buy, what one measures oneself, and what a printer shifts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulator.labels.errors import LabelError
from simulator.labels.printing.grid import PAPERS, Grid, GridPlacement, grid_from, read_grid
from simulator.labels.printing.options import PrintOptions, parse_label_mm
from simulator.labels.printing.stock import STOCKS, find_stock

OWN = {"columns": 3, "rows": 4, "label_width_mm": 50, "label_height_mm": 30}


@pytest.mark.parametrize("code", STOCKS)
def test_every_stock_lies_on_its_paper_and_in_its_middle(code):
    grid = STOCKS[code]
    grid.require_on_page(code)
    right = grid.page_width_mm - grid.left_mm - (grid.columns - 1) * grid.pitch_x_mm - grid.cell_width_mm
    assert right == pytest.approx(grid.left_mm, abs=0.05)
    assert grid.foot_mm == pytest.approx(grid.top_mm, abs=0.05)


@pytest.mark.parametrize(
    ("code", "per_page", "label"),
    [
        ("L7160", 21, (63.5, 38.1)),
        ("L7163", 14, (99.06, 38.1)),
        ("L7651", 65, (38.1, 21.17)),
        ("L4731", 189, (25.4, 10)),
        ("5160", 30, (66.675, 25.4)),
        ("5163", 10, (101.6, 50.8)),
        ("5167", 80, (44.45, 12.7)),
        ("L7120", 35, (35, 35)),
    ],
)
def test_a_stock_has_the_labels_that_its_package_says(code, per_page, label):
    grid = find_stock(code)
    assert grid.per_page == per_page
    assert (grid.cell_width_mm, grid.cell_height_mm) == pytest.approx(label)


def test_a_stock_is_found_however_it_is_written():
    assert find_stock("avery l7160") is STOCKS["L7160"]
    assert find_stock("Avery-5160") is STOCKS["5160"]


def test_an_unknown_stock_is_refused_with_the_nearest_and_the_way_out():
    with pytest.raises(LabelError, match=r"no stock 'L7161X': did you mean L7161\?.*--grid"):
        find_stock("L7161X")


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
        (lambda: GridPlacement(offset_x_mm=21), "--offset-x-mm is 21: give -20 to 20"),
        (lambda: GridPlacement(offset_y_mm=float("nan")), "--offset-y-mm is nan"),
        (lambda: GridPlacement(skip_cells=-1), "--skip-cells is -1"),
        (lambda: PrintOptions(stock="L7160", placing=GridPlacement(skip_cells=21)).sheet_grid(20), "give 0 to 20"),
        (lambda: PrintOptions(stock="L7160", grid=grid_from(OWN, "own")), "--stock or --grid, not both"),
        (lambda: PrintOptions(stock="nope"), "no stock 'nope'"),
        (lambda: PrintOptions(paper="a0"), "no paper 'a0'"),
        (lambda: PrintOptions(tape_mm=30), "no Brother tape of 30 mm: --tape-mm takes 12, 29"),
        (lambda: PrintOptions(label_mm=(50, 3)), "--label-mm has an edge of 3: give 5 to 1000"),
        (lambda: parse_label_mm("50"), "--label-mm is '50': give width and height in millimetres, such as 50x25"),
        (lambda: PrintOptions(stock="L7651").sheet_grid(25), "38.1 x 21.17 mm: at most --size-mm 19.1"),
    ],
)
def test_options_that_cannot_be_are_refused_with_what_to_give(make, words):
    with pytest.raises(LabelError) as problem:
        make()
    assert words in str(problem.value)


def test_a_code_is_as_large_as_the_smallest_of_its_labels_holds():
    options = PrintOptions(stock="L7651", label_mm=parse_label_mm("40 x 16"), tape_mm=12)
    assert options.fitting_size_mm(["png"]) == 25
    assert options.fitting_size_mm(["png", "pdf"]) == 19.1
    assert options.fitting_size_mm(["pdf", "zpl"]) == 14
    assert options.fitting_size_mm(["pdf", "zpl", "brother"]) == 7.9


def test_skipped_places_move_every_label_on():
    grid = Grid(100, 100, 2, 2, 40, 40, 5, 5, 45, 45)
    assert [grid.cell(index)[0] for index in range(6)] == [0, 0, 0, 0, 1, 1]
    assert grid.cell(3) == (0, 50, 50)


PAGE = Path(__file__).parents[4] / "docs" / "printing.md"


def test_the_page_about_printing_lists_every_stock_as_it_is():
    rows = re.findall(
        r"^\| ([\w, ]+) \| (A4|letter) \| (\d+) x (\d+) \| ([\d.]+) x ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE
    )
    listed = {code: figures for codes, *figures in rows for code in codes.split(", ")}
    assert set(listed) == set(STOCKS)
    for code, (paper, columns, label_rows, width, height) in listed.items():
        grid = STOCKS[code]
        assert (grid.page_width_mm, grid.page_height_mm) == PAPERS[paper.lower()]
        assert (grid.columns, grid.rows) == (int(columns), int(label_rows))
        assert (grid.cell_width_mm, grid.cell_height_mm) == pytest.approx((float(width), float(height)), abs=0.006)


def test_the_grid_file_of_the_page_about_printing_is_one(tmp_path):
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "grid.yaml"
    path.write_text(example)
    assert read_grid(path).cell(5) == (0, 8 + 48.5, 12 + 30)
