"""One sign-in: what the browser is sent with, and what it has to come back with. Decides and does nothing."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from agent.errors import AgentError
from agent.wire.answers import one_line
from agent.wire.secret import Secret
from simulator.wire.base64url import challenge_of, to_base64url

_VERIFIER_BYTES: Final = 32
_STATE_BYTES: Final = 32
_DENIED: Final = "access_denied"
_ONCE: Final = ("code", "state", "error", "iss")


class SignInFailed(AgentError):
    """No tokens came of it; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class SignInRequest:
    """One sign-in that has been begun.

    Attributes:
        state: comes back unchanged, or the answer is not ours (specification, "Step 1: authorize").
        verifier: of a public client: what only we know (RFC 7636); the browser carries its hash.
    """

    client_id: str
    redirect_uri: str
    scope: str
    state: Secret
    verifier: Secret | None

    def url(self, endpoint: str) -> str:
        """Where the browser goes (specification, "Step 1: authorize"); ``endpoint`` may have a query of its own."""
        query = {
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": self.scope,
            "response_type": "code",
            "state": self.state.reveal(),
        }
        if self.verifier is not None:  # RFC 7636, section 4.2
            query |= {"code_challenge": challenge_of(self.verifier.reveal()), "code_challenge_method": "S256"}
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def code_of(self, query: str, issuer: str | None, *, iss_announced: bool = False) -> Secret:
        """The one-time code out of what the browser came back with.

        Args:
            query: the redirect's query, without the question mark.
            issuer: who we believe to talk to (RFC 9207); None when the service did not say.
            iss_announced: the service says that each of its redirects carries ``iss``.

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
        if not hmac.compare_digest(members.get("state", "").encode(), self.state.reveal().encode()):
            raise SignInFailed(
                "the browser came back with an answer to another sign-in (state does not match): close the old tab, "
                "and run the command again"
            )
        self._check_issuer(members.get("iss"), issuer, iss_announced=iss_announced)
        if "error" in members:
            raise _failure(members["error"], members.get("error_description", ""))
        if not members.get("code"):
            raise SignInFailed("the browser came back without a code: run the command again")
        return Secret(members["code"])

    @staticmethod
    def _check_issuer(iss: str | None, issuer: str | None, *, iss_announced: bool) -> None:
        if issuer is None or (iss is None and not iss_announced) or iss == issuer:
            return
        raise SignInFailed(
            f"the answer is not from {issuer} (iss is {one_line(iss) if iss else 'missing'}): another service has "
            "mixed in; check --base-url, and sign in again"
        )


def begin(
    client_id: str, redirect_uri: str, scope: str, random_bytes: Callable[[int], bytes], *, is_public: bool
) -> SignInRequest:
    """A new sign-in; ``random_bytes`` must be fit for secrets."""
    state = Secret(to_base64url(random_bytes(_STATE_BYTES)))
    verifier = Secret(to_base64url(random_bytes(_VERIFIER_BYTES))) if is_public else None
    return SignInRequest(client_id, redirect_uri, scope, state, verifier)


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


def _failure(error: str, description: str) -> SignInFailed:
    if error == _DENIED:
        return SignInFailed("access was denied in the browser; nothing was stored")
    reason = one_line(f"{error}: {description}" if description else error)
    hint = "check --scope: each must be in the client's allowed set" if error == "invalid_scope" else "sign in again"
    return SignInFailed(f"the service refused the sign-in ({reason}): {hint}")
