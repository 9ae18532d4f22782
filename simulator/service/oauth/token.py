"""What clients send to the token endpoint and its neighbours: read and authenticated, without doing anything."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote_plus

from pydantic_core import to_json

from agent.errors import InvalidMessage
from agent.wire.json_text import parse_json
from agent.wire.secret import Secret
from simulator.service.answers import Answer, Header
from simulator.service.core.client import GRANT_TYPES, Client
from simulator.service.core.parameters import Pairs, find_repeated, parse_pairs, value_of
from simulator.service.core.token_family import ACCESS_S, TokenPair
from simulator.service.http_errors import HttpError

NO_STORE: Final[tuple[Header, ...]] = ((b"cache-control", b"no-store"), (b"pragma", b"no-cache"))
"""RFC 6749, section 5.1: nobody on the way keeps an answer with tokens."""
_BASIC: Final[Header] = (b"www-authenticate", b'Basic realm="device-service", charset="UTF-8"')


class OAuthFault(HttpError):
    """No tokens: ``error`` is a word of RFC 6749, and ``message`` stands as ``error_description`` too."""

    def answer(self) -> Answer:
        """The error body."""
        body = {"error": self.error, "error_description": self.message, "message": self.message}
        return Answer(self.status, to_json(body), (*NO_STORE, *self.headers))


def invalid_request(description: str) -> OAuthFault:
    """400: a parameter is missing, repeated or malformed."""
    return OAuthFault(400, "invalid_request", description)


def invalid_client(description: str, *, used_basic: bool) -> OAuthFault:
    """401: the client is not who it says; with a challenge when it came by HTTP Basic (RFC 6749, section 5.2)."""
    return OAuthFault(401, "invalid_client", description, headers=(_BASIC,) if used_basic else ())


BEARER: Final = "Bearer"
NAMES: Final = (
    "grant_type",
    "code",
    "redirect_uri",
    "client_id",
    "client_secret",
    "code_verifier",
    "refresh_token",
    "scope",
    "token",
    "token_type_hint",
)
"""What is read; other parameters are ignored (RFC 6749, section 3.2)."""


@dataclass(frozen=True, slots=True, repr=False)
class Form:
    """The parameters of a request, from a form or from JSON. It holds secrets and has no ``repr``."""

    pairs: Pairs

    def value(self, name: str) -> str | None:
        """A parameter; None when it is absent or empty."""
        return value_of(self.pairs, name)

    def need(self, name: str) -> str:
        """A parameter that must be there.

        Raises:
            OAuthFault: 400 ``invalid_request``.
        """
        value = self.value(name)
        if value is None:
            raise invalid_request(f"{name} is missing.")
        return value

    def grant_type(self) -> str:
        """What is asked for.

        Raises:
            OAuthFault: 400 ``invalid_request`` or ``unsupported_grant_type``.
        """
        grant_type = self.need("grant_type")
        if grant_type not in GRANT_TYPES:
            raise OAuthFault(400, "unsupported_grant_type", f"grant_type must be {' or '.join(GRANT_TYPES)}.")
        return grant_type


def read_form(raw: bytes) -> Form:
    """The parameters of a form.

    Raises:
        OAuthFault: 400 ``invalid_request``.
    """
    try:
        pairs = parse_pairs(raw)
    except ValueError:
        raise invalid_request("The body is no form: percent-encoded UTF-8, name=value joined by &.") from None
    repeated = find_repeated(pairs)
    if repeated:
        named = ", ".join(name for name in NAMES if name in repeated) or "a parameter"
        raise invalid_request(f"Given more than once: {named}.")
    return Form(pairs)


def read_json(raw: bytes) -> Form:
    """The parameters of a JSON object; ``null`` counts as absent.

    Raises:
        OAuthFault: 400 ``invalid_request``.
    """
    try:
        body: Any = parse_json(raw)
    except InvalidMessage:
        raise invalid_request("The body is no JSON that this service takes; send a form or an object.") from None
    if not isinstance(body, dict):
        raise invalid_request("The body must be a JSON object.")
    wrong = [name for name in NAMES if not isinstance(body.get(name), str | None)]
    if wrong:
        raise invalid_request(f"Must be text: {', '.join(wrong)}.")
    return Form(tuple((name, body[name]) for name in NAMES if body.get(name) is not None))


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who a client says it is.

    Attributes:
        secret: None when none was given.
        used_basic: it came by HTTP Basic.
    """

    client_id: str
    secret: Secret | None
    used_basic: bool


def read_credentials(form: Form, authorization: bytes | None) -> Credentials:
    """Who sent this form, in one of two ways (RFC 6749, section 2.3.1).

    Raises:
        OAuthFault: 401 ``invalid_client``: nobody is named; 400 ``invalid_request``: both ways at once.
    """
    client_id, secret = form.value("client_id"), form.value("client_secret")
    basic = _read_basic(authorization)
    if basic is None:
        if client_id is None:
            raise invalid_client("client_id is missing.", used_basic=False)
        return Credentials(client_id, None if secret is None else Secret(secret), used_basic=False)
    if secret is not None:
        raise invalid_request("The client secret is given by HTTP Basic and in the body: choose one of them.")
    if client_id is not None and client_id != basic.client_id:
        raise invalid_request("client_id in the body is not the one of HTTP Basic.")
    return basic


def _read_basic(authorization: bytes | None) -> Credentials | None:
    scheme, _, encoded = (authorization or b"").partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        name, colon, secret = base64.b64decode(encoded.strip(), validate=True).decode("utf-8").partition(":")
        if colon and name:
            # Both parts are percent-encoded as in a form before they are joined.
            client_id, plain = unquote_plus(name, errors="strict"), unquote_plus(secret, errors="strict")
            return Credentials(client_id, Secret(plain) if plain else None, used_basic=True)
    except (binascii.Error, ValueError):
        pass
    raise invalid_client("The Authorization header is no HTTP Basic with client_id and secret.", used_basic=True)


def authenticate(credentials: Credentials, client: Client | None) -> Client:
    """The client, if it is who it says.

    Args:
        credentials: what it said.
        client: who has this ``client_id``; None when nobody has.

    Raises:
        OAuthFault: 401 ``invalid_client``: the secret is wrong, missing, or given by a client that has none.
    """
    secret = credentials.secret
    if client is not None and client.client_id == credentials.client_id:
        if client.is_public and secret is None:
            return client
        if secret is not None and client.has_secret(secret.reveal()):
            return client
    raise invalid_client(
        "There is no client with this client_id and this secret; a public client sends no secret.",
        used_basic=credentials.used_basic,
    )


def token_response(pair: TokenPair) -> dict[str, Any]:
    """The token response (specification, "Token response (OAuth)")."""
    response: dict[str, Any] = {
        "access_token": pair.access_token.reveal(),
        "token_type": BEARER,
        "expires_in": ACCESS_S,
    }
    if pair.refresh_token is not None:
        response["refresh_token"] = pair.refresh_token.reveal()
    return response | {"scope": pair.scope}
