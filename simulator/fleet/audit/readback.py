"""What the service gives back, read through its plain interface and written to the run's database as it comes.

Only ``GET /sensor-data`` and ``GET /devices/{deviceId}/commands`` are used, and ``GET /database/runtime-data`` where
that has the results of commands; nothing is kept in memory beside a page for each request in flight. The specification
leaves query parameters open (rule E3), so they are sent where the service announces them; any other is read once as a
whole, and where it refuses that, device by device. A list of commands is read only where that is known to take none
away: a server may hand each command out once, also to an audit.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final

from agent.errors import InvalidMessage, NotFound, Refused, ServiceError
from agent.wire import paths
from agent.wire.encoding import parse_received_time
from agent.wire.limits import PAGE_MAX
from agent.wire.models import CommandRecord, CommandStatus
from agent.wire.server import LIST_PARAMETERS, RECORDED_AT
from simulator.fleet.audit.judging import STORED_SCHEMA, last_ms
from simulator.fleet.audit.ledger import (
    NUMBERS_OF_A_RUN,
    SEQUENCE_NAME,
    AuditedDevice,
    AuditRules,
    devices_of,
    digest_document,
    digest_values,
    plain_id,
)
from simulator.fleet.target.client import for_each

Query = Mapping[str, str | int]
Pages = Callable[[str, Query], AsyncIterator[list[Any]]]
"""(path, query) -> the pages of a list as they were parsed, which the audit may take apart; waits for the quota, and
raises ServiceError when it gives up."""
OnProgress = Callable[[int, int], None]
_Row = tuple[Any, ...]

_USUAL_PAGES: Final = frozenset({10, 20, 25, 30, 50, 100, 200, 250, 500, 1000})
_NUMBERS: Final = frozenset({int, float})
_STATES: Final = frozenset(map(str, CommandStatus))
_DEVICE_NAMES: Final = ("device_id", "deviceId", "device")
_RECORDED_NAMES: Final = ("recorded_at", "timestamp")
_RECEIVED_NAMES: Final = ("received_at", "created_at")
_VALUE_NAMES: Final = ("sensor_data", "sensorData", "data", "readings", "values")
_ROW_NAMES: Final = frozenset(
    "id _id uuid seq rowid version __v device_id deviceId device product_id productId user_id userId recorded_at "  # noqa: SIM905 - one list
    "recordedAt received_at receivedAt created_at createdAt updated_at updatedAt timestamp time ts date".split()
)
"""Members of a flat row that describe the row, and are no readings."""
_NUMBER_END: Final = 2**53
_WINDOW_BEFORE_MS: Final = 60_000
_WINDOW_AFTER_MS: Final = 3_600_000


class ReadBack:
    """Reads everything into the tables ``stored``, ``listed`` and ``results``, which are made anew; ``devices`` says of
    whom.

    Args:
        rules: of the run.
        pages: how to ask.
        database: of the run, with its ledgers.
        on_progress: called with how many devices are read and how many there are.

    Attributes:
        devices: of the run.
        readings_of: indices of the devices whose readings were read to the end.
        gone: names of devices that the service does not know any more, by index.
        foreign: how many readings of other runs with the same devices were left out.
        odd: how many rows are ``homeless`` (they name no device), ``shapeless`` (no readings in them are known),
            ``timeless`` (their time cannot be read) and ``malformed`` (they cannot be read as commands).
        failure: why it was given up; None when everything was read.
        results_read: the table of results was read to its end.
        perhaps_cut: all readings came in one page of a usual size that names no next one: there may be more, without a
            way to ask for them.
    """

    def __init__(self, rules: AuditRules, pages: Pages, database: sqlite3.Connection, on_progress: OnProgress) -> None:
        self.devices = devices_of(database)
        self.readings_of: set[int] = set()
        self.gone: dict[int, str] = {}
        self.foreign = 0
        self.odd: Counter[str] = Counter()
        self.failure: str | None = None
        self.results_read = False
        self.perhaps_cut = False
        self._rules = rules
        self._pages = pages
        self._database = database
        self._on_progress = on_progress
        self._dialect = rules.dialect.dialect()
        self._window = _window(database, rules)
        self._asks_by_parameters = LIST_PARAMETERS in rules.offers
        self._unread: set[int] = set()
        self._done = 0

    async def run(self) -> None:
        """Read everything; the attributes say what could not be read."""
        self._database.executescript(STORED_SCHEMA)
        try:
            await self._read_all()
        except ServiceError as error:
            self.failure = str(error)
        self.readings_of -= self._unread
        read = "UPDATE devices SET readings_read = 1 WHERE device = ?"
        self._database.executemany(read, [(device,) for device in self.readings_of])

    async def _read_all(self) -> None:
        with_commands = {index for (index,) in self._database.execute("SELECT DISTINCT device FROM command_events")}
        if self.devices and not self._asks_by_parameters and not self._rules.device_filter:
            try:
                await self._readings_of_all()
            except (NotFound, Refused):  # then device by device
                if self.foreign or self._database.execute("SELECT EXISTS (SELECT 1 FROM stored)").fetchone()[0]:
                    raise

        async def read(device: AuditedDevice) -> None:
            if device.device not in self.readings_of:
                await self._readings(device)
            if device.device in with_commands and self._rules.lists_are_whole:
                await self._commands(device)
            self._done += 1
            self._on_progress(self._done, len(self.devices))

        await for_each(self.devices, read)
        if with_commands and self._rules.results_table is not None:
            await self._read_results(self._rules.results_table)

    # --- readings -----------------------------------------------------------------------------------------------------

    async def _readings(self, device: AuditedDevice) -> None:
        query: dict[str, str | int] = {self._rules.device_filter or "device_id": device.device_id}
        if self._asks_by_parameters:
            if self._window is not None:
                query |= {"from": self._window.start, "to": self._window.stop}
            query |= {"order": "asc", "limit": PAGE_MAX}
        try:
            async for items in self._pages(paths.SENSOR_DATA, query):
                self._store([(device.device, item) for item in items if _device_id(item) in {None, device.device_id}])
        except NotFound:
            self.gone[device.device] = device.name
        self.readings_of.add(device.device)

    async def _readings_of_all(self) -> None:
        """Read everything, once: the service does not filter by device."""
        index = {device.device_id: device.device for device in self.devices}
        only = self.devices[0].device if len(index) == 1 else None
        sizes = []
        async for items in self._pages(paths.SENSOR_DATA, {}):
            sizes.append(len(items))
            owned = []
            for item in items:
                name = _device_id(item)
                device = only if name is None else index.get(name)
                if device is not None:
                    owned.append((device, item))
                self.odd["homeless"] += name is None and device is None
            self._store(owned)
        self.readings_of.update(index.values())
        self.perhaps_cut = len(sizes) == 1 and sizes[0] in _USUAL_PAGES
        if self.odd["homeless"]:
            self._unread |= set(index.values())

    def _store(self, items: list[tuple[int, Any]]) -> None:
        rows = [row for device, item in items if (row := self._reading(device, item)) is not None]
        self._database.executemany("INSERT INTO stored VALUES (?, ?, ?, ?, ?)", rows)

    def _reading(self, device: int, item: Any) -> _Row | None:
        """A row of the table; None for what is no reading, or none of this run."""
        rules, time_name = self._rules, self._dialect.recorded_at_reading
        values = _values_in(item, numbered=rules.numbered) if isinstance(item, dict) else {}
        if not values:
            self.odd["shapeless"] += 1
            self._unread.add(device)
            return None
        recorded_ms = self._time_ms(item, _RECORDED_NAMES)
        carried = values.pop(time_name, None) if time_name is not None else None
        if isinstance(carried, (int, float)) and abs(carried) < _NUMBER_END:
            recorded_ms = round(carried * 1000)
        if self._window is not None and recorded_ms is not None and recorded_ms not in self._window:
            return None
        number = _whole(values.pop(SEQUENCE_NAME, None)) if rules.numbered else 0
        sequence = number and number - rules.first_number
        if not 0 <= sequence < NUMBERS_OF_A_RUN or (number and not sequence):
            self.foreign += 1
            return None
        self.odd["timeless"] += recorded_ms is None and time_name is None and RECORDED_AT in rules.offers
        received_ms = self._time_ms(item, _RECEIVED_NAMES)
        return device, sequence or None, digest_values(values), recorded_ms, received_ms

    def _time_ms(self, item: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
        value = next((item[name] for name in names if item.get(name) is not None), None)
        try:
            return round(parse_received_time(value, self._dialect.zone) * 1000)
        except InvalidMessage:
            return None

    # --- commands -----------------------------------------------------------------------------------------------------

    async def _commands(self, device: AuditedDevice) -> None:
        query: Query = {"limit": PAGE_MAX} if self._asks_by_parameters else {}
        try:
            async for items in self._pages(paths.device_commands(device.device_id), query):
                rows = [row for item in items if (row := self._command(device, item)) is not None]
                self._database.executemany("INSERT INTO listed VALUES (?, ?, ?, ?, ?, ?)", rows)
        except NotFound:
            self.gone[device.device] = device.name
        self._database.execute("UPDATE devices SET commands_read = 1 WHERE device = ?", (device.device,))

    def _command(self, device: AuditedDevice, item: Any) -> _Row | None:
        try:
            record = CommandRecord.receive(item, self._dialect)
            command_id = record.stable_id()
        except InvalidMessage:
            self.odd["malformed"] += 1
            return None
        if record.device_id not in {None, device.device_id}:
            return None
        created = record.created_at
        made_ms = 0 if created is None else round(created * 1000) - self._rules.began_ms or 1
        state = record.status if record.status in _STATES else None
        payload = digest_document(record.command_payload)
        result = None if record.result is None else digest_document(record.result)
        return device.device, plain_id(command_id), made_ms, state, payload, result

    async def _read_results(self, table: str) -> None:
        """The results of commands where they are runtime data; without them where the service has no such list."""
        query: Query = {"table_name": table, "limit": PAGE_MAX} if self._asks_by_parameters else {}
        try:
            async for items in self._pages(paths.RUNTIME_DATA, query):
                rows = [row for item in items for row in _result(item, table)]
                self._database.executemany("INSERT INTO results VALUES (?, ?, ?)", rows)
        except (NotFound, Refused, InvalidMessage):
            return
        self.results_read = True


def _window(database: sqlite3.Connection, rules: AuditRules) -> range | None:
    """The times that the run's readings carry; None where some carry none, since the service dates those."""
    dated = "SELECT min(recorded_ms), max(recorded_ms), sum(recorded_ms IS NULL) FROM sendings"
    low, high, dateless = database.execute(dated).fetchone()
    if low is None or dateless:
        return None
    # A service that dates all readings itself does so while the run lasts.
    ended_ms = rules.began_ms + last_ms(database)
    return range(low - _WINDOW_BEFORE_MS, max(ended_ms, high) + _WINDOW_AFTER_MS)


def _device_id(item: Any) -> str | None:
    if not isinstance(item, dict):
        return None
    value = next((item[name] for name in _DEVICE_NAMES if item.get(name) is not None), None)
    if isinstance(value, dict):  # the device's record in place of its id
        value = value.get("device_id", value.get("id"))
    return None if value is None else str(value)


def _values_in(item: Mapping[str, Any], *, numbered: bool) -> dict[str, Any]:
    """The readings in a row: an object in it, or its JSON text, or numbers beside the row's own members."""
    inner = [(name, _as_object(value)) for name, value in item.items()]
    objects = {name: value for name, value in inner if value is not None}
    if numbered:  # the number travels with the readings, so it is where they are
        for value in objects.values():
            if SEQUENCE_NAME in value:
                return dict(value)
    named = next((objects[name] for name in _VALUE_NAMES if name in objects), None)
    if named is not None:
        return dict(named)
    return {name: value for name, value in item.items() if type(value) in _NUMBERS and name not in _ROW_NAMES}


def _result(item: Any, table: str) -> Iterator[_Row]:
    """The row of a record that is the result of a command."""
    if not isinstance(item, dict) or item.get("table_name", item.get("tableName", table)) != table:
        return
    payload = _as_object(item.get("data_payload", item.get("dataPayload"))) or {}
    command_id, result = payload.get("command_id"), _as_object(payload.get("result"))
    if isinstance(command_id, str):
        yield plain_id(command_id), str(payload.get("status")), None if result is None else digest_document(result)


def _as_object(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def _whole(value: Any) -> int:
    """A sequence number; 0 when it is none."""
    if type(value) in _NUMBERS and 0 < value < _NUMBER_END and value == int(value):
        return int(value)
    return 0
