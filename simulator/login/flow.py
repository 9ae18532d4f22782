"""The round trip through a browser: authorization code with PKCE (specification, "Step 1" and "Step 2").

The browser comes back to a loopback redirect (RFC 8252, section 7.3): one address on this machine, once.
"""

from __future__ import annotations

import hmac
import secrets
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from agent.errors import ConfigurationError, Refused, Unauthorized
from agent.wire import paths
from agent.wire.answers import one_line
from agent.wire.connection import Connection
from agent.wire.secret import Secret
from simulator.login.errors import SignInFailed
from simulator.login.tokens import TokenSet, ask_for_tokens
from simulator.wire.base64url import challenge_of

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_LOOK_S: Final = 0.2


class SignIn:
    """One sign-in: where the browser goes, and the tokens for what it comes back with.

    Args:
        connection: to the service.
        client_id: of the partner application.
        client_secret: of a confidential client; a public one, with None, proves itself by PKCE.
        scope: what is asked for, with spaces between.
        redirect_uri: one that is registered for the client.
        auth_url: the authorization address, where it is not the service's own.

    Raises:
        ConfigurationError: a password that is typed there could be read on the way.
    """

    def __init__(
        self,
        connection: Connection,
        client_id: str,
        client_secret: Secret | None,
        scope: str,
        redirect_uri: str,
        auth_url: str | None = None,
    ) -> None:
        self._connection = connection
        self._base_url = str(connection.base_url).rstrip("/")
        self._client_id = client_id
        self._client_secret = client_secret
        self._scope = " ".join(scope.split())
        self._redirect_uri = redirect_uri
        self._page = f"{(auth_url or self._base_url).rstrip('/')}{paths.OAUTH_AUTHORIZE}"
        self._state = secrets.token_urlsafe(32)
        self._verifier = secrets.token_urlsafe(32) if client_secret is None else None
        parts = urlsplit(self._page)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            fault = f"the sign-in page {one_line(self._page)} is not https: a password typed there could be read"
            raise ConfigurationError([f"{fault}; give --auth-url https://..."], "login")

    @property
    def url(self) -> str:
        """Where the browser goes."""
        query = {
            "client_id": self._client_id,
            "redirect_uri": self._redirect_uri,
            "scope": self._scope,
            "response_type": "code",
            "state": self._state,
        }
        if self._verifier is not None:
            query |= {"code_challenge": challenge_of(self._verifier), "code_challenge_method": "S256"}
        return f"{self._page}?{urlencode(query)}"

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
            "redirect_uri": self._redirect_uri,
            "client_id": self._client_id,
            "client_secret": self._client_secret.reveal() if self._client_secret else None,
            "code_verifier": self._verifier,
        }
        try:
            answer = ask_for_tokens(self._connection, form)
        except Unauthorized as error:
            fix = "check --client-id and --client-secret-file"
            raise SignInFailed(f"the service does not take the client ({error}): {fix}") from None
        except Refused as error:
            raise SignInFailed(f"the service does not take the code ({error}): run the command again") from None
        tokens = TokenSet(
            base_url=self._base_url, client_id=self._client_id, access_token=answer.access_token, scope=self._scope
        )
        return tokens.renewed(answer, time.time())


def query_of(pasted: str) -> str:
    """The query of an address that a person pasted; the query alone will do.

    Raises:
        SignInFailed: it has none.
    """
    text = pasted.strip().strip("'\"")
    try:
        query = urlsplit(text).query if "?" in text else text
    except ValueError:  # such as a bracket where a host belongs
        query = ""
    if "=" not in query:
        raise SignInFailed("that is not the address: copy all of what the browser's address line shows, from http on")
    return query


def code_of(query: str, state: str) -> str:
    """The one-time code that the browser came back with.

    Args:
        query: of the redirect.
        state: that the browser was sent with (specification, "Step 1: authorize").

    Raises:
        SignInFailed: denied, not an answer to this request, or not one at all.
    """
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=50)
    except ValueError:
        raise SignInFailed("the browser came back with more than 50 members, which no service sends") from None
    members = dict(pairs)
    if any(sum(name == key for key, _ in pairs) > 1 for name in ("code", "state", "error")):
        raise SignInFailed("the browser came back with a member twice, which no service does: sign in again")
    if not hmac.compare_digest(members.get("state", "").encode(), state.encode()):
        raise SignInFailed(
            "the browser came back with an answer to another sign-in (state does not match): close the old tab, "
            "and run the command again"
        )
    error = members.get("error")
    if error == "access_denied":
        raise SignInFailed("access was denied in the browser; nothing was stored")
    if error is not None:
        reason = one_line(f"{error}: {members.get('error_description', '')}")
        hint = "check --scope: each must be in the client's allowed set" if error == "invalid_scope" else "try again"
        raise SignInFailed(f"the service refused the sign-in ({reason}): {hint}")
    if not members.get("code"):
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
    timeout = _LOOK_S

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
                raise SignInFailed(
                    f"nobody signed in within {timeout_s:g} s: run the command again, with --timeout for more time, or "
                    "with --paste when the browser is on another machine"
                )
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
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(page)
        if is_here and self.server.query is None:  # last: after it the command may end at any moment
            self.server.query = parts.query

    def log_message(self, *_: object) -> None:
        """Nothing: the address holds the code."""
