"""Compare the labels that pictures show with those of a manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from agent.errors import InvalidQr
from simulator.labels.errors import LabelError
from simulator.labels.finding import CodeSearch, Corners
from simulator.labels.manifest import read_manifest
from simulator.labels.pages import Page, list_files, open_pages
from simulator.wire.qr import parse_label


class State(StrEnum):
    """What is to be said of a code in a picture, or of a label that is in none."""

    READ = "read"
    DOUBLE = "double"
    """The same text as another code."""
    FOREIGN = "foreign"
    """Not in the manifest, or no device label at all."""
    UNREAD = "unread"
    """Seen, and not read."""
    MISSING = "missing"
    """In the manifest, and in no picture."""


@dataclass(frozen=True, slots=True)
class Line:
    """One code in a picture, or one label that is missing.

    Attributes:
        state: what is to be said of it.
        identifier: of the device; empty where there is none.
        text: what the code says; empty when unread.
        note: why, where the state alone does not say it.
        picture: the file and its page; empty when missing.
        place: ``x,y`` of its upper left corner in the picture.
    """

    state: State
    identifier: str = ""
    text: str = ""
    note: str = ""
    picture: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The answer of a verification.

    Attributes:
        lines: the codes picture by picture, from the top left, then the missing labels in the manifest's order.
        expected: labels in the manifest; None without one.
        problems: one sentence for each file that could not be read.
        pages: how many pages were looked at.
    """

    lines: tuple[Line, ...]
    expected: int | None
    problems: tuple[str, ...]
    pages: int

    def count(self, state: State) -> int:
        """How many lines have this state."""
        return sum(line.state is state for line in self.lines)

    @property
    def good(self) -> bool:
        """Every label there once, nothing else, every file read."""
        return not self.problems and bool(self.lines) and all(line.state is State.READ for line in self.lines)


@dataclass(slots=True)
class _Seen:
    """What was found on a page so far; the page itself would take too much memory."""

    path: Path
    number: int | None
    name: str
    search: CodeSearch


def verify_labels(
    pictures: Iterable[Path | str],
    *,
    manifest: Path | str | None = None,
    overlap: bool = False,
    dpi: int = 300,
    on_progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Which labels the pictures show, and which are missing, double or foreign.

    Every page gets a quick look. Patient looks follow on pages with no code or with one that does not read, and on all
    pages while labels of the manifest are missing.

    Args:
        pictures: photographs, scans (a TIFF may have several pages), PDF documents, folders of pictures.
        manifest: which labels should be there; None accepts any device label once.
        overlap: pictures may show the same label again; double is only a second one in one picture.
        dpi: dots per inch that a PDF is drawn at.
        on_progress: called with files done and files in all, after each file's quick look.

    Raises:
        LabelError: a path does not exist, or the manifest is none. A picture that cannot be read is a problem in the
            report.
    """
    if not 20 <= dpi <= 2400:
        raise LabelError(f"resolution is {dpi} dpi: give 20 to 2400")
    wanted = None if manifest is None else {label.text: label.identifier for label in read_manifest(Path(manifest))}
    files = list_files(pictures)
    problems: list[str] = []
    seen: list[_Seen] = []
    for done, file in enumerate(files, start=1):
        for page in _readable(file, dpi, problems):
            search = CodeSearch(page.pixels)
            search.look()
            seen.append(_Seen(page.path, page.number, page.name, search.without_page()))
        if on_progress:
            on_progress(done, len(files))
    _look_again(seen, wanted or {}, dpi)
    return Report(
        tuple(_lines(seen, wanted, overlap=overlap)),
        None if wanted is None else len(wanted),
        tuple(problems),
        len(seen),
    )


def _readable(file: Path, dpi: int, problems: list[str]) -> Iterator[Page]:
    """The pages of a file; why it ends early goes to the problems."""
    try:
        yield from open_pages(file, dpi=dpi)
    except LabelError as problem:
        problems.append(str(problem))


def _look_again(seen: Sequence[_Seen], wanted: dict[str, str], dpi: int) -> None:
    """The patient looks where they may help; each page is opened again."""

    def missing() -> bool:
        return bool(wanted.keys() - {code.text for one in seen for code in one.search.found})

    def is_unclear(one: _Seen) -> bool:
        return not one.search.found or bool(one.search.unread)

    for file in dict.fromkeys(one.path for one in seen):
        of_file = {one.number: one for one in seen if one.path == file}
        if not (missing() or any(map(is_unclear, of_file.values()))):
            continue
        for page in _readable(file, dpi, []):
            one = of_file.get(page.number)
            if one is not None and (missing() or is_unclear(one)):
                one.search = CodeSearch(page.pixels, one.search.found)
                one.search.search(lambda one=one: not (missing() or is_unclear(one)))  # type: ignore[misc]
                one.search = one.search.without_page()


def _lines(seen: Sequence[_Seen], wanted: dict[str, str] | None, *, overlap: bool) -> Iterator[Line]:
    everywhere = Counter(code.text for one in seen for code in one.search.found)
    for one in seen:
        here = Counter(code.text for code in one.search.found)
        for code in one.search.in_reading_order():
            state, identifier, note = _judge(code.text, wanted)
            if state is State.READ and (here if overlap else everywhere)[code.text] > 1:
                state = State.DOUBLE
            yield Line(state, identifier, code.text, note, one.name, _place(code.corners))
        for corners in one.search.unread:
            yield Line(State.UNREAD, note="seen, and not read", picture=one.name, place=_place(corners))
        if wanted is None and not one.search.found and not one.search.unread:
            yield Line(State.UNREAD, note="no QR code in this picture", picture=one.name)
    for text, identifier in (wanted or {}).items():
        if text not in everywhere:
            yield Line(State.MISSING, identifier, text)


def _judge(text: str, wanted: dict[str, str] | None) -> tuple[State, str, str]:
    """State, identifier and note of a code that is there once."""
    try:
        identifier, fault = parse_label(text).device_identifier, ""
    except InvalidQr as problem:
        identifier, fault = "", f"no device label: {problem}"
    if wanted is None:
        return (State.FOREIGN if fault else State.READ), identifier, fault
    if text in wanted:
        return State.READ, wanted[text], ""
    is_other_text = identifier != "" and identifier in wanted.values()
    return (
        State.FOREIGN,
        identifier,
        fault or ("this identifier, but another text" if is_other_text else "not in the manifest"),
    )


def _place(corners: Corners) -> str:
    x, y = min(x for x, _ in corners), min(y for _, y in corners)
    return f"{max(0, round(x))},{max(0, round(y))}"
