"""The token endpoint and its neighbours (specification, "Step 2" and "Refresh"; RFC 7009, RFC 7662, RFC 8414)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from sqlalchemy import Connection

from agent.wire import paths
from simulator.service.answers import Answer, ok
from simulator.service.call import Call
from simulator.service.core.client import AUTHORIZATION_CODE, GRANT_TYPES, Client
from simulator.service.core.scopes import SCOPES
from simulator.service.core.token_family import S256, Exchange, TokenPair
from simulator.service.endpoints import Endpoint, Reply
from simulator.service.errors import ServiceError
from simulator.service.http_errors import http_error_of
from simulator.service.oauth.token import (
    NO_STORE,
    Form,
    OAuthFault,
    authenticate,
    read_credentials,
    read_form,
    read_json,
    token_response,
)
from simulator.service.records import (
    MetadataRecord,
    OAuthErrorRecord,
    TokenBody,
    TokenQuestion,
    TokenRecord,
)
from simulator.service.storage import clients, grants
from simulator.service.storage.grants import Refusal

T = TypeVar("T")

_FORM: Final = b"application/x-www-form-urlencoded"


async def issue(call: Call) -> Answer:
    """Tokens for a code or a refresh token."""
    form = await _read(call)
    grant_type = form.grant_type()
    client = await _authenticate(call, form)
    if grant_type not in client.grant_types:
        raise OAuthFault(400, "unauthorized_client", f"This client may not use the grant_type {grant_type}.")
    outcome = await (_exchange if grant_type == AUTHORIZATION_CODE else _refresh)(call, form, client)
    if isinstance(outcome, Refusal):
        raise OAuthFault(400, outcome.error, outcome.description)
    return ok(token_response(outcome), *NO_STORE)


async def _exchange(call: Call, form: Form, client: Client) -> TokenPair | Refusal:
    code, verifier = form.need("code"), form.value("code_verifier")
    exchange = Exchange(form.need("redirect_uri"), form.need("code_verifier") if client.is_public else verifier)
    grant_id, now_ms = call.service.ids.next(), call.service.clock.now_ms()
    return await _write(call, lambda c: grants.redeem_code(c, code, client, exchange, grant_id=grant_id, now_ms=now_ms))


async def _refresh(call: Call, form: Form, client: Client) -> TokenPair | Refusal:
    token, scope = form.need("refresh_token"), form.value("scope")
    now_ms = call.service.clock.now_ms()
    return await _write(call, lambda c: grants.rotate(c, token, client, scope, now_ms))


async def revoke(call: Call) -> Answer:
    """End a token: a refresh token with its whole grant, an access token alone. Unknown ones are 200 too (RFC 7009)."""
    form = await _read(call)
    client = await _authenticate(call, form)
    token, now_ms = form.need("token"), call.service.clock.now_ms()
    refusal = await _write(call, lambda c: grants.revoke_token(c, token, client, now_ms))
    if refusal is not None:
        raise OAuthFault(400, refusal.error, refusal.description)
    return ok({}, *NO_STORE)


async def show_metadata(call: Call) -> Answer:
    """Where everything is and what it can do (RFC 8414)."""
    issuer = call.service.public_url
    methods = ["client_secret_basic", "client_secret_post"]
    record = {
        "issuer": issuer,
        "authorization_endpoint": issuer + paths.OAUTH_AUTHORIZE,
        "token_endpoint": issuer + paths.OAUTH_TOKEN,
        "revocation_endpoint": issuer + paths.OAUTH_REVOKE,
        "scopes_supported": SCOPES,
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": GRANT_TYPES,
        "token_endpoint_auth_methods_supported": [*methods, "none"],
        "revocation_endpoint_auth_methods_supported": [*methods, "none"],
        "code_challenge_methods_supported": [S256],
        "authorization_response_iss_parameter_supported": True,
    }
    return ok(record)


async def _read(call: Call) -> Form:
    kind = next((value for name, value in call.scope["headers"] if name == b"content-type"), b"")
    is_form = kind.partition(b";")[0].strip().lower() == _FORM
    try:
        raw = await call.read_body(frozenset({kind}) if is_form else frozenset())
    except ServiceError as exc:
        fault = http_error_of(exc)
        message = f"{fault.message} A form does as well." if fault.status == 415 else fault.message
        raise OAuthFault(fault.status, fault.error, message) from None
    return read_form(raw) if is_form else read_json(raw)


async def _authenticate(call: Call, form: Form) -> Client:
    authorization = next((value for name, value in call.scope["headers"] if name == b"authorization"), None)
    credentials = read_credentials(form, authorization)
    return authenticate(
        credentials, await call.service.look_up(lambda connection: clients.find(connection, credentials.client_id))
    )


async def _write(call: Call, operation: Callable[[Connection], T]) -> T:
    await call.check_epoch()
    return await call.service.writer.submit(operation)


_INVALID_CLIENT: Final = Reply(
    401, "`invalid_client`: unknown, or its secret is wrong, missing or superfluous", OAuthErrorRecord
)
_INVALID_REQUEST: Final = Reply(
    400, "`invalid_request`: a parameter is missing, repeated or malformed", OAuthErrorRecord
)

ENDPOINTS: Final = (
    Endpoint(
        "POST",
        paths.OAUTH_TOKEN,
        issue,
        "issue_tokens",
        "Tokens for a code or a refresh token; the client's secret may come by HTTP Basic instead",
        "partner access",
        (
            Reply(200, "Tokens; `expires_in` seconds of the service's clock", TokenRecord),
            Reply(
                400,
                "`invalid_request`, `unsupported_grant_type`, `unauthorized_client`, `invalid_scope`, or"
                " `invalid_grant`: the code or refresh token is unknown, expired, used, revoked or another client's",
                OAuthErrorRecord,
            ),
            _INVALID_CLIENT,
        ),
        body=(TokenBody,),
        form=True,
        public=True,
    ),
    Endpoint(
        "POST",
        paths.OAUTH_REVOKE,
        revoke,
        "revoke_token",
        "End a token (RFC 7009); a refresh token ends its whole grant",
        "partner access",
        (
            Reply(200, "It is no good any more, or never was", dict[str, Any]),
            Reply(400, "`invalid_request`, or `invalid_grant`: the token is another client's", OAuthErrorRecord),
            _INVALID_CLIENT,
        ),
        body=(TokenQuestion,),
        form=True,
        extension="oauth-metadata",
        public=True,
    ),
    Endpoint(
        "GET",
        paths.OAUTH_METADATA,
        show_metadata,
        "show_authorization_server",
        "Where partner access is and what it can do (RFC 8414)",
        "partner access",
        (Reply(200, "The metadata document", MetadataRecord),),
        extension="oauth-metadata",
        public=True,
    ),
)
