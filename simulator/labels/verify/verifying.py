"""Look through pictures for labels and compare them with a manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from simulator.labels.errors import LabelError
from simulator.labels.verify.expected import ExpectedLabel, load_expected
from simulator.labels.verify.finding import CodeSearch, Corners, FoundCode
from simulator.labels.verify.pages import Page, list_files, open_pages
from simulator.labels.verify.report import PageFinds, Report, as_csv, judge_finds
from simulator.whole_files import cannot_write, write_whole

DPI: Final = 300
OnProgress = Callable[[int, int], None]
"""Called with files done and files in all."""


@dataclass(slots=True)
class _Seen:
    """What was found on a page so far."""

    path: Path
    number: int | None
    found: Sequence[FoundCode]
    unread: tuple[Corners, ...]


def verify_labels(
    pictures: Iterable[Path | str],
    *,
    manifest: Path | str | None = None,
    table: Path | str | None = None,
    overlap: bool = False,
    thorough: bool = False,
    dpi: int = DPI,
    on_progress: OnProgress | None = None,
) -> Report:
    """Which labels the pictures show, and which are missing, double or foreign.

    Every page gets a quick look. While labels of the manifest are missing, and on pages with no code or with one that
    does not read, patient looks follow: tiles, scales, filters, turned, inverted.

    Args:
        pictures: photographs, scans (a TIFF may have several pages), PDF documents, folders of pictures.
        manifest: which labels should be there; without one any device label is accepted once.
        table: a CSV file for the report.
        overlap: pictures may show the same label again.
        thorough: the patient looks on every page, also for doubles and strangers that the quick one may not have seen.
        dpi: dots per inch that a PDF is drawn at.
        on_progress: called after each file's quick look.

    Raises:
        LabelError: a path does not exist, the manifest is none, or a result cannot be written. A picture that cannot
            be read is a problem in the report.
    """
    if not 20 <= dpi <= 2400:
        raise LabelError(f"resolution is {dpi} dpi: give 20 to 2400")
    expected = None if manifest is None else load_expected(Path(manifest))
    files = list_files(pictures)
    problems: list[str] = []
    seen: list[_Seen] = []
    for done, file in enumerate(files, start=1):
        for page in _readable(file, dpi, problems):
            search = CodeSearch(page.pixels)
            search.look()
            seen.append(_Seen(page.path, page.number, search.found, search.unread))
        if on_progress:
            on_progress(done, len(files))
    _look_again(seen, expected, thorough=thorough, dpi=dpi)
    finds = [PageFinds(one.path, one.number, tuple(one.found), one.unread) for one in seen]
    report = judge_finds(finds, expected, problems=problems, overlap=overlap)
    if table is not None:
        _write(Path(table), as_csv(report))
    return report


def _readable(file: Path, dpi: int, problems: list[str]) -> Iterator[Page]:
    """The pages of a file; why it ends early goes to the problems."""
    try:
        yield from open_pages(file, dpi=dpi)
    except LabelError as problem:
        problems.append(str(problem))


def _look_again(seen: list[_Seen], expected: Sequence[ExpectedLabel] | None, *, thorough: bool, dpi: int) -> None:
    """The patient looks where they may help: each page is read again, since all of them would not fit into memory."""
    wanted = {label.text.encode() for label in expected or ()}

    def missing() -> bool:
        return bool(wanted - {code.data for one in seen for code in one.found})

    for page, one in _pages_again(seen, dpi, lambda one: thorough or missing() or one.unread or not one.found):
        search = CodeSearch(page.pixels, one.found)
        one.found = search.found  # grows while the search goes on, so that missing() sees it
        search.look()
        search.search_thoroughly(
            partial(_enough, search, nothing_yet=not one.found, wanted=lambda: thorough or missing())
        )
        one.unread = search.unread


def _enough(search: CodeSearch, *, nothing_yet: bool, wanted: Callable[[], bool]) -> bool:
    """Whether no look at this page is worth its time any more."""
    return not (wanted() or search.unread or (nothing_yet and not search.found))


def _pages_again(seen: Sequence[_Seen], dpi: int, worth: Callable[[_Seen], object]) -> Iterator[tuple[Page, _Seen]]:
    """The pages that are worth it, opened anew, each beside what was found on it."""
    for file in dict.fromkeys(one.path for one in seen):
        of_file = {one.number: one for one in seen if one.path == file}
        if not any(worth(one) for one in of_file.values()):
            continue
        for page in _readable(file, dpi, []):
            if page.number in of_file and worth(of_file[page.number]):
                yield page, of_file[page.number]


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as problem:
        raise LabelError(cannot_write(path, problem, "another --csv")) from None
