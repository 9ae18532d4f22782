"""Readings over HTTP, by the extensions where the service offers them, else by the specification alone."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from agent.core.outbox import batch_key, is_refused_for_good
from agent.core.timekeeping import marked_time_unknown
from agent.core.values import BatchKey, Moment, Report, SendOutcome, StoredReading
from agent.errors import InvalidMessage, Refused, ServerFault, ServiceError
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

# The dates of so many readings are kept while their fate is not known.
_DATES_MAX: Final = 2 * BATCH_MAX


_Item = tuple[StoredReading, PostSensorData]
"""A reading and what it is sent as."""


@dataclass(slots=True)
class _Result:
    """The delivered and the refused readings of one send, collected request by request."""

    delivered: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)


class _EarlierIsStored(Exception):
    """The service answered 422: it has stored the earlier, larger batch that was sent under this key."""


class HttpUplink:
    """An :class:`~agent.ports.Uplink` on ``POST /sensor-data``, beside the ways of reporting a result.

    Args:
        client: its requests are not interrupted: what was begun is finished or times out.
        device_id: whose readings.
        product_id: whose table takes results on a plain server; None where it is not known.
        discovery: what the service offers, and what was found out about it.
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
        self._discovery = discovery
        self._wall_of = wall_of
        self._results = HttpResults(client, device_id, product_id, discovery)
        self._has_warned = False
        self._dates: dict[str, float] = {}

    def report(self, report: Report) -> None:
        """Send the service how a command goes or ended. See :meth:`HttpResults.report`."""
        self._results.report(report)

    def send(self, readings: Sequence[StoredReading], batch: BatchKey | None = None) -> SendOutcome:
        """Hand over readings; what comes back as delivered is stored on the other side.

        See :meth:`agent.ports.Uplink.send`. Several readings go as one request where the service takes arrays.
        """
        result = _Result()
        good: list[_Item] = []
        # Asked before anything is dated: the answer carries the service's time.
        takes_arrays = self.takes_arrays()
        for stored in readings:
            try:
                good.append((stored, self._body(stored)))
            except (ValidationError, InvalidMessage) as error:
                result.refused[stored.key] = f"invalid_reading: {describe_faults(error)}"
        try:
            if takes_arrays and good and (len(good) > 1 or batch is not None):
                self._send_batch(good, result, batch)
            else:
                self._send_each(good, result)
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

    def _body(self, stored: StoredReading) -> PostSensorData:
        wall_s, values = self._date(stored), dict(stored.reading.values)
        recorded_at: str | None = None
        name = self._discovery.dialect.recorded_at_reading
        if wall_s is None:
            values = marked_time_unknown(values, stored.reading.at)
        elif self._discovery.offers(RECORDED_AT):
            recorded_at = to_rfc3339(wall_s)
        elif name is not None and name not in values:
            values[name] = round(wall_s, 3)
        elif name is not None and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "reading=%s a sensor's own reading has the name of service.dialect.recorded_at_reading: such readings "
                "go without the time; choose another name",
                name,
            )
        return PostSensorData(device_id=self._device_id, sensor_data=values, recorded_at=recorded_at)

    # --- one by one ---------------------------------------------------------------------------------------------------

    def _send_each(self, items: Sequence[_Item], result: _Result) -> None:
        for stored, body in items:
            reason = self._send_one(stored.idempotency_key, body)
            if reason is None:
                result.delivered.append(stored.key)
            else:
                result.refused[stored.key] = reason

    def _send_one(self, key: str, body: PostSensorData) -> str | None:
        """Why the service will never store this reading; None when it is stored.

        Raises:
            ServiceError: it is not stored, through no fault of its own.
        """
        try:
            try:
                self._client.post_sensor_data(body, idempotency_key=self._discovery.key(key))
            except Refused as error:
                if error.error != KEY_REUSED:
                    raise
                # What is stored under it is another body, so this one is not: it goes under a key of its own content.
                content = hashlib.sha256(encode_json(body.to_wire())).hexdigest()[:16]
                self._client.post_sensor_data(body, idempotency_key=self._discovery.key(f"{key}-{content}"))
        except (Refused, ServerFault) as error:
            if not is_refused_for_good(error):
                raise
            return str(error)
        return None

    # --- as arrays ----------------------------------------------------------------------------------------------------

    def _send_batch(self, items: Sequence[_Item], result: _Result, batch: BatchKey | None = None) -> None:
        """Send these as one array; one that is refused as a whole is halved until the bad reading stands alone."""
        if len(items) == 1 and batch is None:
            self._send_each(items, result)
            return
        key = batch_key([stored for stored, _ in items]) if batch is None else batch.key
        try:
            answer = self._client.post_sensor_data_batch(
                [body for _, body in items], idempotency_key=self._discovery.key(key)
            )
        except (Refused, ServerFault) as error:
            if error.error == KEY_REUSED:
                if batch is not None and batch.was_sent:
                    raise _EarlierIsStored from None
                # Another array is stored under this key: each reading has its own.
                self._send_each(items, result)
            elif is_refused_for_good(error):
                middle = (len(items) + 1) // 2
                self._send_batch(items[:middle], result)
                if items[middle:]:
                    self._send_batch(items[middle:], result)
            else:
                raise
            return
        if answer.accepted + len(answer.errors) != len(items):
            # It does not say which ones it left out: asking one by one loses none.
            self._send_each(items, result)
            return
        faults = {each.index: f"{each.error}: {each.message}".strip(": ") for each in answer.errors}
        for index, (stored, _) in enumerate(items):
            if index in faults:
                result.refused[stored.key] = faults[index]
            else:
                result.delivered.append(stored.key)
