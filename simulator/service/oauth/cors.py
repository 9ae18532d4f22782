"""Calls from other people's web pages (CORS, the Fetch standard).

A single-page application is a public client whose pages fetch tokens and call the API from the browser. Only origins
of public clients' registered redirect URIs may, and never with cookies or with the key headers: a secret key in a page
would be everybody's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from simulator.service.caller import headers_of
from simulator.service.gate import CONSOLE_PREFIX, CONTROL_PREFIX
from simulator.service.oauth.pages import ANSWER
from simulator.service.oauth.store import browser_origins
from simulator.wire import paths

if TYPE_CHECKING:
    from simulator.service.service import Service

_OWN_PAGES: Final = (paths.OAUTH_AUTHORIZE, ANSWER, "/oauth/static/", CONTROL_PREFIX, CONSOLE_PREFIX)
"""No other page reads these."""
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE")
_ALLOWED: Final = ("Authorization", "Content-Type", "Idempotency-Key", "If-None-Match", "X-Request-Id")
_EXPOSED: Final = ("ETag", "Link", "Location", "RateLimit", "RateLimit-Policy", "Retry-After", "X-Request-Id")


class Cors(CORSMiddleware):
    """Adds the headers by which browsers let pages of public clients read the answers of ``app``."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        super().__init__(app, allow_methods=_METHODS, allow_headers=_ALLOWED, expose_headers=_EXPOSED)
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        if scope["type"] == "http" and b"origin" in headers_of(scope) and not scope["path"].startswith(_OWN_PAGES):
            await super().__call__(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def is_allowed_origin(self, origin: str) -> bool:
        """As Starlette's."""
        return origin in browser_origins(self._service.db.sql)
