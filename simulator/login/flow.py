"""The round trip through a browser: authorization code with PKCE (specification, "Step 1" and "Step 2").

The browser comes back to a loopback redirect (RFC 8252, section 7.3): one address on this machine, once.
"""

from __future__ import annotations

import hmac
import secrets
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from agent.errors import ConfigurationError, Refused, Unauthorized
from agent.wire.answers import one_line
from agent.wire.client import Connection
from agent.wire.secret import Secret
from simulator.login.errors import SignInFailed
from simulator.login.tokens import TokenSet, ask_for_tokens
from simulator.wire import paths
from simulator.wire.base64url import challenge_of

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True)
class SignIn:
    """One sign-in: where the browser goes, and the tokens for what it comes back with.

    Attributes:
        client_id: of the partner application.
        client_secret: of a confidential client; a public one, with None, proves itself by PKCE.
        scope: what is asked for, with spaces between.
        redirect_uri: one that is registered for the client.
        auth_url: the authorization address, where it is not the service's own.
    """

    connection: Connection
    client_id: str
    client_secret: Secret | None
    scope: str
    redirect_uri: str
    auth_url: str | None = None
    _state: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _verifier: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def url(self) -> str:
        """Where the browser goes.

        Raises:
            ConfigurationError: a password that is typed there could be read on the way.
        """
        page = f"{(self.auth_url or str(self.connection.base_url)).rstrip('/')}{paths.OAUTH_AUTHORIZE}"
        parts = urlsplit(page)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            fault = f"the sign-in page {one_line(page)} is not https: a password typed there could be read"
            raise ConfigurationError([f"{fault}; give --auth-url https://..."], "login")
        query = {
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": self.scope,
            "response_type": "code",
            "state": self._state,
        }
        if self.client_secret is None:
            query |= {"code_challenge": challenge_of(self._verifier), "code_challenge_method": "S256"}
        return f"{page}?{urlencode(query)}"

    def finish(self, query: str) -> TokenSet:
        """The tokens for what the browser came back with.

        Args:
            query: of the redirect, without the question mark.

        Raises:
            SignInFailed: denied, mixed up, or refused.
            ServiceError: the service did not answer.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code_of(query, self._state),
            "redirect_uri": self.redirect_uri,
            "client_id": self.client_id,
            "client_secret": self.client_secret.reveal() if self.client_secret else None,
            "code_verifier": None if self.client_secret else self._verifier,
        }
        try:
            answer = ask_for_tokens(self.connection, form)
        except (Unauthorized, Refused) as error:
            fix = "check --client-id and --client-secret-file, and run the command again"
            raise SignInFailed(f"the service gives no tokens for the code ({error}): {fix}") from None
        base_url = str(self.connection.base_url).rstrip("/")
        tokens = TokenSet(
            base_url=base_url, client_id=self.client_id, access_token=answer.access_token, scope=self.scope
        )
        return tokens.renewed(answer, time.time())


def code_of(query: str, state: str) -> str:
    """The one-time code that the browser came back with.

    Args:
        query: of the redirect.
        state: that the browser was sent with (specification, "Step 1: authorize").

    Raises:
        SignInFailed: denied, not an answer to this request, or not one at all.
    """
    members = dict(parse_qsl(query))
    if not hmac.compare_digest(members.get("state", "").encode(), state.encode()):
        raise SignInFailed(
            "the browser came back with an answer to another sign-in (state does not match): close the old tab, "
            "and run the command again"
        )
    if "error" in members:
        reason = one_line(f"{members['error']}: {members.get('error_description', '')}")
        hint = "check --scope: each must be in the client's allowed set" if "scope" in reason else "nothing was stored"
        raise SignInFailed(f"the sign-in was refused ({reason}); {hint}")
    if "code" not in members:
        raise SignInFailed("the browser came back without a code: run the command again")
    return members["code"]


class Listener(ThreadingHTTPServer):
    """Listens on ``http://127.0.0.1:PORT/callback``; only this machine can reach it.

    Args:
        port: one that is registered for the client.

    Raises:
        ConfigurationError: the port cannot be had.
    """

    daemon_threads = True  # a connection that a browser opened ahead must not hold up the end
    timeout = 0.2

    def __init__(self, port: int) -> None:
        self.query: str | None = None
        try:
            super().__init__((HOST, port), _Browser)
        except OSError as error:
            fault = f"--redirect-port {port}: {error.strerror}; end what uses it, or choose another registered port"
            raise ConfigurationError([fault], "login") from None

    def wait(self, timeout_s: float) -> str:
        """The query that the browser came back with first.

        Raises:
            SignInFailed: it did not come back in time.
        """
        deadline_s = time.monotonic() + timeout_s
        while self.query is None:
            if time.monotonic() > deadline_s:
                fix = "with --timeout for more time, or with --paste when the browser is on another machine"
                raise SignInFailed(f"nobody signed in within {timeout_s:g} s: run the command again, {fix}")
            self.handle_request()
        return self.query


class _Browser(BaseHTTPRequestHandler):
    server: Listener
    timeout = 10.0

    def do_GET(self) -> None:
        """The redirect, or something else that a browser asks for."""
        parts = urlsplit(self.path)
        # Another name that leads here would be another site's page (DNS rebinding).
        is_here = self.headers.get("Host", "") == f"{HOST}:{self.server.server_address[1]}" and parts.path == PATH
        there = "Go back to the terminal: it says how the sign-in ended. This page can be closed."
        page = (there if is_here else "There is nothing here: follow the link that the command printed.").encode()
        self.send_response(200 if is_here else 404)
        for name, value in (
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(page))),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(page)
        if is_here and self.server.query is None:  # last: after it the command may end at any moment
            self.server.query = parts.query

    def log_message(self, *_: object) -> None:
        """Nothing: the address holds the code."""
