"""Labels as a printer and a stranger's scanner see them: rendered by poppler, read by zbarimg."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import zxingcpp
from zebrafy import ZebrafyZPL

from simulator.labels import make_labels, read_label_files
from simulator.labels.printing.grid import fit_grid, grid_from
from simulator.labels.printing.options import PrintOptions
from simulator.labels.symbol.decoders import panel
from simulator.labels.symbol.matrix import QUIET_MODULES
from simulator.labels.symbol.pictures import Pixels, load_picture
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


def _ink_box(image: Pixels) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of what is darker than half grey."""
    rows, columns = (image < 128).nonzero()
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


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
    assert len(panel()) == 2
    pages = _render(batch.sheet, tmp_path)
    assert len(pages) == -(-count // grid.per_page)
    for index, label in enumerate(batch.labels):
        page, left_mm, top_mm = grid.cell(index)
        edge_mm = label.edge_mm
        code_top_mm = top_mm + (grid.cell_height_mm - edge_mm) / 2
        left, top, edge = round(_pixels(left_mm + 2)), round(_pixels(code_top_mm)), round(_pixels(edge_mm))
        cut = np.ascontiguousarray(pages[page][top : top + edge, left : left + edge])
        assert all(decoder.read(cut) == (label.text,) for decoder in panel()), label.identifier
        if index in (0, count - 1):
            box = _ink_box(cut)
            pitch_mm = (box[2] - box[0]) / DPI * 25.4 / label.matrix.modules
            assert pitch_mm == pytest.approx(label.module_mm, rel=0.005)
            origin_mm = (left + box[0]) / DPI * 25.4, (top + box[1]) / DPI * 25.4
            quiet_mm = QUIET_MODULES * label.module_mm
            assert origin_mm == pytest.approx((left_mm + 2 + quiet_mm, code_top_mm + quiet_mm), abs=0.1)


def test_a_sheet_of_cut_labels_and_zebra_labels_are_read_by_a_strangers_scanner(tmp_path):
    zbarimg = require_program("zbarimg", "zbar-tools")
    grid = grid_from({"columns": 3, "rows": 7, "label_width_mm": 63.5, "label_height_mm": 38.1}, "own")
    printing = PrintOptions(grid=grid, label_mm=(60, 27))
    batch = make_labels(
        product_id=PRODUCT, count=17, out=tmp_path / "labels", printing=printing, formats=["pdf", "zpl"]
    )
    _render(batch.sheet, tmp_path)
    for index, image in enumerate(ZebrafyZPL(batch.files["zpl"].read_text()).to_images()):
        image.save(tmp_path / f"zebra-{index:02d}.png")
    for pictures in (sorted(tmp_path.glob("page*.png")), sorted(tmp_path.glob("zebra-*.png"))):
        command = [zbarimg, "--nodbus", "--quiet", "--raw", *map(str, pictures)]
        read = subprocess.run(command, capture_output=True, check=True, timeout=120, text=True).stdout
        assert sorted(read.splitlines()) == sorted(label.text for label in batch.labels)


@pytest.mark.parametrize(
    "template", ["Gerät {serial}", "Ж-{serial} 器", "ÄÖÜ-{serial} ß", "naïve §{serial}", "plain-{serial}"]
)
@pytest.mark.parametrize("profile", ["json", "compact", "link"])
def test_applications_read_what_the_program_says_is_proven(tmp_path, template, profile):
    """The programs that people scan with, as they come: no mode, no option that changes what is read."""
    zbarimg = require_program("zbarimg", "zbar-tools")
    host = ["--link-host", "onboard.example.com"] if profile == "link" else []
    options = ["--template", template, "--profile", profile, *host, "--formats", "png", "--count", "3", "--json"]
    command = [*PROGRAM, "labels", "make", "--product-id", PRODUCT, "--out", str(tmp_path), *options]
    made = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    assert made["decoders"] == ["zxing", "zbar"]
    wanted = {label["png"]: label["text"] for label in json.loads((tmp_path / "manifest.json").read_text())["labels"]}
    for name, text in wanted.items():
        command = [zbarimg, "--nodbus", "--quiet", "--raw", str(tmp_path / name)]
        assert subprocess.run(command, capture_output=True, check=True, timeout=60).stdout == f"{text}\n".encode()
        assert [code.text for code in zxingcpp.read_barcodes(load_picture(tmp_path / name))] == [text]
    identifiers = {read.label.device_identifier for read in read_label_files(tmp_path)}
    assert identifiers == {template.format(serial=serial) for serial in (1, 2, 3)}


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


def test_a_batch_over_processes_says_nothing_else_and_a_kill_leaves_none_of_them(tmp_path):
    command = [*PROGRAM, "labels", "make", "--product-id", PRODUCT, "--formats", "png", "--out"]
    done = subprocess.run([*command, tmp_path / "a", "--count", "250"], capture_output=True, check=True, timeout=120)
    told = done.stderr.decode().splitlines()
    assert [line for line in told if not line.startswith("labels: ")] == []
    process = subprocess.Popen([*command, tmp_path / "b", "--count", "2000"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("labels: ")
    process.kill()
    process.communicate(timeout=30)  # to the end of its output, which every process of the batch has open
    again = subprocess.run([*command, tmp_path / "b", "--count", "7"], capture_output=True, check=False, timeout=120)
    assert again.returncode == 2
    assert b"holds another batch" in again.stderr
