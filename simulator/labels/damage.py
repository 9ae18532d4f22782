"""Damaged labels: ten kinds of damage in five strengths, each picture stored with what zxing-cpp says of it.

For who tests a scanner: the weak ones have to be read, and of the strong ones it is known which zxing-cpp does not
read. Equal seeds give equal damage.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from simulator.labels.errors import LabelError
from simulator.labels.manifest import as_csv
from simulator.labels.pages import list_files
from simulator.labels.pictures import load_picture
from simulator.labels.reading import read_drawing
from simulator.whole_files import cannot_write, write_whole

STRENGTHS: Final = range(1, 6)
DAMAGE_JSON: Final = "damage.json"
_WHITE: Final = 255
Damage = Callable[[Image.Image, float, np.random.Generator], Image.Image]
"""A grey picture, how much from 0 to 1, and randomness in; the damaged picture out."""


def _blur(label: Image.Image, amount: float, _: np.random.Generator) -> Image.Image:
    """Out of focus: a Gaussian up to 1/50 of the label wide."""
    return label.filter(ImageFilter.GaussianBlur(label.width * amount / 50))


def _noise(label: Image.Image, amount: float, random: np.random.Generator) -> Image.Image:
    """A sensor in the dark: noise on each pixel, up to 70 % of the distance of black and white."""
    pixels = np.asarray(label, np.float32)
    noisy = pixels + random.normal(0, amount * 0.7 * _WHITE, pixels.shape)
    return Image.fromarray(np.clip(noisy, 0, _WHITE).astype(np.uint8))


def _rotate(label: Image.Image, amount: float, random: np.random.Generator) -> Image.Image:
    """Turned by up to 45 degrees, to either side."""
    degrees = 45 * amount * random.choice((-1, 1))
    return label.rotate(degrees, Image.Resampling.BILINEAR, expand=True, fillcolor=_WHITE)


def _perspective(label: Image.Image, amount: float, _: np.random.Generator) -> Image.Image:
    """Seen from the side: the upper edge is up to 80 % shorter than the lower."""
    edge, cut = label.width, label.width * amount * 0.4
    far = np.array([[cut, 0], [edge - cut, 0], [edge, edge], [0, edge]], float)
    near = np.array([[0, 0], [edge, 0], [edge, edge], [0, edge]], float)
    rows: list[list[float]] = []
    for (x, y), (u, v) in zip(far, near, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    inverse = np.linalg.solve(np.array(rows), near.reshape(8))
    return label.transform(
        label.size, Image.Transform.PERSPECTIVE, tuple(inverse), Image.Resampling.BILINEAR, fillcolor=_WHITE
    )


def _jpeg(label: Image.Image, amount: float, _: np.random.Generator) -> Image.Image:
    """Sent through a messenger: made smaller and saved as JPEG of quality 40 down to 1."""
    small = _shrink(label, 1 - 0.7 * amount)
    file = io.BytesIO()
    small.save(file, "JPEG", quality=max(1, round(40 * (1 - amount))))
    return Image.fromarray(load_picture(file.getvalue())).resize(label.size, Image.Resampling.BILINEAR)


def _low_resolution(label: Image.Image, amount: float, _: np.random.Generator) -> Image.Image:
    """From far away: down to 1/6 of the pixels along an edge."""
    return _shrink(label, 1 / (1 + 5 * amount)).resize(label.size, Image.Resampling.BILINEAR)


def _shrink(label: Image.Image, factor: float) -> Image.Image:
    return label.resize((max(1, int(label.width * factor)), max(1, int(label.height * factor))), Image.Resampling.BOX)


def _contrast(label: Image.Image, amount: float, _: np.random.Generator) -> Image.Image:
    """Faded: black goes up to 99.5 % of the way to white."""
    return Image.fromarray((_WHITE - (_WHITE - np.asarray(label, np.float32)) * (1 - 0.995 * amount)).astype(np.uint8))


def _scratch(label: Image.Image, amount: float, random: np.random.Generator) -> Image.Image:
    """White scratches across it, up to 12."""
    damaged = label.copy()
    draw = ImageDraw.Draw(damaged)
    for _ in range(round(12 * amount)):
        ends = random.integers(0, label.width, 4).tolist()
        draw.line(ends, fill=_WHITE, width=max(2, label.width // 70))
    return damaged


def _stain(label: Image.Image, amount: float, random: np.random.Generator) -> Image.Image:
    """A dark spot somewhere inside, up to half of the label wide."""
    damaged = label.copy()
    radius = label.width * amount / 4
    x, y = random.uniform(0.35, 0.65, 2) * label.width
    ImageDraw.Draw(damaged).ellipse((x - radius, y - radius, x + radius, y + radius), fill=40)
    return damaged


def _crop(label: Image.Image, amount: float, _: np.random.Generator) -> Image.Image:
    """Cut off at the right, up to a fifth of the label; the quiet zone goes first."""
    return label.crop((0, 0, round(label.width * (1 - amount / 5)), label.height))


KINDS: Final[dict[str, Damage]] = {
    "blur": _blur,
    "noise": _noise,
    "rotate": _rotate,
    "perspective": _perspective,
    "jpeg": _jpeg,
    "low-resolution": _low_resolution,
    "contrast": _contrast,
    "scratch": _scratch,
    "stain": _stain,
    "crop": _crop,
}
"""Every kind by the word that ``--kinds`` takes."""


@dataclass(frozen=True, slots=True)
class DamagedLabel:
    """A damaged picture.

    Attributes:
        picture: its file's name.
        source: the picture that was damaged.
        kind: of :data:`KINDS`.
        strength: 1 to 5.
        text: what the undamaged code says.
        zxing: ``read``, ``missed``, or ``different`` when zxing-cpp read another text.
    """

    picture: str
    source: str
    kind: str
    strength: int
    text: str
    zxing: str


def damage_labels(
    pictures: Iterable[Path | str],
    out: Path,
    *,
    kinds: Sequence[str] = tuple(KINDS),
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[DamagedLabel]:
    """Damage each picture by each kind in five strengths; the folder gets them, ``damage.json`` and ``damage.csv``.

    Args:
        pictures: pictures of one label each, and folders of them.
        out: the folder; made when missing. Files of the same name are overwritten.
        kinds: of :data:`KINDS`.
        seed: what is random comes from it.
        on_progress: called with pictures damaged and pictures in all.

    Raises:
        LabelError: no such kind, a picture that does not show one label, or a folder that cannot be written.
    """
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise LabelError(f"no damage {unknown[0]!r}: there is {', '.join(KINDS)}")
    files = list_files(pictures)
    made: list[DamagedLabel] = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for done, path in enumerate(files, start=1):
            made += _damage_one(path, out, kinds, seed)
            if on_progress:
                on_progress(done, len(files))
        rows = [asdict(one) for one in made]
        write_whole(out / "damage.csv", as_csv(rows))
        write_whole(out / DAMAGE_JSON, json.dumps({"seed": seed, "labels": rows}, indent=1) + "\n")
    except OSError as problem:
        raise LabelError(cannot_write(out, problem, "another --out")) from None
    return made


def _damage_one(path: Path, out: Path, kinds: Sequence[str], seed: int) -> list[DamagedLabel]:
    texts = read_drawing(path.read_bytes())
    if len(texts) != 1:
        raise LabelError(f"{path} shows {len(texts) or 'no'} QR codes: give pictures of one label each")
    label = Image.fromarray(load_picture(path))
    made = []
    for kind in kinds:
        for strength in STRENGTHS:
            random = np.random.default_rng([seed, zlib.crc32(path.name.encode()), zlib.crc32(kind.encode()), strength])
            file = io.BytesIO()
            KINDS[kind](label, strength / len(STRENGTHS), random).save(file, "PNG")
            name = f"{path.stem}.{kind}-{strength}.png"
            write_whole(out / name, file.getvalue())
            found = read_drawing(file.getvalue())
            word = "read" if found == texts else "different" if found else "missed"
            made.append(DamagedLabel(name, path.name, kind, strength, texts[0], word))
    return made
