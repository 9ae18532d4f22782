"""A printed sheet, photographed badly and with labels cut out of it: verify names exactly what is missing."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simulator.cli import main
from simulator.labels import make_labels
from simulator.labels.damage.chance import PortableRandom
from simulator.labels.damage.kinds import KINDS
from simulator.labels.damage.label import CleanLabel
from simulator.labels.printing.grid import fit_grid
from simulator.labels.verify.report import State
from simulator.labels.verify.verifying import verify_labels
from tests.conftest import require_program

pytestmark = pytest.mark.long

DPI = 300
COUNT = 12
CUT_OUT = (1, 5, 9)
ROWS_MM = 130


@pytest.fixture(name="batch", scope="module")
def _batch(tmp_path_factory):
    out = tmp_path_factory.mktemp("labels")
    return make_labels(product_id="0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11", count=COUNT, out=out, formats=["pdf"])


def _rasterised(sheet, folder):
    pdftoppm = require_program("pdftoppm", "poppler-utils")
    subprocess.run([pdftoppm, "-r", str(DPI), "-gray", "-png", sheet, folder / "page"], check=True, timeout=120)
    (page,) = folder.glob("page*.png")
    return np.asarray(Image.open(page).convert("L")).copy()


def _cut_out(page):
    """Paints labels of the sheet white, with all that is in their cells."""
    grid = fit_grid("a4", 25.0)
    for index in CUT_OUT:
        _, left, top = grid.cell(index)
        box = (top, top + grid.cell_height_mm, left, left + grid.cell_width_mm)
        first_row, last_row, first, last = (round(mm / 25.4 * DPI) for mm in box)
        page[first_row:last_row, first:last] = 255


def _photographed(page):
    """From the side, with a shadow over it, by a noisy camera."""
    shown = CleanLabel("sheet", "", page, 0, 0, min(page.shape), 1)
    for kind, severity in (("perspective", 0.25), ("uneven_light", 0.6), ("noise", 0.1)):
        pixels = KINDS[kind].apply(shown, severity, PortableRandom(1, kind))
        shown = dataclasses.replace(shown, pixels=pixels)
    return shown.pixels


def test_a_photograph_of_a_sheet_shows_exactly_what_is_missing(batch, tmp_path):
    page = _rasterised(batch.sheet, tmp_path)
    _cut_out(page)
    seen = page[: round(ROWS_MM / 25.4 * DPI)]  # the part that has labels on it
    Image.fromarray(_photographed(seen)).save(tmp_path / "photo.jpg", quality=75)
    report = verify_labels([tmp_path / "photo.jpg"], manifest=batch.manifest_json)
    assert [line.identifier for line in report.lines if line.state is State.MISSING] == [
        batch.labels[index].identifier for index in CUT_OUT
    ]
    assert report.count(State.READ) == COUNT - len(CUT_OUT)
    assert len(report.lines) == COUNT


def test_a_pdf_is_drawn_and_read(batch):
    require_program("pdftoppm", "poppler-utils")
    report = verify_labels([batch.sheet], manifest=batch.manifest_json, dpi=150)
    assert report.good
    assert report.count(State.READ) == COUNT


def test_the_check_that_the_page_about_labels_shows_passes_a_good_print_alone(batch, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "labels.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"`(fleet-simulator labels verify SCAN[^`]*)`", page)
    good = _rasterised(batch.sheet, tmp_path)
    lacking = good.copy()
    _cut_out(lacking)
    for name, pixels, code in (("good.png", good, 0), ("lacking.png", lacking, 1)):
        Image.fromarray(pixels).save(tmp_path / name)
        files = {"SCAN...": str(tmp_path / name), "labels/manifest.json": str(batch.manifest_json)}
        with pytest.raises(SystemExit) as end:
            main([files.get(word, word) for word in shown.split()[1:]])
        assert (end.value.code or 0) == code
