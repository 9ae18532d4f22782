"""People's passwords: stored as scrypt (RFC 7914), checked off the event loop."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import secrets
from typing import Final

COST: Final = (2**14, 8, 5)
"""N, r and p, one of the choices of OWASP's password storage cheat sheet: 16 MiB and about 100 ms."""
CHARACTERS: Final = 1_024


def hash_password(password: str) -> str:
    """What is stored of a password. It takes as long as :func:`check_password`: never on the event loop."""
    salt = secrets.token_bytes(16)
    n, r, p = COST
    return f"scrypt${n}${r}${p}${salt.hex()}${_scrypt(password, salt, n, r, p).hex()}"


def is_password(stored: str, password: str) -> bool:
    """Whether the password is the stored one. It takes long, too."""
    _, n, r, p, salt, made = stored.split("$")
    return hmac.compare_digest(_scrypt(password, bytes.fromhex(salt), int(n), int(r), int(p)).hex(), made)


async def check_password(stored: str | None, password: str) -> bool:
    """Whether the password is the stored one. With None, nobody's password, it takes as long and says no."""
    is_right = await asyncio.to_thread(lambda: is_password(stored or _decoy(), password[:CHARACTERS]))
    return is_right and stored is not None and len(password) <= CHARACTERS


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(errors="surrogatepass"), salt=salt, n=n, r=r, p=p, dklen=32)


@functools.cache
def _decoy() -> str:
    return hash_password(secrets.token_urlsafe(32))
