"""Ledgers sorted into ranges of devices that fit into memory: what one range holds is judged at once.

Two passes: the first counts, the second copies each record to the file of its range. Where everything fits into one
range, nothing is copied. A device is never split, so one device alone has to fit.
"""

from __future__ import annotations

import struct
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from agent.errors import ConfigurationError, StorageError
from simulator.fleet.audit.fleet_ledger import LedgerCounts
from simulator.fleet.audit.ledger_format import (
    LEDGER_FORMAT,
    NO_TIME,
    CommandEvent,
    CommandKind,
    Frame,
    LedgerGap,
    LedgerHeader,
    ReadingKind,
    make_records_frame,
    pack_event,
    read_frames,
)
from simulator.fleet.audit.records import READING_TYPE, STORED_TYPE, Records, counted_readings, records_of

RANGE_READINGS: Final = 1_000_000
"""Records of readings, runs counted out, that are judged at once: some 100 MB."""
_BUFFERS_BYTES: Final = 32 * 1024 * 1024
_COMMAND_WEIGHT: Final = 4

_READING_NAMES: Final = {
    ReadingKind.SENT: "sent",
    ReadingKind.ACCEPTED: "accepted",
    ReadingKind.REFUSED: "refused",
    ReadingKind.UNANSWERED: "unanswered",
    ReadingKind.RESENT: "resent_ambiguous",
}
_COMMAND_NAMES: Final = {
    CommandKind.ORDERED: "ordered",
    CommandKind.ORDER_UNANSWERED: "orders_unanswered",
    CommandKind.RECEIVED: "received",
    CommandKind.STARTED: "effects",
    CommandKind.FINISHED: "finished",
    CommandKind.REPORTED: "reported",
    CommandKind.LISTED: "listed",
}
_COUNTED: Final = (*_READING_NAMES.values(), *(name for name in _COMMAND_NAMES.values() if name != "listed"))
"""What a ledger has at its end as counts, and as records before it."""

_UNREADABLE: Final = (zlib.error, struct.error, ValueError, KeyError, TypeError, AttributeError)
"""What a frame raises that is whole and holds something else than a ledger's."""

Counts = npt.NDArray[np.int64]


@dataclass(slots=True)
class LedgerSurvey:
    """What a first pass over a ledger found.

    Attributes:
        header: whose it is.
        weights: by device index, how much there is to hold in memory.
        gaps: what could not be written.
        counts: at the end; None when it has no end, since its worker was killed.
        orders: commands of operators, answered or not.
        recorded: first and last time that readings carry; None when none does.
        dateless: whether some carry none.
        last_ms: the last thing written down, since the run's begin.
        with_commands: devices that have to do with commands.
        seen: what is in it, by the names of :class:`~simulator.fleet.audit.fleet_ledger.LedgerCounts`.
        excess_bytes: how much of the file is behind its last frame, or behind the first that is not whole.
    """

    header: LedgerHeader
    weights: Counts
    gaps: list[LedgerGap] = field(default_factory=list)
    counts: LedgerCounts | None = None
    orders: int = 0
    recorded: tuple[int, int] | None = None
    dateless: bool = False
    last_ms: int = 0
    with_commands: set[int] = field(default_factory=set)
    seen: Counter[str] = field(default_factory=Counter)
    excess_bytes: int = 0

    @property
    def whole(self) -> bool:
        """Whether everything that was written down is in it."""
        return self.counts is not None and not self.gaps and not self.lacks and not self.excess_bytes

    @property
    def lacks(self) -> Mapping[str, int]:
        """How many records are missing by the counts at its end, by their names; empty where gaps declare them."""
        if self.counts is None or self.gaps:
            return {}
        missing = {name: getattr(self.counts, name) - self.seen[name] for name in _COUNTED}
        return {name: count for name, count in missing.items() if count}


@dataclass(frozen=True, slots=True)
class DeviceRange:
    """Everything about some devices.

    Attributes:
        readings: records of type :data:`READING_TYPE`, in the order of writing for each device.
        stored: records of type :data:`STORED_TYPE`.
        commands: in the order of writing for each ledger; what the service lists comes last.
    """

    readings: Records
    stored: Records
    commands: Sequence[CommandEvent]


def survey_ledger(path: Path) -> LedgerSurvey:
    """Look through a ledger.

    Raises:
        ConfigurationError: it is no ledger, or cannot be read.
    """
    try:
        frames = read_frames(path)
        first = next(frames, None)
        found = LedgerSurvey(_header(first, path), np.zeros(1, dtype=np.int64))
        whole_bytes = 0 if first is None else first.size_bytes
        for frame in frames:
            if found.counts is not None:
                break
            _look_at(found, frame)
            whole_bytes += frame.size_bytes
        found.excess_bytes = path.stat().st_size - whole_bytes
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}"], str(path)) from None
    except _UNREADABLE as error:
        raise ConfigurationError([f"is damaged: a frame is whole and cannot be read ({error})"], str(path)) from None
    return found


def header_of(path: Path) -> LedgerHeader:
    """The header of a ledger.

    Raises:
        ConfigurationError: it is no ledger, or cannot be read.
    """
    try:
        return _header(next(read_frames(path), None), path)
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}"], str(path)) from None


def _header(frame: Frame | None, path: Path) -> LedgerHeader:
    if frame is None or frame.kind != b"H":
        raise ConfigurationError(["is no ledger of a run: its begin is missing"], str(path))
    try:
        value = frame.json()
        written = value.pop("format", None)
        if written != LEDGER_FORMAT:
            raise ConfigurationError([f"has the format {written!r}, not {LEDGER_FORMAT!r}"], str(path))
        return LedgerHeader(**{**value, "offers": tuple(value["offers"])})
    except _UNREADABLE as error:
        raise ConfigurationError([f"is damaged: its first frame is no header ({error})"], str(path)) from None


def _look_at(found: LedgerSurvey, frame: Frame) -> None:
    if frame.kind == b"R":
        _probe_readings(found, records_of(frame))
    elif frame.kind == b"C":
        for event in frame.commands():
            found.weights = _grown(found.weights, event.device)
            found.weights[event.device] += _COMMAND_WEIGHT
            found.with_commands.add(event.device)
            found.last_ms = max(found.last_ms, event.at_ms)
            found.seen[_COMMAND_NAMES[event.kind]] += 1
            found.orders += event.kind in {CommandKind.ORDERED, CommandKind.ORDER_UNANSWERED}
    elif frame.kind == b"G":
        found.gaps.append(LedgerGap(**frame.json()))
    elif frame.kind == b"E":
        counts = frame.json()
        if not all(type(count) is int for count in counts.values()):
            raise ValueError("counts that are none")
        found.counts = LedgerCounts(**counts)


def _probe_readings(found: LedgerSurvey, records: Records) -> None:
    _weigh(found, records)
    by_kind = np.bincount(records["kind"], weights=counted_readings(records), minlength=max(ReadingKind) + 1)
    for kind, name in _READING_NAMES.items():
        found.seen[name] += int(by_kind[kind])
    found.last_ms = max(found.last_ms, int(records["time"].max()))
    recorded = records["recorded"][records["kind"] == ReadingKind.SENT]
    dated = recorded[recorded != NO_TIME]
    found.dateless = found.dateless or len(dated) < len(recorded)
    if len(dated):
        low, high = int(dated.min()), int(dated.max())
        before = found.recorded or (low, high)
        found.recorded = (min(low, before[0]), max(high, before[1]))


def _weigh(found: LedgerSurvey, records: Records) -> None:
    found.weights = _grown(found.weights, int(records["device"].max()))
    weights = np.bincount(records["device"], weights=counted_readings(records), minlength=len(found.weights))
    found.weights += weights.astype(np.int64)


def _grown(weights: Counts, device: int) -> Counts:
    if device < len(weights):
        return weights
    return np.concatenate([weights, np.zeros(max(device + 1 - len(weights), len(weights)), dtype=np.int64)])


def weigh_stored(path: Path, devices: int) -> Counts:
    """How many readings came back of each device: index -> number, for ``devices`` indices.

    Raises:
        StorageError: the file cannot be read.
    """
    weights = np.zeros(devices, dtype=np.int64)
    for frame in _frames(path):
        if frame.kind == b"S":
            weights += np.bincount(records_of(frame)["device"], minlength=devices)
    return weights


def cut_ranges(weights: Counts, limit: int = RANGE_READINGS) -> list[int]:
    """Where ranges end, as indices: the last one is the number of devices. None holds more than ``limit`` unless one
    device alone does.
    """
    ends: list[int] = []
    begun = 0
    running = np.cumsum(weights)
    while begun < len(weights):
        before = int(running[begun - 1]) if begun else 0
        end = int(np.searchsorted(running, before + limit, side="right"))
        begun = max(end, begun + 1)
        ends.append(begun)
    return ends or [0]


def sorted_ranges(paths: Sequence[Path], ends: Sequence[int]) -> Iterator[DeviceRange]:
    """Everything that the files hold, range by range.

    Args:
        paths: the ledgers, then what was read back.
        ends: of the ranges, as :func:`cut_ranges` gives them.

    Raises:
        StorageError: a file cannot be read, or the copies cannot be written.
    """
    if len(ends) == 1:
        yield _gathered(frame for path in paths for frame in _frames(path))
        return
    try:
        with tempfile.TemporaryDirectory(prefix="audit-", dir=paths[0].parent) as folder:
            parts = [Path(folder) / f"{number:06d}" for number in range(len(ends))]
            _Sorter(parts, ends).sort(frame for path in paths for frame in _frames(path))
            for part in parts:
                if part.exists():
                    yield _gathered(_frames(part))
                    part.unlink()
    except OSError as error:
        raise StorageError(f"{paths[0].parent}: the ledgers cannot be sorted there: {error.strerror}") from None


class _Sorter:
    """Copies records to the files of their ranges."""

    def __init__(self, parts: Sequence[Path], ends: Sequence[int]) -> None:
        self._parts = parts
        self._ends = np.asarray(ends)
        self._buffer_bytes = max(4096, min(1024 * 1024, _BUFFERS_BYTES // len(parts)))
        self._buffers: dict[bytes, list[bytearray]] = {
            kind: [bytearray() for _ in parts] for kind in (b"R", b"S", b"C")
        }

    def sort(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            if frame.kind == b"C":
                for event in frame.commands():
                    part = int(np.searchsorted(self._ends, event.device, side="right"))
                    self._add(b"C", part, pack_event(event))
            elif frame.kind in {b"R", b"S"}:
                self._split(frame.kind, records_of(frame))
        for kind, buffers in self._buffers.items():
            for part in range(len(buffers)):
                self._write(kind, part)

    def _split(self, kind: bytes, records: Records) -> None:
        part_of = np.searchsorted(self._ends, records["device"], side="right")
        order = np.argsort(part_of, kind="stable")
        records, part_of = records[order], part_of[order]
        parts, begins = np.unique(part_of, return_index=True)
        for part, rows in zip(parts, np.split(records, begins[1:]), strict=True):
            self._add(kind, int(part), rows.tobytes())

    def _add(self, kind: bytes, part: int, data: bytes) -> None:
        buffer = self._buffers[kind][part]
        buffer += data
        if len(buffer) >= self._buffer_bytes:
            self._write(kind, part)

    def _write(self, kind: bytes, part: int) -> None:
        buffer = self._buffers[kind][part]
        if buffer:
            with self._parts[part].open("ab") as file:
                file.write(make_records_frame(kind, buffer))
            buffer.clear()


def _gathered(frames: Iterable[Frame]) -> DeviceRange:
    readings: list[Records] = []
    stored: list[Records] = []
    commands: list[CommandEvent] = []
    for frame in frames:
        if frame.kind == b"R":
            readings.append(records_of(frame))
        elif frame.kind == b"S":
            stored.append(records_of(frame))
        elif frame.kind == b"C":
            commands.extend(frame.commands())
    return DeviceRange(_joined(readings, READING_TYPE), _joined(stored, STORED_TYPE), commands)


def _joined(parts: Sequence[Records], kind: np.dtype[np.void]) -> Records:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)


def _frames(path: Path) -> Iterator[Frame]:
    try:
        yield from read_frames(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from None
