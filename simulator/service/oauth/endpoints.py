"""The token endpoint with its neighbours, and ``POST /auth/signin``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from fastapi import Response
from oauthlib.oauth2 import OAuth2Error
from pydantic import BaseModel

from agent.errors import InvalidMessage
from agent.wire.encoding import parse_json
from simulator.service.caller import KEY_CHALLENGE
from simulator.service.errors import ApiError
from simulator.service.http import CallDep, Json, Router, answers, extends
from simulator.service.oauth import provider, tokens
from simulator.service.oauth.parameters import find_repeated, parse_pairs, values_of
from simulator.service.oauth.provider import SENT, Validator
from simulator.service.oauth.store import GRANT_TYPES, SIGN_IN_ID, authenticate
from simulator.service.scopes import ALL, SCOPES
from simulator.wire import paths
from simulator.wire.models import SignIn

FORM: Final = "application/x-www-form-urlencoded"
_NO_STORE: Final = {"Cache-Control": "no-store", "Pragma": "no-cache"}
"""RFC 6749, section 5.1: nobody on the way keeps an answer with tokens."""
_BASIC: Final = {"WWW-Authenticate": 'Basic realm="device-service", charset="UTF-8"'}

partner_router = Router("partner access", free_query=True)
sign_in_router = Router("authentication", replayed=False)


class TokenResponse(BaseModel):
    """The token response (specification, "Token response (OAuth)")."""

    access_token: str
    token_type: str
    expires_in: int
    refresh_token: str | None = None
    scope: str


class SignedIn(TokenResponse):
    """The token response with who signed in."""

    user: dict[str, str]


class OAuthError(BaseModel):
    """The error body of OAuth."""

    error: str
    error_description: str
    message: str


_ERRORS: Final[dict[int | str, dict[str, Any]]] = {status: {"model": OAuthError} for status in (400, 401, 413, 415)}


def _body(*names: str) -> dict[str, Any]:
    """What the document says of a body that may be a form or JSON; these members must be there."""
    schema = {
        "type": "object",
        "required": list(names),
        "properties": {name: {"type": "string"} for name in SENT},
    }
    return {
        "requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in (FORM, "application/json")}}
    }


@partner_router.post(
    paths.OAUTH_TOKEN, response_model=TokenResponse, responses=_ERRORS, openapi_extra=_body("grant_type")
)
async def issue_tokens(call: CallDep) -> Response:
    """Tokens for a code or a refresh token; the client's secret may come by HTTP Basic instead."""
    return await _answer(call, provider.answer_token_request)


@partner_router.post(
    paths.OAUTH_REVOKE,
    responses=_ERRORS,
    openapi_extra={**_body("token"), **extends("oauth-metadata")},
)
async def revoke_token(call: CallDep) -> Response:
    """End a token (RFC 7009); a refresh token ends its whole grant. Unknown ones are 200 too."""
    return await _answer(call, provider.answer_revocation)


async def _answer(call: CallDep, ask: Callable[[Validator, dict[str, str]], tuple[int, str]]) -> Response:
    authorization = call.request.headers.get("authorization", "")
    try:
        values = await _read(call)
        with call.db.write() as sql:
            status, text = ask(Validator(sql, call.now_ms, call.service.ids.next(), authorization), values)
        found = json.loads(text)
    except ApiError as refused:
        status, found = refused.status_code, {"error": refused.error, "error_description": refused.message}
    except OAuth2Error as refused:
        status, found = refused.status_code, {"error": refused.error, "error_description": refused.description}
    if "error" not in found:
        return Json(found, headers=_NO_STORE)
    text = provider.describe(found["error"], found.get("error_description"))
    body = {"error": found["error"], "error_description": text, "message": text}
    # With a challenge when the client came by HTTP Basic (RFC 6749, section 5.2).
    is_challenged = found["error"] == "invalid_client" and authorization.lower().startswith("basic")
    return Json(body, status, {**_NO_STORE, **(_BASIC if is_challenged else {})})


async def _read(call: CallDep) -> dict[str, str]:
    """The parameters of a form or a JSON object; null and the empty text count as absent.

    Raises:
        ApiError: 400, 413, 415.
    """
    call.request.scope["body_types"] = (FORM, "application/json")
    raw = await call.request.body()
    if call.request.headers.get("content-type", "").lower().startswith(FORM):
        try:
            pairs = parse_pairs(raw)
        except ValueError:
            text = "The body is no form: percent-encoded UTF-8, name=value joined by &."
            raise ApiError(400, "invalid_request", text) from None
        if repeated := find_repeated(pairs, SENT):
            raise ApiError(400, "invalid_request", f"Given more than once: {repeated}.")
        return values_of(pairs, SENT)
    try:
        body = parse_json(raw)
    except InvalidMessage:
        text = "The body is no JSON that this service takes; send a form or an object."
        raise ApiError(400, "invalid_request", text) from None
    if not isinstance(body, dict) or any(not isinstance(body.get(name), str | None) for name in SENT):
        raise ApiError(400, "invalid_request", "The body must be a JSON object, and each of its parameters text.")
    return {name: body[name] for name in SENT if body.get(name)}


@partner_router.get(paths.OAUTH_METADATA, openapi_extra=extends("oauth-metadata"))
async def show_authorization_server(call: CallDep) -> Response:
    """Where partner access is and what it can do (RFC 8414)."""
    issuer = call.service.public_url
    methods = ["client_secret_basic", "client_secret_post", "none"]
    return Json(
        {
            "issuer": issuer,
            "authorization_endpoint": issuer + paths.OAUTH_AUTHORIZE,
            "token_endpoint": issuer + paths.OAUTH_TOKEN,
            "revocation_endpoint": issuer + paths.OAUTH_REVOKE,
            "scopes_supported": SCOPES,
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": GRANT_TYPES,
            "token_endpoint_auth_methods_supported": methods,
            "revocation_endpoint_auth_methods_supported": methods,
            "code_challenge_methods_supported": [provider.S256],
            "authorization_response_iss_parameter_supported": True,
        }
    )


@sign_in_router.post(paths.SIGN_IN, response_model=SignedIn, responses=answers(400, 401, 403))
async def sign_in(call: CallDep, body: SignIn) -> Response:
    """Tokens for a person of the caller's account; `expires_in` seconds of the service's clock."""
    person = await authenticate(call.db.sql, body.email, body.password.reveal())
    if person is None or person["account"] != call.account:
        text = "The email or the password is wrong."
        raise ApiError(401, "invalid_credentials", text, headers=KEY_CHALLENGE)
    pair = {
        "access_token": tokens.make_token(),
        "token_type": "Bearer",
        "expires_in": tokens.ACCESS_S,
        "refresh_token": tokens.make_token(),
        "scope": ALL,
    }
    of = {"account": call.account, "person": person["row"], "client_id": SIGN_IN_ID, "scope": ALL}
    with call.db.write() as sql:
        grant = tokens.open_grant(sql, call.service.ids.next(), call.now_ms, **of)
        tokens.store_pair(sql, grant, pair, call.now_ms)
    return Json({**pair, "user": {"user_id": person["id"], "email": person["email"]}}, headers=_NO_STORE)
