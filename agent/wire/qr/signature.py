"""A signature as text: base64url without padding (RFC 4648, section 5), one text for one sequence of bytes."""

from __future__ import annotations

import base64
import re
from typing import Final

HMAC_BYTES: Final = 16
"""HMAC-SHA-256, cut."""
ED25519_BYTES: Final = 64

_CHARACTERS: Final = re.compile(r"[A-Za-z0-9_-]+")


def to_base64url(raw: bytes) -> str:
    """The bytes as text."""
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def from_base64url(text: str) -> bytes | None:
    """The bytes, or None when the text is not what :func:`to_base64url` writes.

    Bits that the last character has too many must be zero: else several texts would stand for one signature.
    """
    if _CHARACTERS.fullmatch(text) is None or len(text) % 4 == 1:
        return None
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return raw if to_base64url(raw) == text else None
