"""Labels out of a table of devices: CSV as spreadsheets export it. Every bad row is reported with its line number."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from simulator.labels.errors import LabelError
from simulator.labels.payload import LabelOrder, Payload
from simulator.labels.spoiled import spoiled

COLUMNS: Final = ("device_identifier", "product_id", "name")
_DELIMITERS: Final = ",;\t|"
_SEPARATOR: Final = re.compile(r"\"?sep=(.)\"?\s*")
"""Excel's own first line, which names the delimiter."""
_WORKBOOKS: Final = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""How the files of spreadsheets begin: .xlsx and .ods, .xls."""
_PROBLEM_MAX: Final = 400
_SIZE_MAX_BYTES: Final = 256 * 1024 * 1024


def read_table(source: Path, *, product_id: str | None, payload: Payload) -> tuple[list[LabelOrder], list[str]]:
    """The labels of a table, and what a user has to know about how it was read.

    Args:
        source: a CSV file with the column ``device_identifier`` and, if wanted, ``product_id`` and ``name``.
        product_id: of rows that name none.
        payload: writes the codes' texts.

    Raises:
        LabelError: the file cannot be read or has no row, or rows are bad: the message lists each of them.
    """
    text, notes = _text_of(source)
    guessed = bool(notes)
    orders: list[LabelOrder] = []
    bad: list[str] = []
    lines: dict[str, int] = {}
    for line, cells in _rows(text, source, notes):
        try:
            order = _order(len(orders) + 1, cells, product_id, payload, guessed=guessed)
            if order.identifier in lines:
                raise LabelError(f"{order.identifier!r} stands in line {lines[order.identifier]} already")
        except LabelError as problem:
            bad.append(f"\n  line {line}: {textwrap.shorten(str(problem), _PROBLEM_MAX, placeholder=' ...')}")
        else:
            lines[order.identifier] = line
            orders.append(order)
    if bad:
        raise LabelError(
            f"{source}: {len(bad)} bad row(s) beside {len(orders)} good one(s), nothing was made: mend them or take "
            f"them out{''.join(bad)}"
        )
    if not orders:
        raise LabelError(f"{source} holds no row that a label can be made of: see docs/labels.md, 'From a table'")
    return orders, notes


def _order(
    place: int, cells: dict[str, str] | str, product_id: str | None, payload: Payload, *, guessed: bool
) -> LabelOrder:
    """The label of one row.

    Raises:
        LabelError: there can be none; the message says why.
    """
    if isinstance(cells, str):
        raise LabelError(cells)
    identifier, product, name = (cells.get(column, "").strip() for column in COLUMNS)
    product = product or product_id or ""
    if not identifier:
        raise LabelError("no device_identifier")
    if not product:
        raise LabelError(f"{identifier!r} has no product_id: fill the column, or give --product-id")
    for value in (identifier, product):
        if why := spoiled(value):
            raise LabelError(f"{value!r} is {why}")
    if not (identifier + name).isprintable():
        raise LabelError(f"{identifier!r}: control characters in device_identifier or name")
    if guessed and not (identifier + product).isascii():
        raise LabelError(f"{identifier!r}: letters beyond ASCII in a table that is no UTF-8: save it as CSV UTF-8")
    return LabelOrder(place, identifier, product, name, payload.text(product, identifier))


def _text_of(source: Path) -> tuple[str, list[str]]:
    """The file's text without a byte order mark; what is no UTF-8 is read as Windows writes it, with a note."""
    try:
        if source.stat().st_size > _SIZE_MAX_BYTES:
            raise LabelError(f"{source} is larger than 256 MB: split it")
        data = source.read_bytes()
    except OSError as problem:
        raise LabelError(f"cannot read {source}: {problem.strerror}; give a CSV file to --from") from None
    if data.startswith(_WORKBOOKS):
        raise LabelError(f"{source} is a spreadsheet's own file, not a table in text: save it there as 'CSV UTF-8'")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return data.decode("utf-16"), []  # what spreadsheets call "Unicode text"
        except UnicodeDecodeError:
            raise LabelError(f"{source} is no whole UTF-16 text: save it as CSV in UTF-8") from None
    try:
        return data.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        note = f"{source.name} is no UTF-8 and was read as Windows-1252: check the names on the labels"
        return data.decode("cp1252", errors="replace"), [note]


def _rows(text: str, source: Path, notes: list[str]) -> Iterator[tuple[int, dict[str, str] | str]]:
    """Line number and cells of each row, or what is wrong with it; cells that a row lacks at its end are empty."""
    lines = text.splitlines(keepends=True) or [""]
    separator = _SEPARATOR.fullmatch(lines[0])
    if separator:
        text = text[len(lines.pop(0)) :]
    delimiter = separator[1] if separator else max(_DELIMITERS, key=(lines or [""])[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        header = [column.strip().lower() for column in next(reader, [])]
    except csv.Error as broken:
        raise LabelError(f"{source}: its first line is not CSV: {broken}; check the quotes") from None
    if "device_identifier" not in header:
        raise LabelError(f"{source}: the first line names no column device_identifier: give {', '.join(COLUMNS)}")
    if twice := [column for column in COLUMNS if header.count(column) > 1]:
        raise LabelError(f"{source}: the column {twice[0]} is there twice: keep one")
    if ignored := [column for column in header if column and column not in COLUMNS]:
        notes.append(f"column(s) of {source.name} that mean nothing here: {', '.join(ignored)}")
    while True:
        line = reader.line_num + (2 if separator else 1)
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as broken:
            yield line, f"not CSV: {broken}; check the quotes"
            continue
        if any(cell.strip() for cell in cells[len(header) :]):
            yield line, f"{len(cells)} columns where the first line names {len(header)}"
        elif any(cell.strip() for cell in cells):
            yield line, dict(zip(header, [*cells, *[""] * len(header)], strict=False))
