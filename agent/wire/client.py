"""The typed client: one method for each endpoint of the specification, and for the extensions a service may offer."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from agent.wire import paths
from agent.wire.analytics import DeviceAnalytics
from agent.wire.auth import BearerToken, KeyPair
from agent.wire.calls import read_record, time_param
from agent.wire.connection import Connection, Interrupted
from agent.wire.device_client import DeviceClient
from agent.wire.onboarding_calls import OnboardingCalls
from agent.wire.product_calls import ProductCalls
from agent.wire.secret import Secret
from agent.wire.sign_in import ExchangeCode, RefreshTokens, SignIn, TokenAnswer

__all__ = ["BearerToken", "Connection", "Interrupted", "KeyPair", "ServiceClient", "authorize_url"]


class ServiceClient(ProductCalls, OnboardingCalls, DeviceClient):
    """The whole interface of the service; arguments and behaviour are those of :class:`DeviceClient`."""

    def device_analytics(
        self, *, from_: float | None = None, to: float | None = None, interval_s: int | None = None
    ) -> DeviceAnalytics:
        """``GET /analytics/devices``; times in seconds since the epoch."""
        query = {"from": time_param(from_), "to": time_param(to), "interval": interval_s}
        return self._get(DeviceAnalytics, paths.DEVICE_ANALYTICS, "analytics", query)

    def sign_in(self, email: str, password: Secret) -> TokenAnswer:
        """``POST /auth/signin``; a wrong pair raises :class:`~agent.errors.Unauthorized`."""
        answer = self._write("POST", paths.SIGN_IN, SignIn(email=email, password=password))
        return read_record(TokenAnswer, answer, "session")

    def exchange_code(self, request: ExchangeCode) -> TokenAnswer:
        """``POST {base_url}/functions/v1/partner-oauth-token``: the one-time code for tokens."""
        return read_record(TokenAnswer, self._write("POST", paths.OAUTH_TOKEN, request), "token")

    def refresh_tokens(self, request: RefreshTokens) -> TokenAnswer:
        """The same path: a new pair of tokens; the old pair ends."""
        return read_record(TokenAnswer, self._write("POST", paths.OAUTH_TOKEN, request), "token")


def authorize_url(
    auth_url: str,
    *,
    client_id: str,
    redirect_uri: str,
    scope: str,
    state: str,
    code_challenge: str | None = None,
) -> str:
    """Where to send the user's browser (specification, "Step 1: authorize").

    Args:
        auth_url: the authorization address, ``{auth_url}`` in the specification.
        client_id: the partner's client identifier.
        redirect_uri: one that is registered for the client, exactly.
        scope: such as ``manufacturer:products``, several with spaces.
        state: a random string; it must come back unchanged.
        code_challenge: public clients: base64url of the SHA-256 of the verifier; sent with method ``S256``.
    """
    query: Mapping[str, str] = {
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "scope": scope,
        "response_type": "code",
        "state": state,
    }
    challenge = {} if code_challenge is None else {"code_challenge": code_challenge, "code_challenge_method": "S256"}
    return f"{auth_url.rstrip('/')}{paths.OAUTH_AUTHORIZE}?{urlencode({**query, **challenge})}"
