"""The life of a grant's tokens, decided without doing anything.

A code becomes one pair of tokens, a refresh token the next pair: together they are a family. Each code and each refresh
token is good once. When one of them comes a second time somebody has a copy, and nobody knows who of the two is the
owner: the family ends (RFC 6749, section 4.1.2; RFC 9700, section 4.14.2).
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from agent.wire.secret import Secret
from simulator.wire.base64url import challenge_of

S256: Final = "S256"
"""The one method of Proof Key for Code Exchange (PKCE, RFC 7636) that is taken."""
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}", re.ASCII)
CODE_S: Final = 5 * 60
"""How long a code may wait to be exchanged (specification, "Limits")."""
ACCESS_S: Final = 3_600
"""How long an access token lives (specification, "Limits")."""
REFRESH_S: Final = 30 * 86_400
"""How long a refresh token lives, counted anew with every rotation."""
LONGEST_S: Final = 90 * 86_400
"""How long a grant lives at most, however often it is refreshed: then the user is asked again."""


class TokenVerdict(Enum):
    """What becomes of a code or a refresh token that is presented."""

    GOOD = auto()
    """New tokens."""
    OVER = auto()
    """Refused: its time, or its grant's, is over. Nothing else happens."""
    REUSED = auto()
    """Refused, and its whole grant ends."""


@dataclass(frozen=True, slots=True)
class Code:
    """An authorization code as it is stored; times are milliseconds since the epoch."""

    client_id: str
    redirect_uri: str
    code_challenge: str | None
    expires_ms: int
    used_ms: int | None


@dataclass(frozen=True, slots=True)
class RefreshToken:
    """A refresh token as it is stored, with its grant; times are milliseconds since the epoch."""

    expires_ms: int
    used_ms: int | None
    revoked_ms: int | None


@dataclass(frozen=True, slots=True)
class Exchange:
    """The values that a client sends with a code (specification, "Step 2")."""

    redirect_uri: str
    code_verifier: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenPair:
    """New tokens, to be shown once.

    Attributes:
        refresh_token: None for a client that may not refresh.
        scope: of the access token.
    """

    access_token: Secret
    refresh_token: Secret | None
    scope: str


def judge_code(code: Code, exchange: Exchange, now_ms: int) -> tuple[TokenVerdict, str]:
    """What becomes of a code that its own client presents, and why it is refused.

    An attempt that is refused uses nothing up: who has the code without the verifier cannot spoil it for its owner. A
    code that was used is judged by that alone, even when it comes late or with another address.
    """
    if code.used_ms is not None:
        return TokenVerdict.REUSED, "The code was used before; everything that came of it is revoked."
    if now_ms >= code.expires_ms:
        return TokenVerdict.OVER, f"The code has expired; it is good for {CODE_S} seconds."
    if exchange.redirect_uri != code.redirect_uri:
        return TokenVerdict.OVER, "redirect_uri is not the one that the code was asked for with."
    verifier = exchange.code_verifier
    if code.code_challenge is None:
        # RFC 9700, section 4.8.2: somebody may have taken the challenge out of the authorization request.
        if verifier is not None:
            return TokenVerdict.OVER, "code_verifier is given, but the code was asked for without code_challenge."
    elif verifier is None or not matches(code.code_challenge, verifier):
        return TokenVerdict.OVER, "code_verifier does not belong to the code_challenge."
    return TokenVerdict.GOOD, ""


def judge_refresh(token: RefreshToken, now_ms: int) -> tuple[TokenVerdict, str]:
    """What becomes of a refresh token that its own client presents, and why it is refused.

    Args:
        token: as it is stored.
        now_ms: this instant.
    """
    if token.revoked_ms is not None:
        return TokenVerdict.OVER, "The grant was revoked: ask the user again."
    if now_ms >= token.expires_ms:
        return TokenVerdict.OVER, "The refresh token has expired: ask the user again."
    if token.used_ms is not None:
        return TokenVerdict.REUSED, "The refresh token was used before; everything that came of its grant is revoked."
    return TokenVerdict.GOOD, ""


def end_of_refresh(now_ms: int, ends_ms: int) -> int:
    """When a refresh token that is made now expires; ``ends_ms`` is its grant's last instant."""
    return min(now_ms + REFRESH_S * 1000, ends_ms)


def is_challenge(text: str) -> bool:
    """Whether it can be a SHA-256 in base64url without padding."""
    return _CHALLENGE.fullmatch(text) is not None


def matches(challenge: str, verifier: str) -> bool:
    """Whether the verifier is well formed (43 to 128 characters) and the challenge was made of it."""
    return _VERIFIER.fullmatch(verifier) is not None and hmac.compare_digest(challenge, challenge_of(verifier))
