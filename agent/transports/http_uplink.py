"""Readings over HTTP, by the extensions where the service offers them, else by the specification alone."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from agent.core.listed import ListWatch
from agent.core.outbox import Disposition, batch_key, judge_readings
from agent.core.timekeeping import marked_time_unknown
from agent.core.values import BatchKey, Moment, SendOutcome, StoredReading
from agent.errors import ErrorAnswer, InvalidMessage, NotFound, Refused, ServerFault, ServiceError
from agent.transports.discovery import Discovery
from agent.transports.http_results import HttpResults
from agent.wire.base import describe_faults
from agent.wire.client import DeviceClient
from agent.wire.extensions import BATCH_SENSOR_DATA, KEY_REUSED, RECORDED_AT
from agent.wire.json_text import encode_json
from agent.wire.limits import BATCH_MAX
from agent.wire.models import PostSensorData
from agent.wire.times import to_rfc3339

_log = logging.getLogger(__name__)

# An address or a method that is not there: of an array, the array may be what is not there.
_NOT_THERE: Final = frozenset({404, 405, 501})
# The dates of so many readings are kept while their fate is not known.
_DATES_MAX: Final = 2 * BATCH_MAX
# Too large is no refusal of arrays or members.
_TOO_LARGE: Final = 413


@dataclass(slots=True)
class _Item:
    """A reading and the body that it was last made into."""

    stored: StoredReading
    body: PostSensorData


@dataclass(slots=True)
class _Result:
    """The delivered and the refused readings of one send, collected request by request."""

    delivered: list[int]
    refused: dict[int, str]


class _EarlierIsStored(Exception):
    """The service answered 422: it has stored the earlier, larger batch that was sent under this key."""


class HttpUplink(HttpResults):
    """An :class:`~agent.ports.Uplink` on ``POST /sensor-data``, beside the two ways of reporting a result.

    What the service offers and then refuses (an array, ``recorded_at``, ``Idempotency-Key``) is left out from then on,
    and the readings that met the refusal go without it: none is lost by it.

    Args:
        client: its requests are not interrupted: what was begun is finished or times out.
        device_id: whose readings.
        product_id: whose table takes results on a plain server; None where it is not known.
        discovery: what the service offers, and what was found out about it.
        wall_of: when a moment was, epoch seconds; None when nobody can say: then the service takes the time of
            arrival, and the reading says so.
        watch: receives the ids of commands whose results were taken.
    """

    def __init__(
        self,
        client: DeviceClient,
        device_id: str,
        product_id: str | None,
        discovery: Discovery,
        wall_of: Callable[[Moment], float | None] = lambda moment: moment.wall_s,
        *,
        watch: ListWatch | None = None,
    ) -> None:
        super().__init__(client, device_id, product_id, discovery, watch)
        self._wall_of = wall_of
        # What this service took at least once, so that a refusal is the reading's own fault.
        self._accepted: set[str] = set()
        self._has_warned = False
        self._dates: dict[str, float] = {}

    def send(self, readings: Sequence[StoredReading], batch: BatchKey | None = None) -> SendOutcome:
        """Hand over readings; what comes back as delivered is stored on the other side.

        See :meth:`agent.ports.Uplink.send`. Several readings go as one request where the service takes arrays.
        """
        result = _Result([], {})
        good: list[_Item] = []
        # Asked before anything is dated: the answer carries the service's time.
        takes_arrays = self.takes_arrays()
        for stored in readings:
            try:
                good.append(_Item(stored, self._body(stored)))
            except (ValidationError, InvalidMessage) as error:
                result.refused[stored.key] = f"invalid_reading: {_fault_text(error)}"
        try:
            if takes_arrays and good and (len(good) > 1 or batch is not None):
                self._send_many(good, result, batch)
            else:
                for item in good:
                    self._send_one(item, result)
        except _EarlierIsStored:
            return SendOutcome(earlier_is_stored=True)
        except ServiceError:
            # What was stored before is known and must be returned; the next call meets the same trouble at once.
            if not result.delivered and not result.refused:
                raise
        return SendOutcome(tuple(result.delivered), result.refused)

    def takes_arrays(self) -> bool:
        """Whether one request carries many readings; may ask the service, and raise its errors."""
        return self._discovery.offers(BATCH_SENSOR_DATA)

    # --- what a reading is sent as ------------------------------------------------------------------------------------

    def _date(self, stored: StoredReading) -> float | None:
        """When it was read, the same at every resend: a guess that gets better would be another body under its key."""
        key = stored.idempotency_key
        wall_s = self._dates.get(key) or self._wall_of(stored.reading.at)
        if wall_s is not None:
            self._dates[key] = wall_s
            if len(self._dates) > _DATES_MAX:
                del self._dates[next(iter(self._dates))]
        return wall_s

    def _body(self, stored: StoredReading, *, with_time: bool = True) -> PostSensorData:
        wall_s = self._date(stored)
        values, at = stored.reading.values, stored.reading.at
        if wall_s is None:
            return PostSensorData(device_id=self._device_id, sensor_data=marked_time_unknown(values, at))
        if with_time and self._discovery.offers(RECORDED_AT):
            return PostSensorData(device_id=self._device_id, sensor_data=dict(values), recorded_at=to_rfc3339(wall_s))
        name = self._discovery.dialect.recorded_at_reading
        if name is None:
            return PostSensorData(device_id=self._device_id, sensor_data=dict(values))
        if name in values:
            self._warn(name)
            return PostSensorData(device_id=self._device_id, sensor_data=dict(values))
        return PostSensorData(device_id=self._device_id, sensor_data={**values, name: round(wall_s, 3)})

    def _warn(self, name: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            text = (
                "a sensor's own reading has the name of service.dialect.recorded_at_reading: such readings go without"
            )
            _log.warning("reading=%s %s the time; choose another name", name, text)

    def _current(self, item: _Item) -> PostSensorData:
        """The body, made anew when ``recorded_at`` was refused since."""
        if item.body.recorded_at is not None and not self._discovery.offers(RECORDED_AT):
            item.body = self._body(item.stored)
        return item.body

    # --- one by one ---------------------------------------------------------------------------------------------------

    def _send_one(self, item: _Item, result: _Result) -> None:
        stored, body = item.stored, self._current(item)
        try:
            self._post(stored, body)
        except (Refused, ServerFault) as error:
            if error.error == KEY_REUSED:
                # What is stored under it is another body, so this one is not: it goes under a key of its own.
                self._post_under_its_content(item, result)
                return
            if judge_readings(error) is not Disposition.SET_ASIDE and error.status not in _NOT_THERE:
                raise
            if not self._is_stored_without_time(item, error):
                if judge_readings(error) is not Disposition.SET_ASIDE:
                    raise
                result.refused[stored.key] = str(error)
                return
        else:
            if body.recorded_at is not None:
                self._accepted.add(RECORDED_AT)
        result.delivered.append(stored.key)

    def _post_under_its_content(self, item: _Item, result: _Result) -> None:
        body = self._current(item)
        content = hashlib.sha256(encode_json(body.to_wire())).hexdigest()[:16]
        try:
            self._post(item.stored, body, f"-{content}")
        except (Refused, ServerFault) as error:
            if judge_readings(error) is not Disposition.SET_ASIDE:
                raise
            result.refused[item.stored.key] = str(error)
        else:
            result.delivered.append(item.stored.key)

    def _is_stored_without_time(self, item: _Item, refusal: ErrorAnswer) -> bool:
        """Whether the service takes the same reading without ``recorded_at``, and then it is stored."""
        if item.body.recorded_at is None or refusal.status == _TOO_LARGE:
            return False
        try:
            # Another request, so another key: the refusal may be kept under the first one.
            self._post(item.stored, self._body(item.stored, with_time=False), "-untimed")
        except (NotFound, Refused, ServerFault) as error:
            if error.error != KEY_REUSED and error.status == refusal.status:
                return False
            raise
        if RECORDED_AT not in self._accepted:
            self._discovery.withdraw(RECORDED_AT, str(refusal))
        return True

    def _post(self, stored: StoredReading, body: PostSensorData, key_suffix: str = "") -> None:
        self._keyed.send(
            stored.idempotency_key + key_suffix,
            lambda key: self._client.post_sensor_data(body, idempotency_key=key),
        )

    # --- as arrays ----------------------------------------------------------------------------------------------------

    def _send_many(self, items: Sequence[_Item], result: _Result, batch: BatchKey | None) -> None:
        """One array; where the service took none yet and refuses this one, its members show whether it takes any."""
        before = self._discovery.profile.withdrawn
        taken = len(result.delivered)
        refusal = self._send_batch(items, result, batch)
        if refusal is None or BATCH_SENSOR_DATA in self._accepted:
            return
        is_array_at_fault = len(result.delivered) - taken == len(items)
        if is_array_at_fault and self._discovery.profile.withdrawn == before:
            self._discovery.withdraw(BATCH_SENSOR_DATA, str(refusal))

    def _send_batch(self, items: Sequence[_Item], result: _Result, batch: BatchKey | None = None) -> ErrorAnswer | None:
        """Send these; the refusal of the whole array, if there was one and its members went by themselves."""
        if (len(items) == 1 and batch is None) or not self._discovery.offers(BATCH_SENSOR_DATA):
            for item in items:
                self._send_one(item, result)
            return None
        bodies = [self._current(item) for item in items]
        key = batch_key([item.stored for item in items]) if batch is None else batch.key
        try:
            answer = self._keyed.send(
                key,
                lambda key: self._client.post_sensor_data_batch(bodies, idempotency_key=key),
            )
        except (NotFound, Refused, ServerFault) as error:
            if error.error == KEY_REUSED and batch is not None and batch.was_sent:
                raise _EarlierIsStored from None
            return self._refused_as_a_whole(items, result, error)
        if answer.accepted + len(answer.errors) != len(items):
            # It does not say which ones it left out: asking one by one loses none.
            for item in items:
                self._send_one(item, result)
            return None
        self._accepted.add(BATCH_SENSOR_DATA)
        if answer.accepted and any(body.recorded_at is not None for body in bodies):
            self._accepted.add(RECORDED_AT)
        self._settle(items, {each.index: f"{each.error}: {each.message}".strip(": ") for each in answer.errors}, result)
        return None

    def _settle(self, items: Sequence[_Item], faults: Mapping[int, str], result: _Result) -> None:
        """Sort the readings of an answered array into delivered and refused ones."""
        for index, item in enumerate(items):
            if index not in faults:
                result.delivered.append(item.stored.key)
            elif item.body.recorded_at is not None and RECORDED_AT not in self._accepted:
                # Its time may be what the service cannot take.
                self._send_one(item, result)
            else:
                result.refused[item.stored.key] = faults[index]

    def _refused_as_a_whole(self, items: Sequence[_Item], result: _Result, error: ErrorAnswer) -> ErrorAnswer | None:
        """None of the array is stored: its members go in smaller ones, or alone."""
        if error.error == KEY_REUSED:
            # Another array is stored under this key: each reading has its own.
            for item in items:
                self._send_one(item, result)
            return None
        if error.status in _NOT_THERE and BATCH_SENSOR_DATA not in self._accepted:
            self._try_one_reading(items, result, error)
            return None
        if judge_readings(error) is not Disposition.SET_ASIDE:
            raise error
        # One of them is bad: halve until it stands alone.
        middle = len(items) // 2
        self._send_batch(items[:middle], result)
        self._send_batch(items[middle:], result)
        return error

    def _try_one_reading(self, items: Sequence[_Item], result: _Result, refusal: ErrorAnswer) -> None:
        """The array was answered as if the path were not there: when one reading goes, only arrays are not."""
        try:
            self._send_one(items[0], result)
        except ServiceError:
            raise refusal from None
        self._discovery.withdraw(BATCH_SENSOR_DATA, str(refusal))
        for item in items[1:]:
            self._send_one(item, result)


def _fault_text(error: ValidationError | InvalidMessage) -> str:
    return describe_faults(error) if isinstance(error, ValidationError) else str(error)
