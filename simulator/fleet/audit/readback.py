"""What the service gives back, read through its plain interface and written to the run's database as it comes.

Only ``GET /sensor-data`` and ``GET /devices/{deviceId}/commands`` are used, and ``GET /database/runtime-data`` where
that has the results of commands; nothing is kept in memory beside a page for each request in flight. The specification
leaves query parameters open (rule E3), so they are sent where the service announces them; any other is read once as a
whole, and where it refuses that, device by device. A list of commands is read only where that is known to take none
away: a server may hand each command out once, to whoever asks.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import Any, Final

from agent.errors import InvalidMessage, NotFound, Refused, ServiceError
from agent.wire import paths
from agent.wire.limits import PAGE_MAX
from agent.wire.models import CommandRecord, CommandStatus, SensorDataRecord
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

READING_COUNTS: Final = tuple(f"readings.{kind}" for kind in ("lost", "doubled", "altered", "unknown"))
"""The counts of the audit that stored readings decide."""
COMMAND_COUNTS: Final = tuple(f"commands.{kind}" for kind in ("lost", "doubled", "altered", "unknown"))

_TOLD_EVERY: Final = 100
_CHUNK_ROWS: Final = 10_000
_USUAL_PAGES: Final = frozenset({10, 20, 25, 30, 50, 100, 200, 250, 500, 1000})
_NUMBERS: Final = frozenset({int, float})
_STATES: Final = frozenset(map(str, CommandStatus))
_DEVICE_NAMES: Final = ("device_id", "deviceId", "device")
_VALUE_NAMES: Final = ("sensor_data", "sensorData", "data", "readings", "values")
_ROW_NAMES: Final = frozenset(
    "id _id uuid seq rowid version __v device_id deviceId device product_id productId user_id userId recorded_at "  # noqa: SIM905 - one list
    "recordedAt received_at receivedAt created_at createdAt updated_at updatedAt timestamp time ts date".split()
)
"""Members of a flat row that are its own and no readings."""
_NUMBER_END: Final = 2**53
_WINDOW_BEFORE_MS: Final = 60_000
_WINDOW_AFTER_MS: Final = 3_600_000


_ODD_ROWS: Final = {
    "homeless": (
        "{:,} stored readings name no device, so that it is not known whose they are: loss cannot be judged",
        READING_COUNTS[:3],
    ),
    "malformed": ("{:,} rows in lists of commands cannot be read as commands", COMMAND_COUNTS),
    "timeless": (
        "{:,} readings came back without a recorded_at that can be read, from a service that announces it: whether "
        "their times were kept cannot be judged",
        ("readings.altered",),
    ),
    "shapeless": (
        "{:,} rows of GET /sensor-data hold no readings in a shape that is known: loss cannot be judged",
        READING_COUNTS,
    ),
}
"""What a row may be that nobody can judge: the sentence, and which counts of the audit are not known by it."""


class ReadBack:
    """Reads everything into the tables ``stored``, ``listed`` and ``results``, which are made anew.

    Args:
        rules: of the run.
        pages: how to ask.
        database: of the run, with its ledgers.
        on_progress: called now and then with how many devices are read and how many there are.

    Attributes:
        devices: of the run.
        readings_of, commands_of: indices of the devices that were read to the end.
        gone: devices that the service does not know any more, by index.
        foreign: how many readings of other runs with the same devices were left out.
        failure: why it was given up; None when everything was read.
        results_read: the table of results was read to its end.
        perhaps_cut: how many readings came in one page without a word of a next one, where that is a usual size of
            pages: there may be more that nobody can ask for. 0 otherwise.
    """

    def __init__(self, rules: AuditRules, pages: Pages, database: sqlite3.Connection, on_progress: OnProgress) -> None:
        self.devices = devices_of(database)
        self.readings_of: set[int] = set()
        self.commands_of: set[int] = set()
        self.gone: dict[int, AuditedDevice] = {}
        self.foreign = 0
        self.failure: str | None = None
        self.results_read = False
        self.perhaps_cut = 0
        self._rules = rules
        self._pages = pages
        self._database = database
        self._on_progress = on_progress
        with_commands = {device for (device,) in database.execute("SELECT DISTINCT device FROM command_events")}
        self._with_commands = with_commands if rules.lists_are_whole else set()
        self._results_table = rules.results_table if with_commands else None
        self._dialect = rules.dialect.dialect()
        self._time_name = self._dialect.recorded_at_reading
        self._window = _window(database, rules)
        self._asks_by_parameters = LIST_PARAMETERS in rules.offers
        self._keeps_times = RECORDED_AT in rules.offers and self._time_name is None
        times = {} if self._window is None else {"from": self._window.start, "to": self._window.stop}
        self._query: Query = {**times, "order": "asc", "limit": PAGE_MAX} if self._asks_by_parameters else {}
        self._stored: list[tuple[Any, ...]] = []
        self._listed: list[tuple[Any, ...]] = []
        self._results: list[tuple[Any, ...]] = []
        self._unread: set[int] = set()
        self._odd: Counter[str] = Counter()
        self._done = 0
        self._rows = 0

    async def run(self) -> None:
        """Read."""
        self._database.executescript(STORED_SCHEMA)
        try:
            await self._read_all()
        except ServiceError as error:
            self.failure = str(error)
        self.readings_of -= self._unread
        self._write()

    def unjudged(self) -> dict[str, tuple[str, ...]]:
        """Why something cannot be judged by what came back, a sentence each; and which counts of the audit."""
        return {text.format(self._odd[odd]): counts for odd, (text, counts) in _ODD_ROWS.items() if self._odd[odd]}

    async def _read_all(self) -> None:
        devices = self.devices
        if devices and not self._asks_by_parameters:
            try:
                await self._readings_of_all()
            except (NotFound, Refused):  # then device by device
                if self._rows or self.foreign:
                    raise
        elif devices and not await self._filters_by_device(devices[0]):
            await self._readings_of_all()
        await for_each(devices, self._device)
        if self._results_table is not None:
            await self._read_results(self._results_table)

    async def _read_results(self, table: str) -> None:
        """The results of commands where they are runtime data; without them where the service has no such list."""
        query: Query = {"table_name": table, "limit": PAGE_MAX} if self._asks_by_parameters else {}
        try:
            async for items in self._pages(paths.RUNTIME_DATA, query):
                for item in items:
                    self._take_result(item, table)
        except (NotFound, Refused, InvalidMessage):
            return
        self.results_read = True

    def _take_result(self, item: Any, table: str) -> None:
        if not isinstance(item, dict) or item.get("table_name", item.get("tableName", table)) != table:
            return
        payload = _as_object(item.get("data_payload", item.get("dataPayload"))) or {}
        command_id, result = payload.get("command_id"), _as_object(payload.get("result"))
        if isinstance(command_id, str):
            digest = None if result is None else digest_document(result)
            self._results.append((plain_id(command_id), str(payload.get("status")), digest))

    async def _device(self, device: AuditedDevice) -> None:
        if device.device not in self.readings_of:
            await self._readings(device)
        if device.device in self._with_commands:
            await self._commands(device)
        self._done += 1
        if self._done % _TOLD_EVERY == 0 or self._done == len(self.devices):
            self._on_progress(self._done, len(self.devices))

    async def _filters_by_device(self, device: AuditedDevice) -> bool:
        """Whether the service gives one device's readings alone."""
        with contextlib.suppress(NotFound):
            async for items in self._pages(paths.SENSOR_DATA, {"device_id": device.device_id, **self._query}):
                if any(_device_id(item) not in {None, device.device_id} for item in items):
                    return False
        return True

    async def _readings(self, device: AuditedDevice) -> None:
        try:
            async for items in self._pages(paths.SENSOR_DATA, {"device_id": device.device_id, **self._query}):
                for item in items:
                    if _device_id(item) in {None, device.device_id}:
                        self._take(device.device, item)
        except NotFound:
            self.gone[device.device] = device
        self.readings_of.add(device.device)

    async def _readings_of_all(self) -> None:
        """Read everything, once: the service does not filter by device."""
        index = {device.device_id: device.device for device in self.devices}
        only = self.devices[0].device if len(index) == 1 else None
        sizes, homeless = [], 0
        async for items in self._pages(paths.SENSOR_DATA, self._query):
            sizes.append(len(items))
            for item in items:
                name = _device_id(item)
                device = only if name is None else index.get(name)
                if device is not None:
                    self._take(device, item)
                homeless += name is None and device is None
        self.readings_of.update(index.values())
        if not self._asks_by_parameters and len(sizes) == 1 and sizes[0] in _USUAL_PAGES:
            self.perhaps_cut = sizes[0]
        if homeless:
            self._odd["homeless"] = homeless
            self._unread |= set(index.values())

    def _take(self, device: int, item: Any) -> None:
        rules = self._rules
        values, recorded_ms, received_ms = _read_row(item, numbered=rules.numbered)
        if not values:
            self._odd["shapeless"] += 1
            self._unread.add(device)
            return
        carried = values.pop(self._time_name, None) if self._time_name is not None else None
        if isinstance(carried, (int, float)) and abs(carried) < _NUMBER_END:
            recorded_ms = round(carried * 1000)
        if self._window is not None and recorded_ms is not None and recorded_ms not in self._window:
            return
        number = _whole(values.pop(SEQUENCE_NAME, None)) if rules.numbered else 0
        sequence = number and number - rules.first_number
        if not 0 <= sequence < NUMBERS_OF_A_RUN or (number and not sequence):
            self.foreign += 1
            return
        self._rows += 1
        self._odd["timeless"] += self._keeps_times and recorded_ms is None
        self._stored.append((device, sequence or None, digest_values(values), recorded_ms, received_ms))
        if len(self._stored) >= _CHUNK_ROWS:
            self._write()

    async def _commands(self, device: AuditedDevice) -> None:
        query: Query = {"limit": PAGE_MAX} if self._asks_by_parameters else {}
        try:
            async for items in self._pages(paths.device_commands(device.device_id), query):
                for item in items:
                    self._take_command(device, item)
        except NotFound:
            self.gone[device.device] = device
        self.commands_of.add(device.device)

    def _take_command(self, device: AuditedDevice, item: Any) -> None:
        try:
            record = CommandRecord.receive(item, self._dialect)
            command_id = record.stable_id()
        except InvalidMessage:
            self._odd["malformed"] += 1
            return
        if record.device_id not in {None, device.device_id}:
            return
        created = record.created_at
        made_ms = 0 if created is None else round(created * 1000) - self._rules.began_ms or 1
        state = record.status if record.status in _STATES else None
        payload = digest_document(record.command_payload)
        result = None if record.result is None else digest_document(record.result)
        self._listed.append((device.device, plain_id(command_id), made_ms, state, payload, result))

    def _write(self) -> None:
        """Write what has come."""
        with self._database:
            self._database.executemany("INSERT INTO stored VALUES (?, ?, ?, ?, ?)", self._stored)
            self._database.executemany("INSERT INTO listed VALUES (?, ?, ?, ?, ?, ?)", self._listed)
            self._database.executemany("INSERT INTO results VALUES (?, ?, ?)", self._results)
        for rows in (self._stored, self._listed, self._results):
            rows.clear()


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


def _read_row(item: Any, *, numbered: bool) -> tuple[dict[str, Any], int | None, int | None]:
    """Values, recorded and received of a stored reading; what is no reading has no values."""
    try:
        values, recorded, received = item["sensor_data"], item["recorded_at"], item["received_at"]
        if type(values) is dict:
            return values, _milliseconds(recorded), _milliseconds(received)
    except (KeyError, TypeError, ValueError):
        pass
    if not isinstance(item, dict):
        return {}, None, None
    values = _values_in(item, numbered=numbered)
    try:
        record = SensorDataRecord.receive({**item, "sensor_data": values})
    except InvalidMessage:
        return values, None, None
    return dict(record.sensor_data), _rounded(record.recorded_at), _rounded(record.received_at)


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
