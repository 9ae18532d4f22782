"""Readings and results on their way to the service: whoever waits here learns what became of his own.

Readings with a key go in a request of their own under it, so that a repeat counts once at the service, also when the
gateway was killed in between. Readings without one are collected from all devices into one array, for half a second or
until there are 500. What is waited for here is in memory and belongs to a device or to the broker until it is answered.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from agent.core.outbox import Disposition, judge_readings
from agent.errors import Conflict, ErrorAnswer, NoPlaceForResults, NotFound, Refused, ServiceError
from agent.runtime.failure_log import FailureLog
from agent.wire import extensions, paths
from agent.wire.base import JsonObject
from agent.wire.commands import CommandResult
from agent.wire.limits import BATCH_MAX
from agent.wire.sensor_data import BatchAnswer
from agent.wire.times import parse_time
from gateway.quota import Kind
from gateway.service import Service, Unavailable

_log = logging.getLogger(__name__)

Value = TypeVar("Value")

GATHER_S: Final = 0.5
WAITING_MAX: Final = 20_000
"""So many readings without a key wait at most; beyond it devices are asked to come again."""
_KNOWN_MAX: Final = 100_000
_NO_PLACE_S: Final = 30.0
_NO_DEVICE: Final = "device_not_found"
_NO_COMMAND: Final = "command_not_found"


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading as it came, checked by the front.

    Attributes:
        values: reading name -> finite number.
        recorded_at: RFC 3339 or epoch milliseconds, as the device sent it; None takes the time of arrival.
    """

    values: Mapping[str, float]
    recorded_at: str | int | None = None


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why the service will never take something.

    Attributes:
        error: a stable word in snake_case.
        message: a sentence.
        status: the service's, such as 400.
    """

    error: str
    message: str
    status: int = 400


@dataclass(slots=True)
class _Waiting:
    body: JsonObject
    done: asyncio.Future[Rejection | None] = field(repr=False)


class Uplink:
    """Hands over readings and results, for one event loop.

    Args:
        service: takes them.
        repeat_after_s: how soon the same refusal may be logged again, seconds.

    Attributes:
        counts: what happened, by name.
    """

    def __init__(self, service: Service, repeat_after_s: float = 300.0) -> None:
        self._service = service
        self._queues: dict[str, deque[_Waiting]] = {}
        self._count = 0
        self._is_full = asyncio.Event()
        # What is under way, and what this process has handed over: a repeat joins it, or is answered from it.
        self._under_way: dict[bytes, asyncio.Task[Any]] = {}
        self._stored: OrderedDict[bytes, None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure_log = FailureLog(_log, time.monotonic, repeat_after_s)
        self.counts: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """Readings and results that wait for the service's answer."""
        return self._count + len(self._under_way)

    # --- readings -----------------------------------------------------------------------------------------------------

    async def send_one(self, device_id: str, reading: Reading, key: str | None) -> Rejection | None:
        """Hand over one reading; None when the service has it.

        Args:
            device_id: whose.
            reading: the reading.
            key: the same at each repeat by this device; None when it gives none.

        Raises:
            ServiceError: it is not known whether the service has it: the device comes again.
        """
        if key is None:
            return await self._gather(device_id, reading)
        return await self._once(_digest("reading", device_id, key), self._post_one(device_id, reading, key))

    async def send_array(self, device_id: str, readings: Sequence[Reading], key: str | None) -> dict[int, Rejection]:
        """Hand over readings that came together; index -> why, for those that the service will never take.

        Raises:
            ServiceError: it is not known which of them the service has: the device comes again.
        """
        if not self._service.offers(extensions.BATCH_SENSOR_DATA):
            keys = [None if key is None else f"{key}/{index}" for index in range(len(readings))]
            return await self._one_by_one(device_id, readings, keys)
        if key is None:
            answers = await asyncio.gather(*(self._gather(device_id, each) for each in readings))
            return {index: each for index, each in enumerate(answers) if each is not None}
        digest = _digest("array", device_id, key)
        return await self._once(digest, self._post_array(device_id, readings, key)) or {}

    async def send_keyed(self, device_id: str, readings: Sequence[tuple[str, Reading]]) -> dict[str, Rejection | None]:
        """Hand over readings of one message, each with its key; key -> None when the service has it, or why not.

        The same keys together make the same array at the service, so that a repeated message counts once.

        Raises:
            ServiceError: it is not known which of them the service has: the device or the broker comes again.
        """
        left = [(key, each) for key, each in readings if _digest("reading", device_id, key) not in self._stored]
        found: dict[str, Rejection | None] = {key: None for key, _ in readings}
        if len(left) == 1 or not self._service.offers(extensions.BATCH_SENSOR_DATA):
            for key, each in left:
                rejection = await self.send_one(device_id, each, key)
                is_reused = rejection is not None and rejection.error == extensions.KEY_REUSED
                found[key] = None if is_reused else rejection
            return found
        if left:
            name = hashlib.sha256("\n".join(key for key, _ in left).encode()).hexdigest()
            try:
                refused = await self.send_array(device_id, [each for _, each in left], name)
            except Refused as error:
                if error.error != extensions.KEY_REUSED:
                    raise
                refused = {}  # it has them: only the time of reading that the device guesses is another one by now
            for index, (key, _) in enumerate(left):
                found[key] = refused.get(index)
                if index not in refused:
                    self._note_stored(_digest("reading", device_id, key))
        return found

    async def send_unkeyed(self, device_id: str, readings: list[Reading]) -> list[Rejection]:
        """Hand over readings without a key; each is taken out of the list once the service has it or refuses it.

        Raises:
            ServiceError: what is left in the list has to be tried again.
        """
        rejections: list[Rejection] = []
        while readings:
            if self._service.offers(extensions.BATCH_SENSOR_DATA):
                rejections += (await self.send_array(device_id, readings, None)).values()
                readings.clear()
            else:
                rejection = await self._post_one(device_id, readings[0], None)
                rejections += [] if rejection is None else [rejection]
                del readings[0]
        return rejections

    async def _one_by_one(
        self, device_id: str, readings: Sequence[Reading], keys: Sequence[str | None]
    ) -> dict[int, Rejection]:
        refused: dict[int, Rejection] = {}
        for index, (reading, key) in enumerate(zip(readings, keys, strict=True)):
            if key is None:
                rejection = await self._post_one(device_id, reading, None)
            else:
                rejection = await self.send_one(device_id, reading, key)
            if rejection is not None:
                refused[index] = rejection
        return refused

    async def _post_one(self, device_id: str, reading: Reading, key: str | None) -> Rejection | None:
        try:
            await self._post(self._body(device_id, reading), device_id, key)
        except ErrorAnswer as error:
            return self._rejection(error)
        self.counts["readings_stored"] += 1
        return None

    async def _post_array(self, device_id: str, readings: Sequence[Reading], key: str) -> dict[int, Rejection]:
        if len(readings) == 1:
            rejection = await self._post_one(device_id, readings[0], key)
            return {} if rejection is None else {0: rejection}
        try:
            found = await self._post_bodies([self._body(device_id, each) for each in readings], device_id, key)
        except ErrorAnswer as error:
            if error.error == extensions.KEY_REUSED:
                raise
            self._rejection(error)
            # None of them is stored, and one may be what was refused. The halves have keys that follow from the key.
            middle = len(readings) // 2
            found = await self._post_array(device_id, readings[:middle], f"{key}/0")
            rest = await self._post_array(device_id, readings[middle:], f"{key}/1")
            return found | {middle + index: each for index, each in rest.items()}
        self.counts["readings_stored"] += len(readings) - len(found)
        return found

    async def _post_bodies(self, bodies: list[JsonObject], device_id: str, key: str | None) -> dict[int, Rejection]:
        raw = await self._post(bodies, device_id, key)
        try:
            answer = BatchAnswer.model_validate(raw)
        except ValueError:
            return {}  # a 2xx whose body says nothing: all are stored
        if answer.accepted + len(answer.errors) != len(bodies):
            raise Unavailable("the service took an array and does not say which of its readings", GATHER_S)
        refused = {each.index: Rejection(each.error or "refused", each.message) for each in answer.errors}
        self.counts["readings_refused"] += len(refused)
        return refused

    async def _post(self, body: Any, device_id: str, key: str | None) -> Any:
        # All devices share the service's memory of keys: two of them may have thought of the same one.
        name = None if key is None else _digest("post", device_id, key).hex()
        headers = self._service.key_header(name)
        answer = await self._service.request("POST", paths.SENSOR_DATA, Kind.READINGS, body=body, headers=headers)
        return answer.json_or_none()

    def _body(self, device_id: str, reading: Reading) -> JsonObject:
        """The request's body, with the time of reading where the service takes it."""
        values, at = dict(reading.values), reading.recorded_at
        body: JsonObject = {"device_id": device_id, "sensor_data": values}
        if at is None:
            return body
        name = self._service.dialect.recorded_at_reading
        if self._service.offers(extensions.RECORDED_AT):
            body["recorded_at"] = at
        elif name is not None and name not in values:
            values[name] = round(parse_time(at), 3)
        return body

    # --- readings without a key ---------------------------------------------------------------------------------------

    async def _gather(self, device_id: str, reading: Reading) -> Rejection | None:
        if not self._service.offers(extensions.BATCH_SENSOR_DATA):
            return await self._post_one(device_id, reading, None)
        if self._count >= WAITING_MAX:
            raise Unavailable("too many readings wait at the gateway", 5.0)
        waiting = _Waiting(self._body(device_id, reading), asyncio.get_running_loop().create_future())
        self._queues.setdefault(device_id, deque()).append(waiting)
        self._count += 1
        if self._count == 1:
            self._start(self._flush())
        if self._count >= BATCH_MAX:
            self._is_full.set()
        return await waiting.done

    async def _flush(self) -> None:
        """Send what is collected, again and again until nothing is."""
        while self._count:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_full.wait(), GATHER_S)
            batch = self._take_batch()
            if self._count < BATCH_MAX:
                self._is_full.clear()
            self._start(self._send_gathered(batch))

    def _take_batch(self) -> list[_Waiting]:
        """Up to 500 readings, of each device in turn: one that sends very many holds up no other."""
        batch: list[_Waiting] = []
        while self._queues and len(batch) < BATCH_MAX:
            for device_id in list(self._queues):
                batch.append(self._queues[device_id].popleft())
                if not self._queues[device_id]:
                    del self._queues[device_id]
                if len(batch) == BATCH_MAX:
                    break
        self._count -= len(batch)
        return batch

    async def _send_gathered(self, batch: list[_Waiting]) -> None:
        try:
            if len(batch) == 1:
                await self._post(batch[0].body, "", None)
                refused: dict[int, Rejection] = {}
            else:
                refused = await self._post_bodies([each.body for each in batch], "", None)
            self.counts["readings_stored"] += len(batch) - len(refused)
            for index, each in enumerate(batch):
                _settle(each, refused.get(index))
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            try:
                rejection = self._rejection(error)
            except ServiceError as later:
                for each in batch:
                    if not each.done.done():
                        each.done.set_exception(later)
                return
            if len(batch) == 1:
                _settle(batch[0], rejection)
                return
            middle = len(batch) // 2  # none of them is stored, and one may be what was refused
            await self._send_gathered(batch[:middle])
            await self._send_gathered(batch[middle:])

    # --- results ------------------------------------------------------------------------------------------------------

    async def send_result(self, device_id: str, command_id: str, result: CommandResult) -> Rejection | None:
        """Hand over a result or progress; None when the service has it.

        Raises:
            ServiceError: it is not known whether the service has it: the device comes again.
        """
        digest = _digest("result", device_id, command_id, result.status)
        return await self._once(digest, self._report(device_id, command_id, result, digest.hex()))

    async def _report(self, device_id: str, command_id: str, result: CommandResult, key: str) -> Rejection | None:
        try:
            await self._service.report_result(device_id, command_id, result, key)
        except NoPlaceForResults as error:
            return self._refused(error)
        except NotFound as error:
            if error.error == _NO_COMMAND or error.error == _NO_DEVICE:
                return self._refused(error)
            raise Unavailable(f"the service has no place for results: {error}", _NO_PLACE_S) from None
        except (Refused, Conflict) as error:
            if result.result is None or result.status == "in_progress":
                return self._refused(error)
            # The result itself may be what it cannot take; how the command ended matters more.
            text = f"result_refused: {error}" if result.error is None else f"{result.error} (result refused: {error})"
            return await self._report(device_id, command_id, CommandResult(status=result.status, error=text), f"{key}-")
        self.counts["results_stored"] += 1
        return None

    # --- once ---------------------------------------------------------------------------------------------------------

    async def _once(self, digest: bytes, work: Coroutine[Any, Any, Value | None]) -> Value | None:
        """Do something under a key; a repeat while it is under way waits for it, one after it does nothing.

        The work goes on when whoever asked has gone: what was begun is finished, and its outcome is remembered.
        """
        task = self._under_way.get(digest)
        if task is not None or digest in self._stored:
            work.close()
            self.counts["repeats"] += 1
            if task is None:
                return None
        else:
            task = asyncio.ensure_future(work)
            self._under_way[digest] = task
            task.add_done_callback(lambda done: self._ended(digest, done))
        return await asyncio.shield(task)

    def _ended(self, digest: bytes, task: asyncio.Task[Any]) -> None:
        del self._under_way[digest]
        if not task.cancelled() and task.exception() is None and not task.result():
            self._note_stored(digest)

    def _note_stored(self, digest: bytes) -> None:
        self._stored[digest] = None
        if len(self._stored) > _KNOWN_MAX:
            self._stored.popitem(last=False)

    def _rejection(self, error: Exception) -> Rejection:
        """Why the service will never take it.

        Raises:
            ServiceError: it may take it later, or nobody knows.
        """
        if not isinstance(error, ErrorAnswer):
            raise error if isinstance(error, ServiceError) else Unavailable(f"a fault of the gateway: {error!r}", 30.0)
        if isinstance(error, NotFound) and error.error != _NO_DEVICE:
            raise Unavailable(f"the service has no place for readings: {error}", _NO_PLACE_S)  # the address is wrong
        if judge_readings(error) is not Disposition.SET_ASIDE and not isinstance(error, NotFound):
            raise error
        return self._refused(error)

    def _refused(self, error: ErrorAnswer) -> Rejection:
        self.counts["refused"] += 1
        text = f"uplink=refused the service will never take it: {error}"
        self._failure_log.report(f"refused {error.status} {error.error}", text)
        return Rejection(error.error or "refused", error.message or str(error), error.status)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _settle(waiting: _Waiting, rejection: Rejection | None) -> None:
    if not waiting.done.done():
        waiting.done.set_result(rejection)


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()[:16]
