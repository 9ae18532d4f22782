"""Whom a request comes from, and how that is found out (specification, "Authentication")."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.types import Scope

from simulator.service.db import one
from simulator.service.errors import ApiError

if TYPE_CHECKING:
    from agent.wire.secret import Secret
    from simulator.service.service import Service

KEY_CHALLENGE: Final = {"WWW-Authenticate": 'ApiKey realm="device-service"'}
TOKEN_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="device-service", error="invalid_token"'}
TOKEN_HEADER: Final = b"x-emulator-token"
ACCOUNT_HEADER: Final = b"x-emulator-account"
"""The public key of the account that a page of the console asks for."""
OBSERVER_HEADER: Final = b"x-emulator-observer"
"""A header of who only looks at what a test does: not in the request log, meets no fault, counts for no quota."""
_FORWARDED: Final = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"via"}
)
_SAFE: Final = frozenset({"GET", "HEAD"})
_FOREIGN: Final = frozenset({b"cross-site", b"same-site"})

Headers = Mapping[bytes, bytes]

_KEY: Final = """
    SELECT k.api_key, k.account, k.secret_hash, a.quota, a.variant
    FROM api_keys k JOIN accounts a ON a.row = k.account WHERE k.api_key = ?
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a request comes from.

    Attributes:
        account: the account's row.
        api_key: what the quota counts by: the public key; of a bearer token ``client <id> user <id>``.
        scopes: what a bearer token may do; None for a key pair, which may do everything.
        quota: requests that it may send in a minute, 0 for any number; None where the service's own number holds.
    """

    account: int
    api_key: str
    scopes: frozenset[str] | None = None
    quota: int | None = None


def hash_secret(secret: str) -> bytes:
    """What is stored of a secret with many random bits: of a key pair, a client, a code or a token."""
    return hashlib.sha256(secret.encode()).digest()


def headers_of(scope: Scope) -> Headers:
    """The headers of a request by name, read once; of one that comes twice the last counts."""
    found: Headers | None = scope.get("headers_by_name")
    if found is None:
        found = scope["headers_by_name"] = dict(scope["headers"])
    return found


def authenticate(service: Service, scope: Scope) -> Caller:
    """The caller by its key pair or its bearer token. Both keys win over a token; one alone is refused.

    Raises:
        ApiError: 401.
    """
    headers = headers_of(scope)
    api_key, secret_key = headers.get(b"x-api-key"), headers.get(b"x-secret-key")
    if api_key is None and secret_key is None and (token := _bearer_token(headers)) is not None:
        caller = service.find_bearer(token)
        if caller is None:
            text = "The access token is expired, revoked or unknown."
            raise ApiError(401, "invalid_token", text, headers=TOKEN_CHALLENGE)
        return caller
    if not api_key or not secret_key:
        text = "Both headers x-api-key and x-secret-key are required."
        raise ApiError(401, "missing_credentials", text, headers=KEY_CHALLENGE)
    row = key_row(service, scope)
    # A header value is bytes; latin-1 gives each of them a character, so any value can be hashed.
    if row is None or not hmac.compare_digest(row["secret_hash"], hash_secret(secret_key.decode("latin-1"))):
        text = "There is no account with this pair of x-api-key and x-secret-key."
        raise ApiError(401, "invalid_credentials", text, headers=KEY_CHALLENGE)
    return _of_row(row)


def key_row(service: Service, scope: Scope) -> sqlite3.Row | None:
    """The key that ``x-api-key`` names, with its account's quota and variant; looked up once for each request."""
    if "key_row" not in scope:
        scope["key_row"] = _find_key(service, headers_of(scope).get(b"x-api-key", b""))
    row: sqlite3.Row | None = scope["key_row"]
    return row


def _find_key(service: Service, api_key: bytes) -> sqlite3.Row | None:
    return one(service.db.sql, _KEY, (api_key.decode("latin-1"),))


def _of_row(row: sqlite3.Row) -> Caller:
    return Caller(row["account"], row["api_key"], quota=row["quota"])


def _bearer_token(headers: Headers) -> str | None:
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return token.strip(" ") if scheme.lower() == "bearer" else None


def caller_named(service: Service, scope: Scope) -> Caller | None:
    """Whose key or bearer token a request carries, whether or not its secret is right; None when it is nobody's."""
    headers = headers_of(scope)
    if b"x-api-key" in headers:
        row = key_row(service, scope)
        return None if row is None else _of_row(row)
    token = _bearer_token(headers)
    return None if token is None else service.find_bearer(token)


def account_of_page(service: Service, scope: Scope) -> Caller | None:
    """The account that a page of the console names; None where it names none.

    Raises:
        ApiError: 404 ``account_not_found``.
    """
    api_key = headers_of(scope).get(ACCOUNT_HEADER)
    if api_key is None:
        return None
    row = _find_key(service, api_key)
    if row is None:
        raise ApiError(404, "account_not_found", "X-Emulator-Account is the public key of no account.")
    return _of_row(row)


def is_local(scope: Scope) -> bool:
    """Whether the caller is on this machine."""
    client = scope.get("client")
    return client is not None and _is_loopback(client[0])


@lru_cache(maxsize=1024)
def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_loopback_host(host: str) -> bool:
    """Whether a ``Host`` header names this machine by a name that nobody else can give out."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def has_token(service: Service, scope: Scope) -> bool:
    """Whether the request carries the token of the control paths or of the console."""
    return _is_token(service.control_token, scope) or is_console(service, scope)


def is_console(service: Service, scope: Scope) -> bool:
    """Whether the request carries the console's token."""
    return _is_token(service.console_token, scope)


def _is_token(token: Secret | None, scope: Scope) -> bool:
    offered = headers_of(scope).get(TOKEN_HEADER)
    return token is not None and offered is not None and hmac.compare_digest(offered, token.reveal().encode())


def check_page(scope: Scope) -> None:
    """Refuse what a web page of another origin may have a browser send here.

    A browser says so in ``Origin`` and ``Sec-Fetch-Site``.

    Raises:
        ApiError: 403 ``foreign_origin``.
    """
    headers = headers_of(scope)
    host, origin = headers.get(b"host", b"").decode("latin-1"), headers.get(b"origin")
    if origin is not None:
        scheme, separator, place = origin.decode("latin-1").partition("://")
        if not separator or scheme not in {"http", "https"} or place.lower() != host.lower():
            raise ApiError(403, "foreign_origin", "A web page of another origin sent this: control paths take none.")
    if scope["method"] not in _SAFE and headers.get(b"sec-fetch-site", b"") in _FOREIGN:
        raise ApiError(403, "foreign_origin", "A web page of another site sent this: control paths take none.")


def check_control(service: Service, scope: Scope, *, needs_token: bool) -> None:
    """Refuse, of requests to control paths from this machine, what may come from a web page or through a proxy.

    A page can be made to name this machine (``Host``), and a proxy carries requests of anybody; the control token
    settles both.

    Raises:
        ApiError: 403; its text says what is missing.
    """
    check_page(scope)
    if has_token(service, scope):
        return
    headers = headers_of(scope)
    host = headers.get(b"host", b"").decode("latin-1")
    if not is_loopback_host(host):
        text = f"Host is {host[:100]!r}: control paths are at 127.0.0.1, [::1] and localhost only."
        raise ApiError(403, "foreign_host", text)
    if not _FORWARDED.isdisjoint(headers) or (service.control_token is not None and needs_token):
        text = "Send X-Emulator-Token with the control token (--control-token), which the service shows at its start."
        raise ApiError(403, "control_token_required", text)


def is_observer(service: Service, scope: Scope) -> bool:
    """Whether the caller only looks on (console, pytest plug-in) and may use the control paths."""
    if headers_of(scope).get(OBSERVER_HEADER) != b"1" and not is_console(service, scope):
        return False
    if not is_local(scope):
        return False
    try:
        check_control(service, scope, needs_token=True)
    except ApiError:
        return False
    return True
