"""Calls from other people's web pages (CORS, the Fetch standard).

A single-page application is a public client whose pages fetch tokens and call the API from the browser. Only origins
of public clients' registered redirect URIs may, and never with cookies or with the key headers: a secret key in a page
would be everybody's. Requests without an ``Origin`` pass untouched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.wire import paths
from simulator.service.caller import headers_of
from simulator.service.gate import CONSOLE_PREFIX, CONTROL_PREFIX
from simulator.service.oauth.pages import ANSWER
from simulator.service.oauth.store import browser_origins

if TYPE_CHECKING:
    from simulator.service.service import Service

_OWN_PAGES: Final = (paths.OAUTH_AUTHORIZE, ANSWER, "/oauth/static/", CONTROL_PREFIX, CONSOLE_PREFIX)
"""No other page reads these."""
_ALLOWED: Final = {
    "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, If-None-Match, X-Request-Id",
    "Access-Control-Max-Age": "600",
}
_EXPOSED: Final = "ETag, Link, Location, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id"


class Cors:
    """Adds the headers by which browsers let pages of public clients read the answers of ``app``."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        if scope["type"] != "http" or b"origin" not in headers_of(scope) or scope["path"].startswith(_OWN_PAGES):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers["origin"]
        # The metadata document has no secrets: any page may read it.
        allowed = scope["path"] == paths.OAUTH_METADATA or origin in browser_origins(self._service.db.sql)
        added = {"Access-Control-Allow-Origin": origin} if allowed else {}
        if allowed and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            answer = Response(status_code=204, headers={**added, **_ALLOWED, "Vary": "Origin"})
            await answer(scope, receive, send)
            return
        if allowed:
            added["Access-Control-Expose-Headers"] = _EXPOSED

        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = MutableHeaders(scope=message)
                given.update(added)
                given.add_vary_header("Origin")
            await send(message)

        await self._app(scope, receive, send_with)
