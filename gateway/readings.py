"""Readings and results on their way to the service: each caller waits, and learns what happened to its own.

Readings of all devices are collected into one array, for half a second or until there are 500. Each carries a key that
is derived from its device's id and key, so that a repeat counts once, also when the gateway was killed in between. A
service that takes an idempotency key for a request only gets each reading with a key in a request of its own. What
waits here is in memory; its device, or the broker, keeps it until it is settled.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from agent.core.outbox import is_refused_for_good
from agent.errors import Conflict, ErrorAnswer, NoPlaceForResults, NotFound, Refused
from agent.health import REPEAT_AFTER_S, FailureLog
from agent.wire import paths
from agent.wire.encoding import parse_time
from agent.wire.limits import BATCH_MAX
from agent.wire.models import BatchAnswer, CommandResult, JsonObject
from agent.wire.server import BATCH_SENSOR_DATA, IDEMPOTENCY_KEY, KEY_REUSED, READING_KEYS, RECORDED_AT
from gateway.quota import Kind
from gateway.service import Service, Unavailable

_log = logging.getLogger(__name__)

Value = TypeVar("Value")

GATHER_S: Final = 0.5
WAITING_MAX: Final = 20_000
"""Most readings that wait for the next array; beyond it a device is answered 503 with ``Retry-After``."""
_STORED_KEYS_MAX: Final = 100_000
_NO_PLACE_S: Final = 30.0
_NO_DEVICE: Final = "device_not_found"
_NO_COMMAND: Final = "command_not_found"


@dataclass(slots=True, eq=False)
class Reading:
    """One reading, checked by the front, and what became of it.

    Attributes:
        values: reading name -> finite number.
        recorded_at: RFC 3339 or epoch milliseconds, as the device sent it; None takes the time of arrival.
        key: the same at each repeat by this device; None where it gives none.
        is_settled: the service has it, or will never take it.
        rejection: why it will not.
    """

    device_id: str
    values: Mapping[str, float]
    recorded_at: str | int | None = None
    key: str | None = None
    is_settled: bool = False
    rejection: Refused | None = None

    def settle(self, rejection: Refused | None = None) -> None:
        """The service has it, or never will."""
        self.is_settled, self.rejection = True, rejection


class Uplink:
    """Hands over readings and results, for one event loop.

    Args:
        service: takes them.

    Attributes:
        counts: what happened, by name.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._queues: dict[str, deque[tuple[Reading, asyncio.Future[None]]]] = {}
        self._queued = 0
        self._is_full = asyncio.Event()
        # What is being sent, and what this process has sent: a repeat waits for the one, or is answered from the other.
        self._under_way: dict[bytes, asyncio.Task[Any]] = {}
        self._stored: OrderedDict[bytes, None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure_log = FailureLog(_log, time.monotonic, REPEAT_AFTER_S)
        self.counts: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """Readings and results that wait for the service's answer."""
        return self._queued + len(self._under_way)

    # --- readings -----------------------------------------------------------------------------------------------------

    async def send(self, readings: Sequence[Reading]) -> None:
        """Hand over readings of one device that came together; each is settled as soon as its fate is known.

        Raises:
            ServiceError: the fate of those that are not settled is unknown; they are sent again later.
        """
        left = [each for each in readings if not each.is_settled and not self._is_stored(each)]
        if self._service.offers(BATCH_SENSOR_DATA):
            array_drops_keys = self._service.offers(IDEMPOTENCY_KEY) and not self._has_reading_keys()
            await asyncio.gather(
                *(self._send_batched(each) for each in left if each.key is None or not array_drops_keys)
            )
        for each in left:
            if each.is_settled:
                continue
            if each.key is None:
                await self._post([each])
            else:
                # If one with this key is being sent already, its outcome counts for this one.
                [sent] = await self._join(_digest_of(each), self._post([each]))
                each.settle(sent.rejection)

    def _has_reading_keys(self) -> bool:
        """Whether each reading of an array may carry a key; else one with a key goes in a request of its own."""
        offers = self._service.offers
        return offers(BATCH_SENSOR_DATA) and offers(READING_KEYS)

    def _is_stored(self, reading: Reading) -> bool:
        """Whether this process has handed over a reading with this key, which settles it."""
        if reading.key is None or _digest_of(reading) not in self._stored:
            return False
        self.counts["repeats"] += 1
        reading.settle()
        return True

    async def _post(self, readings: list[Reading]) -> list[Reading]:
        """Hand over readings in one request, or in halves where the service refuses the whole. All are settled."""
        first = readings[0]
        key = None if first.key is None or self._has_reading_keys() else _digest_of(first).hex()
        bodies = [self._body(each) for each in readings]
        try:
            refused = await self._request(bodies, key)
        except ErrorAnswer as error:
            _raise_unless_final(error)
            if len(readings) > 1 and error.error != KEY_REUSED:
                # None of them is stored, but perhaps only one is bad.
                middle = len(readings) // 2
                return await self._post(readings[:middle]) + await self._post(readings[middle:])
            refused = dict.fromkeys(range(len(readings)), self._refused("readings", error))
        for index, each in enumerate(readings):
            each.settle(refused.get(index))
            if each.key is not None and index not in refused:
                self._note_stored(_digest_of(each))
        self.counts["readings_stored"] += len(readings) - len(refused)
        self.counts["readings_refused"] += len(refused)
        return readings

    async def _request(self, bodies: list[JsonObject], key: str | None) -> dict[int, Refused]:
        """Make one request; for each refused reading: its index -> why."""
        is_array = len(bodies) > 1 or "idempotency_key" in bodies[0]
        body = bodies if is_array else bodies[0]
        headers = self._service.key_header(key)
        answer = await self._service.request("POST", paths.SENSOR_DATA, Kind.READINGS, body=body, headers=headers)
        try:
            said = BatchAnswer.model_validate(answer.json_or_none() if is_array else None)
        except ValueError:
            return {}  # a 2xx whose body says nothing: all are stored
        if said.accepted + len(said.errors) != len(bodies):
            raise Unavailable("the service took an array and does not say which of its readings it stored", GATHER_S)
        return {each.index: Refused(400, each.error or "refused", each.message) for each in said.errors}

    def _body(self, reading: Reading) -> JsonObject:
        """The request's body, with the time of reading where the service takes it."""
        values, at = dict(reading.values), reading.recorded_at
        body: JsonObject = {"device_id": reading.device_id, "sensor_data": values}
        name = self._service.dialect.recorded_at_reading
        if at is not None and self._service.offers(RECORDED_AT):
            body["recorded_at"] = at
        elif at is not None and name is not None and name not in values:
            values[name] = round(parse_time(at), 3)
        if reading.key is not None and self._has_reading_keys():
            body["idempotency_key"] = _digest_of(reading).hex()
        return body

    # --- readings of all devices together -----------------------------------------------------------------------------

    async def _send_batched(self, reading: Reading) -> None:
        """Hand over a reading together with those of other devices."""
        self._service.raise_if_away()
        if self._queued >= WAITING_MAX:
            raise Unavailable("too many readings wait at the gateway", 5.0)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(reading.device_id, deque()).append((reading, done))
        self._queued += 1
        if self._queued == 1:
            self._start(self._flush())
        if self._queued >= BATCH_MAX:
            self._is_full.set()
        await done

    async def _flush(self) -> None:
        """Send what is collected, again and again until nothing is."""
        while self._queued:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_full.wait(), GATHER_S)
            self._start(self._send_batch(self._take_batch()))
            if self._queued < BATCH_MAX:
                self._is_full.clear()

    def _take_batch(self) -> list[tuple[Reading, asyncio.Future[None]]]:
        """Up to 500 readings, of each device in turn: one that sends very many holds up no other."""
        batch: list[tuple[Reading, asyncio.Future[None]]] = []
        while self._queues and len(batch) < BATCH_MAX:
            for device_id in list(self._queues)[: BATCH_MAX - len(batch)]:
                batch.append(self._queues[device_id].popleft())
                if not self._queues[device_id]:
                    del self._queues[device_id]
        self._queued -= len(batch)
        return batch

    async def _send_batch(self, batch: list[tuple[Reading, asyncio.Future[None]]]) -> None:
        trouble: Exception = Unavailable("the readings were not handed over", GATHER_S)
        try:
            await self._post([reading for reading, _ in batch])
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            trouble = error
        for reading, done in batch:
            if done.done():
                continue
            if reading.is_settled:
                done.set_result(None)
            else:
                done.set_exception(trouble)

    # --- results ------------------------------------------------------------------------------------------------------

    async def send_result(self, device_id: str, command_id: str, result: CommandResult) -> None:
        """Hand over a result or progress.

        Raises:
            Refused: the service will never take it.
            ServiceError: it is not known whether the service has it: the device sends it again later.
        """
        name = _digest("result", device_id, command_id, result.status)
        if name in self._stored:
            self.counts["repeats"] += 1
            return
        await self._join(name, self._report(device_id, command_id, result, name.hex()))
        self._note_stored(name)

    async def _report(self, device_id: str, command_id: str, result: CommandResult, key: str) -> None:
        try:
            await self._service.report_result(device_id, command_id, result, key)
        except NoPlaceForResults as error:
            raise self._refused_result(error) from None
        except NotFound as error:
            if error.error in {_NO_COMMAND, _NO_DEVICE}:
                raise self._refused_result(error) from None
            raise Unavailable(f"the service has no place for results: {error}", _NO_PLACE_S) from None
        except (Refused, Conflict) as error:
            if result.result is None or result.status == "in_progress":
                raise self._refused_result(error) from None
            # Perhaps the service refuses the content only; so report at least how the command ended.
            text = f"result_refused: {error}" if result.error is None else f"{result.error} (result refused: {error})"
            bare = CommandResult(status=result.status, error=text)
            await self._report(device_id, command_id, bare, f"{key}-")
        else:
            self.counts["results_stored"] += 1

    def _refused_result(self, error: ErrorAnswer) -> Refused:
        self.counts["results_refused"] += 1
        return self._refused("results", error)

    # --- once ---------------------------------------------------------------------------------------------------------

    async def _join(self, name: bytes, work: Coroutine[Any, Any, Value]) -> Value:
        """Do this work, or wait for it when it is being done already; it goes on even if the caller is cancelled."""
        task = self._under_way.get(name)
        if task is None:
            task = self._under_way[name] = asyncio.ensure_future(work)
            task.add_done_callback(lambda _done: self._under_way.pop(name))
        else:
            work.close()
            self.counts["repeats"] += 1
        value: Value = await asyncio.shield(task)
        return value

    def _note_stored(self, name: bytes) -> None:
        self._stored[name] = None
        if len(self._stored) > _STORED_KEYS_MAX:
            self._stored.popitem(last=False)

    def _refused(self, what: str, error: ErrorAnswer) -> Refused:
        """Log that the service will never take it, and say why."""
        text = f"{what}=refused the service will never take them: {error}"
        self._failure_log.report(f"refused {error.status} {error.error}", text)
        return Refused(error.status, error.error or "refused", error.message or str(error))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _raise_unless_final(error: ErrorAnswer) -> None:
    """Raise the error again, unless it says that the service will never take these readings.

    Raises:
        ServiceError: it may take them later, or this is not known.
    """
    if isinstance(error, NotFound):
        if error.error != _NO_DEVICE:  # the address is wrong
            raise Unavailable(f"the service has no place for readings: {error}", _NO_PLACE_S)
    elif not is_refused_for_good(error):
        raise error


def _digest_of(reading: Reading) -> bytes:
    """Names a reading by its device and key; the service's memory of keys is shared by all devices."""
    return _digest("readings", reading.device_id, reading.key or "")


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()[:16]
