"""``GET /partner-oauth-authorize``: what becomes of a request, decided without doing anything.

How a page uses it::

    pairs = parse_pairs(query_string)                       # ValueError: show UNREADABLE
    client = clients.find(connection, client_id_of(pairs))  # None stays None
    match decide(pairs, client):
        case ErrorPage() as page: ...                       # 400; never a redirect
        case RedirectError() as error: ...                  # 303 to error.location(issuer)
        case AuthorizationRequest() as request: ...         # sign in, ask, then approve or deny
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simulator.service.core.client import Client
from simulator.service.core.parameters import Pairs, find_repeated, value_of, with_query
from simulator.service.core.token_family import S256, is_challenge

NAMES: Final = (
    "client_id",
    "redirect_uri",
    "scope",
    "response_type",
    "state",
    "code_challenge",
    "code_challenge_method",
)
"""The parameters of an authorization request; others are ignored, but may not be repeated either."""


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """An error that is shown as a page, status 400: nobody may be redirected to a client that is not known for sure.

    Attributes:
        error: the stable word, for those who ask for JSON.
        message: what happened and what to do about it, in one or two sentences.
    """

    error: str
    message: str


@dataclass(frozen=True, slots=True)
class RedirectError:
    """The browser goes back to the client with an error (RFC 6749, section 4.1.2.1).

    Attributes:
        state: as it was sent; None when it was absent, or repeated.
    """

    redirect_uri: str
    error: str
    error_description: str
    state: str | None

    def location(self, issuer: str) -> str:
        """Where to, with ``iss`` (RFC 9207)."""
        return with_query(
            self.redirect_uri,
            {"error": self.error, "error_description": self.error_description, "state": self.state, "iss": issuer},
        )


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """A valid request: its user is to be asked.

    Attributes:
        scopes: what is asked for, each once, in the order asked; all of them are the client's.
        state: to be returned unchanged; None when absent.
        code_challenge: of method ``S256``; None only for a confidential client that does without.
    """

    client: Client
    redirect_uri: str
    scopes: tuple[str, ...]
    state: str | None
    code_challenge: str | None

    def location(self, code: str, issuer: str) -> str:
        """Where the browser goes with a code."""
        return with_query(self.redirect_uri, {"code": code, "state": self.state, "iss": issuer})

    def denied(self) -> RedirectError:
        """What the client hears when the user says no."""
        return RedirectError(self.redirect_uri, "access_denied", "The user did not approve the request.", self.state)

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The parameters that :func:`decide` turns into this same request: for hidden fields and links."""
        given = {
            "client_id": self.client.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": " ".join(self.scopes),
            "response_type": "code",
            "state": self.state,
            "code_challenge": self.code_challenge,
            "code_challenge_method": None if self.code_challenge is None else S256,
        }
        return tuple((name, value) for name, value in given.items() if value is not None)


Decision = ErrorPage | RedirectError | AuthorizationRequest

UNREADABLE: Final = ErrorPage(
    "invalid_request",
    "The address that led here cannot be read: its query is not percent-encoded UTF-8, or has too many parameters."
    " Go back to the application and start again.",
)
_UNKNOWN_CLIENT: Final = ErrorPage(
    "invalid_client",
    "The application that sent you here is not known to this service: client_id is missing, repeated or not registered."
    " Tell the people who make it.",
)
_UNKNOWN_ADDRESS: Final = ErrorPage(
    "invalid_redirect_uri",
    "The application wants you back at an address that it has not registered: redirect_uri is missing, repeated, or"
    " differs from every registered one. You were not sent there. Tell the people who make it.",
)


def client_id_of(pairs: Pairs) -> str | None:
    """Which client asks; None when it does not say so once."""
    return value_of(pairs, "client_id")


def decide(pairs: Pairs, client: Client | None) -> Decision:
    """What becomes of a request (RFC 6749, section 4.1.1; RFC 7636, section 4.3).

    Args:
        pairs: every parameter as it came, see :func:`simulator.service.core.parameters.parse_pairs`.
        client: who :func:`client_id_of` names; None when there is none.
    """
    if client is None or client_id_of(pairs) != client.client_id:
        return _UNKNOWN_CLIENT
    redirect_uri = value_of(pairs, "redirect_uri")
    if redirect_uri is None or redirect_uri not in client.redirect_uris:
        return _UNKNOWN_ADDRESS
    state = value_of(pairs, "state")
    if state is not None and "\0" in state:
        return RedirectError(redirect_uri, "invalid_request", "state must not contain NUL.", None)
    fault = _find_fault(pairs, client)
    if fault is not None:
        return RedirectError(redirect_uri, *fault, state)
    scopes = _scopes(pairs)
    return AuthorizationRequest(client, redirect_uri, scopes, state, value_of(pairs, "code_challenge"))


def _find_fault(pairs: Pairs, client: Client) -> tuple[str, str] | None:
    """``error`` and ``error_description``; the latter never holds what was sent (RFC 6749 allows few characters)."""
    repeated = find_repeated(pairs)
    if repeated:
        named = ", ".join(name for name in NAMES if name in repeated) or "a parameter"
        return "invalid_request", f"Given more than once: {named}."
    response_type = value_of(pairs, "response_type")
    if response_type is None:
        return "invalid_request", "response_type is missing; it must be code."
    if response_type != "code":
        return "unsupported_response_type", "response_type must be code."
    scopes = _scopes(pairs)
    if not scopes:
        return "invalid_scope", "scope is missing; name at least one."
    if not set(scopes) <= set(client.scopes):
        return "invalid_scope", f"This client may ask for: {' '.join(client.scopes)}."
    return _find_pkce_fault(pairs, client)


def _find_pkce_fault(pairs: Pairs, client: Client) -> tuple[str, str] | None:
    challenge, method = value_of(pairs, "code_challenge"), value_of(pairs, "code_challenge_method")
    if challenge is None:
        if client.is_public:
            return "invalid_request", "code_challenge is missing; a public client must use PKCE with S256."
        return None if method is None else ("invalid_request", "code_challenge_method is given without code_challenge.")
    if method != S256:
        return "invalid_request", "code_challenge_method must be S256."
    if not is_challenge(challenge):
        return "invalid_request", "code_challenge must be the 43 base64url characters of a SHA-256."
    return None


def _scopes(pairs: Pairs) -> tuple[str, ...]:
    given = (value_of(pairs, "scope") or "").split(" ")
    return tuple(dict.fromkeys(scope for scope in given if scope))
