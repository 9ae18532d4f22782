"""Read labels back from picture files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.errors import InvalidQr
from simulator.labels.errors import LabelError
from simulator.labels.symbol.decoders import read_codes
from simulator.labels.symbol.pictures import load_picture
from simulator.wire.qr import LabelText, parse_label


@dataclass(frozen=True, slots=True)
class ReadLabel:
    """The label that was read in one picture, or why there is none.

    Attributes:
        path: the picture.
        text: the code's text; empty when there is a problem before it.
        label: the text's parts, when it is a label of ours.
        problem: one sentence that says why there is no label; empty when there is one.
        where: the picture, and the place in it when it shows several; empty stands for the path.
    """

    path: Path
    text: str
    label: LabelText | None
    problem: str = ""
    where: str = ""


def read_label_files(source: Path | str | Iterable[Path | str]) -> list[ReadLabel]:
    """Decode labels from their pictures.

    Args:
        source: a folder (its ``*.png`` files by name), one picture, or several of either.

    Returns:
        One entry per picture; one that does not read is an entry with its ``problem``, never an exception.

    Raises:
        LabelError: a path does not exist, or a folder holds no PNG file.
    """
    paths = [source] if isinstance(source, (str, Path)) else list(source)
    return [_read(picture) for path in paths for picture in _pictures(Path(path))]


def _pictures(path: Path) -> list[Path]:
    if not path.exists():
        raise LabelError(f"{path} does not exist: give a folder of labels or a PNG file")
    if not path.is_dir():
        return [path]
    try:
        found = sorted(file for file in path.iterdir() if file.suffix.lower() == ".png" and file.is_file())
    except OSError as problem:
        raise LabelError(f"cannot read {path}: {problem.strerror}; give a folder that you may read") from None
    if not found:
        raise LabelError(f"{path} holds no PNG file: make labels with 'fleet-simulator labels make --out {path}'")
    return found


def _read(path: Path) -> ReadLabel:
    try:
        found = set(read_codes(load_picture(path)))
    except LabelError as problem:
        return ReadLabel(path, "", None, str(problem))
    if len(found) != 1:
        count = "no QR code" if not found else f"{len(found)} different QR codes"
        return ReadLabel(path, "", None, f"{path}: {count} in this picture; one label per picture is needed")
    return label_of_code(found.pop(), path, str(path))


def label_of_code(data: bytes, path: Path, where: str) -> ReadLabel:
    """What a code's bytes say as a label.

    Args:
        data: the code's bytes.
        path: the picture.
        where: the picture and the place in it, for people.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ReadLabel(path, "", None, f"{where}: the code holds bytes that are no UTF-8 text", where)
    try:
        return ReadLabel(path, text, parse_label(text), "", where)
    except InvalidQr as problem:
        return ReadLabel(path, text, None, f"{where}: {problem}", where)
