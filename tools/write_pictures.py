"""Write the pictures of docs/images that the label tools make themselves: ``python tools/write_pictures.py``."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from PIL import Image

from simulator.labels import make_labels
from simulator.labels.damage.making import damage_labels
from simulator.labels.verify.verifying import verify_labels

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"


def write_pictures() -> list[Path]:
    """The contact sheet of a damaged label, and a photograph in which one label is missing and one is foreign."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        labels = make_labels(product_id="press-7", count=6, out=folder / "labels", formats=["png"])
        damage_labels([folder / "labels" / "SIM-000003.png"], out=folder / "damaged")
        contact = IMAGES / "label-damage.png"
        shutil.copyfile(folder / "damaged" / "contact" / "SIM-000003.png", contact)
        photo = folder / "photo.png"
        _lay_out(folder, photo)
        verify_labels([photo], manifest=labels.manifest_json, annotated=folder / "marked")
        marked = IMAGES / "labels-verified.png"
        shutil.copyfile(folder / "marked" / "photo-verified.png", marked)
    return [contact, marked]


def _lay_out(folder: Path, photo: Path) -> None:
    """Five codes on a desk, a little turned: three of the batch, one of them twice, and one of another product."""
    make_labels(product_id="lathe-2", count=1, out=folder / "other", formats=["png"])
    pictures = [
        *(folder / "labels" / f"SIM-00000{number}.png" for number in (1, 2, 4, 1)),
        folder / "other" / "SIM-000001.png",
    ]
    desk = Image.new("L", (1000, 740), 205)
    for number, path in enumerate(pictures):
        label = (
            Image.open(path)
            .convert("L")
            .resize((260, 260))
            .rotate((-7, 4, 12, -3, 8)[number], expand=True, fillcolor=205)
        )
        desk.paste(label, (20 + number % 3 * 320, 40 + number // 3 * 350))
    desk.save(photo)


if __name__ == "__main__":
    for written in write_pictures():
        print(f"{written.relative_to(IMAGES.parents[1])}: {written.stat().st_size} bytes")
