"""Readings and results over HTTP, by the extensions where the service offers them, else by the specification alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from agent.adapters.discovery import Discovery
from agent.core.outbox import Disposition, judge_readings
from agent.core.timekeeping import undated
from agent.core.values import Moment, Report, SendOutcome, StoredReading
from agent.errors import InvalidMessage, NotFound, Refused, ServiceError
from agent.wire.base import describe_faults
from agent.wire.device_client import DeviceClient
from agent.wire.extensions import BATCH_SENSOR_DATA, COMMAND_RESULTS, IDEMPOTENCY_KEY, KEY_REUSED
from agent.wire.limits import BATCH_MAX
from agent.wire.sensor_data import PostSensorData
from agent.wire.times import to_rfc3339

ModelT = TypeVar("ModelT", bound=BaseModel)

IN_PROGRESS: Final = "in_progress"


class HttpUplink:
    """An :class:`~agent.ports.Uplink` on ``POST /sensor-data`` and the two ways of reporting a result.

    Args:
        client: its requests are not interrupted: what was begun is finished or times out.
        device_id: whose readings.
        product_id: whose table takes results on a plain server; None looks it up in the list of devices.
        discovery: what the service offers.
        wall_of: when a moment was, epoch seconds; None when nobody can say: then the service takes the time of
            arrival, and the reading says so.
    """

    def __init__(
        self,
        client: DeviceClient,
        device_id: str,
        product_id: str | None,
        discovery: Discovery,
        wall_of: Callable[[Moment], float | None] = lambda moment: moment.wall_s,
    ) -> None:
        self._client = client
        self._device_id = device_id
        self._product_id = product_id
        self._discovery = discovery
        self._wall_of = wall_of

    def send(self, readings: Sequence[StoredReading]) -> SendOutcome:
        """See :meth:`agent.ports.Uplink.send`. Several readings go as one request where the service takes arrays."""
        delivered: list[int] = []
        refused: dict[int, str] = {}
        good: list[tuple[StoredReading, PostSensorData]] = []
        # Asked before anything is dated: with its answer the service tells the time.
        takes_arrays = self._discovery.offers(BATCH_SENSOR_DATA)
        for stored in readings:
            try:
                good.append((stored, self._body(stored)))
            except (ValidationError, InvalidMessage) as error:
                refused[stored.key] = f"invalid_reading: {_fault_text(error)}"
        try:
            if len(good) > 1 and takes_arrays:
                for begin in range(0, len(good), BATCH_MAX):
                    self._send_batch(good[begin : begin + BATCH_MAX], delivered, refused)
            else:
                for item in good:
                    self._send_one(item, delivered, refused)
        except ServiceError:
            # What was stored before is known and must be told; the next call meets the same trouble at once.
            if not delivered and not refused:
                raise
        return SendOutcome(tuple(delivered), refused)

    def report(self, report: Report) -> float | None:
        """See :meth:`agent.ports.Uplink.report`. A plain server has no place for progress: it is left out there."""
        if self._discovery.offers(COMMAND_RESULTS):
            from agent.wire.commands import CommandResult  # with the first result

            body = _valid(lambda: CommandResult(status=report.status, result=report.result, error=report.error))  # type: ignore[arg-type]  # checked by the model
            try:
                self._client.report_result(self._device_id, report.command_id, body)
            except InvalidMessage as error:
                raise Refused(400, "invalid_result", str(error)) from error
            except NotFound:
                # Either the command is gone or the service is another one now: look again what it offers.
                self._discovery.forget()
                raise
        elif report.status != IN_PROGRESS:
            self._record(report)
        return None

    def close(self) -> None:
        """The client belongs to whoever made it; nothing else is held."""

    def _body(self, stored: StoredReading) -> PostSensorData:
        wall_s = self._wall_of(stored.reading.at)
        values, at = stored.reading.values, stored.reading.at
        if wall_s is None:
            return PostSensorData(device_id=self._device_id, sensor_data=undated(values, at))
        return PostSensorData(device_id=self._device_id, sensor_data=dict(values), recorded_at=to_rfc3339(wall_s))

    def _send_one(
        self, item: tuple[StoredReading, PostSensorData], delivered: list[int], refused: dict[int, str]
    ) -> None:
        stored, body = item
        try:
            self._client.post_sensor_data(body, idempotency_key=self._key(stored.idempotency_key))
        except Refused as error:
            if error.error == KEY_REUSED:
                # The key is this reading's alone, so it is stored already: its time was estimated otherwise then.
                delivered.append(stored.key)
                return
            if judge_readings(error) is not Disposition.SET_ASIDE:
                raise
            refused[stored.key] = str(error)
        else:
            delivered.append(stored.key)

    def _send_batch(
        self, items: Sequence[tuple[StoredReading, PostSensorData]], delivered: list[int], refused: dict[int, str]
    ) -> None:
        if len(items) == 1:
            self._send_one(items[0], delivered, refused)
            return
        # The key follows from the content, so the same readings sent again, also after a crash, count once.
        names = "\n".join(stored.idempotency_key for stored, _ in items)
        key = self._key(hashlib.sha256(names.encode()).hexdigest())
        try:
            answer = self._client.post_sensor_data_batch([body for _, body in items], idempotency_key=key)
        except Refused as error:
            if error.error == KEY_REUSED:
                delivered.extend(stored.key for stored, _ in items)
                return
            if judge_readings(error) is not Disposition.SET_ASIDE:
                raise
            # One of them is bad and none was stored: halve until it stands alone.
            middle = len(items) // 2
            self._send_batch(items[:middle], delivered, refused)
            self._send_batch(items[middle:], delivered, refused)
            return
        if answer.accepted + len(answer.errors) != len(items):
            # It does not say which ones it left out: asking one by one loses none.
            for item in items:
                self._send_one(item, delivered, refused)
            return
        faults = {fault.index: f"{fault.error}: {fault.message}".strip(": ") for fault in answer.errors}
        for index, (stored, _) in enumerate(items):
            if index in faults:
                refused[stored.key] = faults[index]
            else:
                delivered.append(stored.key)

    def _record(self, report: Report) -> None:
        # Only plain servers need it.
        from agent.wire.commands import RESULTS_TABLE, CommandResultPayload
        from agent.wire.database import NewRuntimeRecord

        payload = _valid(
            lambda: CommandResultPayload(
                command_id=report.command_id,
                status=report.status,  # type: ignore[arg-type]  # checked by the model
                result=report.result,
                error=report.error,
                started_at=None if report.started_at is None else to_rfc3339(report.started_at),
                finished_at=None if report.finished_at is None else to_rfc3339(report.finished_at),
            )
        )
        record = NewRuntimeRecord(
            product_id=self._product(),
            device_id=self._device_id,
            table_name=RESULTS_TABLE,
            data_payload=payload.to_wire(),
        )
        try:
            self._client.create_runtime_record(record, idempotency_key=self._key(f"result-{report.command_id}"))
        except NotFound as error:
            raise ServiceError(
                f"the service has no table {RESULTS_TABLE!r} for product {record.product_id}, so results wait: create "
                f"the table, or check device.device_id and device.product_id ({error})"
            ) from error

    def _product(self) -> str:
        if self._product_id is None:
            for device in self._client.devices():
                if device.device_id == self._device_id and device.product_id:
                    self._product_id = device.product_id
                    break
            else:
                raise ServiceError(
                    "results cannot be stored, since this device's product is not known: set device.product_id"
                )
        return self._product_id

    def _key(self, key: str) -> str | None:
        return key if self._discovery.offers(IDEMPOTENCY_KEY) else None


def _valid(build: Callable[[], ModelT]) -> ModelT:
    try:
        return build()
    except (ValidationError, InvalidMessage) as error:
        raise Refused(400, "invalid_result", _fault_text(error)) from error


def _fault_text(error: ValidationError | InvalidMessage) -> str:
    return describe_faults(error) if isinstance(error, ValidationError) else str(error)
