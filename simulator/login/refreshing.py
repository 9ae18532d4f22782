"""``Authorization: Bearer`` that renews itself; when to renew is decided by :mod:`simulator.login.token_keeper`."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

import httpx

from agent.errors import UnexpectedAnswer
from agent.wire import paths
from agent.wire.answers import Answer
from agent.wire.auth import Credential, origin_of
from agent.wire.connection import Connection
from agent.wire.device_client import Calls, read_record
from agent.wire.secret import MAX_TOKEN_FILE_BYTES, Secret
from simulator.login.errors import SignInEnded
from simulator.login.token_keeper import TokenKeeper, TokenStore
from simulator.login.tokens import RefreshTokens, TokenAnswer, TokenSet, is_token

_UNAUTHORIZED: Final = 401
_BEARER: Final = "bearer"


class RefreshingBearer(Credential):
    """``Authorization: Bearer`` out of a store, renewed when it ends. Thread-safe.

    A request that is refused with 401 is repeated once with a new token, and never again. Hand one of these to all
    connections of a process::

        bearer = RefreshingBearer(TokenFile(Path("token.json")))
        with ServiceClient(bearer.base_url, bearer) as service:
            ...

    Args:
        store: where the tokens are kept.
        client_secret: of a confidential client.
        timeout_s: for renewing.
        ca_file: PEM file with the authorities that alone are trusted when tokens are renewed; None trusts the system's.
        transport: replaces the network when tokens are renewed, for tests.
        monotonic, wall: see :class:`TokenKeeper`.

    Raises:
        ServiceError: the store holds nothing that can be used.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        client_secret: Secret | None = None,
        timeout_s: float = 10.0,
        ca_file: Path | None = None,
        transport: httpx.BaseTransport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._client_secret = client_secret
        self._store = store

        def refresh(tokens: TokenSet, refresh_token: Secret) -> TokenAnswer:
            return renew(
                tokens, refresh_token, client_secret, timeout_s=timeout_s, ca_file=ca_file, transport=transport
            )

        self._keeper = TokenKeeper(store, refresh, monotonic=monotonic, wall=wall)

    def __repr__(self) -> str:
        return f"RefreshingBearer({self._store.name})"

    @property
    def base_url(self) -> str:
        """The service that the tokens are for."""
        return self._keeper.held.base_url

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the token; when the service refuses it, once more with a new one.

        Raises:
            SignInEnded: a person has to sign in again, or the tokens are for another service.
            ServiceError: they could not be renewed now.
        """
        if self.origin is None or origin_of(request.url) != self.origin:
            yield request
            return
        tokens = self._for_this_origin(self._keeper.current())
        request.headers.update(_header(tokens))
        response = yield request
        if not is_refusal(response):
            if response.status_code != _UNAUTHORIZED:
                self._keeper.accepted(tokens)
            return
        better = self._keeper.refused(tokens)
        if better is None:
            return
        _drop_body(response)
        request.headers.update(_header(self._for_this_origin(better)))
        response = yield request
        if response.status_code != _UNAUTHORIZED:
            self._keeper.accepted(better)

    def _for_this_origin(self, tokens: TokenSet) -> TokenSet:
        if origin_of(httpx.URL(tokens.base_url)) != self.origin:
            raise SignInEnded(
                f"{self._store.name} holds tokens for {tokens.base_url}, and this service is {self.origin}: sign in "
                f"here, with fleet-simulator login --base-url ADDRESS --out {self._store.name}"
            )
        return tokens

    def _headers(self) -> dict[str, str]:
        return _header(self._keeper.held)

    def _secrets(self) -> tuple[Secret, ...]:
        sets = [tokens for tokens in (self._keeper.held, self._keeper.unwritten) if tokens is not None]
        secrets = [secret for tokens in sets for secret in (tokens.access_token, tokens.refresh_token)]
        return tuple(secret for secret in (*secrets, self._client_secret) if secret)


def is_refusal(response: httpx.Response) -> bool:
    """Whether this answer says that the access token is no good.

    RFC 6750, section 3: ``WWW-Authenticate: Bearer error="invalid_token"``. A service that sends no such header means
    the same by its 401 (specification, "Errors"); one that asks for something else, such as the key pair, does not.
    """
    if response.status_code != _UNAUTHORIZED:
        return False
    challenges = response.headers.get("www-authenticate", "").lower()
    if not challenges:
        return True
    return "bearer" in challenges and ("error=" not in challenges or "invalid_token" in challenges)


def _header(tokens: TokenSet) -> dict[str, str]:
    return {"Authorization": f"Bearer {tokens.access_token.reveal()}"}


def _drop_body(response: httpx.Response) -> None:
    """Httpx would read it whole before the repeat, however large it is."""
    if not response.is_closed and isinstance(response.stream, httpx.SyncByteStream):
        response.stream.close()
        response.stream = httpx.ByteStream(b"")


class TokenEndpoint(Calls):
    """The token endpoint (specification, "Refresh"). Every call may raise :class:`~agent.errors.ServiceError`."""

    def refresh_tokens(self, request: RefreshTokens, endpoint: str = paths.OAUTH_TOKEN) -> TokenAnswer:
        """``POST {base_url}/functions/v1/partner-oauth-token``: a new pair of tokens; the old pair ends.

        Args:
            request: the refresh token and its client.
            endpoint: another path, or an address of the same origin, where the service names one.
        """
        return read_tokens(self._write("POST", endpoint, request))


def read_tokens(answer: Answer) -> TokenAnswer:
    """The tokens in an answer of the token endpoint.

    Raises:
        UnexpectedAnswer: there are none, of another type than Bearer, or with characters that no header takes.
    """
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
        transport=_SharedTransport.of(transport),
    )
    with connection:
        request = RefreshTokens(refresh_token=refresh_token, client_id=tokens.client_id, client_secret=client_secret)
        return TokenEndpoint(connection).refresh_tokens(request, tokens.token_endpoint or paths.OAUTH_TOKEN)


class Unsent(Credential):
    """A credential without headers: secrets that go in a request's body and are masked in all texts."""

    def __init__(self, *secrets: Secret | None) -> None:
        super().__init__()
        self._kept = [secret for secret in secrets if secret]

    def add(self, secret: Secret) -> None:
        """Add a secret to keep out of texts, also when this credential is bound to an origin already."""
        self._kept.append(secret)

    def _headers(self) -> dict[str, str]:
        return {}

    def _secrets(self) -> tuple[Secret, ...]:
        return tuple(self._kept)


class _SharedTransport(httpx.BaseTransport):
    """A transport that outlives the connection that uses it."""

    def __init__(self, transport: httpx.BaseTransport) -> None:
        self._transport = transport

    @classmethod
    def of(cls, transport: httpx.BaseTransport | None) -> _SharedTransport | None:
        return None if transport is None else cls(transport)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._transport.handle_request(request)
