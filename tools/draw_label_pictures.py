"""Draw the pictures of docs/printing.md with the labels' own tools: ``make pictures``.

Needs pdftoppm (Debian: poppler-utils) and chromium beside what ``make setup`` installs.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import sync_playwright

from simulator.labels import make_labels
from simulator.labels.printing.brother import draw_tape, find_tape
from simulator.labels.printing.dots import DotLabel, draw_dots
from simulator.labels.printing.grid import GridPlacement
from simulator.labels.printing.layout import Room
from simulator.labels.printing.options import PrintOptions
from simulator.labels.printing.sheet import Marks

_FOLDER: Final = Path(__file__).parents[1] / "docs" / "images"
_PRODUCT: Final = "0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11"
_BYTES_MAX: Final = 60_000
_PAPER: Final = 130


def main() -> int:
    """Write all pictures; 1 when a program is missing."""
    for program in ("pdftoppm", "chromium"):
        if shutil.which(program) is None:
            print(f"error: the program {program} is missing: apt-get install poppler-utils chromium", file=sys.stderr)
            return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sheets = [
            _sheet(folder / "begun", PrintOptions(stock="L7160", placing=GridPlacement(skip_cells=4)), 17),
            _sheet(folder / "small", PrintOptions(stock="L7651", marks=Marks.OUTLINE), 65),
        ]
        _save("labels-sheets.png", _side_by_side(sheets), colors=6)
        batch = make_labels(product_id=_PRODUCT, count=8, out=folder / "shown", formats=["html"])
        _save("labels-contact-sheet.png", _page(batch.files["html"][0]), colors=16)
        label = batch.labels[0]
        drawn = DotLabel(label.identifier, (label.identifier, _PRODUCT), label.matrix, label.dots_per_module)
        zebra = draw_dots(drawn, room=Room(60, 27, 1), dpi=300).as_image()
        tapes = [draw_tape(drawn, find_tape(width)).as_image() for width in (29, 62)]
        _save(
            "labels-printers.png", _side_by_side([zebra.convert("L"), *(tape.convert("L") for tape in tapes)]), colors=4
        )
    return 0


def _sheet(folder: Path, printing: PrintOptions, count: int) -> Image.Image:
    batch = make_labels(product_id=_PRODUCT, count=count, out=folder, printing=printing, formats=["pdf"])
    if batch.sheet is None:
        raise RuntimeError("a PDF was asked for and none was made")
    command = ["pdftoppm", "-r", "50", "-gray", "-png", "-singlefile", str(batch.sheet)]
    return Image.open(io.BytesIO(subprocess.run(command, capture_output=True, check=True).stdout)).convert("L")


def _page(path: Path) -> Image.Image:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 900, "height": 560})
        page.goto(path.as_uri())
        picture = page.screenshot()
        browser.close()
    return Image.open(io.BytesIO(picture)).convert("L")


def _side_by_side(pictures: list[Image.Image]) -> Image.Image:
    gap = 16
    size = sum(one.width + gap for one in pictures) + gap, max(one.height for one in pictures) + 2 * gap
    whole = Image.new("L", size, _PAPER)
    left = gap
    for one in pictures:
        whole.paste(one, (left, gap))
        left += one.width + gap
    return whole


def _save(name: str, picture: Image.Image, *, colors: int) -> None:
    path = _FOLDER / name
    picture.quantize(colors).save(path, optimize=True)
    size = path.stat().st_size
    print(f"wrote docs/images/{name}, {size} bytes")
    if size > _BYTES_MAX:
        raise RuntimeError(f"{name} has more than {_BYTES_MAX} bytes: draw it smaller")


if __name__ == "__main__":
    sys.exit(main())
