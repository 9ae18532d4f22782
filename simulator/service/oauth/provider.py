"""The authorization server: oauthlib decides by RFC 6749, RFC 7636 and RFC 7009, :class:`Validator` knows the storage.

What oauthlib leaves open, or answers otherwise than the specification asks, is decided here: S256 alone, a
``redirect_uri`` always, the answer to a wrong secret, and that a code or refresh token that comes a second time ends
its grant.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from sqlite3 import Connection, Row
from typing import Any, Final
from urllib.parse import unquote_plus, urlencode

from oauthlib.common import Request
from oauthlib.oauth2 import (
    AuthorizationCodeGrant,
    BearerToken,
    FatalClientError,
    InvalidClientError,
    InvalidClientIdError,
    InvalidGrantError,
    InvalidRequestError,
    InvalidScopeError,
    MissingClientIdError,
    OAuth2Error,
    RefreshTokenGrant,
    RequestValidator,
    RevocationEndpoint,
    UnauthorizedClientError,
    UnsupportedGrantTypeError,
    UnsupportedResponseTypeError,
)

from simulator.service.caller import hash_secret
from simulator.service.db import insert, one
from simulator.service.errors import ApiError
from simulator.service.oauth import tokens
from simulator.service.oauth.parameters import find_repeated, parse_pairs, values_of
from simulator.service.oauth.store import AUTHORIZATION_CODE, GRANT_TYPES, REFRESH_TOKEN, Client, find_client, provision
from simulator.wire import paths

logging.getLogger("oauthlib").setLevel(logging.WARNING)  # its debug texts hold codes and tokens

S256: Final = "S256"
ASKED: Final = (
    "client_id",
    "redirect_uri",
    "scope",
    "response_type",
    "state",
    "code_challenge",
    "code_challenge_method",
)
"""The parameters of an authorization request; others are ignored, but may not be repeated either."""
SENT: Final = (
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
"""What is read of a token request; other parameters are ignored (RFC 6749, section 3.2)."""
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_UNREADABLE: Final = (
    "The address that led here cannot be read: its query is not percent-encoded UTF-8, or has too many parameters."
)
_UNKNOWN_CLIENT: Final = (
    "The application that sent you here is not known to this service: client_id is missing, repeated or not registered."
)
_UNKNOWN_ADDRESS: Final = (
    "The application wants you back at an address that it has not registered: redirect_uri is missing, repeated, or"
    " differs from every registered one. You were not sent there."
)


class Validator(RequestValidator):  # type: ignore[misc]  # oauthlib has no types
    """What oauthlib asks about one request. One is made for each request; it keeps what it has found.

    Args:
        sql: in a transaction, where something may be written.
        now_ms: this instant.
        grant_id: of the grant, should one be opened.
        authorization: the ``Authorization`` header, which may carry the client's secret.
    """

    def __init__(self, sql: Connection, now_ms: int, grant_id: str = "", authorization: str = "") -> None:
        super().__init__()
        self._sql = sql
        self._now_ms = now_ms
        self._grant_id = grant_id
        self._authorization = authorization
        self._code: Row | None = None
        self._token: Row | None = None
        self._grant_row = 0

    # --- the authorization request ----------------------------------------------------------------------------

    def validate_client_id(self, client_id: str, request: Request) -> bool:
        request.client = find_client(self._sql, client_id)
        return request.client is not None

    def validate_redirect_uri(self, _client_id: str, redirect_uri: str, request: Request) -> bool:
        return redirect_uri in request.client.redirect_uris.split()

    def get_default_redirect_uri(self, *_: object) -> None:
        """There is none: the specification asks for ``redirect_uri`` in both steps."""

    def validate_response_type(self, _client_id: str, response_type: str, *_: object) -> bool:
        if response_type != "code":
            raise UnsupportedResponseTypeError("response_type must be code.")
        return True

    def get_default_scopes(self, *_: object) -> None:
        """There are none."""

    def validate_scopes(self, _client_id: str, scopes: Sequence[str] | None, client: Client, _request: Request) -> bool:
        if not scopes:
            raise InvalidScopeError("scope is missing; name at least one.")
        if not set(scopes) <= set(client.scope.split()):
            raise InvalidScopeError(f"This client may ask for: {client.scope}.")
        return True

    def is_pkce_required(self, _client_id: str, request: Request) -> bool:
        return bool(request.client.is_public)

    # --- the client -------------------------------------------------------------------------------------------

    def client_authentication_required(self, _request: Request) -> bool:
        return True  # `authenticate_client` tells public ones from the others

    def authenticate_client(self, request: Request) -> bool:
        client_id, secret = request.client_id, request.client_secret
        basic = read_basic(self._authorization)
        if basic is not None:
            if secret is not None or client_id not in {None, basic[0]}:
                text = "The client is given by HTTP Basic, and its secret or another client_id in the body: choose one."
                raise InvalidRequestError(text)
            client_id, secret = basic
        client = find_client(self._sql, client_id)
        if client is None or not (client.has_secret(secret) if secret is not None else client.is_public):
            text = "There is no client with this client_id and this secret; a public client sends no secret."
            raise InvalidClientError(text)
        request.client, request.client_id = client, client_id
        return True

    def validate_grant_type(self, _client_id: str, grant_type: str, client: Client, _request: Request) -> bool:
        if grant_type not in client.grant_types.split():
            raise UnauthorizedClientError(f"This client may not use the grant_type {grant_type}.")
        return True

    # --- a code for tokens ------------------------------------------------------------------------------------

    def validate_code(self, client_id: str, code: str, client: Client, request: Request) -> bool:
        """An attempt that is refused uses nothing up: who has the code without the verifier cannot spoil it.

        A code that was used is judged by that alone, even when it comes late or with another address.
        """
        if request.redirect_uri is None:
            raise InvalidRequestError("redirect_uri is missing.")
        statement = "SELECT * FROM authorization_codes WHERE code_hash = ? AND client_id = ?"
        row = self._code = one(self._sql, statement, (hash_secret(code), client_id))
        if row is None:
            raise InvalidGrantError("This client has no such code.")
        if row["used_at"] is not None:
            tokens.revoke_grant(self._sql, row["grant_row"], self._now_ms)
            raise InvalidGrantError("The code was used before; everything that came of it is revoked.")
        if self._now_ms >= row["expires_at"]:
            raise InvalidGrantError(f"The code has expired; it is good for {tokens.CODE_S} seconds.")
        if request.redirect_uri != row["redirect_uri"]:
            raise InvalidGrantError("redirect_uri is not the one that the code was asked for with.")
        # RFC 9700, section 4.8.2: somebody may have taken the challenge out of the authorization request.
        if not client.is_public and (row["code_challenge"] is None) != (request.code_verifier is None):
            raise InvalidGrantError("code_verifier must be given exactly when code_challenge was.")
        request.scopes = row["scope"].split()
        return True

    def get_code_challenge(self, *_: object) -> str | None:
        return None if self._code is None else self._code["code_challenge"]

    def get_code_challenge_method(self, *_: object) -> str:
        return S256

    def confirm_redirect_uri(self, *_: object) -> bool:
        return True  # `validate_code` has looked

    def invalidate_authorization_code(self, _client_id: str, code: str, _request: Request) -> None:
        statement = "UPDATE authorization_codes SET used_at = ?, grant_row = ? WHERE code_hash = ?"
        self._sql.execute(statement, (self._now_ms, self._grant_row, hash_secret(code)))

    # --- a refresh token for tokens ---------------------------------------------------------------------------

    def validate_refresh_token(self, refresh_token: str, client: Client, _request: Request) -> bool:
        row = self._token = tokens.find_token(self._sql, refresh_token)
        if row is None or row["kind"] != "refresh" or row["client_id"] != client.client_id:
            raise InvalidGrantError("This client has no such refresh token.")
        if row["revoked_at"] is not None or self._now_ms >= row["expires_at"]:
            raise InvalidGrantError("The refresh token was revoked or has expired: ask the user again.")
        if row["ended_at"] is not None:
            tokens.revoke_grant(self._sql, row["grant_row"], self._now_ms)
            raise InvalidGrantError("The refresh token was used before; everything that came of its grant is revoked.")
        return True

    def get_original_scopes(self, *_: object) -> list[str]:
        return [] if self._token is None else self._token["granted"].split()

    def is_within_original_scope(self, *_: object) -> bool:
        raise InvalidScopeError(f"The grant holds: {' '.join(self.get_original_scopes())}.")

    # --- what comes of it -------------------------------------------------------------------------------------

    def save_token(self, token: dict[str, Any], request: Request, *_: object) -> None:
        if request.grant_type == AUTHORIZATION_CODE and self._code is not None:
            code = self._code
            of = {name: code[name] for name in ("account", "person", "client_id", "scope")}
            self._grant_row = tokens.open_grant(self._sql, self._grant_id, self._now_ms, **of)
        elif self._token is not None:
            self._grant_row = self._token["grant_row"]
        if REFRESH_TOKEN not in request.client.grant_types.split():
            token.pop("refresh_token", None)
        tokens.store_pair(self._sql, self._grant_row, token, self._now_ms)

    def revoke_token(self, token: str, _hint: str | None, request: Request) -> None:
        """RFC 7009: a refresh token ends with its whole grant, an access token alone."""
        row = tokens.find_token(self._sql, token)
        if row is None:
            return
        if row["client_id"] != request.client.client_id:
            raise InvalidGrantError("The token is another client's.")
        if row["kind"] == "refresh":
            tokens.revoke_grant(self._sql, row["grant_row"], self._now_ms)
        else:
            statement = "UPDATE tokens SET ended_at = ? WHERE token_hash = ?"
            self._sql.execute(statement, (self._now_ms, row["token_hash"]))


def read_basic(authorization: str) -> tuple[str, str | None] | None:
    """``client_id`` and secret of HTTP Basic (RFC 6749, section 2.3.1); None without it.

    Raises:
        InvalidClientError: it is no such pair.
    """
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, secret = base64.b64decode(encoded.strip(), validate=True).decode("utf-8").partition(":")
        if colon and name:
            # Both parts are percent-encoded as in a form before they are joined.
            return unquote_plus(name, errors="strict"), unquote_plus(secret, errors="strict") or None
    except (binascii.Error, ValueError):
        pass
    raise InvalidClientError("The Authorization header is no HTTP Basic with client_id and secret.")


# --- step 1: the authorization request ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """A valid authorization request: its user is to be asked.

    Attributes:
        state: to be returned unchanged; None when absent.
        code_challenge: of method ``S256``; None only for a confidential client that does without.
    """

    client: Client
    redirect_uri: str
    scopes: Sequence[str]
    state: str | None
    code_challenge: str | None


def decide(sql: Connection, now_ms: int, query: bytes, issuer: str) -> Asked | str:
    """What becomes of an authorization request: asked, or where the browser goes back to with an error.

    Raises:
        ApiError: 400: nobody may be redirected to a client that is not known for sure.
    """
    try:
        pairs = parse_pairs(query)
    except ValueError:
        raise ApiError(400, "invalid_request", _UNREADABLE) from None
    request = Request(paths.OAUTH_AUTHORIZE, body=values_of(pairs, ASKED))

    def check_repeated(_request: Request) -> dict[str, Any]:
        if repeated := find_repeated(pairs, ASKED):
            raise InvalidRequestError(f"Given more than once: {repeated}.")
        return {}

    try:
        grant = AuthorizationCodeGrant(Validator(sql, now_ms), pre_auth=[check_repeated])
        grant.validate_authorization_request(request)
        _check_pkce(request.code_challenge, request.code_challenge_method)
    except (MissingClientIdError, InvalidClientIdError):
        raise ApiError(400, "invalid_client", _UNKNOWN_CLIENT) from None
    except FatalClientError:
        raise ApiError(400, "invalid_redirect_uri", _UNKNOWN_ADDRESS) from None
    except OAuth2Error as error:
        told = {"error": error.error, "error_description": describe(error.error, error.description)}
        return way_back(request.redirect_uri, request.state, issuer, **told)
    return Asked(request.client, request.redirect_uri, request.scopes, request.state, request.code_challenge)


def way_back(redirect_uri: str, state: str | None, issuer: str, **told: str) -> str:
    """Where the browser goes back to with an answer (RFC 6749, section 4.1.2; ``iss`` is RFC 9207's).

    The query that the address is registered with stays as it is.
    """
    joint = "?" if "?" not in redirect_uri else "" if redirect_uri.endswith(("?", "&")) else "&"
    own = {"iss": issuer} if state is None else {"state": state, "iss": issuer}
    return f"{redirect_uri}{joint}{urlencode(told | own)}"


def _check_pkce(challenge: str | None, method: str | None) -> None:
    """oauthlib has looked for the challenge of a public client; what it takes beside S256 is refused here."""
    if challenge is None and method is not None:
        raise InvalidRequestError("code_challenge_method is given without code_challenge.")
    if challenge is not None and (method != S256 or not _CHALLENGE.fullmatch(challenge)):
        text = "code_challenge must be the 43 base64url characters of a SHA-256, and code_challenge_method S256."
        raise InvalidRequestError(text)


def issue_code(sql: Connection, asked: Asked, person: int, account_id: str, now_ms: int) -> str:
    """A code for what a person has approved. Every scope is a manufacturer's, so the person becomes one.

    Args:
        sql: in a transaction.
        asked: what was approved.
        person: the person's row.
        account_id: the id of the account, should the person have none yet.
        now_ms: this instant.
    """
    code = tokens.make_token()
    insert(
        sql,
        "authorization_codes",
        code_hash=hash_secret(code),
        account=provision(sql, person, account_id, now_ms),
        client_id=asked.client.client_id,
        person=person,
        redirect_uri=asked.redirect_uri,
        scope=" ".join(asked.scopes),
        code_challenge=asked.code_challenge,
        created_at=now_ms,
        expires_at=now_ms + tokens.CODE_S * 1000,
    )
    return code


# --- step 2, refresh and revocation ---------------------------------------------------------------------------------


def answer_token_request(validator: Validator, values: dict[str, str]) -> tuple[int, str]:
    """Status and JSON body for a token request.

    Raises:
        OAuth2Error: its ``grant_type`` is none.
    """
    if "grant_type" not in values:
        raise InvalidRequestError("grant_type is missing.")
    grants = {AUTHORIZATION_CODE: AuthorizationCodeGrant, REFRESH_TOKEN: RefreshTokenGrant}
    if values["grant_type"] not in grants:
        raise UnsupportedGrantTypeError(f"grant_type must be {' or '.join(GRANT_TYPES)}.")
    grant = grants[values["grant_type"]](validator)
    bearer = BearerToken(validator, lambda _request: tokens.make_token(), tokens.ACCESS_S)
    _, body, status = grant.create_token_response(Request(paths.OAUTH_TOKEN, "POST", values), bearer)
    return status, body


def answer_revocation(validator: Validator, values: dict[str, str]) -> tuple[int, str]:
    """Status and JSON body for a revocation; unknown tokens are revoked already.

    Raises:
        OAuth2Error: the token is another client's.
    """
    _, body, status = RevocationEndpoint(validator).create_revocation_response(paths.OAUTH_REVOKE, body=values)
    return status, body or "{}"


def describe(error: str, description: str | None) -> str:
    """The error in a sentence."""
    return description or f"{error.replace('_', ' ').capitalize()}."
