"""Read codes and labels back from pictures that come from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.errors import InvalidQr
from simulator.labels.errors import LabelError
from simulator.labels.finding import CodeSearch, Corners, FoundCode
from simulator.labels.pages import Page, list_files, open_pages
from simulator.labels.pictures import load_picture
from simulator.labels.symbol import scan
from simulator.wire.qr import LabelText, parse_label


def read_codes(data: bytes) -> list[str]:
    """The text of each QR code in a picture, from its upper left on; bytes that are no UTF-8 as zxing-cpp guesses them.

    Safe for pictures from anywhere: a few formats that start no program, and no more pixels than a limit. It blocks for
    as long as a search takes, seconds for a large picture without a code.

    Args:
        data: a picture file's bytes: JPEG, PNG, WebP, GIF, BMP, TIFF or PPM.

    Raises:
        PictureError: it is no such picture, or too large.
    """
    search = CodeSearch(load_picture(data))
    search.search()
    return [code.text for code in search.in_reading_order()]


def read_drawing(data: bytes) -> list[str]:
    """The text of each QR code in a picture that shows little else: one quick look.

    Raises:
        PictureError: it is no such picture, or too large.
    """
    return [code.text for code in scan(load_picture(data))]


@dataclass(frozen=True, slots=True)
class ReadLabel:
    """A code in a picture as a label, or why there is none.

    Attributes:
        path: the picture.
        where: the picture, its page and the place in it, as far as there are several.
        text: what the code says; empty when none was read.
        label: the text's parts, when it is a label of ours.
        problem: one sentence that says why there is no label; empty when there is one.
    """

    path: Path
    where: str
    text: str = ""
    label: LabelText | None = None
    problem: str = ""


def read_labels(sources: Iterable[Path | str], *, dpi: int = 300) -> Iterator[ReadLabel]:
    """Read every label on pictures with any number of them.

    Args:
        sources: photographs, scans, PDF documents, folders of pictures.
        dpi: dots per inch that a PDF is drawn at.

    Yields:
        Each label from the upper left of its page on; with its ``problem`` each code that is no label, each that was
        seen and not read, each page without a code, and each file that cannot be read.

    Raises:
        LabelError: a path does not exist, or a folder holds no picture.
    """
    for file in list_files(sources):
        try:
            for page in open_pages(file, dpi=dpi):
                search = CodeSearch(page.pixels)
                search.search()
                yield from _of_page(page, search)
        except LabelError as problem:
            yield ReadLabel(file, str(file), problem=str(problem))


def _of_page(page: Page, search: CodeSearch) -> Iterator[ReadLabel]:
    if not search.found and not search.unread:
        yield ReadLabel(page.path, page.name, problem=f"{page.name}: no QR code in this picture")
    for code in search.in_reading_order():
        yield _label_of(code, page, page.name + (_place(code.corners) if len(search.found) > 1 else ""))
    for corners in search.unread:
        where = page.name + _place(corners)
        problem = f"{where}: a code was seen and not read; take the picture nearer or sharper"
        yield ReadLabel(page.path, where, problem=problem)


def _label_of(code: FoundCode, page: Page, where: str) -> ReadLabel:
    try:
        text = code.data.decode()
        return ReadLabel(page.path, where, text, parse_label(text))
    except UnicodeDecodeError:
        return ReadLabel(page.path, where, problem=f"{where}: the code holds bytes that are no UTF-8 text")
    except InvalidQr as problem:
        return ReadLabel(page.path, where, text, problem=f"{where}: {problem}")


def _place(corners: Corners) -> str:
    x, y = corners[0]
    return f" at {max(0, round(x))},{max(0, round(y))}"
