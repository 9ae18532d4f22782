"""Tables on the disk: CSV, and Parquet where pyarrow is installed. Each has its name only when it is whole."""

from __future__ import annotations

import contextlib
import csv
import math
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Protocol, Self

from agent.errors import ConfigurationError
from agent.wire.times import to_rfc3339
from simulator.fleet.report.tables import Cell, CellKind, Row, RunTable

PARQUET: Final = "parquet"
FORMATS: Final = ("csv", PARQUET)
_ROWS_AT_ONCE: Final = 20_000


def check_formats(formats: Iterable[str]) -> None:
    """Whether these formats can be written here.

    Raises:
        ConfigurationError: Parquet is wanted, and pyarrow is not installed.
    """
    if PARQUET in formats and find_spec("pyarrow") is None:
        fault = "Parquet needs pyarrow, which is not installed: pip install '.[parquet]' in a clone of device-agent"
        raise ConfigurationError([fault], "--export")


class TableFile(Protocol):
    """A table that grows, in one format.

    Attributes:
        trouble: why the file is not there; empty when it is.
    """

    path: Path
    trouble: str

    def add(self, row: Row) -> None:
        """Add a row."""
        ...

    def close(self, *, is_whole: bool) -> None:
        """Give the file its name, or take it away when it is not whole."""
        ...


class OpenTable:
    """A table that is written row by row, in every format that is wanted; a context manager.

    What the disk does not take ends that file and is said in :attr:`missing`: whoever writes has other things to do.

    Args:
        folder: where to.
        sheet: what it is.
        formats: see :data:`FORMATS`; CSV is always written.
    """

    def __init__(self, folder: Path, sheet: RunTable, formats: Iterable[str] = ()) -> None:
        self.sheet = sheet
        self._files: list[TableFile] = [_Csv(folder, sheet)]
        if PARQUET in formats:
            self._files.append(_Parquet(folder, sheet))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close(is_whole=kind is None)

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be written and why, a sentence each; known when it is closed."""
        return tuple(file.trouble for file in self._files if file.trouble)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the files that are written."""
        return tuple(file.path.name for file in self._files if not file.trouble)

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows."""
        for row in rows:
            for file in self._files:
                file.add(row)


class _Unfinished:
    """A file beside its place until it is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble = ""
        self.new = path.with_name(f".{path.name}.new")

    def tried(self, action: Callable[[], object]) -> bool:
        """Run an action; False when the disk refused it, which ends the file."""
        try:
            action()
        except OSError as error:
            self.trouble = f"{self.path}: cannot be written: {error}"
            with contextlib.suppress(OSError):
                self.new.unlink(missing_ok=True)
            return False
        return True


class _Csv(_Unfinished):
    """RFC 4180 with line feeds; empty cells where there is nothing, times as RFC 3339."""

    def __init__(self, folder: Path, sheet: RunTable) -> None:
        super().__init__(folder / f"{sheet.name}.csv")
        self._kinds = [kind for _, kind in sheet.columns]
        self._file: IO[str] | None = None
        self._writer: Any = None
        self.tried(self._open)
        self._row([name for name, _ in sheet.columns])

    def _open(self) -> None:
        self._file = self.new.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")

    def add(self, row: Row) -> None:
        """Add a row. See :class:`TableFile`."""
        if not self.trouble:
            self._row([_text(cell, kind) for cell, kind in zip(row, self._kinds, strict=True)])

    def _row(self, texts: Sequence[str]) -> None:
        if not self.trouble and not self.tried(lambda: self._writer.writerow(texts)):
            self._shut()

    def close(self, *, is_whole: bool) -> None:
        """Give the file its name, or take it away when it is not whole. See :class:`TableFile`."""
        if self.trouble:
            return
        if self.tried(self._close_complete) and is_whole:
            self.tried(lambda: self.new.replace(self.path))
        elif not is_whole:
            self.new.unlink(missing_ok=True)

    def _close_complete(self) -> None:
        if self._file is not None:
            self._file.close()

    def _shut(self) -> None:
        with contextlib.suppress(OSError):
            self._close_complete()


class _Parquet(_Unfinished):
    """Apache Parquet with typed columns: times are UTC in milliseconds, and what is not there is null."""

    def __init__(self, folder: Path, sheet: RunTable) -> None:
        super().__init__(folder / f"{sheet.name}.{PARQUET}")
        import pyarrow as pa
        import pyarrow.parquet as pq

        types = {
            CellKind.TEXT: pa.string(),
            CellKind.WHOLE: pa.int64(),
            CellKind.NUMBER: pa.float64(),
            CellKind.TIME: pa.timestamp("ms", tz="UTC"),
        }
        self._pa = pa
        self._kinds = [kind for _, kind in sheet.columns]
        self._schema = pa.schema([(name, types[kind]) for name, kind in sheet.columns])
        self._rows: list[Row] = []
        self._writer: Any = None

        def begin() -> None:
            self._writer = pq.ParquetWriter(str(self.new), self._schema, compression="zstd")

        self.tried(begin)

    def add(self, row: Row) -> None:
        """Add a row. See :class:`TableFile`."""
        if not self.trouble:
            self._rows.append(row)
            if len(self._rows) >= _ROWS_AT_ONCE:
                self._write()

    def _write(self) -> None:
        rows, self._rows = self._rows, []
        columns = [
            self._pa.array([_typed(row[at], kind) for row in rows], type=self._schema.types[at])
            for at, kind in enumerate(self._kinds)
        ]
        table = self._pa.Table.from_arrays(columns, schema=self._schema)
        if not self.tried(lambda: self._writer.write_table(table)):
            with contextlib.suppress(OSError):
                self._writer.close()

    def close(self, *, is_whole: bool) -> None:
        """Give the file its name, or take it away when it is not whole. See :class:`TableFile`."""
        if not self.trouble and self._rows and is_whole:
            self._write()
        if self.trouble:
            return
        if self.tried(self._writer.close) and is_whole:
            self.tried(lambda: self.new.replace(self.path))
        elif not is_whole:
            self.new.unlink(missing_ok=True)


def _text(cell: Cell, kind: CellKind) -> str:
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return ""
    if kind is CellKind.TIME:
        return to_rfc3339(float(cell))
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() else f"{cell:.6g}"
    return str(cell)


def _typed(cell: Cell, kind: CellKind) -> Cell:
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return None
    return round(float(cell) * 1000) if kind is CellKind.TIME else cell
