"""What the service gives back, read through its plain interface and written to the run's database as it comes.

Only ``GET /sensor-data`` and ``GET /devices/{deviceId}/commands`` are used, and ``GET /database/runtime-data`` where
that has the results of commands; nothing is kept in memory beside a page for each request in flight. The specification
leaves query parameters open (rule E3), so they are sent where the service announces them; any other is read once as a
whole, and where it refuses that, device by device. A list of commands is read only where that is known to take none
away: a server may hand each command out once, to whoever asks.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from agent.errors import InvalidMessage, NotFound, Refused, ServiceError
from agent.wire import paths
from agent.wire.command_states import CommandStatus
from agent.wire.commands import CommandRecord
from agent.wire.dialect import AnswerReading
from agent.wire.extensions import LIST_PARAMETERS, RECORDED_AT
from agent.wire.limits import PAGE_MAX
from agent.wire.sensor_data import SensorDataRecord
from simulator.fleet.audit.digest import digest_document, digest_values
from simulator.fleet.audit.fleet_ledger import NUMBERS_OF_A_RUN
from simulator.fleet.audit.judging import STORED_SCHEMA
from simulator.fleet.audit.ledger import plain_id
from simulator.fleet.audit.run_database import AuditedDevice

Query = Mapping[str, str | int]
Pages = Callable[[str, Query], AsyncIterator[list[Any]]]
"""(path, query) -> the pages of a list as they were parsed, which the audit may take apart; waits for the quota, and
raises ServiceError when it gives up."""
OnProgress = Callable[[int, int], None]

_CONCURRENCY: Final = 32
_TOLD_EVERY: Final = 100
_CHUNK_ROWS: Final = 10_000
_USUAL_PAGES: Final = frozenset({10, 20, 25, 30, 50, 100, 200, 250, 500, 1000})
_NUMBERS: Final = frozenset({int, float})
_STATES: Final = frozenset(map(str, CommandStatus))
_DEVICE_NAMES: Final = ("device_id", "deviceId", "device")
_VALUE_NAMES: Final = ("sensor_data", "sensorData", "data", "readings", "values")
_ROW_NAMES: Final = frozenset(
    {
        "id",
        "_id",
        "uuid",
        "seq",
        "rowid",
        "version",
        "__v",
        "device_id",
        "deviceId",
        "device",
        "product_id",
        "productId",
    }
    | {"user_id", "userId", "recorded_at", "recordedAt", "received_at", "receivedAt", "created_at", "createdAt"}
    | {"updated_at", "updatedAt", "stored_at", "storedAt", "inserted_at", "timestamp", "time", "ts", "date"}
)
"""Members of a flat row that are its own and no readings."""
_NUMBER_END: Final = 2**53


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Readings of other times belong to other runs. Epoch milliseconds; None is open.

    Attributes:
        from_ms: inclusive.
        to_ms: exclusive.
    """

    from_ms: int | None = None
    to_ms: int | None = None

    def holds(self, recorded_ms: int | None) -> bool:
        """Whether a reading with this time is one of the run's."""
        if recorded_ms is None:
            return True
        return (self.from_ms is None or recorded_ms >= self.from_ms) and (
            self.to_ms is None or recorded_ms < self.to_ms
        )


@dataclass(frozen=True, slots=True)
class Unjudged:
    """Why something cannot be judged.

    Attributes:
        sentence: for a person.
        counts: which counts of the audit are not known by it: ``readings.lost``.
    """

    sentence: str
    counts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadBackTask:
    """What is to be read back.

    Attributes:
        devices: whose readings.
        with_commands: whose commands, too: indices.
        sequence_name: the reading that carries the sequence number; None when there is none.
        first_number: on the wire sequence numbers count from here.
        offers: the service's extensions.
        reading: how its commands are read.
        time_name: the reading that carries the time; None when there is none.
        results_table: the table of runtime data that has the results of commands; None when they are in no such.
        began_ms: the run's begin, epoch milliseconds.
    """

    devices: Sequence[AuditedDevice]
    with_commands: frozenset[int]
    sequence_name: str | None
    first_number: int
    offers: frozenset[str]
    reading: AnswerReading
    time_name: str | None
    results_table: str | None
    window: TimeRange
    began_ms: int


@dataclass(frozen=True, slots=True)
class ReadBackResult:
    """What was read back, and what could not be.

    Attributes:
        readings_of, commands_of: indices of the devices that were read to the end.
        gone: devices that the service does not know any more.
        foreign: readings of other runs with the same devices, which were left out.
        failure: why it was given up; None when everything was read.
        results_read: the table of results was read to its end.
        unjudged: what cannot be judged by what came back.
        perhaps_cut: how many readings came in one page without a word of a next one, where that is a usual size of
            pages: there may be more that nobody can ask for. 0 otherwise.
    """

    readings_of: frozenset[int]
    commands_of: frozenset[int]
    gone: tuple[AuditedDevice, ...]
    foreign: int
    failure: str | None
    results_read: bool = False
    unjudged: tuple[Unjudged, ...] = ()
    perhaps_cut: int = 0


async def read_back(
    task: ReadBackTask, pages: Pages, database: sqlite3.Connection, on_progress: OnProgress
) -> ReadBackResult:
    """Read everything into the tables ``stored`` and ``listed``, which are made anew.

    Args:
        task: what to read.
        pages: how to ask.
        database: of the run.
        on_progress: called now and then with how many devices are read and how many there are.
    """
    database.executescript(STORED_SCHEMA)
    reading = _ReadBack(task, pages, database, on_progress)
    result = await reading.run()
    reading.write()
    return result


class _ReadBack:
    def __init__(self, task: ReadBackTask, pages: Pages, database: sqlite3.Connection, on_progress: OnProgress) -> None:
        self._task = task
        self._pages = pages
        self._database = database
        self._stored: list[tuple[Any, ...]] = []
        self._listed: list[tuple[Any, ...]] = []
        self._results: list[tuple[Any, ...]] = []
        self._results_read = False
        self._on_progress = on_progress
        self._asks_by_parameters = LIST_PARAMETERS in task.offers
        self._keeps_times = RECORDED_AT in task.offers and task.time_name is None
        self._queries = _queries(task.window) if self._asks_by_parameters else [{}]
        self._unread: set[int] = set()
        self._shapeless = 0
        self._timeless = 0
        self._homeless = 0
        self._perhaps_cut = 0
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
        self._readings_of -= self._unread
        return ReadBackResult(
            frozenset(self._readings_of),
            frozenset(self._commands_of),
            tuple(self._gone.values()),
            self._foreign,
            self._failure,
            self._results_read,
            tuple(self._unjudged()),
            self._perhaps_cut,
        )

    def write(self) -> None:
        """Write what has come."""
        with self._database:
            self._database.executemany("INSERT INTO stored VALUES (?, ?, ?, ?, ?)", self._stored)
            self._database.executemany("INSERT INTO listed VALUES (?, ?, ?, ?, ?, ?)", self._listed)
            self._database.executemany("INSERT INTO results VALUES (?, ?, ?)", self._results)
        for rows in (self._stored, self._listed, self._results):
            rows.clear()

    def _unjudged(self) -> Iterator[Unjudged]:
        if self._homeless:
            yield Unjudged(
                f"{self._homeless:,} stored readings name no device, so that it is not known whose they are: loss "
                "cannot be judged",
                ("readings.lost", "readings.doubled", "readings.altered"),
            )
        if self._malformed:
            sentence = f"{self._malformed:,} rows in lists of commands cannot be read as commands"
            yield Unjudged(sentence, ("commands.lost", "commands.doubled", "commands.altered", "commands.unknown"))
        if self._timeless:
            yield Unjudged(
                f"{self._timeless:,} readings came back without a recorded_at that can be read, from a service that "
                "announces it: whether their times were kept cannot be judged",
                ("readings.altered",),
            )
        if self._shapeless:
            yield Unjudged(
                f"{self._shapeless:,} rows of GET /sensor-data hold no readings in a shape that is known: loss cannot "
                "be judged",
                ("readings.lost", "readings.doubled", "readings.altered", "readings.unknown"),
            )

    async def _read_all(self) -> None:
        devices = self._task.devices
        if devices and not self._asks_by_parameters:
            await self._read_unfiltered()
        elif devices and not await self._find_query(devices[0]):
            await self._readings_of_all()
        await _for_each(devices, self._device)
        if self._task.results_table is not None:
            await self._read_results(self._task.results_table)

    async def _read_results(self, table: str) -> None:
        """The results of commands where they are runtime data; without them where the service has no such list."""
        query: Query = {"table_name": table, "limit": PAGE_MAX} if self._asks_by_parameters else {}
        try:
            async for items in self._pages(paths.RUNTIME_DATA, query):
                for item in items:
                    self._take_result(item, table)
        except (NotFound, Refused, InvalidMessage):
            return
        self._results_read = True

    def _take_result(self, item: Any, table: str) -> None:
        if not isinstance(item, dict) or item.get("table_name", item.get("tableName", table)) != table:
            return
        payload = item.get("data_payload", item.get("dataPayload"))
        payload = _as_object(payload) or {}
        command_id, result = payload.get("command_id"), _as_object(payload.get("result"))
        if isinstance(command_id, str):
            digest = None if result is None else digest_document(result)
            self._results.append((plain_id(command_id), str(payload.get("status")), digest))

    async def _read_unfiltered(self) -> None:
        """Everything, without a parameter; device by device where the service refuses that."""
        try:
            await self._readings_of_all()
        except (NotFound, Refused):
            if self._rows or self._foreign:
                raise

    async def _device(self, device: AuditedDevice) -> None:
        if device.device not in self._readings_of:
            await self._readings(device)
        if device.device in self._task.with_commands:
            await self._commands(device)
        self._done += 1
        if self._done % _TOLD_EVERY == 0 or self._done == len(self._task.devices):
            self._on_progress(self._done, len(self._task.devices))

    async def _find_query(self, device: AuditedDevice) -> bool:
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
        try:
            async for items in self._pages(paths.SENSOR_DATA, self._query(device)):
                for item in items:
                    if _device_id(item) in {None, device.device_id}:
                        self._take(device.device, item)
        except NotFound:
            self._gone[device.device] = device
        self._readings_of.add(device.device)

    async def _readings_of_all(self) -> None:
        """Read everything, once: the service does not filter by device."""
        index = {device.device_id: device.device for device in self._task.devices}
        only = self._task.devices[0].device if len(index) == 1 else None
        sizes, homeless = [], 0
        async for items in self._pages(paths.SENSOR_DATA, self._queries[0]):
            sizes.append(len(items))
            for item in items:
                name = _device_id(item)
                device = only if name is None else index.get(name)
                if device is not None:
                    self._take(device, item)
                homeless += name is None and device is None
        self._readings_of.update(index.values())
        if not self._asks_by_parameters and len(sizes) == 1 and sizes[0] in _USUAL_PAGES:
            self._perhaps_cut = sizes[0]
        if homeless:
            self._homeless = homeless
            self._unread |= set(index.values())

    def _take(self, device: int, item: Any) -> None:
        values, recorded_ms, received_ms = _read_row(item, self._task.sequence_name)
        if not values:
            self._shapeless += 1
            self._unread.add(device)
            return
        carried = values.pop(self._task.time_name, None) if self._task.time_name is not None else None
        if isinstance(carried, (int, float)) and abs(carried) < _NUMBER_END:
            recorded_ms = round(carried * 1000)
        if not self._task.window.holds(recorded_ms):
            return
        name = self._task.sequence_name
        number = _whole(values.pop(name, None)) if name is not None else 0
        sequence = number and number - self._task.first_number
        if not 0 <= sequence < NUMBERS_OF_A_RUN or (number and not sequence):
            self._foreign += 1
            return
        self._rows += 1
        self._timeless += self._keeps_times and recorded_ms is None
        self._stored.append((device, sequence or None, digest_values(values), recorded_ms, received_ms))
        if len(self._stored) >= _CHUNK_ROWS:
            self.write()

    async def _commands(self, device: AuditedDevice) -> None:
        query: Query = {"limit": PAGE_MAX} if self._asks_by_parameters else {}
        try:
            async for items in self._pages(paths.device_commands(device.device_id), query):
                for item in items:
                    self._take_command(device, item)
        except NotFound:
            self._gone[device.device] = device
        self._commands_of.add(device.device)

    def _take_command(self, device: AuditedDevice, item: Any) -> None:
        try:
            record = CommandRecord.receive(item, self._task.reading)
            command_id = record.stable_id()
        except InvalidMessage:
            self._malformed += 1
            return
        if record.device_id not in {None, device.device_id}:
            return
        created = record.created_at
        made_ms = 0 if created is None else round(created * 1000) - self._task.began_ms or 1
        state = record.status if record.status in _STATES else None
        payload = digest_document(record.command_payload)
        result = None if record.result is None else digest_document(record.result)
        self._listed.append((device.device, plain_id(command_id), made_ms, state, payload, result))


def _queries(window: TimeRange) -> list[Query]:
    """Query parameters that may narrow a list of readings, the narrowest first."""
    times = {name: at for name, at in (("from", window.from_ms), ("to", window.to_ms)) if at is not None}
    return [{**times, "order": "asc", "limit": PAGE_MAX}, {"limit": PAGE_MAX}, {}]


def _device_id(item: Any) -> str | None:
    if not isinstance(item, dict):
        return None
    value = next((item[name] for name in _DEVICE_NAMES if item.get(name) is not None), None)
    if isinstance(value, dict):  # the device's record in place of its id
        value = value.get("device_id", value.get("id"))
    return None if value is None else str(value)


def _read_row(item: Any, sequence_name: str | None) -> tuple[dict[str, Any], int | None, int | None]:
    """Values, recorded and received of a stored reading; what is no reading has no values."""
    try:
        values, recorded, received = item["sensor_data"], item["recorded_at"], item["received_at"]
        if type(values) is dict:
            return values, _milliseconds(recorded), _milliseconds(received)
    except (KeyError, TypeError, ValueError):
        pass
    if not isinstance(item, dict):
        return {}, None, None
    try:
        record = SensorDataRecord.receive({**item, "sensor_data": _values_in(item, sequence_name)})
    except InvalidMessage:
        return _values_in(item, sequence_name), None, None
    return dict(record.sensor_data), _rounded(record.recorded_at), _rounded(record.received_at)


def _values_in(item: Mapping[str, Any], sequence_name: str | None) -> dict[str, Any]:
    """The readings in a row: an object in it, or its JSON text, or numbers beside the row's own members."""
    inner = [(name, _as_object(value)) for name, value in item.items()]
    objects = {name: value for name, value in inner if value is not None}
    if sequence_name is not None:  # it travels with the readings, so it is where they are
        for value in objects.values():
            if sequence_name in value:
                return dict(value)
    named = next((objects[name] for name in _VALUE_NAMES if name in objects), None)
    if named is not None:
        return dict(named)
    return {name: value for name, value in item.items() if type(value) in _NUMBERS and name not in _ROW_NAMES}


def _as_object(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def _milliseconds(text: str) -> int:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(text)
    return round(at.timestamp() * 1000)


def _rounded(epoch_s: float | None) -> int | None:
    return None if epoch_s is None else round(epoch_s * 1000)


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
    except* (ServiceError, sqlite3.Error) as errors:
        raise errors.exceptions[0] from None
