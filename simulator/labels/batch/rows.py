"""Devices out of a table: CSV as spreadsheets export it, or YAML. Every bad row is reported with its line number."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from gateway.devices import spoiled
from simulator.labels.errors import BadRows, LabelError

COLUMNS: Final = ("device_identifier", "product_id", "name")
_PROBLEM_MAX: Final = 400
_DELIMITERS: Final = ",;\t|"
_SIZE_MAX_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device of a table.

    Attributes:
        line: where it stands in the file, from 1.
        device_identifier: unique among the devices of the product.
        product_id: the product it belongs to.
        name: a line for people; may be empty.
    """

    line: int
    device_identifier: str
    product_id: str
    name: str


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of which no label can be made.

    Attributes:
        line: where it stands in the file, from 1.
        problem: why, in one line.
    """

    line: int
    problem: str


@dataclass(frozen=True, slots=True)
class Table:
    """What a file of devices holds.

    Attributes:
        rows: the good ones, in order.
        bad: the others.
        notes: what a user has to know about how it was read.
    """

    rows: tuple[DeviceRow, ...]
    bad: tuple[BadRow, ...]
    notes: tuple[str, ...]

    def usable(self, source: Path) -> tuple[DeviceRow, ...]:
        """The rows to make labels of.

        Raises:
            BadRows: there are bad rows; the message lists every one of them.
            LabelError: there is no row.
        """
        if self.bad:
            listed = "".join(f"\n  line {bad.line}: {bad.problem}" for bad in self.bad)
            raise BadRows(
                f"{source}: {len(self.bad)} bad row(s) beside {len(self.rows)} good one(s), nothing was made: mend "
                f"them or take them out{listed}"
            )
        if not self.rows:
            raise LabelError(f"{source} holds no row that a label can be made of: see docs/labels.md, 'From a table'")
        return self.rows


def read_table(source: Path, *, product_id: str | None, check: Callable[[str, str], None]) -> Table:
    """Read a file of devices.

    Args:
        source: ``.yaml`` or ``.yml`` is YAML, everything else CSV.
        product_id: of rows that name none.
        check: called with product id and identifier; raises :class:`LabelError` when no label can carry them.

    Raises:
        LabelError: the file cannot be read, or has no column ``device_identifier``.
    """
    try:
        if source.stat().st_size > _SIZE_MAX_BYTES:
            raise LabelError(f"{source} is larger than 256 MB: split it")
        data = source.read_bytes()
    except OSError as problem:
        raise LabelError(f"cannot read {source}: {problem.strerror}; give a CSV or YAML file to --from") from None
    notes: list[str] = []
    is_yaml = source.suffix.lower() in {".yaml", ".yml"}
    found, bad = _yaml_rows(data, source) if is_yaml else _csv_rows(data, source, notes)
    rows: list[DeviceRow] = []
    seen: dict[str, int] = {}
    ignored: dict[str, None] = {}
    for line, cells in found:
        ignored.update(dict.fromkeys(column for column in cells if column and column not in COLUMNS))
        row = DeviceRow(
            line,
            cells.get("device_identifier", "").strip(),
            cells.get("product_id", "").strip() or product_id or "",
            cells.get("name", "").strip(),
        )
        refused = _problem(row, seen, check, guessed=bool(notes))
        if refused:
            bad.append(BadRow(line, refused))
        else:
            seen[row.device_identifier] = line
            rows.append(row)
    if ignored:
        notes.append(f"column(s) of {source.name} that mean nothing here: {', '.join(ignored)}")
    return Table(tuple(rows), tuple(sorted(bad, key=lambda entry: entry.line)), tuple(notes))


def rows_sha256(rows: Iterable[DeviceRow]) -> str:
    """A name for the content of a table, whatever its dialect."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps([row.device_identifier, row.product_id, row.name]).encode() + b"\n")
    return digest.hexdigest()


def _problem(
    row: DeviceRow, seen: Mapping[str, int], check: Callable[[str, str], None], *, guessed: bool
) -> str | None:
    identifier = row.device_identifier
    if not identifier:
        return "no device_identifier"
    if not row.product_id:
        return f"{identifier!r} has no product_id: fill the column, or give --product-id"
    for value in (identifier, row.product_id):
        if why := spoiled(value):
            return f"{value!r} is {why}"
    problem = None
    if identifier in seen:
        problem = f"{identifier!r} stands in line {seen[identifier]} already"
    elif not (identifier + row.name).isprintable():
        problem = f"{identifier!r}: control characters in device_identifier or name"
    elif guessed and not (identifier + row.product_id).isascii():
        problem = f"{identifier!r}: letters beyond ASCII in a table that is no UTF-8: save it as CSV UTF-8"
    else:
        try:
            check(row.product_id, identifier)
        except LabelError as refused:
            problem = textwrap.shorten(str(refused), _PROBLEM_MAX, placeholder=" ...")
    return problem


_SEPARATOR: Final = re.compile(r"\"?sep=(.)\"?\s*")
_WORKBOOKS: Final = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""How the files of spreadsheets begin: .xlsx and .ods, .xls."""


def _csv_rows(data: bytes, source: Path, notes: list[str]) -> tuple[Iterator[tuple[int, dict[str, str]]], list[BadRow]]:
    if data.startswith(_WORKBOOKS):
        raise LabelError(f"{source} is a spreadsheet's own file, not a table in text: save it there as 'CSV UTF-8'")
    text = _decoded(data, source, notes)
    lines = text.splitlines(keepends=True) or [""]
    separator = _SEPARATOR.fullmatch(lines[0])  # Excel's own first line, which names the delimiter
    before = 1 if separator else 0
    head = lines[before] if len(lines) > before else ""
    delimiter = separator[1] if separator else max(_DELIMITERS, key=head.count)
    body = io.StringIO(text[len(lines[0]) :] if separator else text, newline="")
    reader = csv.reader(body, delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        header = [column.strip().lower() for column in next(reader, [])]
    except csv.Error as broken:
        raise LabelError(f"{source}: its first line is not CSV: {broken}; check the quotes") from None
    if "device_identifier" not in header:
        raise LabelError(f"{source}: the first line names no column device_identifier: give {', '.join(COLUMNS)}")
    twice = sorted({column for column in header if column in COLUMNS and header.count(column) > 1})
    if twice:
        raise LabelError(f"{source}: the column {twice[0]} is there twice: keep one")
    bad: list[BadRow] = []
    return _csv_cells(reader, header, before, bad), bad


def _csv_cells(
    reader: Iterator[list[str]], header: Sequence[str], before: int, bad: list[BadRow]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells of each row; what a row lacks at its end is empty, as spreadsheets leave it out."""
    while True:
        line = before + reader.line_num + 1  # type: ignore[attr-defined]  # csv.reader has it, its type in the stubs is private
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as broken_row:
            bad.append(BadRow(line, f"not CSV: {broken_row}; check the quotes"))
            continue
        if not any(cell.strip() for cell in cells):
            continue
        if any(cell.strip() for cell in cells[len(header) :]):
            bad.append(BadRow(line, f"{len(cells)} columns where the first line names {len(header)}"))
            continue
        padded = [*cells, *[""] * len(header)]
        yield line, dict(zip(header, padded, strict=False))


def _decoded(data: bytes, source: Path, notes: list[str]) -> str:
    """The text, without a byte order mark; what is no UTF-8 is read as Windows writes it, with a note."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return data.decode("utf-16")  # what spreadsheets call "Unicode text"
        except UnicodeDecodeError:
            raise LabelError(f"{source} is no whole UTF-16 text: save it as CSV in UTF-8") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        notes.append(f"{source.name} is no UTF-8 and was read as Windows-1252: check the names on the labels")
        return data.decode("cp1252", errors="replace")


def _yaml_rows(data: bytes, source: Path) -> tuple[Iterator[tuple[int, dict[str, str]]], list[BadRow]]:
    try:
        root = yaml.compose(data, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise LabelError(f"{source} is no YAML: {' '.join(str(problem).split())}") from None
    if isinstance(root, yaml.MappingNode):
        root = next((value for key, value in root.value if key.value == "devices"), None)
    if not isinstance(root, yaml.SequenceNode):
        raise LabelError(f"{source}: give a list of devices, each with device_identifier, or such a list as 'devices:'")
    bad: list[BadRow] = []
    found: list[tuple[int, dict[str, str]]] = []
    for node in root.value:
        line = node.start_mark.line + 1
        if isinstance(node, yaml.ScalarNode):
            found.append((line, {"device_identifier": node.value}))
        elif isinstance(node, yaml.MappingNode) and all(
            isinstance(part, yaml.ScalarNode) for pair in node.value for part in pair
        ):
            found.append((line, {key.value: value.value for key, value in node.value}))
        else:
            bad.append(BadRow(line, "give device_identifier, product_id and name as plain values"))
    return iter(found), bad
