"""Photographs, scans and documents as grey pages, within bounds."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simulator.labels.errors import LabelError
from simulator.labels.symbol.pictures import PIXELS_MAX, Pixels, gray_pixels, open_picture, require_pixels

PAGES_MAX: Final = 500
_SUFFIXES: Final = {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp", ".gif", ".pgm", ".ppm"}
_RENDER_TIMEOUT_S: Final = 120
_POINTS_PER_INCH: Final = 72
_POPPLER_KB: Final = 2_000_000
"""Memory that a program of poppler may take."""
_BLOCK_BYTES: Final = 512
_BOUNDED: Final = (
    "/bin/sh",
    "-c",
    f'ulimit -v {_POPPLER_KB} 2>/dev/null; ulimit -f {PIXELS_MAX // _BLOCK_BYTES + 100}; exec "$0" "$@"',
)
"""Before a program and its arguments: its memory has a limit where the system knows one, its output everywhere."""


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
        path: a picture, a TIFF of several pages, or a PDF document.
        dpi: dots per inch that a PDF is drawn at; fewer where a page would have too many pixels.

    Raises:
        LabelError: the file cannot be read; the message names it and the fix.
    """
    if path.suffix.lower() == ".pdf":
        yield from _document_pages(path, dpi)
    else:
        yield from _picture_pages(path)


def _picture_pages(path: Path) -> Iterator[Page]:
    with open_picture(path) as opened:
        # A phone's JPEG may hold a preview as a second picture; only a TIFF's pictures are pages.
        frames = getattr(opened, "n_frames", 1) if opened.format == "TIFF" else 1
    if frames > PAGES_MAX:
        raise LabelError(f"{path}: {frames} pages are more than {PAGES_MAX}; split it")
    for number in range(frames):
        with open_picture(path) as opened:  # closed before its labels are looked for: decoders keep much memory
            if frames > 1:
                opened.seek(number)
                require_pixels(opened, str(path))
            pixels = gray_pixels(opened)
        yield Page(path, number + 1 if frames > 1 else None, pixels)


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
            raise LabelError(f"{path}: page {number} is too large to be drawn; scale it down or cut it")
        page = str(number)
        # The crop box is what pdfinfo measured; the media box around it may have any size.
        command = [pdftoppm, "-cropbox", "-f", page, "-l", page, "-r", str(fitting), "-gray", str(path)]
        with open_picture(_poppler(path, command)) as opened:
            pixels = gray_pixels(opened)
        yield Page(path, number if len(sizes) > 1 else None, pixels)


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
    """What a program of poppler writes, within bounds of time, memory and output; nothing of it is left running."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [*_BOUNDED, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
        )
        try:
            exit_code = process.wait(_RENDER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise LabelError(f"{path}: not drawn within {_RENDER_TIMEOUT_S} s; give a scan as TIFF instead") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        errors.seek(0)
        if exit_code != 0:
            reason = errors.read(100_000).decode(errors="replace").strip().splitlines()
            said = reason[-1] if reason else "it ended early"
            raise LabelError(f"{path}: not a PDF that poppler reads within 2 GB of memory ({said})")
        return output.read()
