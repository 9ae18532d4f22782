"""Sign-in and tokens (specification, "Token response (OAuth)" and ``POST /auth/signin``)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, InstanceOf, PlainSerializer, WithJsonSchema

from agent.wire.base import JsonObject, Received, Sent, Text
from agent.wire.secret import Secret


def _wrap(value: object) -> object:
    return Secret(value) if isinstance(value, str) else value


def _reveal(value: Secret | None) -> str | None:
    return None if value is None else value.reveal()


SentSecret = Annotated[
    InstanceOf[Secret],
    BeforeValidator(_wrap),
    PlainSerializer(_reveal),
    WithJsonSchema({"type": "string", "format": "password"}),
]
"""A secret in a request: text or :class:`Secret` in, text on the wire, never in a ``repr``."""

ReceivedSecret = Annotated[InstanceOf[Secret], BeforeValidator(_wrap)]
"""A secret in an answer: stays a :class:`Secret`."""


class SignIn(Sent):
    """``POST /auth/signin``."""

    email: Text
    password: SentSecret


class ExchangeCode(Sent):
    """``POST {base_url}/functions/v1/partner-oauth-token``: exchange the code (specification, "Step 2").

    ``client_secret`` for a confidential client, ``code_verifier`` for a public one.
    """

    grant_type: Literal["authorization_code"] = "authorization_code"
    code: SentSecret
    redirect_uri: Text
    client_id: Text
    client_secret: SentSecret | None = None
    code_verifier: SentSecret | None = None


class RefreshTokens(Sent):
    """The same path with ``grant_type`` = ``refresh_token`` (specification, "Refresh"); both tokens are rotated."""

    grant_type: Literal["refresh_token"] = "refresh_token"
    refresh_token: SentSecret
    client_id: Text
    client_secret: SentSecret | None = None
    scope: str | None = None


class TokenAnswer(Received):
    """The token response.

    Attributes:
        expires_in: seconds of validity.
        user: who signed in; only after ``POST /auth/signin``.
    """

    model_config = ConfigDict(coerce_numbers_to_str=False)

    access_token: ReceivedSecret
    token_type: str = "Bearer"  # noqa: S105 - a word of RFC 6750
    expires_in: int | None = None
    refresh_token: ReceivedSecret | None = None
    scope: str | None = None
    user: JsonObject | None = None
