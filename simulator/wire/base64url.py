"""Base64url without padding (RFC 4648, section 5), and the PKCE challenge that is written in it (RFC 7636)."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

_CHARACTERS: Final = re.compile(r"[A-Za-z0-9_-]+")


def to_base64url(raw: bytes) -> str:
    """The bytes as base64url without padding (RFC 4648, section 5): one text for one sequence of bytes."""
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def from_base64url(text: str) -> bytes | None:
    """The bytes, or None when the text is not what :func:`to_base64url` writes.

    Bits that the last character has too many must be zero: else several texts would stand for one signature.
    """
    if _CHARACTERS.fullmatch(text) is None or len(text) % 4 == 1:
        return None
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return raw if to_base64url(raw) == text else None


def challenge_of(verifier: str) -> str:
    """The challenge of method ``S256`` that belongs to a verifier (RFC 7636, section 4.2)."""
    return to_base64url(hashlib.sha256(verifier.encode("ascii")).digest())
