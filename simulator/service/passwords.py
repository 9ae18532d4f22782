"""People's passwords: checked off the event loop, and how often they may be guessed.

argon2id takes as long for a name that nobody has as for a wrong password.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import Type

from agent.wire.secret import Secret

# OWASP's password storage cheat sheet: 19 MiB, 2 passes, 1 lane.
_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1, type=Type.ID)
AT_ONCE: Final = 2
"""Checks that run at the same time: a flood of sign-ins takes 40 MiB and two threads, not all there are."""
WINDOW_MS: Final = 15 * 60_000
OF_ACCOUNT: Final = 10
"""Wrong passwords for one email in a window."""
OF_ADDRESS: Final = 50
"""Wrong passwords from one address in a window: an office has one address for many people."""
_REMEMBERED: Final = 20_000


def hash_password(password: Secret) -> str:
    """What is stored of a password."""
    return _HASHER.hash(password.reveal())


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
        matches = _HASHER.verify(password_hash or decoy, password.reveal())
    except (VerificationError, InvalidHashError):
        return False
    return matches and password_hash is not None


@functools.cache
def _decoy() -> str:
    return _HASHER.hash(secrets.token_urlsafe(32))
