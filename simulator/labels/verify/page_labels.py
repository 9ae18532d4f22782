"""The labels on pictures with any number of them: photographs, scans, PDF documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from simulator.labels.errors import LabelError
from simulator.labels.reading import ReadLabel, label_of_code
from simulator.labels.verify.finding import CodeSearch, Corners
from simulator.labels.verify.pages import Page, list_files, open_pages
from simulator.labels.verify.verifying import DPI


def read_page_labels(sources: Iterable[Path | str], *, dpi: int = DPI) -> Iterator[ReadLabel]:
    """Decode every label on every page, as ``labels verify`` looks for them.

    Args:
        sources: pictures and PDF documents, and folders of pictures.
        dpi: dots per inch that a PDF is drawn at.

    Yields:
        Each label from the upper left of its page on, and with its ``problem`` each code that is no label, each that
        was seen and not read, each page without a code, and each file that cannot be read.

    Raises:
        LabelError: a path does not exist, or a folder holds no picture.
    """
    for file in list_files(sources):
        try:
            for page in open_pages(file, dpi=dpi):
                search = CodeSearch(page.pixels)
                search.look()
                search.search_thoroughly(partial(_all_read, search))
                yield from _of_page(page, search)
        except LabelError as problem:
            yield ReadLabel(file, "", None, str(problem))


def _all_read(search: CodeSearch) -> bool:
    return bool(search.found) and not search.unread


def _of_page(page: Page, search: CodeSearch) -> Iterator[ReadLabel]:
    if not search.found and not search.unread:
        yield ReadLabel(page.path, "", None, f"{page.name}: no QR code in this picture", page.name)
    edge = min((_edge(code.corners) for code in search.found), default=1.0)
    several = len(search.found) > 1
    for code in sorted(search.found, key=lambda code: _by_rows(code.corners, edge)):
        yield label_of_code(code.data, page.path, f"{page.name}{_place(code.corners)}" if several else page.name)
    for corners in search.unread:
        where = f"{page.name}{_place(corners)}"
        yield ReadLabel(
            page.path, "", None, f"{where}: a code was seen and not read; take the picture nearer or sharper", where
        )


def _edge(corners: Corners) -> float:
    return max(1.0, max(y for _, y in corners) - min(y for _, y in corners))


def _by_rows(corners: Corners, edge: float) -> tuple[int, float]:
    """Its row on the page, and its place in that."""
    x, y = corners[0]
    return round(y / edge), x


def _place(corners: Corners) -> str:
    x, y = corners[0]
    return f" at {max(0, round(x))},{max(0, round(y))}"
