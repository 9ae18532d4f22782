"""What the service gives back, read through its plain interface and written to disk as it comes.

Only ``GET /sensor-data`` and ``GET /devices/{deviceId}/commands`` are used, and nothing is kept in memory beside a page
for each request in flight. The specification leaves query parameters open (rule E3): a service that refuses them is
asked without, one that ignores ``device_id`` is read once as a whole, and times are looked at here in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

from agent.errors import InvalidMessage, NotFound, Refused, ServiceError, StorageError
from agent.wire import paths
from agent.wire.commands import CommandRecord
from agent.wire.limits import PAGE_MAX
from agent.wire.sensor_data import SensorDataRecord
from simulator.fleet.audit.book import NUMBERS_OF_A_RUN
from simulator.fleet.audit.digest import digest_values
from simulator.fleet.audit.folder import AuditedDevice
from simulator.fleet.audit.frames import NO_TIME, STORED_RECORD, make_records_frame, pack_listed

Query = Mapping[str, str | int]
Pages = Callable[[str, Query], AsyncIterator[list[Any]]]
"""(path, query) -> the pages of a list as they were parsed, which the audit may take apart; waits for the quota, and
raises ServiceError when it gives up."""
Told = Callable[[int, int], None]

_CONCURRENCY: Final = 32
_TOLD_EVERY: Final = 100
_CHUNK_BYTES: Final = 1024 * 1024
_NUMBER_END: Final = 2**53
_AT_MAX: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Window:
    """Readings of other times belong to other runs. Epoch milliseconds; None is open.

    Attributes:
        from_ms: inclusive.
        to_ms: exclusive.
    """

    from_ms: int | None = None
    to_ms: int | None = None

    def holds(self, recorded_ms: int) -> bool:
        """Whether a reading with this time is one of the run's."""
        if recorded_ms == NO_TIME:
            return True
        return (self.from_ms is None or recorded_ms >= self.from_ms) and (
            self.to_ms is None or recorded_ms < self.to_ms
        )


@dataclass(frozen=True, slots=True)
class ReadBackTask:
    """What to read.

    Attributes:
        devices: whose readings.
        with_commands: whose commands, too: indices.
        sequence_name: the reading that carries the sequence number; None when there is none.
        first_number: on the wire sequence numbers count from here.
        began_ms: the run's begin, epoch milliseconds.
    """

    devices: Sequence[AuditedDevice]
    with_commands: frozenset[int]
    sequence_name: str | None
    first_number: int
    window: Window
    began_ms: int


@dataclass(frozen=True, slots=True)
class ReadBackResult:
    """How it went.

    Attributes:
        readings_of, commands_of: indices of the devices that were read to the end.
        gone: devices that the service does not know any more.
        rows: readings that came back.
        foreign: readings of other runs with the same devices, which were left out.
        failure: why it was given up; None when everything was read.
        malformed: command records that could not be read.
    """

    readings_of: frozenset[int]
    commands_of: frozenset[int]
    gone: tuple[AuditedDevice, ...]
    rows: int
    foreign: int
    failure: str | None
    malformed: int


async def read_back(task: ReadBackTask, pages: Pages, path: Path, told: Told) -> ReadBackResult:
    """Read everything and write it to ``path``.

    Args:
        task: what to read.
        pages: how to ask.
        path: the file, written anew.
        told: told now and then, with how many devices are read and how many there are.

    Raises:
        StorageError: the file cannot be written.
    """
    with _Writer(path) as writer:
        return await _ReadBack(task, pages, writer, told).run()


class _ReadBack:
    def __init__(self, task: ReadBackTask, pages: Pages, writer: _Writer, told: Told) -> None:
        self._task = task
        self._pages = pages
        self._writer = writer
        self._told = told
        self._queries = _queries(task.window)
        self._gone: dict[int, AuditedDevice] = {}
        self._readings_of: set[int] = set()
        self._commands_of: set[int] = set()
        self._done = 0
        self._rows = 0
        self._foreign = 0
        self._malformed = 0
        self._failure: str | None = None

    async def run(self) -> ReadBackResult:
        try:
            await self._read_all()
        except ServiceError as error:
            self._failure = str(error)
        return ReadBackResult(
            frozenset(self._readings_of),
            frozenset(self._commands_of),
            tuple(self._gone.values()),
            self._rows,
            self._foreign,
            self._failure,
            self._malformed,
        )

    async def _read_all(self) -> None:
        devices = self._task.devices
        if devices and not await self._settle_on_a_query(devices[0]):
            await self._readings_of_all()
        await _for_each(devices, self._device)

    async def _device(self, device: AuditedDevice) -> None:
        if device.device not in self._readings_of:
            await self._readings(device)
        if device.device in self._task.with_commands:
            await self._commands(device)
        self._done += 1
        if self._done % _TOLD_EVERY == 0 or self._done == len(self._task.devices):
            self._told(self._done, len(self._task.devices))

    async def _settle_on_a_query(self, device: AuditedDevice) -> bool:
        """Find the parameters that the service takes; whether it gives one device's readings alone."""
        while True:
            try:
                async for items in self._pages(paths.SENSOR_DATA, self._query(device)):
                    if any(_device_id(item) not in {None, device.device_id} for item in items):
                        return False
            except NotFound:
                return True
            except Refused:
                if len(self._queries) == 1:
                    raise
                self._queries = self._queries[1:]
            else:
                return True

    def _query(self, device: AuditedDevice) -> Query:
        return {"device_id": device.device_id, **self._queries[0]}

    async def _readings(self, device: AuditedDevice) -> None:
        place = 0
        try:
            async for items in self._pages(paths.SENSOR_DATA, self._query(device)):
                for item in items:
                    if _device_id(item) in {None, device.device_id}:
                        self._take(device.device, item, place)
                        place += 1
        except NotFound:
            self._gone[device.device] = device
        self._readings_of.add(device.device)

    async def _readings_of_all(self) -> None:
        """The service does not tell devices apart: everything it has, once."""
        index = {device.device_id: device.device for device in self._task.devices}
        place = 0
        async for items in self._pages(paths.SENSOR_DATA, self._queries[0]):
            for item in items:
                device = index.get(_device_id(item) or "")
                if device is not None:
                    self._take(device, item, place)
                    place += 1
        self._readings_of.update(index.values())

    def _take(self, device: int, item: Any, place: int) -> None:
        values, recorded_ms, received_ms = _read_row(item)
        if not self._task.window.holds(recorded_ms):
            return
        name = self._task.sequence_name
        number = _whole(values.pop(name, None)) if name is not None else 0
        sequence = number and number - self._task.first_number
        if not 0 <= sequence < NUMBERS_OF_A_RUN or (number and not sequence):
            self._foreign += 1
            return
        self._rows += 1
        self._writer.stored(
            STORED_RECORD.pack(device, sequence, digest_values(values), min(place, _AT_MAX), recorded_ms, received_ms)
        )

    async def _commands(self, device: AuditedDevice) -> None:
        try:
            async for items in self._pages(paths.device_commands(device.device_id), {"limit": PAGE_MAX}):
                for item in items:
                    self._take_command(device, item)
        except NotFound:
            self._gone[device.device] = device
        self._commands_of.add(device.device)

    def _take_command(self, device: AuditedDevice, item: Any) -> None:
        try:
            record = CommandRecord.receive(item)
            command_id = record.stable_id()
        except InvalidMessage:
            self._malformed += 1
            return
        if record.device_id not in {None, device.device_id}:
            return
        created = record.created_at
        at_ms = 0 if created is None else min(max(0, round(created * 1000) - self._task.began_ms), _AT_MAX)
        self._writer.listed(pack_listed(device.device, command_id, at_ms, record.status))


class _Writer:
    """Frames of what comes back; for one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stored = bytearray()
        self._listed = bytearray()
        try:
            self._file = path.open("wb")
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._file:
            self._write()

    def stored(self, record: bytes) -> None:
        self._stored += record
        if len(self._stored) >= _CHUNK_BYTES:
            self._write()

    def listed(self, record: bytes) -> None:
        self._listed += record
        if len(self._listed) >= _CHUNK_BYTES:
            self._write()

    def _write(self) -> None:
        try:
            for kind, records in ((b"S", self._stored), (b"C", self._listed)):
                if records:
                    self._file.write(make_records_frame(kind, records))
                    records.clear()
            self._file.flush()
        except OSError as error:
            raise StorageError(f"{self._path}: cannot be written: {error.strerror}") from None


def _queries(window: Window) -> list[Query]:
    """What may narrow a list of readings, the most telling first."""
    times = {name: at for name, at in (("from", window.from_ms), ("to", window.to_ms)) if at is not None}
    return [{**times, "order": "asc", "limit": PAGE_MAX}, {"limit": PAGE_MAX}, {}]


def _device_id(item: Any) -> str | None:
    value = item.get("device_id", item.get("deviceId")) if isinstance(item, dict) else None
    return None if value is None else str(value)


def _read_row(item: Any) -> tuple[dict[str, Any], int, int]:
    """Values, recorded and received of a stored reading; what is no reading has no values."""
    try:
        values, recorded, received = item["sensor_data"], item["recorded_at"], item["received_at"]
        if type(values) is dict:
            return values, _milliseconds(recorded), _milliseconds(received)
    except (KeyError, TypeError, ValueError):
        pass
    try:
        record = SensorDataRecord.receive(item)
    except InvalidMessage:
        return {}, NO_TIME, NO_TIME
    return dict(record.sensor_data), _rounded(record.recorded_at), _rounded(record.received_at)


def _milliseconds(text: str) -> int:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(text)
    return round(at.timestamp() * 1000)


def _rounded(epoch_s: float | None) -> int:
    return NO_TIME if epoch_s is None else round(epoch_s * 1000)


def _whole(value: Any) -> int:
    """A sequence number; 0 when it is none."""
    if type(value) in {int, float} and 0 < value < _NUMBER_END and value == int(value):
        return int(value)
    return 0


async def _for_each(devices: Iterable[AuditedDevice], work: Callable[[AuditedDevice], Awaitable[None]]) -> None:
    waiting = iter(devices)

    async def take() -> None:
        for device in waiting:
            await work(device)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(_CONCURRENCY):
                group.create_task(take())
    except* (ServiceError, StorageError) as errors:
        raise errors.exceptions[0] from None
