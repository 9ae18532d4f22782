"""The device paths of the specification as a plain ASGI application in front of the backend.

Order of checks, as on the service: who is it, how much may it ask, which path, what is in it. A token opens the paths
of its own device; for any other id the answer is the one for an id that does not exist, so that it reveals none.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from agent.core.values import JsonObject
from agent.errors import StorageError
from agent.runtime.failure_log import FailureLog
from agent.wire import extensions
from agent.wire.base import describe_faults
from agent.wire.command_states import OPEN
from agent.wire.commands import CommandResult
from agent.wire.instances import CONFLICT_HEADER, INSTANCE_HEADER, InstanceWatch
from agent.wire.limits import BATCH_MAX
from agent.wire.sensor_data import PostSensorData
from agent.wire.times import parse_time, to_rfc3339
from gateway.core.rate_limit import RateLimitByKey
from gateway.devices.tokens import looks_like_token
from gateway.http.answers import (
    CallerGone,
    Fault,
    Header,
    HttpAnswer,
    invalid,
    later,
    not_found,
    ok,
    send_answer,
)
from gateway.http.enrollment import Enrollment
from gateway.http.lists import PARAMETERS, ListQuery
from gateway.http.requests import BODY_S, HttpRequest, check
from gateway.ports import (
    CommandTexts,
    DeviceBackend,
    NewReading,
    StoreFull,
    TokenCheck,
    Transport,
    UnknownCommand,
    UnknownDevice,
)

_log = logging.getLogger(__name__)

Value = TypeVar("Value")
Endpoint = Callable[[HttpRequest], Awaitable[HttpAnswer]]

OFFERED: Final = (
    extensions.LONG_POLL,
    extensions.COMMAND_RESULTS,
    extensions.BATCH_SENSOR_DATA,
    extensions.IDEMPOTENCY_KEY,
    extensions.COMMAND_STATUS,
    extensions.RECORDED_AT,
)
"""What a device finds in the discovery document. ``command-events`` is for callers, not for devices."""

AT_ONCE: Final = 8
"""Requests of one device that may be under way: one poll and some more."""

_STORE_S: Final = 20.0
_SWEEP_S: Final = 1.0
# How long a new token may take from the command that issued it to the running gateway; so many may wait at once.
_LATE_S: Final = 0.3
_LATE_LOOKS: Final = 4
_STRANGERS_MAX: Final = 200
_COMPLAIN_EVERY_S: Final = 300.0
_CHALLENGE: Final[Header] = (b"www-authenticate", b'Bearer realm="device-gateway"')
_BAD_TOKEN: Final[Header] = (b"www-authenticate", b'Bearer realm="device-gateway", error="invalid_token"')


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one device's requests.

    Attributes:
        requests_per_minute: 0 counts nothing.
        body_s: how long a body may take, seconds.
    """

    requests_per_minute: int = 600
    body_s: float = BODY_S


class GatewayApp:
    """The ASGI application of the gateway's HTTP side.

    Args:
        backend: takes and gives what devices send and get.
        tokens: says whose token it is.
        limits: what one device may ask.
        enrollment: takes devices with a code; None where there is none.
        wall: epoch seconds, for ``Date`` and for when a reading came.
        monotonic: seconds on the monotonic clock.
    """

    def __init__(
        self,
        backend: DeviceBackend,
        tokens: TokenCheck,
        limits: Limits | None = None,
        *,
        enrollment: Enrollment | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._enrollment = enrollment
        self._tokens = tokens
        self._limits = limits or Limits()
        self._rate = RateLimitByKey(self._limits.requests_per_minute, AT_ONCE, monotonic)
        self._wall = wall
        self._monotonic = monotonic
        self._instances = InstanceWatch()
        self._failure_log = FailureLog(_log, monotonic, _COMPLAIN_EVERY_S)
        # Held polls, with the token of each.
        self._waiting: dict[asyncio.Event, str] = {}
        self._sweeping = False
        self._unrecorded_commands = 0
        self._closing = False
        self.counts: Counter[str] = Counter()

    def release(self) -> None:
        """The front ends: held polls are answered now. Called on the event loop."""
        self._closing = True
        for event in self._waiting:
            event.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            raise RuntimeError("the gateway's front speaks HTTP only")
        request = HttpRequest(scope, receive, self._limits.body_s)
        self.counts["requests"] += 1
        try:
            answer = await self._answer(request)
        except CallerGone:
            return
        except Fault as fault:
            self._log_fault(request, fault)
            answer = fault.answer()
        except Exception:  # noqa: BLE001 - one request never ends the front; the log has the traceback
            _log.exception("http=failed %s %s", request.method, scope["path"])
            self.counts["internal_error"] += 1
            answer = Fault(500, "internal_error", "The gateway failed on this request; its log says why.").answer()
        await send_answer(send, answer, request.request_id, self._wall())

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        if request.segments == [".well-known", "device-service"]:
            if request.method not in {"GET", "HEAD"}:
                raise _not_allowed("GET, HEAD")
            return ok({"extensions": list(OFFERED)})
        if self._enrollment is not None and request.segments == ["enroll"]:
            return await self._enrollment.answer(request)
        await self._wait_for_new_token(request)
        request.device_id = device_id = self._authenticate(request)
        wait_s = self._rate.begin(device_id)
        if wait_s:
            text = "This device asks more often than the gateway lets it; wait as Retry-After says."
            raise later(429, "rate_limit_exceeded", text, wait_s)
        try:
            endpoint = self._route(request)
            self._backend.seen(device_id, Transport.HTTP)
            return await endpoint(request)
        except UnknownDevice:
            raise not_found("device", device_id) from None
        except StoreFull as error:
            raise later(503, "gateway_full", f"The gateway's store is full: {error}", error.retry_after_s) from None
        except StorageError as error:
            raise later(503, "storage_unavailable", f"The gateway could not store this: {error}", 30) from None
        finally:
            self._rate.end(device_id)

    async def _wait_for_new_token(self, request: HttpRequest) -> None:
        """A token that was issued this very moment is known in a moment; a guessed token makes no wait."""
        token = request.bearer() or ""
        if self._tokens.device_of(token) is not None or not looks_like_token(token):
            return
        if self._unrecorded_commands >= _STRANGERS_MAX:
            return
        self._unrecorded_commands += 1
        try:
            for _ in range(_LATE_LOOKS):
                await asyncio.sleep(_LATE_S)
                if self._tokens.device_of(token) is not None or self._closing:
                    return
        finally:
            self._unrecorded_commands -= 1

    def _authenticate(self, request: HttpRequest) -> str:
        token = request.bearer()
        if token is None:
            text = "Send Authorization: Bearer with the device token that device-gateway devices add gave out."
            if b"x-secret-key" in request.headers:
                text = f"The gateway takes no key pair, and a device should have none. {text}"
            raise Fault(401, "missing_token", text, headers=(_CHALLENGE,))
        device_id = self._tokens.device_of(token)
        if device_id is None:
            text = "This device token is unknown, revoked or over; ask for a new one."
            raise Fault(401, "invalid_token", text, headers=(_BAD_TOKEN,))
        return device_id

    def _route(self, request: HttpRequest) -> Endpoint:
        match request.segments:
            case ["sensor-data"]:
                endpoints: dict[str, Endpoint] = {"POST": self._post_sensor_data}
            case ["devices", _, "commands"]:
                endpoints = {"GET": self._list_commands, "HEAD": self._list_commands}
            case ["devices", _, "commands", command] if command:
                endpoints = {"GET": self._show_command, "HEAD": self._show_command}
            case ["devices", _, "commands", command, "result"] if command:
                endpoints = {"POST": self._report_result}
            case _:
                raise Fault(404, "not_found", "The gateway has no such path: it serves the paths of devices only.")
        endpoint = endpoints.get(request.method)
        if endpoint is None:
            raise _not_allowed(", ".join(endpoints))
        if request.segments[0] == "devices":
            self._check_own(request, request.id_at(1))
        return endpoint

    def _check_own(self, request: HttpRequest, device_id: str) -> None:
        if device_id != request.device_id:
            self._log_foreign(request, device_id)
            raise not_found("device", device_id)

    # --- commands -------------------------------------------------------------------------------------------------

    async def _list_commands(self, request: HttpRequest) -> HttpAnswer:
        asks = request.headers.get(INSTANCE_HEADER.lower().encode(), b"").decode("latin-1")
        conflict = self._instances.saw(request.device_id, asks, self._monotonic())
        answer = await self._list_commands_as_asked(request)
        if conflict is None:
            return answer
        return replace(answer, headers=(*answer.headers, (CONFLICT_HEADER.lower().encode(), conflict.encode())))

    async def _list_commands_as_asked(self, request: HttpRequest) -> HttpAnswer:
        query = request.query(PARAMETERS)
        chosen = ListQuery.read(query)
        known = request.known_tags()
        loop = asyncio.get_running_loop()
        until = loop.time() + chosen.wait_s
        changed = asyncio.Event()

        def on_change() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
                loop.call_soon_threadsafe(changed.set)

        # Watch first, then read: no change falls in between.
        end_watch = self._backend.watch(request.device_id, on_change) if chosen.wait_s else None
        self._wait(changed, request)
        try:
            while True:
                changed.clear()
                answer = await self._listed(request, chosen)
                if answer.headers[0][1] not in known and b"*" not in known:
                    return answer
                left_s = until - loop.time()
                if left_s <= 0 or self._closing:
                    return HttpAnswer(304, b"", answer.headers[:1])
                if not await _hold(changed, request.receive, left_s):
                    raise CallerGone
                self._authenticate(request)
        finally:
            self._waiting.pop(changed, None)
            if end_watch is not None:
                end_watch()

    def _wait(self, changed: asyncio.Event, request: HttpRequest) -> None:
        self._waiting[changed] = request.bearer() or ""
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """A token that is revoked ends the polls that it holds."""
        # First, so that nothing that is raised below ends it.
        self._sweeping = bool(self._waiting) and not self._closing
        if self._sweeping:
            asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        for changed, token in self._waiting.items():
            if self._tokens.device_of(token) is None:
                changed.set()

    async def _listed(self, request: HttpRequest, chosen: ListQuery) -> HttpAnswer:
        device_id = request.device_id
        if chosen.status == OPEN:
            now = self._backend.open_commands(device_id)
            records = now.records if chosen.ascending else now.records[::-1]
            tag = now.version.encode()
        else:
            texts = await _stored(self._backend.commands_of(device_id))
            # Neither the store nor the other devices wait while they are decoded.
            return await asyncio.to_thread(_stored_page, device_id, chosen, texts)
        return _page(device_id, chosen, records, tag)

    async def _show_command(self, request: HttpRequest) -> HttpAnswer:
        request.query(frozenset())
        command_id = request.id_at(3)
        for record in (await _stored(self._backend.command_of(request.device_id, command_id))).records():
            return ok(record)
        raise not_found("command", command_id)

    async def _report_result(self, request: HttpRequest) -> HttpAnswer:
        request.query(frozenset())
        result = check(CommandResult, await request.json())
        command_id = request.id_at(3)
        try:
            return ok(await _stored(self._backend.take_result(request.device_id, command_id, result)))
        except UnknownCommand:
            raise not_found("command", command_id) from None

    # --- readings -------------------------------------------------------------------------------------------------

    async def _post_sensor_data(self, request: HttpRequest) -> HttpAnswer:
        request.query(frozenset())
        key = request.idempotency_key()
        value = await request.json()
        if isinstance(value, list):
            return await self._post_batch(request, value, key)
        message = check(PostSensorData, value)
        self._check_own(request, message.device_id)
        reading = _reading(message, key)
        await _stored(self._backend.take_readings(request.device_id, [reading]))
        now_s = self._wall()
        record = {
            "device_id": message.device_id,
            "sensor_data": message.sensor_data,
            "recorded_at": to_rfc3339(now_s if reading.recorded_at is None else reading.recorded_at),
            "received_at": to_rfc3339(now_s),
        }
        return ok(record, status=201)

    async def _post_batch(self, request: HttpRequest, values: list[Any], key: str | None) -> HttpAnswer:
        """Each reading by itself: one that is refused hides none of the others."""
        if not 0 < len(values) <= BATCH_MAX:
            raise invalid("body", f"an array must hold 1 to {BATCH_MAX} readings; this one holds {len(values)}")
        good: list[NewReading] = []
        refused: list[dict[str, Any]] = []
        for index, value in enumerate(values):
            try:
                message = PostSensorData.model_validate(value)
                self._check_own(request, message.device_id)
            except ValidationError as error:
                refused.append({"index": index, "error": "validation_error", "message": describe_faults(error)})
            except Fault as fault:
                refused.append({"index": index, "error": fault.error, "message": fault.message})
            else:
                good.append(_reading(message, None if key is None else _key_of_item(key, index)))
        if good:
            await _stored(self._backend.take_readings(request.device_id, good))
        self.counts["refused_readings"] += len(refused)
        return ok({"accepted": len(good), "errors": refused})

    # --- what the log says ----------------------------------------------------------------------------------------

    def _log_fault(self, request: HttpRequest, fault: Fault) -> None:
        """One line for each kind of gate and device, not one for each request."""
        self.counts[fault.error] += 1
        who = f"device {request.device_id}" if request.device_id else f"a caller from {request.client}"
        text = f"http=refused {who}: {fault.status} {fault.error}: {fault.message}"
        # Parts of it come from the device: they must not end the line or colour the terminal.
        text = "".join(character if character.isprintable() else "?" for character in text)
        self._failure_log.report(f"{fault.error} {who}", text)

    def _log_foreign(self, request: HttpRequest, device_id: str) -> None:
        self.counts["foreign_device"] += 1
        text = f"http=foreign device {request.device_id} used its token for device {device_id[:80]!r}: refused"
        self._failure_log.report(f"foreign {request.device_id}", text)


def _stored_page(device_id: str, chosen: ListQuery, texts: CommandTexts) -> HttpAnswer:
    records = texts.records()
    if chosen.status is not None:
        records = tuple(record for record in records if record.get("status") == chosen.status)
    return _page(device_id, chosen, records[::-1] if chosen.ascending else records, b"")


def _page(device_id: str, chosen: ListQuery, records: Sequence[JsonObject], tag: bytes) -> HttpAnswer:
    """A page of these records; the whole list, oldest first, has the tag, if it has one."""
    page, cursor = chosen.page(records)
    answer = ok({"data": page, "next_cursor": cursor, "has_more": cursor is not None})
    if not tag or len(page) < len(records) or not chosen.ascending:
        tag = hashlib.blake2b(answer.body, digest_size=12).hexdigest().encode()
    headers: list[Header] = [(b"etag", b'"%s"' % tag)]
    if cursor is not None:
        headers.append((b"link", chosen.next_link(device_id, cursor)))
    return HttpAnswer(200, answer.body, tuple(headers))


def _key_of_item(key: str, index: int) -> str:
    """The key of one reading of an array. ``KEY+30`` is the rest of array ``KEY`` from its reading number 30 on."""
    whole, plus, begins_at = key.rpartition("+")
    if plus and begins_at.isascii() and begins_at.isdigit():
        return f"{whole}/{int(begins_at) + index}"
    return f"{key}/{index}"


def _reading(message: PostSensorData, key: str | None) -> NewReading:
    at = message.recorded_at
    return NewReading(message.sensor_data, None if at is None else parse_time(at), key)


def _not_allowed(allow: str) -> Fault:
    return Fault(405, "method_not_allowed", f"This path has: {allow}.", headers=((b"allow", allow.encode()),))


async def _stored(future: Future[Value]) -> Value:
    """The backend's result, once the data is on the disk.

    A wait that is given up ends nothing in the backend: what is stored late is stored once, when the device comes again
    with the same key.
    """
    waited = asyncio.wrap_future(future)
    done, _ = await asyncio.wait({waited}, timeout=_STORE_S)
    if not done:
        waited.add_done_callback(
            lambda late: late.cancelled() or late.exception()
        )  # looked at, so asyncio does not warn
        raise StorageError(f"its disk did not answer within {_STORE_S:g} s")
    return waited.result()


async def _hold(changed: asyncio.Event, receive: Receive, timeout_s: float) -> bool:
    """Wait for the change, but not longer than the caller stays connected; False when it has gone."""
    change = asyncio.ensure_future(changed.wait())
    gone = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({change, gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return not gone.done()
    finally:
        for task in (change, gone):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
