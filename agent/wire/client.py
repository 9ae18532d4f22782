"""The typed client: one method for each endpoint of the specification, and for the extensions a service may offer."""

from __future__ import annotations

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
from agent.wire.sign_in import SignIn, TokenAnswer
from agent.wire.token_calls import TokenCalls

__all__ = ["BearerToken", "Connection", "Interrupted", "KeyPair", "ServiceClient", "authorize_url"]


class ServiceClient(ProductCalls, OnboardingCalls, TokenCalls, DeviceClient):
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
    endpoint = f"{auth_url.rstrip('/')}{paths.OAUTH_AUTHORIZE}"
    query = {
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "scope": scope,
        "response_type": "code",
        "state": state,
    }
    challenge = {} if code_challenge is None else {"code_challenge": code_challenge, "code_challenge_method": "S256"}
    return f"{endpoint}?{urlencode({**query, **challenge})}"
