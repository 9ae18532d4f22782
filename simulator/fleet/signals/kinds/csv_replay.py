"""Recorded values, replayed."""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import model_validator

from agent.errors import ConfigurationError, InvalidMessage
from agent.wire.times import parse_time
from simulator.fleet.settings import Seconds, key
from simulator.fleet.signals.base import Individual, Signal, salt_of
from simulator.fleet.signals.kind import Shape, SignalContext, register_signal

_EPOCH_MS_FROM: Final = 100_000_000_000
"""Whole numbers from here on are epoch milliseconds (1973 in milliseconds, the year 5138 in seconds)."""

_ROWS_MAX: Final = 2_000_000
_SORT: Final = "sort the lines by time; if they are of several devices, name the column that says whose: device_column"
_APART: Final = "a signal 'csv' takes them apart with device_column; else give each device a file of its own"
_DEVICE_NAMES: Final = frozenset(
    {"device", "sensor", "node", "host", "station", "machine", "vehicle", "asset", "unit", "gateway", "serial", "imei"}
    | {"deviceid", "deviceidentifier", "devicename", "sensorid", "sensorname", "nodeid", "hostname", "stationid"}
    | {"machineid", "vehicleid", "assetid", "unitid", "gatewayid", "serialnumber", "mac", "macaddress"}
)
"""Columns that say whose a line is, in lower case and without signs between words."""


class CsvSettings(Shape):
    """Recorded values, replayed."""

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
        "n-th of them, and begins again with the first; without it, such a file is refused",
        default=None,
        min_length=1,
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


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a file are read.

    Attributes:
        values: the readings; an empty cell is left out.
        times: None takes ``every_s`` from line to line of a device.
        devices: whose a line is; None for a file of one device.
        every_s: distance of a device's lines where no column has times.
    """

    values: str
    times: str | None = None
    devices: str | None = None
    every_s: float | None = None

    @property
    def names(self) -> list[str]:
        """All that have to be there."""
        return [name for name in (self.values, self.times, self.devices) if name is not None]


def read_recordings(path: Path, columns: Columns) -> tuple[Recording, ...]:
    """Read a column of a CSV file: one recording for each device in it, in the order of their first lines.

    Raises:
        ConfigurationError: the file cannot be read, lacks a column, has lines of several devices and ``columns`` does
            not say whose they are, or has cells that are no numbers or times; the first such line is named.
    """
    rows = read_rows(path, columns.names, one_device=columns.devices is None)
    found: dict[str, list[tuple[int, dict[str, str]]]] = {}
    for number, row in rows:
        found.setdefault(row[columns.devices].strip() if columns.devices else "", []).append((number, row))
    if columns.devices and "" in found:
        raise _fault(path, f"line {found[''][0][0]}: {columns.devices} is empty: every line has to say whose it is")
    if not found:
        raise _fault(path, f"has no value in column {columns.values!r}")
    return tuple(_recording(path, columns, name, of_device) for name, of_device in found.items())


def _recording(path: Path, columns: Columns, device: str, rows: Sequence[tuple[int, dict[str, str]]]) -> Recording:
    lines: list[float] = []  # the times of all lines, so that a gap in one column moves it against no other
    times: list[float] = []
    values: list[float] = []
    for place, (number, row) in enumerate(rows):
        text = row[columns.values].strip()
        at_s = _time(row[columns.times]) if columns.times else place * (columns.every_s or 1.0)
        if at_s is None and text:
            raise _fault(path, f"line {number}: {columns.times} {row[columns.times or ''][:40]!r} is no time")
        if at_s is None:
            continue
        if lines and at_s <= lines[-1]:
            raise _fault(path, f"line {number}: {columns.times or 'time'} does not rise; {_SORT}")
        lines.append(at_s)
        if not text:
            continue
        value = _number(text)
        if value is None:
            raise _fault(path, f"line {number}: {columns.values} {text[:40]!r} is no number")
        times.append(at_s)
        values.append(value)
    if not values:
        whose = f" for {columns.devices} {device!r}" if columns.devices else ""
        raise _fault(path, f"has no value in column {columns.values!r}{whose}")
    first_s = lines[0]
    spans = [lines[n + 1] - lines[n] for n in range(len(lines) - 1)]
    last_s = sorted(spans)[len(spans) // 2] if spans else columns.every_s or 1.0
    return Recording(tuple(at_s - first_s for at_s in times), tuple(values), lines[-1] - first_s + last_s)


def read_rows(path: Path, columns: Sequence[str], *, one_device: bool = True) -> list[tuple[int, dict[str, str]]]:
    """The rows of a CSV file with their line numbers; each has all of ``columns``, as text.

    Args:
        path: the file.
        columns: to read.
        one_device: lines of several devices are an error; they are known by a column whose name is usual for that.

    Raises:
        ConfigurationError: the file cannot be read, lacks a column, or has lines of several devices.
    """
    rows: list[tuple[int, dict[str, str]]] = []
    owners: dict[str, str] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            names = reader.fieldnames or ()
            missing = [column for column in columns if column not in names]
            if missing:
                raise _fault(path, f"has no column {missing[0]!r}; it has {', '.join(names) or 'none'}")
            whose = [name for name in names if one_device and name not in columns and _check_device_column(name)]
            for row in reader:
                if len(rows) == _ROWS_MAX:
                    raise _fault(path, f"has more than {_ROWS_MAX} lines; thin it out")
                for name in whose:
                    if row[name] and owners.setdefault(name, row[name]) != row[name]:
                        both = f"{owners[name][:40]!r} and {row[name][:40]!r}"
                        raise _fault(path, f"line {reader.line_num}: lines of several devices: {name} {both}; {_APART}")
                rows.append((reader.line_num, {column: row[column] or "" for column in columns}))
    except OSError as error:
        raise _fault(path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _fault(path, "is not UTF-8") from None
    except csv.Error as error:
        raise _fault(path, f"is not CSV: {error}") from None
    return rows


def _check_device_column(column: str) -> bool:
    return "".join(filter(str.isalnum, column)).lower() in _DEVICE_NAMES


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


@register_signal(CsvSettings, reads_file=True)
def make_signal(_name: str, settings: CsvSettings, context: SignalContext) -> Signal:
    """Make the signal that the settings describe."""
    columns = Columns(settings.column, settings.time_column, settings.device_column, settings.every_s)
    return Replay(
        settings.file,
        read_recordings(context.folder / settings.file, columns),
        linear=settings.between == "linear",
        loop=settings.loop,
        begin_s=context.begin_s(settings.begin),
        origin_s=context.origin_s,
    )
