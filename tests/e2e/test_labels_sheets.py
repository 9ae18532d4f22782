"""Every printed format as strangers see it: sheets measured on the raster, pictures in a browser, two runs compared."""

from __future__ import annotations

import itertools
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from zebrafy import ZebrafyZPL

from simulator.labels import make_labels
from simulator.labels.cli import labels_command
from simulator.labels.printing.grid import GridPlacement, grid_from
from simulator.labels.printing.options import PrintOptions
from simulator.labels.printing.sheet import Marks, sheet_layout
from simulator.labels.symbol.decoders import GrayImage, panel
from simulator.labels.symbol.matrix import QUIET_MODULES
from simulator.labels.symbol.pictures import load_picture
from tests.chromium import chromium, find_chromium, tab
from tests.conftest import require_program

PRODUCT = "p-0193b2f4"
OWN = {"columns": 4, "rows": 9, "label_width_mm": 45, "label_height_mm": 28.5, "pitch_x_mm": 48.5, "top_mm": 12}
SHEETS = {
    "L7160, moved, begun": (PrintOptions(stock="L7160", placing=GridPlacement(0.7, -1.3, 4)), 19, 300),
    "L7651": (PrintOptions(stock="L7651"), 12, 300),
    "5160, outlines": (PrintOptions(stock="5160", marks=Marks.OUTLINE), 9, 300),
    "a grid of one's own": (PrintOptions(grid=grid_from(OWN, "own"), text=("identifier",)), 9, 203),
    "L4731": (PrintOptions(stock="L4731", text=("identifier",)), 15, 600),
}


@dataclass(frozen=True)
class Raster:
    """A page, or a part of it, as a printer of this resolution makes it."""

    gray: np.ndarray
    dpi: int

    def pixels(self, mm: float) -> int:
        return round(mm / 25.4 * self.dpi)

    def cut(self, left_mm: float, top_mm: float, edge_mm: float) -> Raster:
        left, top, edge = self.pixels(left_mm), self.pixels(top_mm), self.pixels(edge_mm)
        return Raster(np.ascontiguousarray(self.gray[top : top + edge, left : left + edge]), self.dpi)

    def ink_mm(self) -> tuple[float, float, float, float]:
        """Left, top, width and height of the ink: where the grey values say that its edges lie within a pixel."""
        ink = 1 - self.gray / 255
        box = []
        for axis in (0, 1):
            reach = ink.max(axis=axis)
            where = np.flatnonzero(reach > 0.02)
            first, last = where[0], where[-1]
            box.append((first + 1 - reach[first], last + reach[last]))
        (left, right), (top, bottom) = box
        unit = 25.4 / self.dpi
        return left * unit, top * unit, (right - left) * unit, (bottom - top) * unit

    def image(self) -> GrayImage:
        return GrayImage(self.gray.shape[1], self.gray.shape[0], self.gray.tobytes())


def _render(sheet: Path, folder: Path, dpi: int, page: int, height_mm: float | None = None) -> Raster:
    pdftoppm = require_program("pdftoppm", "poppler-utils")
    part = ["-x", "0", "-y", "0", "-W", str(9 * dpi), "-H", str(round(height_mm / 25.4 * dpi))] if height_mm else []
    out = folder / f"{dpi}"
    subprocess.run(
        [
            pdftoppm,
            "-r",
            str(dpi),
            "-gray",
            "-f",
            str(page),
            "-l",
            str(page),
            "-singlefile",
            *part,
            str(sheet),
            str(out),
        ],
        check=True,
        timeout=120,
    )
    data = out.with_suffix(".pgm").read_bytes()
    _, size, _, rest = data.split(b"\n", 3)
    width, height = map(int, size.split())
    return Raster(np.frombuffer(rest, dtype=np.uint8).reshape(height, width), dpi)


@pytest.mark.parametrize("name", SHEETS)
def test_every_label_of_a_sheet_reads_and_lies_within_a_tenth_of_a_millimetre(tmp_path, name):
    printing, count, dpi = SHEETS[name]
    batch = make_labels(
        product_id=PRODUCT, count=count, out=tmp_path / "labels", printing=printing, formats=["pdf"], dpi=dpi
    )
    manifest = json.loads(batch.manifest_json.read_bytes())
    grid, placing = printing.sheet_grid(manifest["batch"]["size_mm"]), printing.placing
    # The first labels at 600 dpi, all labels of the first page at 300: what is on further pages is placed alike.
    first_rows_mm = grid.top_mm + (placing.skip_cells // grid.columns + 2) * grid.pitch_y_mm + 10
    pages = [_render(batch.sheet, tmp_path, 300, 1), _render(batch.sheet, tmp_path, 600, 1, first_rows_mm)]
    measured = dict.fromkeys((300, 600), 0)
    for raster, (index, label) in itertools.product(pages, enumerate(batch.labels)):
        page, left_mm, top_mm = grid.cell(index + placing.skip_cells)
        if page or (raster.dpi == 600 and index > 2):
            continue
        edge_mm = label.matrix.modules_with_quiet_zone * label.module_mm
        layout = sheet_layout(grid, edge_mm, [label.identifier, PRODUCT][: len(printing.text)])
        code_left = left_mm + layout.code_left_mm + placing.offset_x_mm
        code_top = top_mm + layout.code_top_mm + placing.offset_y_mm
        cut = raster.cut(code_left, code_top, edge_mm)
        if label.module_mm / 25.4 * raster.dpi >= 3:  # below three pixels to a module a renderer's smoothing blurs it
            said = {decoder.name: decoder.read(cut.image()) for decoder in panel()}
            assert said == {decoder.name: (label.text.encode(),) for decoder in panel()}, label.identifier
        x, y, width, height = cut.ink_mm()
        quiet_mm = QUIET_MODULES * label.module_mm
        origin = raster.pixels(code_left) / raster.dpi * 25.4 + x, raster.pixels(code_top) / raster.dpi * 25.4 + y
        assert origin == pytest.approx((code_left + quiet_mm, code_top + quiet_mm), abs=0.1), label.identifier
        pitch = width / label.matrix.modules, height / label.matrix.modules
        assert pitch == pytest.approx((label.module_mm, label.module_mm), rel=0.005), label.identifier
        measured[raster.dpi] += 1
    assert measured == {300: min(count, grid.per_page - placing.skip_cells), 600: 3}


def test_a_strangers_scanner_reads_a_whole_sheet_at_once_and_every_zebra_label(tmp_path):
    zbarimg = require_program("zbarimg", "zbar-tools")
    printing = PrintOptions(stock="L7160", label_mm=(60, 27))
    batch = make_labels(
        product_id=PRODUCT, count=17, out=tmp_path / "labels", printing=printing, formats=["pdf", "zpl"]
    )
    _render(batch.sheet, tmp_path, 300, 1)
    zebra = ZebrafyZPL(batch.files["zpl"][0].read_text()).to_images()
    for index, image in enumerate(zebra):
        image.save(tmp_path / f"zebra-{index:02d}.png")
    command = [zbarimg, "--nodbus", "--quiet", "--raw", "-Sdisable", "-Sqrcode.enable"]
    for pictures in ([tmp_path / "300.pgm"], sorted(tmp_path.glob("zebra-*.png"))):
        read = subprocess.run([*command, *pictures], capture_output=True, check=True, timeout=120, text=True).stdout
        assert sorted(read.splitlines()) == sorted(label.text for label in batch.labels)


def test_a_browser_shows_the_contact_sheet_from_the_disk_and_draws_the_svg_true(tmp_path):
    executable = find_chromium()
    evil = '<img src=x onerror="document.title=1">{serial}'
    batch = make_labels(product_id=PRODUCT, count=3, out=tmp_path / "labels", template=evil, formats=["html", "svg"])
    with chromium(executable) as browser, tab(browser, tmp_path / "failed.png", device_scale_factor=3) as page:
        page.goto(batch.files["html"][0].as_uri())
        assert page.title() == f"{PRODUCT}: {batch.labels[0].identifier} to {batch.labels[-1].identifier}"
        assert page.locator("li b").all_text_contents() == [label.identifier for label in batch.labels]
        sizes = page.locator("li img").evaluate_all("all => all.map(one => one.naturalWidth)")
        assert sizes == [label.matrix.modules_with_quiet_zone * 2 for label in batch.labels]
        shown = page.locator("li img").first.screenshot()
        assert panel()[0].read(load_picture(shown)) == (batch.labels[0].text.encode(),)
        page.goto(batch.labels[1].svg.as_uri())
        box = page.locator("svg").bounding_box()
        edge_mm = batch.labels[1].matrix.modules_with_quiet_zone * batch.labels[1].module_mm
        assert box["width"] == pytest.approx(edge_mm / 25.4 * 96, abs=0.1)
        edge = box["width"]
        drawn = load_picture(page.screenshot(clip={"x": 0, "y": 0, "width": edge, "height": edge}))
        assert {decoder.read(drawn) for decoder in panel()} == {(batch.labels[1].text.encode(),)}


def test_the_same_command_gives_the_same_bytes_in_every_format(tmp_path):
    results = []
    for name in ("one", "two"):
        out = tmp_path / name
        options = ["--product-id", PRODUCT, "--count", "5", "--out", str(out), "--stock", "L7160", "--skip-cells", "19"]
        every = ["--formats", "png,svg,pdf,zpl,brother,html"]
        answer = CliRunner().invoke(labels_command, ["make", *options, *every])
        assert answer.exit_code == 0, answer.stderr
        assert "estimate   A by ISO/IEC 15415's parameters, not measured" in answer.stdout
        results.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert results[0] == results[1]
    names = set(results[0])
    assert {"sheet.pdf", "labels.zpl", "labels-62mm.prn", "contact.html", "SIM-000001.png"} <= names
    assert [label["page"] for label in json.loads(results[0]["manifest.json"])["labels"]] == [1, 1, 2, 2, 2]


def test_many_sheets_come_in_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr("simulator.labels.batch.formats.SHEET_PAGES_MAX", 2)
    grid = grid_from({"columns": 1, "rows": 2, "label_width_mm": 60, "label_height_mm": 30}, "own")
    printing = PrintOptions(grid=grid, placing=GridPlacement(skip_cells=1))
    batch = make_labels(product_id=PRODUCT, count=8, out=tmp_path, printing=printing, formats=["pdf"])
    assert [path.name for path in batch.files["pdf"]] == ["sheet-0001.pdf", "sheet-0002.pdf", "sheet-0003.pdf"]
    texts = [path.read_bytes() for path in batch.files["pdf"]]
    assert [data.count(b"(SIM-") for data in texts] == [3, 4, 1]
    assert b"page 5 of 5" in texts[2]


def test_the_longest_name_of_a_table_is_checked_before_anything_is_made(tmp_path):
    table = tmp_path / "devices.csv"
    table.write_text("device_identifier,name\nD-1,short\nD-2," + "a very long name " * 20 + "\nD-3,short\n")
    options = [
        "make",
        "--product-id",
        PRODUCT,
        "--from",
        str(table),
        "--out",
        str(tmp_path / "out"),
        "--stock",
        "L7651",
    ]
    for form, dpi in (("pdf", "300"), ("zpl", "203")):
        asked = [*options, "--formats", form, "--dpi", dpi, "--text", "identifier,name", "--label-mm", "40x21"]
        answer = CliRunner().invoke(labels_command, asked)
        assert answer.exit_code == 2
        assert "the text 'D-2 / a very long name" in answer.stderr
        assert not (tmp_path / "out").exists()
    shown = CliRunner().invoke(labels_command, [*options, "--formats", "pdf", "--text", "identifier"])
    assert shown.exit_code == 0, shown.stderr
