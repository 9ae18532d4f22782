"""The ASGI layer that answers accounts by their profiles; all others pass through it untouched.

The complete service does the work: a request is rewritten into one that it takes, and its answer into the profile's.
What happens inside is therefore the same under every profile.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp, Receive, Scope, Send

from agent.wire import paths
from agent.wire.limits import BODY_BYTES
from simulator.service.addresses import CONTROL_PREFIX, PAGES, PUBLIC
from simulator.service.answers import http_date, send_answer
from simulator.service.control_access import ControlAccess, is_local
from simulator.service.endpoints import Endpoint
from simulator.service.errors import ServiceError, invalid
from simulator.service.gate import RESPONSE_HEADERS
from simulator.service.http_errors import http_error_of
from simulator.service.profile_layer import (
    commands,
    errors,
    extensions,
    lists,
    times,
)
from simulator.service.profile_layer.exchange import Answered, Capture, Exchange, Reply, Rewrite, Step, fault, refusal
from simulator.service.profiles.model import ServerProfile
from simulator.service.request_matches import find_account

if TYPE_CHECKING:
    from simulator.service.service import Service

log = logging.getLogger(__name__)

BYPASS: Final = b"x-emulator-profile"
"""Request header: ``complete`` from this machine is answered by the complete service, to look at what is true."""
BEFORE: Final[tuple[Step, ...]] = (
    extensions.discovery,
    extensions.endpoints,
    extensions.headers,
    extensions.parameters,
    extensions.members,
    extensions.results,
    commands.find_by_number,
    commands.choose,
    lists.ask,
)
"""What changes the request, or answers it, in this order."""
AFTER: Final[tuple[Step, ...]] = (
    extensions.announced,
    lists.gather,
    commands.hand_out,
    commands.number,
)
"""What completes the answer, in this order."""
REWRITE: Final[tuple[Rewrite, ...]] = (
    commands.rewrite,
    times.rewrite,
    lists.shape,
    errors.quota,
    errors.shape,
)
"""What changes the answer, in this order."""
_NOBODYS: Final = frozenset({*PUBLIC, *PAGES}) - {paths.DISCOVERY}
"""Documents and partner access, which are the same for everybody."""
_PROBE: Final = "/.well-known/nothing"
"""A path that is nowhere: 404 for whoever has keys."""
_BODYLESS: Final = frozenset({204, 304})
_LARGE_BYTES: Final = 32 * 1024
"""What is larger is rewritten and encoded in a thread."""
_PARAMETER: Final = re.compile(r"\\\{(\w+)\\\}")


class ProfileLayer:
    """Stands before the complete service.

    Args:
        app: the complete service, with keys and quota.
        inside: the same behind keys and quota, for what one request has to ask in several steps.
        endpoints: of the API.
        access: who may ask for the complete service's answers.
    """

    def __init__(
        self, app: ASGIApp, inside: ASGIApp, service: Service, endpoints: Sequence[Endpoint], access: ControlAccess
    ) -> None:
        self._app = app
        self._inside = inside
        self._service = service
        self._access = access
        self._profiles = service.profiles
        self._routes = [(_pattern(endpoint.path), endpoint) for endpoint in endpoints]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        if not self._profiles.active or scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        account = await self._account(scope)
        profile = self._profiles.active.get(account)
        if profile is None or _is_outside_profiles(scope):
            await self._app(scope, receive, send)
            return
        try:
            if self._is_bypassed(scope):
                await self._app(scope, receive, send)
                return
        except ServiceError as exc:
            await send_answer(send, http_error_of(exc).answer(), [])
            return
        await self._answer(profile, account, scope, receive, send)

    async def _answer(self, profile: ServerProfile, account: int, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read(receive)
        if body is None:
            return
        exchange = Exchange(profile, account, self._service, scope, body)
        self._route(exchange)
        if exchange.name == "stream_command_events" and profile.has("command-events"):
            await self._app(exchange.inner_scope(), receive, commands.rewritten_events(exchange, send))
            return
        try:
            for step in BEFORE:
                await step(exchange)
        except Answered as exc:
            exchange.reply = await self._admitted(exchange, exc.reply, receive)
        except (ServiceError, SQLAlchemyError) as exc:
            exchange.reply = _failed(exc)
        else:
            reply = await self._ask(exchange, exchange.inner_scope(), receive)
            if reply is None:
                return
            exchange.reply = reply
        await _send(exchange, await _complete(exchange), send)

    async def _ask(self, exchange: Exchange, scope: Scope, receive: Receive) -> Reply | None:
        """The complete service's answer; None when the caller has gone."""
        capture = Capture()
        await self._app(scope, exchange.first_receive(receive), capture.send)

        async def again(query: list[tuple[str, str]]) -> Reply:
            exchange.query = query
            more = Capture()
            following = {**scope, "query_string": exchange.inner_scope()["query_string"], RESPONSE_HEADERS: []}
            try:
                await self._inside(following, exchange.first_receive(receive), more.send)
            except ServiceError as exc:
                return fault(exc)
            return more.reply()

        exchange.again = again
        return capture.reply() if capture.status else None

    async def _admitted(self, exchange: Exchange, reply: Reply, receive: Receive) -> Reply:
        """The profile's own answer, once keys and quota are seen to; theirs, where they refuse."""
        if exchange.name == "discover":
            return reply
        probe = {"path": _PROBE, "raw_path": _PROBE.encode(), "method": "GET", "query_string": b""}
        asked = await self._ask(exchange, {**exchange.inner_scope(), **probe}, receive)
        if asked is None or asked.status != 404:
            return reply if asked is None else asked
        reply.headers = [*asked.headers, *reply.headers]
        return reply

    async def _account(self, scope: Scope) -> int:
        """The account that a request names; the first one where it names none."""
        caller = await find_account(self._service, dict(scope["headers"]))
        return (caller or self._service.first_caller()).manufacturer_seq

    def _is_bypassed(self, scope: Scope) -> bool:
        value = dict(scope["headers"]).get(BYPASS)
        if value is None or not (self._service.config.control and is_local(scope)):
            return False
        self._access.check(scope, dict(scope["headers"]))
        if value != b"complete":
            raise invalid("X-Emulator-Profile", "must be complete, or absent for the account's own profile")
        return True

    def _route(self, exchange: Exchange) -> None:
        method = "GET" if exchange.method == "HEAD" else exchange.method
        for pattern, endpoint in self._routes:
            found = pattern.fullmatch(exchange.path) if endpoint.method == method else None
            if found:
                exchange.endpoint = endpoint
                exchange.ids = {name: unquote(value) for name, value in found.groupdict().items()}
                return


async def _send(exchange: Exchange, body: bytes, send: Send) -> None:
    reply = exchange.reply
    headers = [*reply.headers, (b"date", http_date(exchange.service.clock.now_ms() // 1000))]
    if body:
        headers.append((b"content-type", reply.media_type))
    if reply.status not in _BODYLESS:
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if exchange.method == "HEAD" else body})


async def _complete(exchange: Exchange) -> bytes:
    """Bring the reply to what the profile makes of it; its body."""
    try:
        for step in AFTER:
            await step(exchange)
    except (ServiceError, SQLAlchemyError) as exc:
        exchange.reply = _failed(exc)
    if exchange.reply.size_bytes > _LARGE_BYTES:
        return await asyncio.to_thread(_finish, exchange)
    return _finish(exchange)


def _finish(exchange: Exchange) -> bytes:
    """Bring the reply into the profile's form; its body."""
    for step in REWRITE:
        step(exchange)
    return b"" if exchange.reply.status in _BODYLESS else exchange.reply.body()


def _failed(exc: ServiceError | SQLAlchemyError) -> Reply:
    if isinstance(exc, ServiceError):
        return fault(exc)
    log.error("the storage could not be read for a profile: %s", exc)
    return refusal(503, "storage_unavailable", "The service could not read its storage; its log says why.")


def _is_outside_profiles(scope: Scope) -> bool:
    path: str = scope["path"]
    return path in _NOBODYS or path.startswith(CONTROL_PREFIX) or scope["method"] == "OPTIONS"


async def _read(receive: Receive) -> bytes | None:
    """The request's body, cut after one byte too many; None when the caller has gone."""
    parts: list[bytes] = []
    size = 0
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        if size <= BODY_BYTES:
            parts.append(part[: BODY_BYTES + 1 - size])
            size += len(parts[-1])
        if not message.get("more_body"):
            return b"".join(parts)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", re.escape(path)))
