"""Recorded values, replayed."""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError, InvalidMessage
from agent.wire.times import parse_time
from simulator.fleet.signals.base import Individual, salt_of

_EPOCH_MS_FROM: Final = 100_000_000_000
"""Whole numbers from here on are epoch milliseconds (1973 in milliseconds, the year 5138 in seconds)."""

_ROWS_MAX: Final = 2_000_000
_SORT: Final = "sort the lines by time, and give each device of a recording a file of its own"


@dataclass(frozen=True, slots=True)
class Recording:
    """Times and values of equal number.

    Attributes:
        times: seconds since the file's first line, rising.
        values: finite.
        round_s: how long it lasts until it can begin again.
    """

    times: tuple[float, ...]
    values: tuple[float, ...]
    round_s: float


class Replay:
    """A recording, played for each device from its own point.

    Args:
        source: of the recording: all columns of one file are at the same line on one device.
        recording: what is played.
        linear: a straight line between two values, else the earlier one.
        loop: from the beginning again at the end; else the last value stays.
        begin_s: when it begins; None: anywhere, each device elsewhere (with ``loop``, else counted from ``origin_s``).
        origin_s: when a recording begins that is played once.
    """

    __slots__ = ("_begin_s", "_linear", "_loop", "_origin_s", "_recording", "_salt")

    def __init__(
        self, source: str, recording: Recording, *, linear: bool, loop: bool, begin_s: float | None, origin_s: float
    ) -> None:
        self._salt = salt_of("csv", source)
        self._recording = recording
        self._linear = linear
        self._loop = loop
        self._begin_s = begin_s
        self._origin_s = origin_s

    def value_at(self, device: Individual, time_s: float) -> float:
        """See :class:`~simulator.fleet.signals.base.Signal`."""
        recording = self._recording
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


def read_recording(path: Path, column: str, *, time_column: str | None, every_s: float | None) -> Recording:
    """Read a column of a CSV file.

    Args:
        path: the file.
        column: with the values; rows with an empty cell are left out.
        time_column: with the times; None takes ``every_s`` from row to row.
        every_s: distance of the rows where no column has times.

    Raises:
        ConfigurationError: the file cannot be read, lacks a column, or has cells that are no numbers or times; the
            first such line is named.
    """
    lines: list[float] = []  # the times of all lines, so that a gap in one column moves it against no other
    times: list[float] = []
    values: list[float] = []
    for number, row in read_rows(path, [column, *([time_column] if time_column else [])]):
        is_empty = not row[column].strip()
        at_s = _time(row[time_column]) if time_column else (number - 2) * (every_s or 1.0)
        if at_s is None and not is_empty:
            raise _fault(path, f"line {number}: {time_column} {row[time_column or ''][:40]!r} is no time")
        if at_s is None:
            continue
        if lines and at_s <= lines[-1]:
            raise _fault(path, f"line {number}: {time_column or 'time'} does not rise; {_SORT}")
        lines.append(at_s)
        if is_empty:
            continue
        value = _number(row[column])
        if value is None:
            raise _fault(path, f"line {number}: {column} {row[column][:40]!r} is no number")
        times.append(at_s)
        values.append(value)
    if not values:
        raise _fault(path, f"has no value in column {column!r}")
    first_s = lines[0]
    spans = [lines[n + 1] - lines[n] for n in range(len(lines) - 1)]
    last_s = sorted(spans)[len(spans) // 2] if spans else every_s or 1.0
    return Recording(tuple(at_s - first_s for at_s in times), tuple(values), lines[-1] - first_s + last_s)


def read_rows(path: Path, columns: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    """The rows of a CSV file with their line numbers; each has all of ``columns``, as text.

    Raises:
        ConfigurationError: the file cannot be read, or lacks a column.
    """
    rows: list[tuple[int, dict[str, str]]] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            names = reader.fieldnames or ()
            missing = [column for column in columns if column not in names]
            if missing:
                raise _fault(path, f"has no column {missing[0]!r}; it has {', '.join(names) or 'none'}")
            for row in reader:
                if len(rows) == _ROWS_MAX:
                    raise _fault(path, f"has more than {_ROWS_MAX} lines; thin it out")
                rows.append((reader.line_num, {column: row[column] or "" for column in columns}))
    except OSError as error:
        raise _fault(path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _fault(path, "is not UTF-8") from None
    except csv.Error as error:
        raise _fault(path, f"is not CSV: {error}") from None
    return rows


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _time(text: str) -> float | None:
    value = _number(text)
    if value is not None:
        return value / 1000 if abs(value) >= _EPOCH_MS_FROM else value
    try:
        return parse_time(text.strip())
    except InvalidMessage:
        return None


def _fault(path: Path, what: str) -> ConfigurationError:
    return ConfigurationError([what], str(path))
