"""Where a service's OAuth endpoints are: its own document says it (RFC 8414), else the specification's paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import httpx

from agent.errors import ConfigurationError, NotFound, Refused, Unauthorized, UnexpectedAnswer
from agent.wire import paths
from agent.wire.answers import one_line
from agent.wire.auth import origin_of
from agent.wire.connection import Connection

_SECURE: Final = "https"
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The endpoints of an authorization server.

    Attributes:
        authorize: the authorization endpoint, without a query.
        token: the token endpoint: an address of the service's origin, or empty for the specification's path.
        issuer: what the service calls itself; None when it has no document.
        sends_iss: each redirect carries ``iss`` (RFC 9207).
    """

    authorize: str
    token: str = ""
    issuer: str | None = None
    sends_iss: bool = False


def find_endpoints(connection: Connection, auth_url: str | None) -> Endpoints:
    """Ask the service; one without a document has the specification's paths.

    Args:
        connection: to the service.
        auth_url: the authorization address, where it is not the service's own.

    Raises:
        ConfigurationError: the document is of another service, or sends codes or tokens where they must not go.
        ServiceError: the service cannot be asked.
    """
    own = f"{(auth_url or str(connection.base_url)).rstrip('/')}{paths.OAUTH_AUTHORIZE}"
    document = _document(connection)
    if document is None:
        _check_authorize(own)
        return Endpoints(own)
    base_url = str(connection.base_url).rstrip("/")
    issuer = _text(document, "issuer")
    if issuer.rstrip("/") != base_url:
        fault = f"the service there calls itself {one_line(issuer) or 'nothing'}: give the address by which it does"
        raise ConfigurationError([f"--base-url {base_url}: {fault}"], "login")
    methods = document.get("code_challenge_methods_supported")
    if isinstance(methods, list) and "S256" not in methods:
        raise ConfigurationError([f"{issuer} does not offer PKCE with S256, without which no code is safe"], "login")
    token = _text(document, "token_endpoint")
    if token and _origin(token) != connection.origin:
        fault = f"{issuer} names a token endpoint of another origin, {one_line(token)}; no secret is sent there"
        raise ConfigurationError([fault], "login")
    authorize = own if auth_url else _text(document, "authorization_endpoint") or own
    _check_authorize(authorize)
    return Endpoints(authorize, token, issuer, document.get("authorization_response_iss_parameter_supported") is True)


def _document(connection: Connection) -> dict[str, object] | None:
    """RFC 8414, section 3.1: between the host and the path; and where many services have it, below the path."""
    path = connection.base_url.path.rstrip("/")
    places = dict.fromkeys([f"{connection.origin}{paths.OAUTH_METADATA}{path}", paths.OAUTH_METADATA])
    for place in places:
        try:
            value = connection.request("GET", place).json()
        except (NotFound, Refused, Unauthorized):  # a plain server asks for keys on unknown paths
            continue
        except UnexpectedAnswer as error:
            if error.status == _NOT_FOUND:
                continue
            raise
        if isinstance(value, dict):
            return value
    return None


def _text(document: dict[str, object], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


def _origin(address: str) -> str:
    try:
        return origin_of(httpx.URL(address))
    except httpx.InvalidURL:
        return ""


def _check_authorize(address: str) -> None:
    """A password is typed there."""
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme == _SECURE or (url.scheme == "http" and url.host in _LOOPBACK):
        return
    fault = f"the sign-in page {one_line(address)} is not https: a password typed there could be read on the way"
    raise ConfigurationError([f"{fault}; give --auth-url https://..."], "login")
