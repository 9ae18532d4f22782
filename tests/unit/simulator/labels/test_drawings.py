"""SVG and the PDF sheet, without a renderer."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.labels.errors import LabelError
from simulator.labels.printing.grid import PAPERS, fit_grid
from simulator.labels.printing.sheet import SheetLabel, draw_sheet, printable
from simulator.labels.symbol.encoding import Candidate, encode
from simulator.labels.symbol.matrix import QUIET_MODULES, Matrix
from simulator.labels.symbol.svg import draw_svg

MATRIX = encode("https://example.test/a-label", Candidate(0, "M", 3))
SVG = "{http://www.w3.org/2000/svg}"


def _parse(svg: bytes) -> ET.Element:
    return ET.fromstring(svg)


def _matrix_of(svg: bytes) -> Matrix:
    path = _parse(svg).find(f"{SVG}path").get("d")
    modules = MATRIX.modules
    rows = [bytearray(modules) for _ in range(modules)]
    for x, y, run in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\d+z", path):
        left = int(x) - QUIET_MODULES
        rows[int(y) - QUIET_MODULES][left : left + int(run)] = b"\1" * int(run)
    return Matrix(tuple(bytes(row) for row in rows))


def test_an_svg_draws_exactly_the_modules_at_their_true_size():
    svg = draw_svg(MATRIX, module_mm=0.508, title="SIM-1")
    root = _parse(svg)
    edge = MATRIX.modules + 8
    assert _matrix_of(svg) == MATRIX
    assert root.get("viewBox") == f"0 0 {edge} {edge}"
    assert root.get("width") == root.get("height") == f"{edge * 0.508:.4f}mm"


@given(st.text())
def test_any_identifier_makes_a_well_formed_svg(title):
    shown = _parse(draw_svg(MATRIX, module_mm=0.5, title=title)).find(f"{SVG}title").text or ""
    assert len(shown) == len(title) or "\r" in title


@pytest.mark.parametrize("paper", sorted(PAPERS))
@pytest.mark.parametrize("code_mm", [8.0, 15.0, 25.0, 40.0, 90.0, 150.0])
def test_every_cell_of_a_grid_lies_on_the_paper_and_holds_its_code(paper, code_mm):
    grid = fit_grid(paper, code_mm)
    page, left, top = grid.cell(grid.per_page - 1)
    assert page == 0
    assert grid.cell(grid.per_page)[0] == 1
    assert left + grid.cell_width_mm <= grid.page_width_mm - grid.left_mm + 1e-6
    # 10 mm of margin and 14 mm of foot stay free below.
    assert top + grid.cell_height_mm <= grid.page_height_mm - 24 + 1e-6
    assert grid.cell_width_mm > code_mm
    assert grid.cell_height_mm >= code_mm + 4


def test_a_code_larger_than_the_paper_is_refused_with_the_largest_that_fits():
    with pytest.raises(LabelError, match=r"300 mm does not fit on a4: at most --size-mm 172"):
        fit_grid("a4", 300)
    assert fit_grid("a4", 172).per_page == 1


def test_an_unknown_paper_is_refused_with_the_known_ones():
    with pytest.raises(LabelError, match="a4, letter"):
        fit_grid("papyrus", 20)


def test_characters_that_the_fonts_lack_are_written_as_escapes():
    assert printable("Käse-\u20ac") == "Käse-\u20ac"
    assert printable("器-1\n\N{GRINNING FACE}") == "\\u5668-1\\u000a\\U0001f600"


def _sheet(count: int, identifier: str = "SIM-1") -> bytes:
    labels = [SheetLabel((identifier, "a product"), MATRIX, 0.5) for _ in range(count)]
    return draw_sheet(labels, grid=fit_grid("a4", 25), title="a title")


def test_a_sheet_has_as_many_pages_as_its_labels_need():
    per_page = fit_grid("a4", 25).per_page
    for count, pages in ((1, 1), (per_page, 1), (per_page + 1, 2), (3 * per_page, 3)):
        assert len(re.findall(rb"/Type /Page\b", _sheet(count))) == pages


def test_a_sheet_of_the_same_labels_has_the_same_bytes_and_no_date_of_today():
    assert _sheet(5) == _sheet(5)
    assert set(re.findall(rb"Date \(D:(\d{8})", _sheet(5))) == {b"20000101"}


def test_a_sheet_asks_the_viewer_not_to_scale_it():
    assert b"/PrintScaling /None" in _sheet(1)


def test_each_run_of_dark_modules_is_one_rectangle_of_one_path():
    sheet = _sheet(1)
    assert len(re.findall(rb"\bre\b", sheet)) == len(list(MATRIX.dark_runs()))
    assert len(re.findall(rb" f\*? ", sheet)) == 1
