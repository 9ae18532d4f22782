"""The gateway's client of the service: with the key pair, within one quota, and by the extensions that it announces.

Each method makes its request once and raises what went wrong (:mod:`agent.errors`). While the service does not answer,
requests fail at once until the time of the next try, so that no device waits for a dead service; one request tries it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Container, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import httpx
from httpx_sse import ServerSentEvent, aconnect_sse
from pydantic import ValidationError

from agent.app.version import VERSION
from agent.config.credentials import Credentials
from agent.config.model import ServiceConfig
from agent.errors import (
    Forbidden,
    NoPlaceForResults,
    ServerFault,
    ServiceError,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
)
from agent.health import REPEAT_AFTER_S, FailureLog, RetryPolicy, describe
from agent.runtime.clocks import ServiceClock
from agent.wire import paths
from agent.wire.answers import (
    DECIDED,
    FAULTS,
    ITEMS_MAX,
    Answer,
    CommandList,
    Page,
    PageWalk,
    explain,
    one_line,
    read_commands,
)
from agent.wire.client import check_base_url, is_certain, read_record, url_of
from agent.wire.encoding import encode_json, to_rfc3339
from agent.wire.limits import ANSWER_BYTES
from agent.wire.models import CommandResult, CommandResultPayload, Device, NewRuntimeRecord
from agent.wire.network import origin_of, service_trust
from agent.wire.secret import KeyPair
from agent.wire.server import COMMAND_RESULTS, IDEMPOTENCY_KEY, ResultPlace, read_announcement
from gateway.client import RegisterDevice
from gateway.quota import Kind, Quota

_log = logging.getLogger(__name__)

_CONNECT_MAX_S: Final = 5.0
_AT_ONCE: Final = 16
"""Requests of one kind that are under way at the same time, so that a distant service does not slow everything down."""
_SILENCE_S: Final = 35.0  # our service sends something on its stream every 15 s
_REFRESH_S: Final = 3600.0
_LOOK_AGAIN_S: Final = 60.0
_PLAIN_TRIES: Final = 3
_RETRY_MAX_S: Final = 30.0
_SLOW_RETRY_S: Final = 5.0
_AWAY: Final = frozenset({502, 503, 504})


class Unavailable(ServiceError):
    """The service does not answer now.

    Attributes:
        retry_after_s: when it is worth trying again, seconds.
    """

    def __init__(self, message: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class Service:
    """Requests to the service, for one event loop.

    Args:
        config: where it is.
        credentials: the key pair.
        quota: of that key.
        clock: learns the service's time.
        on_state: called with the state of the connection, a word and a sentence.
        transport: replaces the network, for tests.

    Raises:
        ConfigurationError: the address, the keys or the certificate file cannot be used.
    """

    def __init__(
        self,
        config: ServiceConfig,
        credentials: Credentials,
        quota: Quota,
        clock: ServiceClock,
        *,
        on_state: Callable[[str, str], object] = lambda _state, _detail: None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.quota = quota
        self.clock = clock
        self.dialect = config.dialect.dialect()
        self.offered: frozenset[str] | None = self.dialect.extensions
        self._config = config
        self._base_url = check_base_url(config.base_url)
        self._origin = origin_of(self._base_url)
        self._client = httpx.AsyncClient(
            headers={
                "User-Agent": f"device-gateway/{VERSION}",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                **KeyPair(credentials.api_key, credentials.secret).headers(),
            },
            timeout=httpx.Timeout(config.timeout_s, connect=min(config.timeout_s, _CONNECT_MAX_S)),
            limits=httpx.Limits(max_connections=4 * _AT_ONCE, keepalive_expiry=60.0),
            verify=service_trust(config.ca_file) if self._base_url.scheme == "https" else True,
            trust_env=False,
            follow_redirects=False,
            transport=transport,
        )
        self._turns = {kind: asyncio.Semaphore(_AT_ONCE) for kind in Kind}
        self._retry = RetryPolicy(random.SystemRandom().random, cap_s=_RETRY_MAX_S)
        self._not_before_s = 0.0
        self._answered_s = float("-inf")
        self._trouble = ""
        self._on_state = on_state
        self._failure_log = FailureLog(_log, time.monotonic, REPEAT_AFTER_S)
        self._products: dict[str, str | None] = {}
        self._products_at_s = float("-inf")

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.aclose()

    # --- what it offers -----------------------------------------------------------------------------------------------

    def offers(self, extension: str) -> bool:
        """Whether the service has this extension.

        Raises:
            Unavailable: it has not been asked yet.
        """
        if self.offered is None:
            raise Unavailable(self._trouble or "the service has not said yet what it offers", 2.0)
        return extension in self.offered

    async def keep_known(self) -> None:
        """Ask what the service offers, now and every hour; a task, where the configuration does not say it."""
        failures = 0
        while True:
            wait_s = 1.0
            try:
                self.offered = await self._discover()
                failures, wait_s = 0, _REFRESH_S
            except (ServerFault, UnexpectedAnswer) as error:
                failures += 1
                if self.offered is None and failures >= _PLAIN_TRIES:
                    _log.warning("service=plain it fails when it is asked for its extensions: %s", error)
                    self.offered = frozenset()
                if self.offered is not None:
                    wait_s = _LOOK_AGAIN_S
            except Unavailable as error:
                wait_s = min(error.retry_after_s, 5.0)
            except ServiceError:
                pass
            await asyncio.sleep(wait_s)

    async def _discover(self) -> frozenset[str]:
        answer = await self.request("GET", paths.DISCOVERY, Kind.COMMANDS, accepts=DECIDED)
        found = answer.json_or_none() if 200 <= answer.status < 300 and not answer.is_page else None
        if answer.is_page:
            # A captive portal, or a service with a page for every path; its list of devices shows which of the two.
            await self.request("GET", paths.DEVICES, Kind.COMMANDS)
        return read_announcement(found).extensions

    # --- requests -----------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        kind: Kind,
        *,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        accepts: Container[int] = (),
    ) -> Answer:
        """Make one request.

        Args:
            method: of HTTP.
            path: relative to the base URL, ids percent-encoded; or an absolute URL of the same origin.
            kind: what it is for; :class:`~gateway.quota.Quota` keeps room for the more urgent kinds.
            body: a JSON value.
            params: query parameters.
            headers: beside those of each request.
            accepts: statuses that are returned as they came.

        Raises:
            Unavailable: the service does not answer, or does not accept the gateway's keys.
            RateLimited: the quota of the key is used up.
            ServiceError: as the service answered.
        """
        content = None if body is None else encode_json(body)
        typed = {} if body is None else {"Content-Type": "application/json"}
        request = self._client.build_request(
            method, url_of(self._base_url, path), params=params, content=content, headers={**(headers or {}), **typed}
        )
        async with self._turns[kind]:
            is_trial = self._check_up()
            began_s = time.monotonic()
            with self.quota.request(kind):
                try:
                    answer = await self._exchange(request, accepts)
                except ServiceError as error:
                    raise self._judged(error, began_s, is_trial=is_trial) from None
        self._succeeded()
        return answer

    async def _exchange(self, request: httpx.Request, accepts: Container[int]) -> Answer:
        source = one_line(f"{request.method} {self._origin}{request.url.path}")
        began_s = time.monotonic()
        fault: TransportError | None = None
        try:
            async with asyncio.timeout(self._config.timeout_s):
                response = await self._client.send(request, stream=True)
                try:
                    arrived_s = time.monotonic()
                    raw = await self._read(response, source)
                finally:
                    await response.aclose()
        except FAULTS as error:
            known = httpx.ReadTimeout("") if isinstance(error, TimeoutError) else error
            fault = explain(known, self._origin, self._config.timeout_s)
        # Not raised in the except block: the error of httpx, which holds the keys, must not be its context.
        if fault is not None:
            raise fault
        answer = Answer(response.status_code, response.headers, raw, source)
        self.quota.answered(answer.status, response.headers)
        if answer.status not in accepts:
            is_meant = is_certain(request.url) and not (request.method == "GET" and response.is_success)
            answer.raise_for_status(page_is_meant=is_meant)
        if answer.server_time is not None and answer.status < 500 and not answer.is_page:
            self.clock.observe(answer.server_time + time.monotonic() - arrived_s, arrived_s - began_s)
        return answer

    async def _read(self, response: httpx.Response, source: str) -> bytes:
        parts: list[bytes] = []
        room = ANSWER_BYTES
        async for part in response.aiter_bytes():
            room -= len(part)
            if room < 0:
                text = f"{source}: the answer is larger than {ANSWER_BYTES} bytes and was not read on"
                raise UnexpectedAnswer(text, response.status_code)
            parts.append(part)
        return b"".join(parts)

    # --- whether it answers -------------------------------------------------------------------------------------------

    @property
    def is_away(self) -> bool:
        """The last request got no valid answer."""
        return bool(self._trouble)

    def raise_if_away(self) -> None:
        """Let nothing wait for a service that is away.

        Raises:
            Unavailable: it is away, and the next trial is not due yet.
        """
        left_s = self._not_before_s - time.monotonic()
        if self._trouble and left_s > 0:
            raise Unavailable(self._trouble, left_s)

    def _check_up(self) -> bool:
        """Whether this request is the one that tries a service that was away."""
        self.raise_if_away()
        self._not_before_s = time.monotonic() + self._config.timeout_s  # so no other request tries it meanwhile
        return bool(self._trouble)

    def _judged(self, error: ServiceError, began_s: float, *, is_trial: bool) -> ServiceError:
        """The error for the caller; it also decides whether the service counts as away."""
        is_away = isinstance(error, TransportError | UnexpectedAnswer | Unauthorized | Forbidden)
        if is_away or (isinstance(error, ServerFault) and error.status in _AWAY):
            return self._failed(error, began_s, is_trial=is_trial)
        self._succeeded()
        return error

    def _failed(self, error: ServiceError, began_s: float, *, is_trial: bool) -> Unavailable:
        state, text, every_s = describe(error)
        if self._answered_s > began_s:
            # It answers other requests: it is slow and not away, so the other requests go on.
            self._failure_log.report(state, f"service=slow {text}", every_s=every_s)
            return Unavailable(text, _SLOW_RETRY_S)
        if is_trial or not self._trouble:  # of requests that fail together only the first counts
            self._not_before_s = time.monotonic() + self._retry.failed(error)
        wait_s = max(1.0, self._not_before_s - time.monotonic())
        self._trouble = text
        self._failure_log.report(state, f"service={state} {text}; next try in {wait_s:.0f} s", every_s=every_s)
        self._on_state(state, text)
        return Unavailable(text, wait_s)

    def _succeeded(self) -> None:
        self._answered_s = time.monotonic()
        if self._trouble:
            self._trouble = ""
            _log.info("service=ok it answers again")
        self._retry.succeeded()
        self._on_state("ok", "")

    # --- devices ------------------------------------------------------------------------------------------------------

    async def commands(
        self, device_id: str, *, status: str | None, etag: str | None = None, kind: Kind = Kind.COMMANDS
    ) -> CommandList:
        """The commands of a device, all pages; if a later page does not come, the earlier ones count.

        Raises:
            ServiceError: the first page did not come.
        """
        pages = self.pages(
            paths.device_commands(device_id),
            {"status": status} if status else {},
            {"If-None-Match": etag} if etag else {},
            kind,
        )
        found: list[tuple[Answer, Page]] = []
        incomplete: ServiceError | None = None
        try:
            async for answer, page in pages:
                found.append((answer, page))
                if sum(len(each.items) for _, each in found) >= ITEMS_MAX:
                    break
        except ServiceError as error:
            if not found:
                raise
            incomplete = error

        def read() -> Iterator[tuple[Answer, Page]]:
            yield from found
            if incomplete is not None:
                raise incomplete

        return read_commands(read(), self.dialect, ANSWER_BYTES)

    async def pages(
        self,
        path: str,
        params: Mapping[str, str | int],
        headers: Mapping[str, str] | None = None,
        kind: Kind = Kind.COMMANDS,
    ) -> AsyncIterator[tuple[Answer, Page]]:
        walk = PageWalk(path, params, url_of(self._base_url, path))
        while not walk.done:
            answer = await self.request("GET", walk.target, kind, params=walk.params, headers=headers)
            headers = None
            page = walk.take(answer)
            yield answer, page
            walk.proceed(answer, page)

    @asynccontextmanager
    async def command_events(self, last_id: str) -> AsyncIterator[AsyncIterator[ServerSentEvent]]:
        """The stream of commands as they are sent (extension ``command-events``), after the event ``last_id``.

        Raises:
            ServiceError: it was refused, or broke off.
        """
        is_trial, began_s = self._check_up(), time.monotonic()
        headers = {"Last-Event-ID": last_id} if last_id else {}
        timeout = httpx.Timeout(_SILENCE_S, connect=_CONNECT_MAX_S)
        url = str(url_of(self._base_url, paths.COMMAND_EVENTS))
        fault: ServiceError | None = None
        try:
            async with AsyncExitStack() as held:
                with self.quota.request(Kind.COMMANDS):  # an open stream does not count as a request under way
                    opening = aconnect_sse(self._client, "GET", url, headers=headers, timeout=timeout)
                    stream = await held.enter_async_context(opening)
                    response = stream.response
                    self.quota.answered(response.status_code, response.headers)
                if not response.is_success:
                    source = f"GET {self._origin}{response.request.url.path}"
                    raw = await self._read(response, source)
                    Answer(response.status_code, response.headers, raw, source).raise_for_status()
                self._succeeded()
                is_trial = False
                yield stream.aiter_sse()
        except FAULTS as error:
            fault = explain(error, self._origin, _SILENCE_S)
        except ServiceError as error:
            fault = error
        if fault is not None:
            # Only the stream fails, so the service is not away; unless this was the request that tries whether it is.
            raise self._judged(fault, began_s, is_trial=True) if is_trial else fault

    async def report_result(self, device_id: str, command_id: str, result: CommandResult, key: str) -> None:
        """Report how a command goes or ended, where this service takes it; progress has no place in a table.

        Args:
            device_id: whose command.
            command_id: of the command.
            result: what the device says.
            key: the same at each repeat, for a service that takes idempotency keys.

        Raises:
            NoPlaceForResults: there is none.
        """
        place = self.dialect.results
        if place is None:
            place = ResultPlace.ENDPOINT if self.offers(COMMAND_RESULTS) else ResultPlace.TABLE
        if place is ResultPlace.ENDPOINT:
            path = paths.command_result(device_id, command_id)
            await self.request("POST", path, Kind.RESULTS, body=result.to_wire())
            return
        if result.status == "in_progress":
            return
        if place is ResultPlace.NONE:
            raise NoPlaceForResults("service.dialect.results is none: this service takes no results")
        product_id = await self._product_of(device_id)
        payload = CommandResultPayload(
            command_id=command_id,
            status=result.status,
            result=result.result,
            error=result.error,
            finished_at=to_rfc3339(self.now()),
        )
        record = NewRuntimeRecord(
            product_id=product_id,
            device_id=device_id,
            table_name=self.dialect.results_table,
            data_payload=payload.to_wire(),
        )
        await self.request(
            "POST", paths.RUNTIME_DATA, Kind.RESULTS, body=record.to_wire(), headers=self.key_header(key)
        )

    async def register(self, registration: RegisterDevice) -> Device:
        """Register a device; the same registration again finds the same device."""
        sent = registration.to_wire()
        answer = await self.request("POST", paths.ONBOARDING_DEVICES, Kind.RESULTS, body=sent)
        return read_record(Device, answer, "device", sent)

    def key_header(self, key: str | None) -> dict[str, str]:
        """The ``Idempotency-Key``, for a service that takes one."""
        return {"Idempotency-Key": key} if key and self.offers(IDEMPOTENCY_KEY) else {}

    def now(self) -> float:
        """The service's clock, epoch seconds; this machine's while it is not known."""
        now_s = self.clock.now()
        return time.time() if now_s is None else now_s

    async def _product_of(self, device_id: str) -> str:
        """The product of a device, which only a plain server needs; listed for all devices, once a minute at most."""
        if self._products.get(device_id) is None:
            wait_s = self._products_at_s + _LOOK_AGAIN_S - time.monotonic()
            if wait_s > 0:
                raise Unavailable(f"which product device {device_id} is of is looked up again", wait_s)
            async for _, page in self.pages(paths.DEVICES, {}):
                for item in page.items:
                    try:
                        device = Device.model_validate(item)
                    except ValidationError:
                        continue
                    self._products[device.device_id] = device.product_id
            self._products_at_s = time.monotonic()
        product_id = self._products.get(device_id)
        if product_id is None:
            raise NoPlaceForResults(f"the product of device {device_id} is not in the service's list of devices")
        return product_id
