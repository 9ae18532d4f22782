"""Whom a request comes from, and how that is found out (specification, "Authentication")."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.types import Scope

from simulator.service.db import one
from simulator.service.errors import ApiError

if TYPE_CHECKING:
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


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a request comes from.

    Attributes:
        account: the account's row.
        api_key: what the quota counts by: the public key; of a bearer token ``client <id> user <id>``.
        scopes: what a bearer token may do; None for a key pair, which may do everything.
    """

    account: int
    api_key: str
    scopes: frozenset[str] | None = None


def hash_secret(secret: str) -> bytes:
    """What is stored of a secret with many random bits: of a key pair, a client, a code or a token."""
    return hashlib.sha256(secret.encode()).digest()


def authenticate(service: Service, headers: Headers) -> Caller:
    """The caller by its key pair or its bearer token. Both keys win over a token; one alone is refused.

    Raises:
        ApiError: 401.
    """
    api_key, secret_key = headers.get(b"x-api-key"), headers.get(b"x-secret-key")
    authorization = headers.get(b"authorization")
    if api_key is None and secret_key is None and authorization is not None:
        scheme, _, token = authorization.decode("latin-1").partition(" ")
        if scheme.lower() == "bearer":
            caller = service.find_bearer(token.strip(" "))
            if caller is None:
                text = "The access token is expired, revoked or unknown."
                raise ApiError(401, "invalid_token", text, headers=TOKEN_CHALLENGE)
            return caller
    if not api_key or not secret_key:
        text = "Both headers x-api-key and x-secret-key are required."
        raise ApiError(401, "missing_credentials", text, headers=KEY_CHALLENGE)
    caller, secret_hash = _of_key(service, api_key)
    # A header value is bytes; latin-1 gives each of them a character, so any value can be hashed.
    if caller is None or not hmac.compare_digest(secret_hash, hash_secret(secret_key.decode("latin-1"))):
        text = "There is no account with this pair of x-api-key and x-secret-key."
        raise ApiError(401, "invalid_credentials", text, headers=KEY_CHALLENGE)
    return caller


def _of_key(service: Service, api_key: bytes) -> tuple[Caller | None, bytes]:
    key = api_key.decode("latin-1")
    row = one(service.db.sql, "SELECT account, secret_hash FROM api_keys WHERE api_key = ?", (key,))
    return (None, b"") if row is None else (Caller(row["account"], key), row["secret_hash"])


def caller_named(service: Service, headers: Headers) -> Caller | None:
    """Whose key or bearer token a request carries, whether or not its secret is right; None when it is nobody's."""
    api_key = headers.get(b"x-api-key")
    if api_key is not None:
        return _of_key(service, api_key)[0]
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return service.find_bearer(token.strip(" ")) if scheme.lower() == "bearer" else None


def account_of_page(service: Service, headers: Headers) -> Caller | None:
    """The account that a page of the console names; None where it names none.

    Raises:
        ApiError: 404 ``account_not_found``.
    """
    api_key = headers.get(ACCOUNT_HEADER)
    if api_key is None:
        return None
    caller, _ = _of_key(service, api_key)
    if caller is None:
        raise ApiError(404, "account_not_found", "X-Emulator-Account is the public key of no account.")
    return caller


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


def has_token(service: Service, headers: Headers) -> bool:
    """Whether the request carries the token of the control paths or of the console."""
    offered = headers.get(TOKEN_HEADER, b"")
    tokens = [token for token in (service.control_token, service.console_token) if token is not None]
    return any(hmac.compare_digest(offered, token.reveal().encode()) for token in tokens)


def is_console(service: Service, headers: Headers) -> bool:
    """Whether the request carries the console's token."""
    token = service.console_token
    return token is not None and hmac.compare_digest(headers.get(TOKEN_HEADER, b""), token.reveal().encode())


def check_page(scope: Scope, headers: Headers) -> None:
    """Refuse what a web page of another origin may have a browser send here.

    A browser says so in ``Origin`` and ``Sec-Fetch-Site``.

    Raises:
        ApiError: 403 ``foreign_origin``.
    """
    host, origin = headers.get(b"host", b"").decode("latin-1"), headers.get(b"origin")
    if origin is not None:
        scheme, separator, place = origin.decode("latin-1").partition("://")
        if not separator or scheme not in {"http", "https"} or place.lower() != host.lower():
            raise ApiError(403, "foreign_origin", "A web page of another origin sent this: control paths take none.")
    if scope["method"] not in _SAFE and headers.get(b"sec-fetch-site", b"") in _FOREIGN:
        raise ApiError(403, "foreign_origin", "A web page of another site sent this: control paths take none.")


def check_control(service: Service, scope: Scope, headers: Headers, *, needs_token: bool) -> None:
    """Refuse, of requests to control paths from this machine, what may come from a web page or through a proxy.

    A page can be made to name this machine (``Host``), and a proxy carries requests of anybody; the control token
    settles both.

    Raises:
        ApiError: 403; its text says what is missing.
    """
    check_page(scope, headers)
    if has_token(service, headers):
        return
    host = headers.get(b"host", b"").decode("latin-1")
    if not is_loopback_host(host):
        text = f"Host is {host[:100]!r}: control paths are at 127.0.0.1, [::1] and localhost only."
        raise ApiError(403, "foreign_host", text)
    if not _FORWARDED.isdisjoint(headers) or (service.control_token is not None and needs_token):
        text = "Send X-Emulator-Token with the control token (--control-token), which the service shows at its start."
        raise ApiError(403, "control_token_required", text)


def is_observer(service: Service, scope: Scope) -> bool:
    """Whether the caller only looks on (console, pytest plug-in) and may use the control paths."""
    headers = dict(scope["headers"])
    if not is_local(scope) or not (headers.get(OBSERVER_HEADER) == b"1" or is_console(service, headers)):
        return False
    try:
        check_control(service, scope, headers, needs_token=True)
    except ApiError:
        return False
    return True
