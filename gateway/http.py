"""The HTTP front: the device paths of the specification. It passes on, and answers when the service has answered.

Order of checks, as on the service: token, limit, path, body. A token opens the paths
of its own device; any other id is answered like one that does not exist, so that nobody learns which ids exist.
Nothing of a body is read before the token is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from agent.errors import (
    AgentError,
    ConfigurationError,
    ErrorAnswer,
    InvalidMessage,
    NotFound,
    RateLimited,
    Refused,
    ServiceError,
)
from agent.health import REPEAT_AFTER_S, FailureLog
from agent.wire.encoding import parse_json, to_rfc3339
from agent.wire.instances import CONFLICT_HEADER, INSTANCE_HEADER, InstanceWatch
from agent.wire.limits import BATCH_MAX, BODY_BYTES, LONG_POLL_MAX_S
from agent.wire.models import OPEN, CommandResult, CommandStatus, PostSensorData, describe_faults, list_faults
from agent.wire.server import (
    BATCH_SENSOR_DATA,
    COMMAND_RESULTS,
    COMMAND_STATUS,
    IDEMPOTENCY_KEY,
    KEY_REUSED,
    LONG_POLL,
    RECORDED_AT,
)
from gateway.codes import Codes, EnrollmentRequest, enroll
from gateway.commands import Commands, tag_of
from gateway.config import HttpConfig
from gateway.readings import Reading, Uplink
from gateway.service import Service, Unavailable
from gateway.tokens import Tokens

_log = logging.getLogger(__name__)

Model = TypeVar("Model", bound=BaseModel)

BODY_S: Final = 30.0
"""How long the body of a request may take."""
ENROLL_BYTES: Final = 4_096
ENROLL_S: Final = 5.0
"""The same for ``/enroll``, which needs no token."""
AT_ONCE: Final = 8
"""Requests of one device at the same time: one held poll and some more."""
ENROLL_TRIES: Final = 30
"""Tries in a minute with one code, and tries with unknown codes from one address."""
_KEY_CHARACTERS: Final = 255
_TOO_MANY: Final = "too_many_requests"
"""One caller is over the gateway's own limit; ``rate_limit_exceeded`` is the quota at the service."""
_FAULTS_SHOWN: Final = 5
_OWN: Final = frozenset({LONG_POLL, COMMAND_RESULTS, COMMAND_STATUS})
_OF_THE_SERVICE: Final = frozenset({BATCH_SENSOR_DATA, IDEMPOTENCY_KEY, RECORDED_AT})


class ListQuery(BaseModel):
    """The query of a device's list of commands. An unknown member is refused: a misspelt filter would look applied."""

    model_config = ConfigDict(extra="forbid")

    status: Literal["open"] | CommandStatus | None = None
    wait: Annotated[float, Field(ge=0, le=LONG_POLL_MAX_S)] = 0.0


class Fault(HTTPException):
    """A request that is not carried out.

    Args:
        status: of the answer.
        error: the stable word in snake_case in the body; also what the front counts it under.
        message: a person's sentence.
        details: (field, issue) of each fault of a body or a query.
        headers: of the answer.
    """

    def __init__(
        self,
        status: int,
        error: str,
        message: str,
        *,
        details: list[tuple[str, str]] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.error = error
        self.details = details or []

    def answer(self) -> Response:
        """The error body (specification, "Error body")."""
        body: dict[str, Any] = {"error": self.error, "message": self.detail}
        if self.details:
            body["details"] = [{"field": field, "issue": issue} for field, issue in self.details]
        return JSONResponse(body, self.status_code, self.headers)


def _invalid(*details: tuple[str, str]) -> Fault:
    message = "; ".join(f"{field}: {issue}" for field, issue in details[:_FAULTS_SHOWN])
    if len(details) > _FAULTS_SHOWN:
        message += f"; and {len(details) - _FAULTS_SHOWN} more"
    return Fault(400, "validation_error", message, details=list(details[:50]))


def _later(status: int, error: str, message: str, retry_after_s: float | None) -> Fault:
    return Fault(status, error, message, headers={"Retry-After": str(max(1, math.ceil(retry_after_s or 5.0)))})


def _fault_of(error: Exception) -> Fault:
    """The answer to a request that failed by this error."""
    match error:
        case Fault():
            return error
        case HTTPException() if error.status_code == 404:
            return Fault(404, "not_found", "The gateway has no such path: it serves the paths of devices only.")
        case HTTPException():
            headers = dict(error.headers or {})
            text = f"This path has: {headers.get('Allow', 'no such method')}."
            return Fault(error.status_code, "method_not_allowed", text, headers=headers)
        case RateLimited():
            text = "The service's quota for all devices together is used up; wait as Retry-After says."
            return _later(429, "rate_limit_exceeded", text, error.retry_after_s)
        case Unavailable():
            return _later(503, "service_unavailable", f"The service cannot take this now: {error}", error.retry_after_s)
        case NotFound() | Refused():
            return Fault(error.status, error.error or "refused", error.message or str(error))
        case ErrorAnswer() if error.status == 409:
            return _later(409, error.error, error.message, error.retry_after_s or 1.0)
        case ServiceError():
            return _later(503, "service_unavailable", f"The service failed on this: {error}", None)
        case sqlite3.Error() | ConfigurationError() | OSError():
            return _later(503, "storage_unavailable", f"The gateway's files cannot be used: {error}", None)
    _log.error("http=failed a fault of the program: report this as a bug", exc_info=error)
    return Fault(500, "internal_error", "The gateway failed on this request; its log says why.")


@dataclass(eq=False, slots=True)
class RequestLimit:
    """The gateway's own limit, beside the quota at the service: requests of a caller in a minute, and at the same time.

    Attributes:
        per_minute: 0 counts nothing.
        at_once: under way at the same time.
        monotonic: seconds on the monotonic clock.
    """

    per_minute: int
    at_once: int
    monotonic: Callable[[], float] = time.monotonic
    _until_s: dict[str, float] = field(default_factory=dict)  # when the key's bucket is full again
    _under_way: Counter[str] = field(default_factory=Counter)

    def begin(self, key: str) -> float:
        """Seconds until the key may ask again; with 0 the request is counted, and :meth:`end` follows."""
        now_s = self.monotonic()
        if self._under_way[key] >= self.at_once:
            return 1.0
        if self.per_minute:
            until_s = max(now_s, self._until_s.get(key, 0.0)) + 60.0 / self.per_minute
            if until_s - now_s > 60.0:
                return until_s - now_s - 60.0
            self._until_s[key] = until_s
            if len(self._until_s) > 10_000:
                self._until_s = {each: at_s for each, at_s in self._until_s.items() if at_s > now_s}
        self._under_way[key] += 1
        return 0.0

    def end(self, key: str) -> None:
        """A request that was counted has ended."""
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]


@dataclass(eq=False)
class HttpApp:
    """The ASGI application.

    Attributes:
        service: what the gateway's answers say of it.
        uplink: takes readings and results.
        commands: has the open commands.
        tokens: says whose token it is.
        counts: what happened, by name.
        device_limit: of requests, by device.
        enroll_limit: of tries to enroll, by code or address.
    """

    config: HttpConfig
    service: Service
    uplink: Uplink
    commands: Commands
    tokens: Tokens
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.device_limit = RequestLimit(self.config.requests_per_minute, AT_ONCE)
        self.enroll_limit = RequestLimit(ENROLL_TRIES, AT_ONCE)
        self._codes = Codes(self.tokens)
        self._instances = InstanceWatch()
        self._failure_log = FailureLog(_log, time.monotonic, REPEAT_AFTER_S)
        self._held: dict[asyncio.Event, str] = {}
        self._tokens_version = -1
        self._is_closing = False
        self._app = Starlette(
            routes=[
                Route("/.well-known/device-service", self._discover),
                Route("/enroll", self._enroll, methods=["POST"]),
                Route("/sensor-data", self._post_sensor_data, methods=["POST"]),
                Route("/devices/{device_id}/commands", self._list_commands),
                Route("/devices/{device_id}/commands/{command_id:path}/result", self._report_result, methods=["POST"]),
            ],
            exception_handlers=dict.fromkeys((HTTPException, AgentError, Exception), self._answer_fault),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request: check the token and the device's limit, then leave it to Starlette's router."""
        self.counts["requests"] += 1
        device_id = ""
        try:
            if scope["path"] not in {"/.well-known/device-service", "/enroll"}:
                device_id = self._authenticate(Headers(scope=scope))
                wait_s = self.device_limit.begin(device_id)
                if wait_s:
                    device_id = ""
                    text = "This device sends more requests than http.requests_per_minute; wait as Retry-After says."
                    raise _later(429, _TOO_MANY, text, wait_s)
                scope["device_id"] = device_id
            with contextlib.suppress(Exception):  # answered and logged by then
                await self._app(scope, receive, self._finished(scope, send))
        except (Fault, sqlite3.Error) as error:
            response = await self._answer_fault(Request(scope), error)
            response.headers["Connection"] = "close"  # nothing of its body was read
            await response(scope, receive, self._finished(scope, send))
        finally:
            if device_id:
                self.device_limit.end(device_id)

    def release(self) -> None:
        """Answer all held polls now, because the gateway stops."""
        self._is_closing = True
        for event in self._held:
            event.set()

    def end_revoked_polls(self) -> None:
        """End held polls whose token was revoked by another process; to be called about once a second."""
        version = self.tokens.changed()
        if version != self._tokens_version:
            self._tokens_version = version
            for event, token in self._held.items():
                if self.tokens.device_of(token) is None:
                    event.set()

    # --- who is it ----------------------------------------------------------------------------------------------------

    def _authenticate(self, headers: Headers) -> str:
        challenge = {"WWW-Authenticate": 'Bearer realm="device-gateway"'}
        token = _bearer(headers)
        if not token:
            text = "Send the token of this device in the header Authorization, after the word Bearer."
            if "x-secret-key" in headers:
                text = f"The gateway takes no key pair, and a device should have none. {text}"
            raise Fault(401, "missing_token", text, headers=challenge)
        device_id = self.tokens.device_of(token)
        if device_id is None:
            challenge["WWW-Authenticate"] += ', error="invalid_token"'
            text = "This device token is unknown, revoked or over; ask for a new one."
            raise Fault(401, "invalid_token", text, headers=challenge)
        return device_id

    def _check_own(self, request: Request, device_id: str) -> None:
        own = request.scope["device_id"]
        if device_id != own:
            self.counts["foreign_device"] += 1
            text = f"http=foreign device {own} used its token for device {device_id[:80]!r}: refused"
            self._failure_log.report(f"foreign {own}", text)
            raise Fault(404, "device_not_found", f"There is no device {device_id[:80]!r} for this device token.")

    # --- commands -----------------------------------------------------------------------------------------------------

    async def _list_commands(self, request: Request) -> Response:
        device_id = request.path_params["device_id"]
        self._check_own(request, device_id)
        query = _model(ListQuery, dict(request.query_params))
        conflict = self._instances.saw(device_id, request.headers.get(INSTANCE_HEADER), time.monotonic())
        headers = {} if conflict is None else {CONFLICT_HEADER: conflict}
        if query.status == OPEN:
            return await self._hold_open(request, device_id, query.wait, headers)
        records = await self.commands.listed(device_id, query.status)
        return JSONResponse({"data": records, "next_cursor": None, "has_more": False}, headers=headers)

    async def _hold_open(self, request: Request, device_id: str, wait_s: float, headers: dict[str, str]) -> Response:
        given = request.headers.get("if-none-match", "")
        known = {tag.strip().removeprefix("W/") for tag in given.split(",")}
        until_s = time.monotonic() + wait_s
        with self.commands.watch(device_id) as changed:
            self._held[changed] = _bearer(request.headers)
            gone = asyncio.ensure_future(_gone(request, changed))
            try:
                now_open = await self.commands.open(device_id)
                while (tag := tag_of(now_open)) in known:
                    left_s = until_s - time.monotonic()
                    if left_s <= 0 or self._is_closing:
                        return Response(status_code=304, headers={**headers, "ETag": tag})
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), left_s)
                    changed.clear()
                    if gone.done():
                        raise ClientDisconnect
                    self._authenticate(request.headers)  # it may have been revoked meanwhile
                    now_open = self.commands.known(device_id)
            finally:
                gone.cancel()
                del self._held[changed]
        page = {"data": now_open, "next_cursor": None, "has_more": False}
        return JSONResponse(page, headers={**headers, "ETag": tag})

    async def _report_result(self, request: Request) -> Response:
        device_id, command_id = request.path_params["device_id"], request.path_params["command_id"]
        self._check_own(request, device_id)
        result = _model(CommandResult, await self._json(request))
        await self.uplink.send_result(device_id, command_id, result)
        if result.status != "in_progress":
            self.commands.concluded(device_id, command_id)
        return JSONResponse({"id": command_id, "device_id": device_id, **result.to_wire()})

    # --- readings -----------------------------------------------------------------------------------------------------

    async def _post_sensor_data(self, request: Request) -> Response:
        key = request.headers.get("idempotency-key")
        if key is not None and not (key.isascii() and key.isprintable() and 0 < len(key) <= _KEY_CHARACTERS):
            raise _invalid(("Idempotency-Key", f"must be 1 to {_KEY_CHARACTERS} visible ASCII characters"))
        value = await self._json(request)
        if isinstance(value, list):
            return await self._post_array(request, value, key)
        message = _model(PostSensorData, value)
        self._check_own(request, message.device_id)
        reading = Reading(message.device_id, message.sensor_data, message.recorded_at, key)
        await self.uplink.send([reading])
        if reading.rejection is not None:
            raise reading.rejection
        at = to_rfc3339(self.service.now())
        return JSONResponse({**message.to_wire(), "recorded_at": message.recorded_at or at, "received_at": at}, 201)

    async def _post_array(self, request: Request, values: list[Any], key: str | None) -> Response:
        """Each reading is judged by itself: a refused one does not hold back the others."""
        if not 0 < len(values) <= BATCH_MAX:
            raise _invalid(("body", f"an array must hold 1 to {BATCH_MAX} readings; this one holds {len(values)}"))
        readings: dict[int, Reading] = {}
        errors: dict[int, tuple[str, str]] = {}
        for index, value in enumerate(values):
            try:
                message = PostSensorData.model_validate(value)
                self._check_own(request, message.device_id)
            except ValidationError as error:
                errors[index] = ("validation_error", describe_faults(error))
            except Fault as fault:
                errors[index] = (fault.error, fault.detail)
            else:
                own_key = None if key is None else f"{key}/{index}"
                readings[index] = Reading(message.device_id, message.sensor_data, message.recorded_at, own_key)
        await self.uplink.send(list(readings.values()))
        for index, reading in readings.items():
            why = reading.rejection
            if why is not None and why.error == KEY_REUSED:
                raise why  # its text is about the whole array
            if why is not None:
                errors[index] = (why.error, why.message)
        said = [{"index": at, "error": error, "message": text} for at, (error, text) in sorted(errors.items())]
        return JSONResponse({"accepted": len(values) - len(errors), "errors": said})

    # --- without a token ----------------------------------------------------------------------------------------------

    async def _discover(self, request: Request) -> Response:
        del request
        return JSONResponse({"extensions": sorted([*_OWN, *filter(self.service.offers, _OF_THE_SERVICE)])})

    async def _enroll(self, request: Request) -> Response:
        asked = _model(EnrollmentRequest, await self._json(request, ENROLL_BYTES, ENROLL_S))
        address = request.client.host if request.client else "an unknown address"
        code = self._codes.find(asked.secret.reveal())
        # A caller with a good code is not slowed down by others behind the same proxy or router.
        key = f"from {address}" if code is None else code.code_id
        wait_s = self.enroll_limit.begin(key)
        if wait_s:
            raise _later(429, _TOO_MANY, "Too many tries to enroll; wait as Retry-After says.", wait_s)
        try:
            given = await enroll(self._codes, self.service, asked)
        except (AgentError, sqlite3.Error, OSError) as error:
            fault = _fault_of(error)
            if fault.status_code in {429, 503}:
                fault.detail += " The code is as good as before."
            raise fault from None
        finally:
            self.enroll_limit.end(key)
        _log.info("enroll=done device=%s identifier=%r from %s", given.device_id, asked.device_identifier, address)
        return JSONResponse({**given.model_dump(exclude={"token"}), "token": given.token.reveal()}, 201)

    # --- bodies and faults --------------------------------------------------------------------------------------------

    async def _json(self, request: Request, max_bytes: int = BODY_BYTES, within_s: float = BODY_S) -> Any:
        kind = request.headers.get("content-type", "application/json").partition(";")[0]
        if kind.strip().lower() != "application/json":
            raise Fault(415, "unsupported_media_type", "The body must be JSON: send Content-Type: application/json.")
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise Fault(415, "unsupported_media_type", "The body must be sent without Content-Encoding.")
        close = {"Connection": "close"}  # the rest of the body is not read
        raw = bytearray()
        try:
            async with asyncio.timeout(within_s):
                async for part in request.stream():
                    raw += part
                    if len(raw) > max_bytes:
                        text = f"The body is larger than the limit of {max_bytes} bytes."
                        raise Fault(413, "payload_too_large", text, headers=close)
        except TimeoutError:
            raise Fault(408, "request_timeout", "The body did not come in time.", headers=close) from None
        try:
            return parse_json(bytes(raw), max_bytes=max_bytes)
        except InvalidMessage as error:
            raise _invalid(("body", str(error) if raw else "the body is empty; it must be JSON")) from None

    def _finished(self, scope: Scope, send: Send) -> Send:
        """Adds the caller's request id, and ``Date`` by the service's clock, which the times of commands are by."""
        value = Headers(scope=scope).get("x-request-id", "")
        is_good = 0 < len(value) <= 128 and value.isascii() and value.isprintable()

        async def finished(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(b"date", formatdate(self.service.now(), usegmt=True).encode())]
                own += [(b"x-request-id", value.encode())] if is_good else []
                message["headers"] = [*message["headers"], *own]
            await send(message)

        return finished

    async def _answer_fault(self, request: Request, error: Exception) -> Response:
        """The error body; one line in the log for each kind of fault and device, not one for each request.

        When the service is away, it is so for all devices: one line for all of them.
        """
        if isinstance(error, ClientDisconnect):
            return Response(status_code=499)  # nobody reads it
        fault = _fault_of(error)
        self.counts[fault.error] += 1
        device_id = request.scope.get("device_id")
        who = f"device {device_id}" if device_id else f"a caller from {request.client.host if request.client else '?'}"
        text = f"http=refused {who}: {fault.status_code} {fault.error}: {fault.detail}"
        # Parts of it come from the device: they must not end the line or colour the terminal.
        text = "".join(character if character.isprintable() else "?" for character in text)
        self._failure_log.report(fault.error if fault.status_code >= 500 else f"{fault.error} {who}", text)
        return fault.answer()


def _bearer(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _model(model: type[Model], value: Any) -> Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _invalid(*list_faults(error)) from None


async def _gone(request: Request, changed: asyncio.Event) -> None:
    """Set the event when the caller has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    changed.set()
