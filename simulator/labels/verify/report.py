"""Compares the labels that were found with those of the manifest."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from agent.errors import InvalidQr
from simulator.labels.verify.expected import ExpectedLabel
from simulator.labels.verify.finding import Corners, FoundCode
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
class PageFinds:
    """What the search of one page gave.

    Attributes:
        path: the file.
        page: the page in it, when it has several.
        found: codes that were read.
        unread: codes that were seen only.
    """

    path: Path
    page: int | None
    found: tuple[FoundCode, ...]
    unread: tuple[Corners, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One code in a picture, or one label that is missing.

    Attributes:
        state: what is to be said of it.
        identifier: the device identifier; empty where there is none.
        text: what the code says; empty when unread.
        note: why, where the state alone does not say it.
        path: the picture; None when missing.
        page: the page in it, when it has several.
        corners: where in it; None when missing.
    """

    state: State
    identifier: str
    text: str
    note: str = ""
    path: Path | None = None
    page: int | None = None
    corners: Corners | None = None


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
        return sum(1 for line in self.lines if line.state is state)

    @property
    def good(self) -> bool:
        """Every label there once, nothing else, every file read."""
        return not self.problems and bool(self.lines) and all(line.state is State.READ for line in self.lines)


def judge_finds(
    pages: Sequence[PageFinds],
    expected: Sequence[ExpectedLabel] | None,
    *,
    problems: Sequence[str] = (),
    overlap: bool = False,
) -> Report:
    """Compare what was found with what should be there.

    Args:
        pages: what was found.
        expected: the manifest's labels; None accepts any device label.
        problems: files that could not be read.
        overlap: pictures may show the same label again; only a second one in the same picture is double.
    """
    known = None if expected is None else {label.text: label.identifier for label in expected}
    everywhere = Counter(code.data for page in pages for code in page.found)
    lines = []
    for page in pages:
        here = Counter(code.data for code in page.found)
        for code in sorted(page.found, key=_reading_order):
            again = (here if overlap else everywhere)[code.data] > 1
            lines.append(_line(page, code, known, again=again))
        lines += [
            Line(State.UNREAD, "", "", "a code that was seen and not read", page.path, page.page, corners)
            for corners in page.unread
        ]
    read = {line.text for line in lines}
    lines += [Line(State.MISSING, one.identifier, one.text) for one in expected or () if one.text not in read]
    return Report(tuple(lines), None if expected is None else len(expected), tuple(problems), len(pages))


def _reading_order(code: FoundCode) -> tuple[float, float]:
    """Row by row, where codes that begin within half a code's height of a common line are one row."""
    top = min(y for _, y in code.corners)
    height = max(y for _, y in code.corners) - top
    return top // max(1.0, height / 2), min(x for x, _ in code.corners)


def _line(page: PageFinds, code: FoundCode, known: Mapping[str, str] | None, *, again: bool) -> Line:
    text = code.data.decode(errors="replace")
    identifier, note = _identify(code.data)
    if known is not None and text in known:
        state, identifier, note = State.READ, known[text], ""
    elif known is not None:
        same = identifier and identifier in known.values()
        state, note = State.FOREIGN, note or ("this identifier, but another text" if same else "not in the manifest")
    else:
        state = State.FOREIGN if note else State.READ
    if again and state is State.READ:
        state = State.DOUBLE
    return Line(state, identifier, text, note, page.path, page.page, code.corners)


def _identify(data: bytes) -> tuple[str, str]:
    """The device identifier of a code, or why it has none."""
    try:
        return parse_label(data.decode()).device_identifier, ""
    except UnicodeDecodeError:
        return "", "no device label: bytes that are no UTF-8 text"
    except InvalidQr as problem:
        return "", f"no device label: {problem}"


def as_document(report: Report) -> dict[str, Any]:
    """The report as JSON members."""
    return {
        "good": report.good,
        "expected": report.expected,
        "pages": report.pages,
        "counts": {state.value: report.count(state) for state in State},
        "problems": list(report.problems),
        "labels": [_members(line) for line in report.lines],
    }


def as_csv(report: Report) -> bytes:
    """A row for each code and each missing label; RFC 4180, UTF-8."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    head = ("state", "identifier", "picture", "page", "left", "top", "right", "bottom", "note", "text")
    writer.writerow(head)
    for line in report.lines:
        members = _members(line)
        box = members.pop("box") or ["", "", "", ""]
        row = {**members, **dict(zip(("left", "top", "right", "bottom"), box, strict=True))}
        writer.writerow(["" if row[name] is None else row[name] for name in head])
    return buffer.getvalue().encode()


def _members(line: Line) -> dict[str, Any]:
    box = None
    if line.corners:
        xs, ys = [x for x, _ in line.corners], [y for _, y in line.corners]
        box = [round(min(xs)), round(min(ys)), round(max(xs)), round(max(ys))]
    return {
        "state": line.state.value,
        "identifier": line.identifier,
        "text": line.text,
        "note": line.note,
        "picture": str(line.path) if line.path else None,
        "page": line.page,
        "box": box,
    }
