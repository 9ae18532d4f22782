"""Calls for devices: listing, commands, sensor data (specification, sections of these names)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from agent.errors import InvalidMessage, UnexpectedAnswer
from agent.wire import paths
from agent.wire.answers import Answer
from agent.wire.calls import Calls, given, read_record, time_param
from agent.wire.command_list import CommandList
from agent.wire.limits import BATCH_MAX, LONG_POLL_MAX_S
from agent.wire.lists import Page, Params, iterate_pages
from agent.wire.sensor_data import (
    Aggregate,
    Order,
    PostSensorData,
    SensorDataRecord,
)

if TYPE_CHECKING:
    from agent.wire.commands import CommandRecord, CommandResult, SendCommand
    from agent.wire.database import NewRuntimeRecord, RuntimeRecord
    from agent.wire.devices import Device
    from agent.wire.sensor_batches import BatchAnswer, SensorDataBucket


_PART: Final = 1_000


class DeviceCalls(Calls):
    """Devices and what they say and hear. Every call may raise :class:`~agent.errors.ServiceError`."""

    def devices(
        self,
        *,
        product_id: str | None = None,
        user_id: str | None = None,
        status: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Device]:
        """``GET /devices``; a plain server may ignore the filters."""
        from agent.wire.devices import Device  # only where results go into a product's table

        query = {"product_id": product_id, "user_id": user_id, "status": status}
        return self._list(Device, paths.DEVICES, query, limit)

    def device_commands(
        self,
        device_id: str,
        *,
        status: str | None = None,
        wait_s: float = 0.0,
        etag: str | None = None,
    ) -> CommandList:
        """``GET /devices/{deviceId}/commands``, all pages. :meth:`interrupt` ends it.

        One record that cannot be read never hides the others; each record has an ``id`` afterwards, derived from its
        content when the service gives none.

        Args:
            device_id: the device.
            status: ``open``, a single state, or None for all.
            wait_s: extension ``long-poll``: hold the answer until the list differs from ``etag``, up to 30 s.
            etag: of the list that is known; the answer is ``unchanged`` while it stays the same.

        Raises:
            Interrupted: :meth:`interrupt` was called.
        """
        wait = min(max(wait_s, 0.0), float(LONG_POLL_MAX_S))
        path = paths.device_commands(device_id)

        def fetch(target: str, query: Params) -> Answer:
            is_first = target == path and "cursor" not in query
            held = wait if is_first else 0.0
            return self.connection.request(
                "GET",
                target,
                params={**query, "wait": f"{held:g}"} if held else query,
                headers={"If-None-Match": etag} if etag and is_first else {},
                wait_s=held,
                interruptible=True,
            )

        params = given({"status": status})
        return _read_commands(list(iterate_pages(fetch, path, params, self.connection.url(path))))

    def device_command_parts(
        self, device_id: str, *, status: str | None = None, etag: str | None = None
    ) -> Iterator[CommandList]:
        """As :meth:`device_commands` without waiting, in parts of up to 1,000 commands, read when asked for.

        So what was read is in hand when a later page fails, and a very long list is never in memory as records. At
        least one part comes; the list's tag is on the last one.
        """
        path = paths.device_commands(device_id)

        def fetch(target: str, query: Params) -> Answer:
            is_first = target == path and "cursor" not in query
            headers = {"If-None-Match": etag} if etag and is_first else {}
            return self.connection.request("GET", target, params=query, headers=headers, interruptible=True)

        pages = iterate_pages(fetch, path, given({"status": status}), self.connection.url(path))
        for number, (answer, page) in enumerate(pages):
            ends = range(_PART, len(page.items) + _PART, _PART) or (0,)
            for end in ends:
                part = _read_commands([(answer, Page(page.items[end - _PART if end else 0 : end]))])
                is_whole = number == 0 and end >= len(page.items)
                yield part if is_whole else replace(part, etag=None)

    def interrupt(self) -> None:
        """End the :meth:`device_commands` in flight, or the next one; from any thread."""
        self.connection.interrupt()

    def send_command(self, command: SendCommand, *, idempotency_key: str | None = None) -> CommandRecord:
        """``POST /commands/send``."""
        from agent.wire.commands import CommandRecord  # devices send none

        answer = self._write("POST", paths.SEND_COMMAND, command, idempotency_key=idempotency_key)
        return read_record(CommandRecord, answer, "command", command.to_wire())

    def report_result(
        self, device_id: str, command_id: str, result: CommandResult, *, idempotency_key: str | None = None
    ) -> CommandRecord | None:
        """``POST /devices/{device_id}/commands/{command_id}/result``, extension ``command-results``.

        The record; None when the answer has none that can be read: a 2xx with any JSON, or with nothing, means that
        the result was taken. What is sent again for the same command changes nothing.

        Raises:
            UnexpectedAnswer: the body is not JSON, so it was not the service that answered.
        """
        from agent.wire.commands import CommandRecord  # with the first result

        path = paths.command_result(device_id, command_id)
        answer = self._write("POST", path, result, idempotency_key=idempotency_key)
        if answer.json() is None:
            return None
        try:
            return read_record(CommandRecord, answer, "command")
        except UnexpectedAnswer:  # JSON of another shape: reporting again would not change it
            return None

    def post_sensor_data(self, reading: PostSensorData, *, idempotency_key: str | None = None) -> SensorDataRecord:
        """``POST /sensor-data``: when it returns, the reading is stored."""
        answer = self._write("POST", paths.SENSOR_DATA, reading, idempotency_key=idempotency_key)
        return read_record(SensorDataRecord, answer, "sensor_data", reading.to_wire())

    def post_sensor_data_batch(
        self, readings: Sequence[PostSensorData], *, idempotency_key: str | None = None
    ) -> BatchAnswer:
        """``POST /sensor-data`` with an array, extension ``batch-sensor-data``: 1 to 500 readings.

        What ``errors`` does not name is stored.

        Raises:
            InvalidMessage: none, or more than 500; nothing was sent.
        """
        if not 1 <= len(readings) <= BATCH_MAX:
            raise InvalidMessage(f"a batch has 1 to {BATCH_MAX} readings, not {len(readings)}")
        from agent.wire.sensor_batches import BatchAnswer  # with the first batch

        body = [reading.to_wire() for reading in readings]
        answer = self._write("POST", paths.SENSOR_DATA, body, idempotency_key=idempotency_key)
        return read_record(BatchAnswer, answer, "batch")

    def sensor_data(
        self,
        device_id: str | None = None,
        *,
        from_: float | None = None,
        to: float | None = None,
        keys: Sequence[str] = (),
        order: Order | None = None,
        limit: int | None = None,
    ) -> Iterator[SensorDataRecord]:
        """``GET /sensor-data``: stored readings.

        Args:
            device_id: only this device's.
            from_: recorded at or after, seconds since the epoch.
            to: recorded before, seconds since the epoch.
            keys: only these named readings.
            order: by ``recorded_at``.
            limit: how many at most, over all pages.
        """
        query = _range(device_id, from_, to, keys)
        return self._list(SensorDataRecord, paths.SENSOR_DATA, {**query, "order": order}, limit)

    def sensor_data_buckets(
        self,
        device_id: str,
        *,
        agg: Aggregate,
        interval_s: int,
        from_: float | None = None,
        to: float | None = None,
        keys: Sequence[str] = (),
        order: Order | None = None,
        limit: int | None = None,
    ) -> Iterator[SensorDataBucket]:
        """``GET /sensor-data`` with ``agg`` and ``interval``: one bucket per interval; else as :meth:`sensor_data`."""
        from agent.wire.sensor_batches import SensorDataBucket  # devices ask for none

        query = _range(device_id, from_, to, keys)
        return self._list(
            SensorDataBucket,
            paths.SENSOR_DATA,
            {**query, "order": order, "agg": agg, "interval": interval_s},
            limit,
        )

    def create_runtime_record(self, record: NewRuntimeRecord, *, idempotency_key: str | None = None) -> RuntimeRecord:
        """``POST /database/runtime-data``."""
        from agent.wire.database import RuntimeRecord  # only plain servers need it

        answer = self._write("POST", paths.RUNTIME_DATA, record, idempotency_key=idempotency_key)
        return read_record(RuntimeRecord, answer, "record", record.to_wire())


def _range(device_id: str | None, from_: float | None, to: float | None, keys: Sequence[str]) -> dict[str, str | None]:
    return {
        "device_id": device_id,
        "from": time_param(from_),
        "to": time_param(to),
        "keys": ",".join(keys) or None,
    }


def _read_commands(pages: Sequence[tuple[Answer, Page]]) -> CommandList:
    records: list[CommandRecord] = []
    malformed: list[str] = []
    for index, item in enumerate(item for _, page in pages for item in page.items):
        try:
            records.append(_read_command(item))
        except InvalidMessage as exc:
            malformed.append(f"{_name(item, index)} in the list of commands is skipped: {exc}")
    last = pages[-1][0]
    return CommandList(
        tuple(records),
        tuple(malformed),
        # With more than one page the first one's tag does not speak for the whole list.
        etag=last.etag if len(pages) == 1 else None,
        unchanged=pages[0][0].is_unchanged,
        server_time=last.server_time,
    )


def _read_command(item: object) -> CommandRecord:
    from agent.wire.commands import CommandRecord  # with the first command

    record = CommandRecord.receive(item)
    return record if record.id else record.model_copy(update={"id": record.stable_id()})


def _name(item: object, index: int) -> str:
    given_id = item.get("id", item.get("command_id")) if isinstance(item, dict) else None
    return f"command {given_id[:64]!a}" if isinstance(given_id, str) and given_id else f"item {index}"
