"""Proof Key for Code Exchange (RFC 7636), method ``S256`` only."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Final

S256: Final = "S256"
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}", re.ASCII)


def is_challenge(text: str) -> bool:
    """Whether it can be a SHA-256 in base64url without padding."""
    return _CHALLENGE.fullmatch(text) is not None


def challenge_of(verifier: str) -> str:
    """The challenge that belongs to a verifier (RFC 7636, section 4.2)."""
    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def matches(challenge: str, verifier: str) -> bool:
    """Whether the verifier is well formed (43 to 128 characters) and the challenge was made of it."""
    return _VERIFIER.fullmatch(verifier) is not None and hmac.compare_digest(challenge, challenge_of(verifier))
