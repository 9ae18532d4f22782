"""The code of a browser's sign-in is exchanged for tokens (specification, "Step 2")."""

from __future__ import annotations

from typing import Literal

from agent.wire import paths
from agent.wire.base import Sent, SentSecret, Text
from simulator.login.refreshing import TokenEndpoint, read_tokens
from simulator.login.tokens import TokenAnswer


class ExchangeCode(Sent):
    """``POST {base_url}/functions/v1/partner-oauth-token``: exchange the code.

    ``client_secret`` for a confidential client, ``code_verifier`` for a public one.
    """

    grant_type: Literal["authorization_code"] = "authorization_code"
    code: SentSecret
    redirect_uri: Text
    client_id: Text
    client_secret: SentSecret | None = None
    code_verifier: SentSecret | None = None


class TokenCalls(TokenEndpoint):
    """Codes and refresh tokens for tokens. Every call may raise :class:`~agent.errors.ServiceError`."""

    def exchange_code(self, request: ExchangeCode, endpoint: str = paths.OAUTH_TOKEN) -> TokenAnswer:
        """The one-time code for tokens.

        Args:
            request: the code and the client that sends it.
            endpoint: another path, or an address of the same origin, where the service names one.
        """
        return self.exchange_code_timed(request, endpoint)[0]

    def exchange_code_timed(
        self, request: ExchangeCode, endpoint: str = paths.OAUTH_TOKEN
    ) -> tuple[TokenAnswer, float | None]:
        """As :meth:`exchange_code`, with the service's clock at that moment, seconds since the epoch."""
        answer = self._write("POST", endpoint, request)
        return read_tokens(answer), answer.server_time
