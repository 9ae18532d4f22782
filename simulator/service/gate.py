"""The ASGI layer before the handlers: gives each request an id, finds out whose it is, and counts it.

Order of checks: authenticate, then quota, then route and validate. A missing key is 401 on an unknown path too.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import MutableMapping, Sequence
from email.utils import formatdate
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from simulator.service import caller
from simulator.service.db import one
from simulator.service.errors import ApiError, invalid
from simulator.service.variant import ServerVariant
from simulator.service.variant_answers import error_answer
from simulator.wire import paths

if TYPE_CHECKING:
    from simulator.service.service import Service

log = logging.getLogger(__name__)

CONTROL_PREFIX: Final = "/_emulator/"
CONSOLE_PREFIX: Final = "/console"
HEALTH: Final = f"{CONTROL_PREFIX}health"
PUBLIC: Final = frozenset(
    {
        "/.well-known/device-service",
        "/openapi.json",
        "/docs",
        paths.OAUTH_TOKEN,
        paths.OAUTH_REVOKE,
        paths.OAUTH_METADATA,
        paths.OAUTH_AUTHORIZE,
        "/partner-oauth-answer",
    }
)
"""Documents that describe the service, and where partners come: they say who they are in another way."""
PUBLIC_PREFIXES: Final = ("/docs/", "/oauth/static/", f"{CONSOLE_PREFIX}/")
_WITHOUT_VARIANT: Final = (CONTROL_PREFIX, *PUBLIC_PREFIXES)
"""Documents, pages and partner access are the same for every account, and so are the control paths."""
_VARIANT_HEADER: Final = b"x-emulator-variant"
"""``complete``, from this machine: the service itself answers, so that one can look at what is true."""
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


class Gate:
    """Lets requests through; what it refuses, and what fails outside of a handler, it answers itself.

    Args:
        app: the application.
        hot: its routes that are asked most: they are tried before the application's own middlewares and router.
        service: whose accounts may come in.
    """

    def __init__(self, app: ASGIApp, hot: Sequence[BaseRoute], service: Service) -> None:
        self._app = app
        self._hot = hot
        self._service = service
        self._started = service.ids.next()[:18].encode()  # differs with each start of the service
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        service = self._service
        request_id = caller.headers_of(scope).get(b"x-request-id", b"")
        if _REQUEST_ID.fullmatch(request_id) is None:
            request_id = b"%s-%x" % (self._started, next(self._numbers))
        scope["request_id"] = request_id.decode()
        headers = [(b"x-request-id", request_id)]
        scope["service"], scope["variant"] = service, None
        begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                dated = (b"date", http_date(service.clock.now_ms() // 1000))
                message["headers"] = [*message.get("headers", ()), *headers, dated]
            await send(message)

        try:
            scope["variant"] = self._variant_of(scope)
            headers += self._admit(scope)
            for route in self._hot:
                match, found = route.matches(scope)
                if match is Match.FULL:
                    scope.update(found)
                    await route.handle(scope, receive, send_with_headers)
                    return
            await self._app(scope, receive, send_with_headers)
        except ApiError as exc:
            await send_error(send_with_headers, exc, scope["variant"])
        except ClientDisconnect:
            return  # nobody is there to be answered
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if begun:
                raise
            text = "The service failed on this request; its log says why."
            await send_error(send_with_headers, ApiError(500, "internal_error", text), scope["variant"])

    def _variant_of(self, scope: Scope) -> ServerVariant | None:
        """How the account that a request names is answered, the first one where it names none; None as by default.

        Raises:
            ApiError: 400 or 403: the header that asks for the service itself is wrong, or not from here.
        """
        service, path = self._service, scope["path"]
        is_same_for_all = (path in PUBLIC and path != paths.DISCOVERY) or path.startswith(_WITHOUT_VARIANT)
        if is_same_for_all or scope["method"] == "OPTIONS":
            return None
        row = caller.key_row(service, scope)
        if row is None:
            named = caller.caller_named(service, scope)
            where = "ORDER BY row LIMIT 1" if named is None else f"WHERE row = {named.account}"
            row = one(service.db.sql, f"SELECT variant FROM accounts {where}")
        if row is None or row["variant"] is None or self._asks_service_itself(scope):
            return None
        return ServerVariant.model_validate_json(row["variant"])

    def _asks_service_itself(self, scope: Scope) -> bool:
        if not caller.is_local(scope):
            return False
        value = caller.headers_of(scope).get(_VARIANT_HEADER)
        if value is None or not self._service.config.control:
            return caller.is_console(self._service, scope)
        caller.check_control(self._service, scope, needs_token=True)
        if value != b"complete":
            raise invalid("X-Emulator-Variant", "must be complete, or absent for the account's own variant")
        return True

    def _admit(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Find out whose request this is and put that into ``scope["caller"]``; further headers of the answer."""
        service = self._service
        raw_path: bytes = scope["raw_path"]
        if b"%" in raw_path:
            # Routes match the path as it was sent, and ids are decoded after that: one may hold an encoded slash.
            scope["path"] = raw_path.decode("ascii", "replace")
        path: str = scope["path"]
        scope["caller"] = None
        if caller.is_console(service, scope) and caller.is_local(scope):
            caller.check_page(scope)
            scope["caller"] = caller.account_of_page(service, scope)
            if scope["caller"] is None and not path.startswith((CONTROL_PREFIX, CONSOLE_PREFIX)):
                raise ApiError(400, "account_missing", "Send X-Emulator-Account with a public key of the account.")
            return []
        if path in PUBLIC or path.startswith(PUBLIC_PREFIXES):
            return []
        is_control = path.startswith(CONTROL_PREFIX)
        if is_control and service.config.control and caller.is_local(scope):
            caller.check_control(service, scope, needs_token=path != HEALTH)
            return []
        found = scope["caller"] = caller.authenticate(service, scope)
        headers: list[tuple[bytes, bytes]] = []
        limit = service.config.rate_limit if found.quota is None else found.quota
        if limit and not caller.is_observer(service, scope):
            headers = service.quota.count(found.api_key, limit, service.clock.quota_ms())
            if scope["variant"] is not None and not scope["variant"].extensions:
                headers = []
        if is_control:
            raise ApiError(404, "not_found", "The control paths are off, or open to callers on this machine only.")
        return headers


async def send_error(send: Send, error: ApiError, variant: ServerVariant | None = None) -> None:
    """Send an error as its answer."""
    shown, body = error_answer(variant, error)
    own = [(name.lower().encode(), value.encode("latin-1")) for name, value in shown.items()]
    headers = [*own, (b"content-length", b"%d" % len(body))]
    start: MutableMapping[str, Any] = {"type": "http.response.start", "status": error.status_code, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})


@lru_cache(maxsize=64)
def http_date(second: int) -> bytes:
    """The value of a ``Date`` header: RFC 9110, section 5.6.7."""
    return formatdate(second, usegmt=True).encode()
