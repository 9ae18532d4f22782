"""The typed client: one method for each endpoint of the specification, and for the extensions a service may offer."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

import httpx

from agent.errors import NotFound, Refused, UnexpectedAnswer
from agent.wire import extensions, paths
from agent.wire.analytics import DeviceAnalytics
from agent.wire.auth import BearerToken, Credential, KeyPair
from agent.wire.calls import read_record, time_param
from agent.wire.connection import Connection, Interrupted
from agent.wire.device_calls import DeviceCalls
from agent.wire.limits import ANSWER_BYTES
from agent.wire.product_calls import ProductCalls
from agent.wire.secret import Secret
from agent.wire.sign_in import ExchangeCode, RefreshTokens, SignIn, TokenAnswer

__all__ = ["BearerToken", "Connection", "Interrupted", "KeyPair", "ServiceClient", "authorize_url"]

_NOT_FOUND = 404


class ServiceClient(ProductCalls, DeviceCalls):
    """The whole interface of the service, synchronous, usable from any thread.

    Every method makes its requests once: what to do about an error is the caller's, by the error's ``advice``. Methods
    that list return iterators that fetch page after page when asked for, so their errors come while iterating.

    Args:
        base_url: the gateway address, ``{base_url}`` in the specification.
        auth: :class:`KeyPair` or :class:`BearerToken`; None sends none.
        timeout_s: for each wait for the service, seconds.
        max_answer_bytes: the largest answer, after decoding.
        transport: replaces the network, for tests.
        user_agent: the ``User-Agent`` header.

    Raises:
        ConfigurationError: the base URL cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        auth: Credential | None,
        *,
        timeout_s: float = 10.0,
        max_answer_bytes: int = ANSWER_BYTES,
        transport: httpx.BaseTransport | None = None,
        user_agent: str = "device-agent",
    ) -> None:
        super().__init__(
            Connection(
                base_url,
                auth,
                timeout_s=timeout_s,
                max_answer_bytes=max_answer_bytes,
                transport=transport,
                user_agent=user_agent,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End held polls and release the connections."""
        self.connection.close()

    def discover(self) -> frozenset[str]:
        """``GET /.well-known/device-service``: the names of the extensions that this service has.

        A plain server (404, another refusal of the path, or JSON without the list) has none.

        Raises:
            ServiceError: not known: no answer, a captive portal, wrong credentials, a failing service.
        """
        try:
            value = self.connection.request("GET", paths.DISCOVERY).json()
        except (NotFound, Refused):
            return extensions.NONE
        except UnexpectedAnswer as exc:
            if exc.status == _NOT_FOUND:  # a web page says so: many servers have one for unknown paths
                return extensions.NONE
            raise
        names = value.get("extensions") if isinstance(value, dict) else None
        return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()

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
