"""Readings on their way to the service: in batches where it takes them, else one for each request."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from functools import partial
from typing import Final

from pydantic import ValidationError

from agent.core.outbox import Disposition, judge_readings
from agent.core.values import JsonObject
from agent.errors import InvalidMessage, NotFound, Refused, ServerFault
from agent.ports import Clock
from agent.wire.base import describe_faults
from agent.wire.device_client import DeviceClient
from agent.wire.extensions import BATCH_SENSOR_DATA, IDEMPOTENCY_KEY, KEY_REUSED, RECORDED_AT
from agent.wire.limits import BATCH_MAX
from agent.wire.sensor_data import PostSensorData
from agent.wire.times import parse_time
from gateway.backend import Backend
from gateway.core.budget import Kind
from gateway.service.offer import UNKNOWN_LOOK_S, Offer
from gateway.service.worker import RequestSource, RetryGate
from gateway.store.gateway_store import GatewayStore
from gateway.store.service import StoreWriter
from gateway.store.values import Batch

_log = logging.getLogger(__name__)

_LOOK_S: Final = 30.0
# A reading that the service answers with an unclear 404 lets the others go first for so long.
_DEFER_S: Final = 600.0
# Method not allowed, not implemented: of a path that takes single readings it is said of arrays.
_NO_METHOD: Final = frozenset({405, 501})
# So many readings that are taken alone, and no array, show what was refused.
_ALONE_ENOUGH: Final = 2
_NO_DEVICE: Final = "device_not_found"


class ReadingRequests(RequestSource[Batch]):
    """Sends readings to the service, oldest first; what the service refuses for good is set aside with the reason.

    Args:
        client: for the requests.
        offer: what the service offers.
        store: where readings wait.
        backend: takes the devices that the service does not know.
        clock: for waiting.
        gate: for log lines.
        gather_s: how long a reading may wait for company, seconds.
    """

    name = "readings"
    kind = Kind.READINGS

    def __init__(
        self,
        client: DeviceClient,
        offer: Offer,
        *,
        store: StoreWriter,
        backend: Backend,
        clock: Clock,
        gate: RetryGate,
        gather_s: float,
    ) -> None:
        self._client = client
        self._offer = offer
        self._store = store
        self._backend = backend
        self._clock = clock
        self._gate = gate
        self._gather_s = gather_s
        self._lock = threading.Lock()
        self._in_hand: set[int] = set()
        self._due_s = 0.0
        self._takes_arrays = False
        self._array_refusal = ""
        self._taken_alone = 0

    def wake(self) -> bool:
        """Note that something new waits; True when that was not known."""
        now_s = self._clock.now().monotonic_s
        with self._lock:
            was_idle = self._due_s > now_s + self._gather_s
            self._due_s = min(self._due_s, now_s + self._gather_s)
            return was_idle

    def due_at(self, now_s: float) -> float:
        """When :meth:`take` may have something, seconds on the monotonic clock; infinite until :data:`WAKE`."""
        return self._due_s if self._offer.is_known else max(self._due_s, now_s + UNKNOWN_LOOK_S)

    def take(self) -> Batch | None:
        """The next item, for this worker alone until :meth:`release`; None when there is none."""
        limit = BATCH_MAX if self._offer.offers(BATCH_SENSOR_DATA) else 1
        moment = self._clock.now()
        with self._lock:
            self._due_s = moment.monotonic_s + _LOOK_S
            busy = frozenset(self._in_hand)
        while True:
            batch = self._store.call(partial(self._next, limit, moment.wall_s, busy))
            if batch is None:
                return None
            with self._lock:
                if batch.id not in self._in_hand:
                    self._in_hand.add(batch.id)
                    # A full request says that more waits; else let company gather.
                    is_full = len(batch.items) >= min(limit, BATCH_MAX)
                    self._due_s = moment.monotonic_s + (0.0 if is_full else self._gather_s)
                    return batch
                busy = frozenset(self._in_hand)

    @staticmethod
    def _next(limit: int, now_s: float, busy: frozenset[int], store: GatewayStore) -> Batch | None:
        return store.readings.next_batch(limit, now_s, busy)

    def release(self, item: Batch) -> None:
        """The worker is done with the item, successful or not. See :class:`RequestSource`."""
        with self._lock:
            self._in_hand.discard(item.id)
            self._due_s = min(self._due_s, self._clock.now().monotonic_s + self._gather_s)

    def run(self, item: Batch) -> None:
        """Make the request and store its outcome. See :class:`RequestSource`."""
        if len(item.items) > 1 and not self._offer.offers(BATCH_SENSOR_DATA):
            # It was made for a service that took arrays; this one does not.
            self._store.call(lambda store: store.readings.split(item))
            return
        try:
            refused = self._send(item)
            self._note_taken(len(item.items))
        except (Refused, ServerFault) as error:
            is_content = isinstance(error, Refused) and judge_readings(error) is Disposition.SET_ASIDE
            is_array = len(item.items) > 1
            if is_array and not self._takes_arrays and (is_content or error.status in _NO_METHOD):
                self._array_refusal, self._taken_alone = str(error), 0
            elif not is_array:
                self._array_refusal = ""  # it was not for being an array
            elif not is_content:
                raise
            if is_array:
                # One of them is bad, or no array is taken, and none was stored: halve until each stands alone.
                self._store.call(lambda store: store.readings.split(item))
                return
            if not is_content:
                raise
            refused = {0: str(error)}
        except NotFound as error:
            refused = self._of_unknown_device(item, error)
        except (ValidationError, InvalidMessage) as error:
            text = describe_faults(error) if isinstance(error, ValidationError) else str(error)
            refused = {0: f"invalid_reading: {text}"}
        self._settle(item, refused)

    def _note_taken(self, count: int) -> None:
        """Readings were taken: alone after an array was refused, they show that the service takes no arrays."""
        if count > 1:
            self._takes_arrays, self._array_refusal = True, ""
        elif self._array_refusal:
            self._taken_alone += 1
            if self._taken_alone >= _ALONE_ENOUGH:
                self._offer.withdraw(BATCH_SENSOR_DATA, self._array_refusal)
                self._array_refusal = ""

    def _send(self, item: Batch) -> dict[int, str] | None:
        """What the service refused, by index; None when it does not say which."""
        key = item.key if self._offer.offers(IDEMPOTENCY_KEY) else None
        try:
            return self._send_under(key, item)
        except Refused as error:
            if key is None or error.error != KEY_REUSED:
                raise
        # Another body is stored under this key, so this one is not: it goes under a key of its own content.
        content = hashlib.sha256(json.dumps(item.items, sort_keys=True).encode()).hexdigest()[:16]
        return self._send_under(f"{key}-{content}", item)

    def _send_under(self, key: str | None, item: Batch) -> dict[int, str] | None:
        is_dated = self._offer.offers(RECORDED_AT)
        readings = [self._reading(body, is_dated=is_dated) for body in item.items]
        if len(readings) == 1:
            self._send_one(item, readings[0], key, is_dated=is_dated)
            return {}
        answer = self._client.post_sensor_data_batch(readings, idempotency_key=key)
        if answer.accepted + len(answer.errors) != len(readings):
            return None
        for fault in answer.errors:
            if fault.error == _NO_DEVICE:
                self._backend.set_known(readings[fault.index].device_id, known=False)
        return {fault.index: f"{fault.error}: {fault.message}".strip(": ") for fault in answer.errors}

    def _send_one(self, item: Batch, reading: PostSensorData, key: str | None, *, is_dated: bool) -> None:
        try:
            self._client.post_sensor_data(reading, idempotency_key=key)
        except Refused as error:
            if not is_dated or error.error == KEY_REUSED or judge_readings(error) is not Disposition.SET_ASIDE:
                raise
            # Its values may be what is wrong, or the member beyond the specification: without it one of them shows.
            plain = self._reading(item.items[0], is_dated=False)
            try:
                self._client.post_sensor_data(plain, idempotency_key=None if key is None else f"{key}-undated")
            except Refused:
                raise error from None
            self._offer.withdraw(RECORDED_AT, str(error))

    def _reading(self, body: JsonObject, *, is_dated: bool) -> PostSensorData:
        """The request's body, with the time of reading where the service takes it."""
        reading = PostSensorData.model_validate(body)
        if is_dated or reading.recorded_at is None:
            return reading
        values, name = reading.sensor_data, self._offer.dialect.recorded_at_reading
        if name is not None:
            values = {**values, name: parse_time(reading.recorded_at)}
        return PostSensorData(device_id=reading.device_id, sensor_data=values)

    def _settle(self, item: Batch, refused: dict[int, str] | None) -> None:
        if refused is None:
            # Asking in halves, and one by one in the end, loses none.
            self._store.call(lambda store: store.readings.split(item))
            return
        now_s = self._clock.now().wall_s
        self._store.call(lambda store: store.readings.batch_stored(item, refused, now_s))
        for reason in sorted(set(refused.values())):
            text = f"readings=refused the service will never take some and they are set aside: {reason}"
            self._gate.report(f"refused {reason.split(':', 1)[0]}", text)

    def _of_unknown_device(self, item: Batch, error: NotFound) -> dict[int, str]:
        """404 speaks of the address, or of a device that was removed: only the latter is the reading's own fault."""
        device_id = str(item.items[0].get("device_id", ""))
        if error.error == _NO_DEVICE and len(item.items) == 1:
            self._backend.set_known(device_id, known=False)
            return {0: str(error)}
        if len(item.items) == 1 and device_id in self._backend.unknown_devices():
            return {0: str(error)}
        # Others must not wait behind it.
        until_s = self._clock.now().wall_s + _DEFER_S
        self._store.call(lambda store: store.readings.defer(item, until_s))
        raise error
