"""Recorded values, replayed."""

from __future__ import annotations

import csv
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal, Self

from pydantic import model_validator

from agent.errors import ConfigurationError, InvalidMessage
from agent.wire.times import parse_time
from simulator.fleet.settings import Seconds, key
from simulator.fleet.signals.base import Individual, Signal, salt_of
from simulator.fleet.signals.kind import Shape, SignalContext

_EPOCH_MS_FROM: Final = 100_000_000_000
"""Whole numbers from here on are epoch milliseconds (1973 in milliseconds, the year 5138 in seconds)."""

_ROWS_MAX: Final = 2_000_000
_TEXTS_MAX: Final = 100_000
"""A column with more different texts than this is one of times or values."""
_SORT: Final = "sort the lines by time"
_IDENTIFIES: Final = re.compile(
    r"(id|identifier|device|sensor|station|machine|series|serial|name|field)$", re.IGNORECASE
)
"""Columns of numbers that say whose or of what a line is; of texts any column may."""


class CsvSettings(Shape):
    """Recorded values, replayed."""

    reads_file: ClassVar = True
    kind: Literal["csv"]
    file: str = key("CSV file with a line of column names", min_length=1, example="recordings/office.csv")
    column: str = key(
        "the column with the values; an empty cell is left out. Columns of one file stay lines on a device",
        min_length=1,
    )
    time_column: str | None = key(
        "the column with the times: seconds, epoch milliseconds or RFC 3339; without it the lines are `every_s` apart",
        default=None,
    )
    every_s: Seconds | None = key("distance of a device's lines where no column has times", unit="s", default=None)
    device_column: str | None = key(
        "the column that says whose a line is, in a file of several devices: device number n plays the lines of the "
        "n-th of them, and begins again with the first",
        default=None,
        min_length=1,
    )
    where: dict[str, str] | None = key(
        "in a file of several series the lines that count: column and what it says, such as `{field: temperature}`; "
        "without it a file is refused in which a column that is not read tells lines apart; `{}` takes all lines",
        default=None,
    )
    none: tuple[float | str, ...] = key(
        "cells that mean that there is no value, such as -200 or NA; an empty one always does", default=()
    )
    between: Literal["linear", "hold"] = key(
        "between two lines: a straight line, or the earlier value", default="linear"
    )
    loop: bool = key("begin again at the end; else the last value stays", default=True)
    begin: Literal["hashed", "in_step"] = key(
        "`hashed`: each device begins at a point of its own; `in_step`: all at the first line, at the epoch when it "
        "loops",
        default="hashed",
    )

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        if (self.time_column is None) == (self.every_s is None):
            raise ValueError("give either time_column or every_s")
        return self

    def make(self, name: str, context: SignalContext) -> Signal:
        """The signal that the settings describe."""
        return Replay(
            self.file,
            read_recordings(context.folder / self.file, self),
            linear=self.between == "linear",
            loop=self.loop,
            begin_s=context.begin_s(self.begin),
            origin_s=context.origin_s,
        )


@dataclass(frozen=True, slots=True)
class Recording:
    """Times and values of equal number.

    Attributes:
        times: seconds since its first line, rising.
        values: finite.
        round_s: how long it lasts until it can begin again.
    """

    times: tuple[float, ...]
    values: tuple[float, ...]
    round_s: float


class Replay:
    """Recordings, dealt out over the devices by their number, each device at its own point.

    Args:
        source: of the recordings: all columns of one file are at the same line on one device.
        recordings: device number n plays number n modulo their count.
        linear: a straight line between two values, else the earlier one.
        loop: from the beginning again at the end; else the last value stays.
        begin_s: when it begins; None: anywhere, each device elsewhere (with ``loop``, else counted from ``origin_s``).
        origin_s: when a recording begins that is played once.
    """

    __slots__ = ("_begin_s", "_linear", "_loop", "_origin_s", "_recordings", "_salt")

    def __init__(
        self,
        source: str,
        recordings: Sequence[Recording],
        *,
        linear: bool,
        loop: bool,
        begin_s: float | None,
        origin_s: float,
    ) -> None:
        self._salt = salt_of("csv", source)
        self._recordings = recordings
        self._linear = linear
        self._loop = loop
        self._begin_s = begin_s
        self._origin_s = origin_s

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        recording = self._recordings[device.index % len(self._recordings)]
        if self._begin_s is not None:
            at_s = time_s - self._begin_s
        else:
            at_s = device.fraction(self._salt) * recording.round_s + time_s - (0.0 if self._loop else self._origin_s)
        if self._loop:
            at_s %= recording.round_s
        times, values = recording.times, recording.values
        after = bisect_right(times, at_s)
        if after == 0:
            return values[0]
        if after == len(times):
            # On the way back to the first value, where it begins again.
            gap_s = recording.round_s - times[-1]
            if not (self._loop and self._linear and gap_s > 0):
                return values[-1]
            return values[-1] + (values[0] - values[-1]) * (at_s - times[-1]) / gap_s
        if not self._linear:
            return values[after - 1]
        part = (at_s - times[after - 1]) / (times[after] - times[after - 1])
        return values[after - 1] + (values[after] - values[after - 1]) * part


class _Table:
    """The lines of a CSV file that count, with commas or semicolons; behind semicolons a comma may be a decimal one."""

    def __init__(self, path: Path, settings: CsvSettings) -> None:
        self.path = path
        self._settings = settings
        self._none = {text for text in settings.none if isinstance(text, str)}
        self._no_numbers = {number for number in settings.none if not isinstance(number, str)}
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                head = file.readline()
                self._decimal_comma = head.count(";") > head.count(",")
                file.seek(0)
                reader = csv.DictReader(file, delimiter=";" if self._decimal_comma else ",", skipinitialspace=True)
                self.rows = self._read(reader)
        except OSError as error:
            raise self.fault(f"cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise self.fault("is not UTF-8") from None
        except csv.Error as error:
            raise self.fault(f"is not CSV: {error}") from None

    def _read(self, reader: csv.DictReader[str]) -> list[tuple[int, dict[str, str]]]:
        """The lines with their numbers; each has all columns that are read, as text."""
        settings = self._settings
        names, where = reader.fieldnames or (), settings.where
        wanted = [settings.column, settings.time_column, settings.device_column, *(where or ())]
        columns = [name for name in wanted if name is not None]
        if missing := [column for column in columns if column not in names]:
            raise self.fault(f"has no column {missing[0]!r}; it has {', '.join(names) or 'none'}")
        others = [] if where is not None else [name for name in names if name not in columns]
        seen: dict[str, Counter[str]] = {name: Counter() for name in others}
        rows: list[tuple[int, dict[str, str]]] = []
        for row in reader:
            if len(rows) == _ROWS_MAX:
                raise self.fault(f"has more than {_ROWS_MAX} lines; thin it out")
            if where and any((row[name] or "").strip() != value for name, value in where.items()):
                continue
            for name in [name for name in seen if row[name]]:
                seen[name][row[name]] += 1
                if len(seen[name]) > _TEXTS_MAX:
                    del seen[name]
            rows.append((reader.line_num, {column: row[column] or "" for column in columns}))
        self._check_one_series(seen)
        return rows

    def _check_one_series(self, seen: Mapping[str, Counter[str]]) -> None:
        """Refuse lines that a column which is not read tells apart: they are of several series or devices."""
        for name, texts in seen.items():
            is_number = any(self.number(text) is not None for text in texts)
            repeats = 1 < len(texts) < texts.total()
            if repeats and (not is_number or _IDENTIFIES.search(name)):
                one, other = list(texts)[:2]
                raise self.fault(
                    f"column {name!r} tells lines apart ({one[:40]!r}, {other[:40]!r}): take one series with "
                    f"'where: {{{name}: {one[:40]}}}', a device for each with 'device_column: {name}', or all lines as "
                    "one series with 'where: {}'"
                )

    def number(self, text: str) -> float | None:
        """The finite number that a text is."""
        try:
            value = float(text.replace(",", ".") if self._decimal_comma else text)
        except ValueError:
            return None
        return value if math.isfinite(value) else None

    def value(self, line: int, text: str) -> float | None:
        """The value of a cell; None where it has none."""
        text = text.strip()
        if not text or text in self._none:
            return None
        value = self.number(text)
        if value is None:
            column = self._settings.column
            raise self.fault(f"line {line}: {column} {text[:40]!r} is no number; if it means none, name it: 'none'")
        return None if value in self._no_numbers else value

    def time(self, text: str) -> float | None:
        """The time of a cell, in seconds; None where it is no time."""
        value = self.number(text)
        if value is not None:
            return value / 1000 if abs(value) >= _EPOCH_MS_FROM else value
        try:
            return parse_time(text.strip())
        except InvalidMessage:
            return None

    def fault(self, what: str) -> ConfigurationError:
        """What is wrong with the file."""
        return ConfigurationError([what], str(self.path))


def read_recordings(path: Path, settings: CsvSettings) -> tuple[Recording, ...]:
    """Read a column of a CSV file: one recording for each device in it, in the order of their first lines.

    Raises:
        ConfigurationError: the file cannot be read, lacks a column, has lines of several series and the settings do not
            say which, or has cells that are no numbers or times; the first such line is named.
    """
    table, whose = _Table(path, settings), settings.device_column
    found: dict[str, list[tuple[int, dict[str, str]]]] = {}
    for number, row in table.rows:
        found.setdefault(row[whose].strip() if whose else "", []).append((number, row))
    if whose and "" in found:
        raise table.fault(f"line {found[''][0][0]}: {whose} is empty: every line has to say whose it is")
    if not found:
        raise table.fault(f"has no value in column {settings.column!r}")
    return tuple(_recording(table, settings, name, of_device) for name, of_device in found.items())


def _recording(
    table: _Table, settings: CsvSettings, device: str, rows: Sequence[tuple[int, dict[str, str]]]
) -> Recording:
    lines: list[float] = []  # the times of all lines, so that a gap in one column moves it against no other
    times: list[float] = []
    values: list[float] = []
    clock = settings.time_column
    for place, (number, row) in enumerate(rows):
        value = table.value(number, row[settings.column])
        at_s = table.time(row[clock]) if clock else place * (settings.every_s or 1.0)
        if at_s is None and value is not None:
            raise table.fault(f"line {number}: {clock} {row[clock or ''][:40]!r} is no time")
        if at_s is None:
            continue
        if lines and at_s <= lines[-1]:
            raise table.fault(f"line {number}: {clock or 'time'} does not rise; {_SORT}")
        lines.append(at_s)
        if value is not None:
            times.append(at_s)
            values.append(value)
    if not values:
        whose = f" for {settings.device_column} {device!r}" if settings.device_column else ""
        raise table.fault(f"has no value in column {settings.column!r}{whose}")
    first_s = lines[0]
    spans = [lines[n + 1] - lines[n] for n in range(len(lines) - 1)]
    last_s = sorted(spans)[len(spans) // 2] if spans else settings.every_s or 1.0
    return Recording(tuple(at_s - first_s for at_s in times), tuple(values), lines[-1] - first_s + last_s)
