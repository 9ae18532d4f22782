"""Labels as a printer and a stranger's scanner see them: rendered by poppler, read by zbarimg."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from simulator.labels import make_labels, read_label_files
from simulator.labels.printing.grid import fit_grid
from simulator.labels.printing.options import PrintOptions
from simulator.labels.symbol.decoders import GrayImage, Zxing, find_zbar
from simulator.labels.symbol.matrix import QUIET_MODULES
from simulator.labels.symbol.pictures import load_picture
from tests.conftest import require_program

PRODUCT = "0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11"
DPI = 300
PROGRAM = (sys.executable, "-m", "simulator.cli")


def _pixels(mm: float) -> float:
    return mm / 25.4 * DPI


def _render(sheet, folder):
    pdftoppm = require_program("pdftoppm", "poppler-utils")
    subprocess.run(
        [pdftoppm, "-r", str(DPI), "-gray", "-png", str(sheet), str(folder / "page")], check=True, timeout=60
    )
    return [load_picture(path) for path in sorted(folder.glob("page*.png"))]


def _crop(image: GrayImage, left: int, top: int, width: int, height: int) -> GrayImage:
    rows = [image.pixels[y * image.width + left : y * image.width + left + width] for y in range(top, top + height)]
    return GrayImage(width, height, b"".join(rows))


def _ink_box(image: GrayImage) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of what is darker than half grey."""
    rows = [image.pixels[y * image.width : (y + 1) * image.width] for y in range(image.height)]
    dark = [(x, y) for y, row in enumerate(rows) for x, value in enumerate(row) if value < 128]
    xs, ys = [x for x, _ in dark], [y for _, y in dark]
    return min(xs), min(ys), max(xs) + 1, max(ys) + 1


@pytest.mark.parametrize(("paper", "size_mm", "count"), [("a4", 25.0, 40), ("letter", 15.0, 50)])
def test_every_code_of_a_printed_sheet_reads_in_its_place_at_its_true_size(tmp_path, paper, size_mm, count):
    batch = make_labels(
        product_id=PRODUCT,
        count=count,
        out=tmp_path / "labels",
        size_mm=size_mm,
        printing=PrintOptions(paper=paper),
        formats=["pdf"],
    )
    grid = fit_grid(paper, size_mm)
    require_program("zbarimg", "zbar-tools")
    readers = [reader for reader in (Zxing(), find_zbar()) if reader is not None]
    assert len(readers) == 2
    pages = _render(batch.sheet, tmp_path)
    assert len(pages) == -(-count // grid.per_page)
    for index, label in enumerate(batch.labels):
        page, left_mm, top_mm = grid.cell(index)
        edge_mm = label.matrix.modules_with_quiet_zone * label.module_mm
        code_top_mm = top_mm + (grid.cell_height_mm - edge_mm) / 2
        left, top, edge = round(_pixels(left_mm + 2)), round(_pixels(code_top_mm)), round(_pixels(edge_mm))
        cut = _crop(pages[page], left, top, edge, edge)
        assert all(decoder.read(cut) == (label.text.encode(),) for decoder in readers), label.identifier
        assert label.page == page + 1
        if index in (0, count - 1):
            box = _ink_box(cut)
            pitch_mm = (box[2] - box[0]) / DPI * 25.4 / label.matrix.modules
            assert pitch_mm == pytest.approx(label.module_mm, rel=0.005)
            origin_mm = (left + box[0]) / DPI * 25.4, (top + box[1]) / DPI * 25.4
            quiet_mm = QUIET_MODULES * label.module_mm
            assert origin_mm == pytest.approx((left_mm + 2 + quiet_mm, code_top_mm + quiet_mm), abs=0.1)


def test_the_ruler_of_a_sheet_measures_100_mm(tmp_path):
    batch = make_labels(product_id=PRODUCT, count=1, out=tmp_path / "labels", formats=["pdf"])
    (page,) = _render(batch.sheet, tmp_path)
    ticks = page.height - round(_pixels(10 + 0.7))  # just above the ruler's base line
    row = page.pixels[ticks * page.width : ticks * page.width + round(_pixels(112))]
    dark = [x for x, value in enumerate(row) if value < 160]
    assert (max(dark) - min(dark)) / DPI * 25.4 == pytest.approx(100, abs=0.2)


def test_nothing_but_white_lies_in_any_quiet_zone_of_a_sheet(tmp_path):
    batch = make_labels(product_id=PRODUCT, count=27, out=tmp_path / "labels", formats=["pdf"])
    grid = fit_grid("a4", 25)
    (page,) = _render(batch.sheet, tmp_path)
    for index, label in enumerate(batch.labels):
        _, left_mm, top_mm = grid.cell(index)
        edge_mm = label.matrix.modules_with_quiet_zone * label.module_mm
        quiet = int(_pixels(QUIET_MODULES * label.module_mm)) - 1
        left = round(_pixels(left_mm + 2))
        top, edge = round(_pixels(top_mm + (grid.cell_height_mm - edge_mm) / 2)), round(_pixels(edge_mm))
        cut = _crop(page, left, top, edge, edge)
        middle = _crop(cut, quiet, quiet, edge - 2 * quiet, edge - 2 * quiet)
        assert cut.pixels.count(b"\xff") == middle.pixels.count(b"\xff") + edge**2 - (edge - 2 * quiet) ** 2


def test_a_strangers_scanner_reads_every_picture_of_a_batch(tmp_path):
    zbarimg = require_program("zbarimg", "zbar-tools")
    batch = make_labels(product_id=PRODUCT, count=12, out=tmp_path, template="Gerät {serial} 器", formats=["png"])
    command = [zbarimg, "--nodbus", "--quiet", "--raw", "-Sbinary", *(str(label.png) for label in batch.labels)]
    read = subprocess.run(command, capture_output=True, check=True, timeout=120).stdout
    assert read == "".join(label.text for label in batch.labels).encode()


def test_the_program_makes_labels_that_the_library_reads(tmp_path):
    made = subprocess.run(
        [*PROGRAM, "labels", "make", "--product-id", PRODUCT, "--count", "3", "--out", str(tmp_path), "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(made.stdout)["labels"] == 3
    assert [read.label.device_identifier for read in read_label_files(tmp_path)] == [
        "SIM-000001",
        "SIM-000002",
        "SIM-000003",
    ]
