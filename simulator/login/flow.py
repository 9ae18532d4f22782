"""A sign-in from the first look at the service to the tokens on the disk."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from agent.errors import ConfigurationError, Refused, Unauthorized
from agent.wire import paths
from agent.wire.connection import Connection
from agent.wire.secret import MAX_TOKEN_FILE_BYTES, Secret
from simulator.login.errors import SignInEnded, TokensNotStored
from simulator.login.metadata import Endpoints, find_endpoints
from simulator.login.refreshing import Unsent
from simulator.login.request import SignInFailed, SignInRequest, begin
from simulator.login.token_store import TokenFile
from simulator.login.tokens import TokenSet
from simulator.wire.token_calls import ExchangeCode, TokenCalls


@dataclass(frozen=True, slots=True)
class SignInOptions:
    """What a person asked for.

    Attributes:
        auth_url: the authorization address; None asks the service.
        client_secret: of a confidential client; a public one proves itself by PKCE.
        redirect_uri: one that is registered for the client.
        out: the file for the tokens.
        ca_file: the authorities that alone are trusted; None trusts the system's.
    """

    base_url: str
    auth_url: str | None
    client_id: str
    client_secret: Secret | None
    scope: str
    redirect_uri: str
    out: Path
    ca_file: Path | None = None


class SignIn:
    """One sign-in. Use :meth:`begun`."""

    def __init__(
        self,
        wanted: SignInOptions,
        connection: Connection,
        endpoints: Endpoints,
        request: SignInRequest,
        kept_out: Unsent,
    ) -> None:
        self._wanted = wanted
        self._connection = connection
        self._endpoints = endpoints
        self._request = request
        self._kept_out = kept_out

    @classmethod
    @contextlib.contextmanager
    def begun(cls, wanted: SignInOptions, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> Iterator[Self]:
        """A sign-in that a browser can be sent to.

        Raises:
            ConfigurationError: the file cannot be written, or the service must not be trusted.
            ServiceError: the service cannot be asked.
        """
        _check_writable(TokenFile(wanted.out))
        is_public = wanted.client_secret is None
        scope = " ".join(wanted.scope.split())
        request = begin(wanted.client_id, wanted.redirect_uri, scope, random_bytes, is_public=is_public)
        kept_out = Unsent(request.verifier, wanted.client_secret)
        with Connection(
            wanted.base_url, kept_out, max_answer_bytes=MAX_TOKEN_FILE_BYTES, ca_file=wanted.ca_file
        ) as connection:
            yield cls(wanted, connection, find_endpoints(connection, wanted.auth_url), request, kept_out)

    @property
    def url(self) -> str:
        """Where the browser goes."""
        return self._request.url(self._endpoints.authorize)

    def finish(self, query: str) -> TokenSet:
        """Exchange the code that the browser came back with, and store the tokens.

        Raises:
            SignInFailed: denied, mixed up, or refused.
            ServiceError: the service did not answer, or the tokens could not be stored.
        """
        endpoints, request = self._endpoints, self._request
        code = request.code_of(query, endpoints.issuer, iss_announced=endpoints.sends_iss)
        self._kept_out.add(code)
        body = ExchangeCode(
            code=code,
            redirect_uri=request.redirect_uri,
            client_id=request.client_id,
            client_secret=self._wanted.client_secret,
            code_verifier=request.verifier,
        )
        calls = TokenCalls(self._connection)
        try:
            answer, service_s = calls.exchange_code_timed(body, endpoints.token or paths.OAUTH_TOKEN)
        except Unauthorized as error:
            fix = "check --client-id and --client-secret-file"
            raise SignInFailed(f"the service does not take the client ({error}): {fix}") from None
        except Refused as error:
            raise SignInFailed(f"the service does not take the code ({error}): run the command again") from None
        now_s = time.time()
        begun = TokenSet(
            base_url=str(self._connection.base_url).rstrip("/"),
            client_id=request.client_id,
            access_token=answer.access_token,
            scope=request.scope,
            issuer=endpoints.issuer or "",
            token_endpoint=endpoints.token,
            authorized_at=now_s if service_s is None else service_s,
        )
        tokens = begun.renewed(answer, now_s)
        store = TokenFile(self._wanted.out)
        with store.exclusive():
            store.write(tokens)
        return tokens


def _check_writable(store: TokenFile) -> None:
    """Before anybody signs in for nothing. A file that is something else is not replaced."""
    try:
        if store.exists():
            store.read()
        with store.exclusive():
            store.reserve()
    except SignInEnded:
        fault = f"--out {store.name} is there and is no token file: choose another"
        raise ConfigurationError([fault], "login") from None
    except TokensNotStored as error:
        raise ConfigurationError([f"--out {store.name}: {error}"], "login") from None
