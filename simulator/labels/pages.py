"""Photographs, scans and documents as grey pages, within bounds."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from simulator.labels.errors import LabelError
from simulator.labels.pictures import PAGES_MAX, Pixels, gray_pixels, open_picture, require_pixels

_SUFFIXES: Final = {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp", ".gif", ".pgm", ".ppm"}
_PAGE_TIMEOUT_S: Final = 60.0


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
    """The pages as another process draws them (:mod:`simulator.labels.pdf_child`); it ends with this generator."""
    command = [sys.executable, "-m", "simulator.labels.pdf_child", str(path.resolve()), str(dpi)]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as child,
    ):
        try:
            count = int(_read_in_time(child, path) or 0)
            for number in range(1, count + 1):
                size = _read_in_time(child, path).split()
                if len(size) != 2:
                    break
                width, height = map(int, size)
                pixels = np.frombuffer(_read_in_time(child, path, width * height), np.uint8)
                if pixels.size < width * height:
                    break
                yield Page(path, number if count > 1 else None, pixels.reshape(height, width))
            exit_code = child.wait(_PAGE_TIMEOUT_S)
        finally:
            child.kill()
        if exit_code != 0:
            errors.seek(0)
            lines = errors.read(100_000).decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines and exit_code == 1 else "it needs more time or memory than a page may"
            raise LabelError(f"{path}: {reason}")


def _read_in_time(child: subprocess.Popen[bytes], path: Path, size: int | None = None) -> bytes:
    """The child's next line, or ``size`` bytes; fewer when it ended.

    Raises:
        LabelError: it took too long, and was ended.
    """
    if child.stdout is None:
        raise AssertionError("the child writes to a pipe")
    too_late = threading.Event()

    def end() -> None:
        too_late.set()
        child.kill()

    timer = threading.Timer(_PAGE_TIMEOUT_S, end)
    timer.start()
    try:
        data = child.stdout.readline() if size is None else child.stdout.read(size)
    finally:
        timer.cancel()
    if too_late.is_set():
        raise LabelError(f"{path}: not drawn within {_PAGE_TIMEOUT_S:g} s; give a scan as TIFF instead")
    return data
