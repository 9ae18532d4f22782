"""Photographs, scans and documents as grey pages, within bounds."""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, ImageSequence, UnidentifiedImageError

from simulator.labels.errors import LabelError

PIXELS_MAX: Final = 150_000_000
"""Of one page: A4 at 1200 dots per inch has 139 million."""
PAGES_MAX: Final = 500
_SUFFIXES: Final = {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp", ".gif", ".pgm", ".ppm"}
_RENDER_TIMEOUT_S: Final = 120
_POINTS_PER_INCH: Final = 72
_SIXTEEN_BITS: Final = 65535

Pixels = NDArray[np.uint8]
"""Shape ``(height, width)``, 0 black to 255 white."""


@dataclass(frozen=True, slots=True)
class Page:
    """One picture to look for labels in.

    Attributes:
        path: the file.
        number: the page in it from 1; None in a file of one picture.
        pixels: upright, as its EXIF data says.
    """

    path: Path
    number: int | None
    pixels: Pixels

    @property
    def name(self) -> str:
        """The file and the page for people."""
        return str(self.path) if self.number is None else f"{self.path} page {self.number}"


def list_files(sources: Iterable[Path | str]) -> list[Path]:
    """The files that are meant: pictures and PDF documents as given, of a folder its pictures by name.

    A folder's PDF documents are left out: a batch's sheet beside its pictures would show each label twice.

    Raises:
        LabelError: a path does not exist, or a folder holds no picture.
    """
    files = []
    for path in map(Path, sources):
        if not path.is_dir():
            if not path.exists():
                raise LabelError(f"{path} does not exist: give pictures, PDF documents, or folders of pictures")
            files.append(path)
            continue
        inside = sorted(one for one in path.iterdir() if one.suffix.lower() in _SUFFIXES and one.is_file())
        if not inside:
            raise LabelError(f"{path} holds no picture ({', '.join(sorted(_SUFFIXES))}): give another folder or files")
        files += inside
    return files


def open_pages(path: Path, *, dpi: int) -> Iterator[Page]:
    """The pages of a file, one in memory at a time.

    Args:
        path: a picture in any format that Pillow reads, a TIFF of several pages, or a PDF document.
        dpi: dots per inch that a PDF is drawn at; fewer where a page would be beyond :data:`PIXELS_MAX`.

    Raises:
        LabelError: the file cannot be read; the message names it and the fix.
    """
    try:
        if path.suffix.lower() == ".pdf":
            yield from _document_pages(path, dpi)
        else:
            yield from _picture_pages(path)
    except Image.DecompressionBombError:  # Pillow's own bound
        raise _too_large(path) from None
    except (UnidentifiedImageError, SyntaxError, ValueError, EOFError):
        raise LabelError(f"{path}: not a picture that can be read; save it as PNG, JPEG or TIFF") from None
    except OSError as problem:
        raise LabelError(f"{path}: {problem.strerror or problem}; give a whole, readable picture") from None


def _picture_pages(path: Path) -> Iterator[Page]:
    with warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning), Image.open(path) as opened:
        # A phone's JPEG may hold a preview as a second picture; only a TIFF's pictures are pages.
        frames = getattr(opened, "n_frames", 1) if opened.format == "TIFF" else 1
        if frames > PAGES_MAX:
            raise LabelError(f"{path}: {frames} pages are more than {PAGES_MAX}; split it")
        for number, frame in enumerate(ImageSequence.Iterator(opened), start=1):
            if number > frames:
                break
            if frame.width * frame.height > PIXELS_MAX:
                raise _too_large(path)
            yield Page(path, number if frames > 1 else None, _gray(frame))


def _gray(frame: Image.Image) -> Pixels:
    upright = ImageOps.exif_transpose(frame)
    if upright.mode.startswith(("I", "F")):  # 16 bits per pixel, which Pillow would clip instead of scale
        deep = np.asarray(upright).astype(np.float64)
        return np.rint(deep * 255 / (_SIXTEEN_BITS if deep.max() > 255 else 255)).astype(np.uint8)
    if upright.has_transparency_data:
        layer = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    return np.asarray(upright.convert("L"))


def _document_pages(path: Path, dpi: int) -> Iterator[Page]:
    pdfinfo, pdftoppm = shutil.which("pdfinfo"), shutil.which("pdftoppm")
    if not (pdfinfo and pdftoppm):
        raise LabelError(
            f"{path}: reading a PDF needs pdftoppm (Debian: apt-get install poppler-utils; macOS: brew install "
            f"poppler), or pictures of its pages, made where it is installed: pdftoppm -r {dpi} -png "
            f"{shlex.quote(path.name)} page"
        )
    sizes = _page_sizes(path, pdfinfo)
    for number, (width_pt, height_pt) in enumerate(sizes, start=1):
        area = max(1.0, width_pt) * max(1.0, height_pt)
        fitting = min(dpi, int((PIXELS_MAX / area) ** 0.5 * _POINTS_PER_INCH) - 1)
        if fitting < 1:
            raise _too_large(path)
        page = str(number)
        drawn = _poppler(path, [pdftoppm, "-f", page, "-l", page, "-r", str(fitting), "-gray", str(path)])
        with Image.open(io.BytesIO(drawn)) as opened:
            yield Page(path, number if len(sizes) > 1 else None, np.asarray(opened.convert("L")))


def _page_sizes(path: Path, pdfinfo: str) -> list[tuple[float, float]]:
    """Width and height of each page in points."""
    output = _poppler(path, [pdfinfo, "-f", "1", "-l", str(PAGES_MAX + 1), str(path)]).decode(errors="replace")
    sizes = []
    for line in output.splitlines():
        words = line.split()
        if words[:1] == ["Page"] and words[2:3] == ["size:"]:
            sizes.append((float(words[3]), float(words[5])))
    if not 1 <= len(sizes) <= PAGES_MAX:
        raise LabelError(f"{path}: {len(sizes) or 'no'} pages; give a PDF of 1 to {PAGES_MAX}")
    return sizes


def _poppler(path: Path, command: list[str]) -> bytes:
    try:
        done = subprocess.run(command, capture_output=True, timeout=_RENDER_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise LabelError(f"{path}: not drawn within {_RENDER_TIMEOUT_S} s; give a scan as TIFF instead") from None
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines()
        raise LabelError(f"{path}: not a PDF that poppler reads ({reason[-1] if reason else 'no reason given'})")
    return done.stdout


def _too_large(path: Path) -> LabelError:
    return LabelError(f"{path}: more than {PIXELS_MAX // 10**6} million pixels; scale it down or cut it")
