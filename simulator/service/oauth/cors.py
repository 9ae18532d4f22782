"""Calls from other people's web pages (CORS, the Fetch standard).

A single-page application is a public client whose pages fetch tokens and call the API from the browser. Only origins
of public clients' registered redirect URIs may, and never with cookies or with the key headers: a secret key in a page
would be everybody's. Requests without an ``Origin`` pass untouched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final

from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.wire import paths
from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import Header
from simulator.service.errors import ServiceError

_VARY: Final[Header] = (b"vary", b"Origin")
_ALLOWED: Final[tuple[Header, ...]] = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, DELETE"),
    (b"access-control-allow-headers", b"Authorization, Content-Type, Idempotency-Key, If-None-Match, X-Request-Id"),
    (b"access-control-max-age", b"600"),
)
_EXPOSED: Final[Header] = (
    b"access-control-expose-headers",
    b"ETag, Link, Location, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id",
)
_FOR_EVERYBODY: Final = frozenset({paths.OAUTH_METADATA})
"""Documents without secrets that any page may read."""


class Cors:
    """Adds the headers by which browsers let other pages read the answers of ``app``.

    Args:
        app: the service.
        origins: the web origins that may, asked for with each request that names one.
        closed: paths of the service's own pages: no other page reads those.
    """

    def __init__(
        self, app: ASGIApp, origins: Callable[[], Awaitable[Collection[str]]], closed: Collection[str] = ()
    ) -> None:
        self._app = app
        self._origins = origins
        self._closed = frozenset(closed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http":
            for name, value in scope["headers"]:
                if name == b"origin":
                    await self._answer(scope, receive, send, value)
                    return
        await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, origin: bytes) -> None:
        path: str = scope["path"]
        if path in self._closed or path.startswith(CONTROL_PREFIX):
            await self._app(scope, receive, send)
            return
        allowed = path in _FOR_EVERYBODY or await self._is_known(origin.decode("latin-1"))
        headers: list[Header] = [_VARY]
        if allowed:
            headers.append((b"access-control-allow-origin", origin))
        if allowed and scope["method"] == "OPTIONS" and _is_preflight(scope):
            headers += _ALLOWED
            await send({"type": "http.response.start", "status": 204, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        if allowed:
            headers.append(_EXPOSED)

        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        await self._app(scope, receive, send_with)

    async def _is_known(self, origin: str) -> bool:
        try:
            return origin in await self._origins()
        except (SQLAlchemyError, ServiceError):  # the service itself answers what that means
            return False


def _is_preflight(scope: Scope) -> bool:
    return any(name == b"access-control-request-method" for name, _ in scope["headers"])
