"""The round trip through a browser: authorization code with PKCE (specification, "Step 1" and "Step 2").

The browser comes back to a loopback redirect (RFC 8252, section 7.3): one address on this machine, once.
"""

from __future__ import annotations

import hmac
import queue
import secrets
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx

from agent.errors import ConfigurationError, NotFound, Refused, Unauthorized, UnexpectedAnswer
from agent.wire import paths
from agent.wire.answers import one_line
from agent.wire.auth import origin_of
from agent.wire.connection import Connection
from agent.wire.secret import Secret
from simulator.login.errors import SignInFailed
from simulator.login.tokens import TokenSet, ask_for_tokens
from simulator.wire.base64url import challenge_of

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_ONCE: Final = ("code", "state", "error", "iss")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The endpoints of an authorization server.

    Attributes:
        authorize: the authorization endpoint, without a query.
        token: the token endpoint: an address of the service's origin, or empty for the specification's path.
        issuer: what the service calls itself; None when it has no document (RFC 8414).
        sends_iss: each redirect carries ``iss`` (RFC 9207).
    """

    authorize: str
    token: str = ""
    issuer: str | None = None
    sends_iss: bool = False


def find_endpoints(connection: Connection, auth_url: str | None) -> Endpoints:
    """Ask the service where its endpoints are; one without a document has the specification's paths.

    Args:
        connection: to the service.
        auth_url: the authorization address, where it is not the service's own.

    Raises:
        ConfigurationError: the document is of another service, or sends codes or tokens where they must not go.
        ServiceError: the service cannot be asked.
    """
    base_url = str(connection.base_url).rstrip("/")
    own = f"{(auth_url or base_url).rstrip('/')}{paths.OAUTH_AUTHORIZE}"
    document = _read_document(connection)
    if document is None:
        _check_authorize(own)
        return Endpoints(own)

    def text(name: str) -> str:
        value = document.get(name)
        return value if isinstance(value, str) else ""

    issuer, token = text("issuer"), text("token_endpoint")
    if issuer.rstrip("/") != base_url:
        fault = f"the service there calls itself {one_line(issuer) or 'nothing'}: give the address by which it does"
        raise ConfigurationError([f"--base-url {base_url}: {fault}"], "login")
    methods = document.get("code_challenge_methods_supported")
    if isinstance(methods, list) and "S256" not in methods:
        raise ConfigurationError([f"{issuer} does not offer PKCE with S256, without which no code is safe"], "login")
    if token and origin_of(_url(token)) != connection.origin:
        fault = f"{issuer} names a token endpoint of another origin, {one_line(token)}; no secret is sent there"
        raise ConfigurationError([fault], "login")
    authorize = own if auth_url else text("authorization_endpoint") or own
    _check_authorize(authorize)
    return Endpoints(authorize, token, issuer, document.get("authorization_response_iss_parameter_supported") is True)


def _read_document(connection: Connection) -> dict[str, Any] | None:
    """RFC 8414, section 3.1: between the host and the path; and where many services have it, below the path."""
    path = connection.base_url.path.rstrip("/")
    for place in dict.fromkeys([f"{connection.origin}{paths.OAUTH_METADATA}{path}", paths.OAUTH_METADATA]):
        try:
            value = connection.request("GET", place).json()
        except (NotFound, Refused, Unauthorized):  # a plain server asks for keys on unknown paths
            continue
        except UnexpectedAnswer as error:
            if error.status == 404:
                continue
            raise
        if isinstance(value, dict):
            return value
    return None


def _url(address: str) -> httpx.URL:
    try:
        return httpx.URL(address)
    except httpx.InvalidURL:
        return httpx.URL()


def _check_authorize(address: str) -> None:
    """A password is typed there."""
    url = _url(address)
    if url.scheme == "https" or (url.scheme == "http" and url.host in _LOOPBACK):
        return
    fault = f"the sign-in page {one_line(address)} is not https: a password typed there could be read on the way"
    raise ConfigurationError([f"{fault}; give --auth-url https://..."], "login")


class SignIn:
    """One sign-in: where the browser goes, and the tokens for what it comes back with.

    Args:
        connection: to the service.
        endpoints: of the service.
        client_id: of the partner application.
        client_secret: of a confidential client; a public one, with None, proves itself by PKCE.
        scope: what is asked for, with spaces between.
        redirect_uri: one that is registered for the client.
    """

    def __init__(
        self,
        connection: Connection,
        endpoints: Endpoints,
        client_id: str,
        client_secret: Secret | None,
        scope: str,
        redirect_uri: str,
    ) -> None:
        self._connection = connection
        self._endpoints = endpoints
        self._client_id = client_id
        self._client_secret = client_secret
        self._scope = " ".join(scope.split())
        self._redirect_uri = redirect_uri
        self._state = secrets.token_urlsafe(32)
        self._verifier = secrets.token_urlsafe(32) if client_secret is None else None

    @property
    def url(self) -> str:
        """Where the browser goes; the authorization endpoint may have a query of its own."""
        query = {
            "client_id": self._client_id,
            "redirect_uri": self._redirect_uri,
            "scope": self._scope,
            "response_type": "code",
            "state": self._state,
        }
        if self._verifier is not None:
            query |= {"code_challenge": challenge_of(self._verifier), "code_challenge_method": "S256"}
        endpoint = self._endpoints.authorize
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def finish(self, query: str) -> TokenSet:
        """Exchange the code that the browser came back with.

        Args:
            query: of the redirect, without the question mark.

        Raises:
            SignInFailed: denied, mixed up, or refused.
            ServiceError: the service did not answer.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code_of(query, self._state, self._endpoints),
            "redirect_uri": self._redirect_uri,
            "client_id": self._client_id,
            "client_secret": self._client_secret.reveal() if self._client_secret else None,
            "code_verifier": self._verifier,
        }
        try:
            answer = ask_for_tokens(self._connection, self._endpoints.token or paths.OAUTH_TOKEN, form)
        except Unauthorized as error:
            fix = "check --client-id and --client-secret-file"
            raise SignInFailed(f"the service does not take the client ({error}): {fix}") from None
        except Refused as error:
            raise SignInFailed(f"the service does not take the code ({error}): run the command again") from None
        tokens = TokenSet(
            base_url=str(self._connection.base_url).rstrip("/"),
            client_id=self._client_id,
            access_token=answer.access_token,
            scope=self._scope,
            token_endpoint=self._endpoints.token,
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


def code_of(query: str, state: str, endpoints: Endpoints) -> str:
    """The one-time code that the browser came back with.

    Args:
        query: of the redirect.
        state: that the browser was sent with (specification, "Step 1: authorize").
        endpoints: of the service that it was sent to.

    Raises:
        SignInFailed: denied, not an answer to this request, or not one at all.
    """
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=50)
    except ValueError:
        raise SignInFailed("the browser came back with more than 50 members, which no service sends") from None
    members = dict(pairs)
    if any(sum(name == key for key, _ in pairs) > 1 for name in _ONCE):
        raise SignInFailed("the browser came back with a member twice, which no service does: sign in again")
    if not hmac.compare_digest(members.get("state", "").encode(), state.encode()):
        raise SignInFailed(
            "the browser came back with an answer to another sign-in (state does not match): close the old tab, "
            "and run the command again"
        )
    iss, issuer = members.get("iss"), endpoints.issuer
    if issuer is not None and iss != issuer and (iss is not None or endpoints.sends_iss):
        raise SignInFailed(
            f"the answer is not from {issuer} (iss is {one_line(iss) if iss else 'missing'}): another service has "
            "mixed in; check --base-url, and sign in again"
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


HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Connection": "close",
}
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{text}</title>
<p style="font: 1.25rem/1.5 system-ui, sans-serif; max-width: 32rem; margin: 20vh auto; padding: 1rem">{text}</p>
</html>
"""
_WRONG: Final = "There is nothing here: follow the link that the command printed."
_BACK: Final = "Go back to the terminal: it says how the sign-in ended. This page can be closed."


class Listener:
    """Waits on ``http://127.0.0.1:PORT/callback``; only this machine can reach it.

    Args:
        port: one that is registered for the client.

    Raises:
        ConfigurationError: the port cannot be had.
    """

    def __init__(self, port: int) -> None:
        try:
            self._server = _Server((HOST, port), _Browser)
        except OSError as error:
            fault = f"--redirect-port {port}: {error.strerror}; end what uses it, or choose another registered port"
            raise ConfigurationError([fault], "login") from None

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait(self, timeout_s: float) -> str:
        """The query that the browser came back with first.

        Raises:
            SignInFailed: it did not come back in time.
        """
        try:
            return self._server.queries.get(timeout=timeout_s)
        except queue.Empty:
            raise SignInFailed(
                f"nobody signed in within {timeout_s:g} s: run the command again, with --timeout for more time, or "
                "with --paste when the browser is on another machine"
            ) from None


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # a connection that a browser opened ahead must not hold up the end

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.queries: queue.Queue[str] = queue.Queue()


class _Browser(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10.0  # a browser opens connections ahead and says nothing on them

    def do_GET(self) -> None:
        """The redirect, or something else that a browser asks for."""
        parts = urlsplit(self.path)
        # Another name that leads here would be another site's page (DNS rebinding).
        if self.headers.get("Host", "") != f"{HOST}:{self.server.server_address[1]}":
            self._say(400, _WRONG)
        elif parts.path != PATH:
            self._say(404, _WRONG)
        else:
            self._say(200, _BACK)  # first: after the query the command may end at any moment
            self.server.queries.put(parts.query)

    def _say(self, status: int, text: str) -> None:
        page = _PAGE.format(text=text).encode()
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Length": str(len(page))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Nothing: the address holds the code."""
