"""The token endpoint (specification, "Step 2: exchange the code" and "Refresh")."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import httpx

from agent.errors import UnexpectedAnswer
from agent.wire import paths
from agent.wire.answers import Answer
from agent.wire.auth import Credential
from agent.wire.calls import Calls, read_record
from agent.wire.connection import Connection
from agent.wire.secret import MAX_TOKEN_FILE_BYTES, Secret
from agent.wire.sign_in import ExchangeCode, RefreshTokens, TokenAnswer
from agent.wire.tokens import TokenSet, is_token

_BEARER: Final = "bearer"


class TokenCalls(Calls):
    """Codes and refresh tokens for tokens. Every call may raise :class:`~agent.errors.ServiceError`."""

    def exchange_code(self, request: ExchangeCode, endpoint: str = paths.OAUTH_TOKEN) -> TokenAnswer:
        """``POST {base_url}/functions/v1/partner-oauth-token``: the one-time code for tokens.

        Args:
            request: the code and who asks.
            endpoint: another path, or an address of the same origin, where the service names one.
        """
        return self.exchange_code_timed(request, endpoint)[0]

    def exchange_code_timed(
        self, request: ExchangeCode, endpoint: str = paths.OAUTH_TOKEN
    ) -> tuple[TokenAnswer, float | None]:
        """As :meth:`exchange_code`, with the service's clock at that moment, seconds since the epoch."""
        answer = self._write("POST", endpoint, request)
        return _read(answer), answer.server_time

    def refresh_tokens(self, request: RefreshTokens, endpoint: str = paths.OAUTH_TOKEN) -> TokenAnswer:
        """The same path: a new pair of tokens; the old pair ends."""
        return _read(self._write("POST", endpoint, request))


def _read(answer: Answer) -> TokenAnswer:
    tokens = read_record(TokenAnswer, answer, "token")
    if tokens.token_type.lower() != _BEARER:
        raise UnexpectedAnswer(f"{answer.source} gave tokens of a type that is not Bearer", answer.status)
    if not all(is_token(token) for token in (tokens.access_token, tokens.refresh_token) if token is not None):
        raise UnexpectedAnswer(f"{answer.source} gave tokens that cannot be sent", answer.status)
    return tokens


def renew(
    tokens: TokenSet,
    refresh_token: Secret,
    client_secret: Secret | None,
    *,
    timeout_s: float,
    ca_file: Path | None = None,
    transport: httpx.BaseTransport | None,
) -> TokenAnswer:
    """A new pair for the refresh token of ``tokens``, asked for over a connection of its own.

    Not over the connection that is waiting for it: interrupting a held poll would cut off the answer, and with it the
    only copy of the new pair.

    Raises:
        ServiceError: no new pair.
    """
    connection = Connection(
        tokens.base_url,
        Unsent(tokens.access_token, refresh_token, client_secret),
        timeout_s=timeout_s,
        max_answer_bytes=MAX_TOKEN_FILE_BYTES,
        ca_file=ca_file,
        transport=_Borrowed.of(transport),
    )
    with connection:
        request = RefreshTokens(refresh_token=refresh_token, client_id=tokens.client_id, client_secret=client_secret)
        return TokenCalls(connection).refresh_tokens(request, tokens.token_endpoint or paths.OAUTH_TOKEN)


class Unsent(Credential):
    """No header at all; what is in a request's body is kept out of every text that comes back."""

    def __init__(self, *secrets: Secret | None) -> None:
        super().__init__()
        self._kept = [secret for secret in secrets if secret]

    def add(self, secret: Secret) -> None:
        """One more, also where this is bound already."""
        self._kept.append(secret)

    def _headers(self) -> dict[str, str]:
        return {}

    def _secrets(self) -> tuple[Secret, ...]:
        return tuple(self._kept)


class _Borrowed(httpx.BaseTransport):
    """A transport that outlives the connection that uses it."""

    def __init__(self, transport: httpx.BaseTransport) -> None:
        self._transport = transport

    @classmethod
    def of(cls, transport: httpx.BaseTransport | None) -> _Borrowed | None:
        return None if transport is None else cls(transport)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._transport.handle_request(request)
