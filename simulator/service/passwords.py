"""People's passwords: stored as scrypt (RFC 7914), checked off the event loop.

A check takes as long for a name that nobody has as for a wrong password.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import secrets
from typing import Final

from agent.wire.secret import Secret
from simulator.wire.base64url import from_base64url, to_base64url

COST: Final = (2**14, 8, 5)
"""N, r and p, one of the choices of OWASP's password storage cheat sheet: 16 MiB."""
AT_ONCE: Final = 2
"""Checks that run at the same time: a flood of sign-ins takes so many threads, not all there are."""
_SALT_BYTES: Final = 16


def hash_password(password: Secret) -> str:
    """What is stored of a password."""
    salt = secrets.token_bytes(_SALT_BYTES)
    n, r, p = COST
    return f"scrypt${n}${r}${p}${to_base64url(salt)}${to_base64url(_scrypt(password, salt, n, r, p))}"


def is_password(password_hash: str, password: Secret) -> bool:
    """Whether it is this person's password. Takes as long as hashing: never on the event loop."""
    return _check(password_hash, password)


class Passwords:
    """Checks passwords, a few at a time."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def check(self, password_hash: str | None, password: Secret) -> bool:
        """Whether it is the password; with None, nobody's, it takes as long and is not."""
        async with self._turns:
            return await asyncio.to_thread(_check, password_hash, password)


def _check(password_hash: str | None, password: Secret) -> bool:
    decoy = _decoy()  # made before, not only for a name that nobody has
    try:
        _, n, r, p, salt, stored = (password_hash or decoy).split("$")
        made = _scrypt(password, from_base64url(salt) or b"", int(n), int(r), int(p))
    except ValueError:
        return False
    return hmac.compare_digest(made, from_base64url(stored) or b"") and password_hash is not None


def _scrypt(password: Secret, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.reveal().encode(errors="surrogatepass"), salt=salt, n=n, r=r, p=p, dklen=32)


@functools.cache
def _decoy() -> str:
    return hash_password(Secret(secrets.token_urlsafe(32)))
