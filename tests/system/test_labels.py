"""Labels as people use them: printed, scanned by other programs, made by several processes, killed on the way."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import zxingcpp
from PIL import Image
from zebrafy import ZebrafyZPL

from simulator.labels.damage import KINDS
from simulator.labels.grid import open_sheet
from simulator.labels.make import make_labels
from simulator.labels.pictures import load_picture
from simulator.labels.reading import read_labels
from simulator.labels.verify import State, verify_labels
from tests.conftest import require_program

PRODUCT = "0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11"
DPI = 300
MAKE = (sys.executable, "-m", "simulator.cli", "labels", "make", "--product-id", PRODUCT)


def _dots(mm):
    return round(mm / 25.4 * DPI)


def _rasterised(sheet, folder):
    pdftoppm = require_program("pdftoppm", "poppler-utils")
    command = [pdftoppm, "-r", str(DPI), "-gray", "-png", str(sheet), str(folder / "page")]
    subprocess.run(command, check=True, timeout=120)
    return sorted(folder.glob("page*.png"))


def _scanned(*pictures):
    """What zbar's own program reads, as it comes: no mode, no option that changes what is read."""
    zbarimg = require_program("zbarimg", "zbar-tools")
    command = [zbarimg, "--nodbus", "--quiet", "--raw", *map(str, pictures)]
    return subprocess.run(command, capture_output=True, check=True, timeout=120, text=True).stdout.splitlines()


def _files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize(("sheet", "size_mm", "count"), [("a4", 25.0, 40), ("letter", 15.0, 50)])
def test_every_code_of_a_printed_sheet_is_in_its_place_at_its_true_size(tmp_path, sheet, size_mm, count):
    batch = make_labels(
        product_id=PRODUCT, count=count, out=tmp_path / "labels", size_mm=size_mm, sheet=sheet, formats=["pdf"]
    )
    grid, _ = open_sheet(sheet, size_mm)
    pages = [load_picture(file) for file in _rasterised(batch.sheet, tmp_path)]
    assert len(pages) == -(-count // grid.per_page)
    for index, label in enumerate(batch.labels):
        left_mm, top_mm = grid.cell(index % grid.per_page)
        code_top_mm = top_mm + (grid.label_height_mm - label.symbol.edge_mm) / 2
        left, top, edge = _dots(left_mm + 2), _dots(code_top_mm), _dots(label.symbol.edge_mm)
        cut = np.ascontiguousarray(pages[index // grid.per_page][top : top + edge, left : left + edge])
        assert [code.text for code in zxingcpp.read_barcodes(cut)] == [label.order.text]
        Image.fromarray(cut).save(tmp_path / f"cut-{index:02d}.png")
        rows, columns = (cut < 128).nonzero()
        measured_mm = (columns.max() + 1 - columns.min()) / DPI * 25.4 / (len(label.symbol.modules) - 8)
        assert measured_mm == pytest.approx(label.symbol.module_mm, rel=0.006)
        quiet_mm = 4 * label.symbol.module_mm
        origin_mm = (left + columns.min()) / DPI * 25.4, (top + rows.min()) / DPI * 25.4
        assert origin_mm == pytest.approx((left_mm + 2 + quiet_mm, code_top_mm + quiet_mm), abs=0.1)
    assert _scanned(*sorted(tmp_path.glob("cut-*.png"))) == [label.order.text for label in batch.labels]


def test_a_sheet_of_cut_labels_and_zebra_labels_are_read_by_a_strangers_scanner(tmp_path):
    (tmp_path / "own.yaml").write_text("columns: 3\nrows: 7\nlabel_width_mm: 63.5\nlabel_height_mm: 38.1\n")
    cut = make_labels(
        product_id=PRODUCT, count=17, out=tmp_path / "a", sheet=str(tmp_path / "own.yaml"), formats=["pdf"]
    )
    roll = make_labels(product_id=PRODUCT, count=17, out=tmp_path / "b", sheet="60x27", formats=["pdf", "zpl"])
    texts = sorted(label.order.text for label in cut.labels)
    assert sorted(_scanned(*_rasterised(cut.sheet, tmp_path / "a"))) == texts
    assert sorted(_scanned(*_rasterised(roll.sheet, tmp_path / "b"))) == texts
    zpl = roll.files["zpl"].read_text()
    assert zpl.count("^XA") == zpl.count("^XZ") == 17
    assert zpl.count(f"^PW{_dots(60)}^LL{_dots(27)}") == 17
    for index, image in enumerate(ZebrafyZPL(zpl).to_images()):
        assert image.size == (-(-_dots(60) // 8) * 8, _dots(27))  # whole bytes
        image.save(tmp_path / f"zebra-{index:02d}.png")
    assert sorted(_scanned(*sorted(tmp_path.glob("zebra-*.png")))) == texts


@pytest.mark.parametrize("template", ["Gerät {serial}", "Ж-{serial} 器", "ÄÖÜ-{serial} ß", "naïve §{serial}"])
@pytest.mark.parametrize("profile", ["json", "compact", "link:onboard.example.com"])
def test_applications_read_what_the_program_says_is_read(tmp_path, template, profile):
    options = ["--template", template, "--profile", profile, "--formats", "png", "--count", "3", "--json"]
    made = subprocess.run([*MAKE, "--out", tmp_path, *options], capture_output=True, check=True, timeout=120)
    assert json.loads(made.stdout)["labels"] == 3
    for label in json.loads((tmp_path / "manifest.json").read_text())["labels"]:
        assert _scanned(tmp_path / label["png"]) == [label["text"]]
    identifiers = [read.label.device_identifier for read in read_labels([tmp_path])]
    assert identifiers == [template.format(serial=serial) for serial in (1, 2, 3)]


def test_processes_make_the_same_labels_as_one_and_a_kill_leaves_none_of_them(tmp_path):
    command = [*MAKE, "--formats", "png", "--ledger", tmp_path / "serials.db", "--out"]
    process = subprocess.Popen([*command, tmp_path / "a", "--count", "600"], stderr=subprocess.PIPE, text=True)
    while len(list((tmp_path / "a").glob("*.png"))) < 100:
        time.sleep(0.05)
        assert process.poll() is None
    process.kill()
    process.communicate(timeout=30)  # to the end of its output, which every process of the batch has open
    assert not (tmp_path / "a" / "manifest.json").exists()
    other = subprocess.run([*command, tmp_path / "b", "--count", "7"], capture_output=True, check=True, timeout=120)
    assert b"SIM-000601 to SIM-000607" in other.stdout
    refused = subprocess.run([*command, tmp_path / "a", "--count", "7"], capture_output=True, check=False, timeout=120)
    assert refused.returncode == 2
    subprocess.run([*command, tmp_path / "a", "--count", "600"], check=True, timeout=300, capture_output=True)
    make_labels(product_id=PRODUCT, count=600, out=tmp_path / "one", formats=["png"])
    ours, theirs = _files(tmp_path / "a"), _files(tmp_path / "one")
    notes = [json.loads(each.pop("manifest.json"))["notes"] for each in (ours, theirs)]
    assert ours == theirs
    assert notes == [["serials 1 to 600 were reserved for this folder already"], []]


TAKING = """
    import random, sys
    from pathlib import Path
    from simulator.labels.ledger import Ledger

    path, name = Path(sys.argv[1]), sys.argv[2]
    pick, ledger = random.Random(name), Ledger(path)
    for number in range(30):
        count = pick.randint(1, 5)
        first, _ = ledger.take(product_id="p", template="T{serial}", count=count, folder=Path(f"/no/{name}/{number}"))
        print(first, count)
"""


def test_processes_with_one_ledger_never_overlap(tmp_path):
    program = [sys.executable, "-c", textwrap.dedent(TAKING), tmp_path / "l"]
    running = [subprocess.Popen([*program, name], stdout=subprocess.PIPE, text=True) for name in "abc"]
    taken = []
    for process in running:
        lines = process.communicate(timeout=120)[0].splitlines()
        assert len(lines) == 30
        for line in lines:
            first, count = map(int, line.split())
            taken += range(first, first + count)
    assert sorted(taken) == list(range(1, len(taken) + 1))


def test_a_photograph_of_a_sheet_shows_exactly_what_is_missing(tmp_path):
    batch = make_labels(product_id=PRODUCT, count=12, out=tmp_path / "labels", formats=["pdf"])
    grid, _ = open_sheet("a4", 25.0)
    (file,) = _rasterised(batch.sheet, tmp_path)
    page = Image.open(file).convert("L").crop((0, 0, _dots(210), _dots(130)))
    for index in (1, 5, 9):
        left, top = grid.cell(index)
        page.paste(255, tuple(map(_dots, (left, top, left + grid.label_width_mm, top + grid.label_height_mm))))
    random = np.random.default_rng(1)
    for kind, amount in (("rotate", 0.1), ("noise", 0.1), ("contrast", 0.5)):  # by a hand, in the dark, faded
        page = KINDS[kind](page, amount, random)
    page.save(tmp_path / "photo.jpg", quality=75)
    report = verify_labels([tmp_path / "photo.jpg"], manifest=batch.folder)
    assert [line.identifier for line in report.lines if line.state is State.MISSING] == [
        batch.labels[index].order.identifier for index in (1, 5, 9)
    ]
    assert report.count(State.READ) == len(report.lines) - 3 == 9


TABLES = Path(__file__).parent / "tables"
"""CSV that LibreOffice 7.4 wrote, out of an Excel workbook with texts and numbers in its cells."""


@pytest.mark.parametrize("name", ["semicolons_utf8", "semicolons_cp1252", "commas_utf8", "tabs_cp1252"])
def test_a_table_out_of_libreoffice_keeps_every_identifier(tmp_path, name):
    table = TABLES / f"{name}.csv"
    done = subprocess.run([*MAKE, "--from", table, "--out", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read = {found.label.device_identifier for found in read_labels([tmp_path / "out" / "sheet.pdf"])}
    assert read == {"0012345", "868401000000123"}
    assert "Tür; links" in (tmp_path / "out" / "manifest.csv").read_text(encoding="utf-8-sig")


def test_an_identifier_that_libreoffice_has_rounded_is_refused_with_its_row(tmp_path):
    command = [*MAKE, "--from", TABLES / "rounded.csv", "--out", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "3: " in done.stderr
    assert "as text" in done.stderr
    assert not (tmp_path / "out" / "sheet.pdf").exists()
