"""People's passwords: checked off the event loop, and how often they may be guessed.

argon2id takes as long for a name that nobody has as for a wrong password.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import ipaddress
import secrets
from collections import OrderedDict
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


class Attempts:
    """Counts tries of each address and each account in windows that begin with the first one.

    A try counts before its password is checked, so a hundred at once are a hundred; a right password takes it back.
    An email that nobody has counts like any other, so a wait does not show who is known.
    """

    def __init__(self) -> None:
        self._windows: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def begin(self, email: str, address: str, now_ms: int) -> int:
        """Count an attempt to sign in.

        Returns:
            0 when the password may be checked, otherwise the seconds until it may; such a try is not counted.
        """
        limits = {_account(email): OF_ACCOUNT, f"address {_network(address)}": OF_ADDRESS}
        wait_ms = max(self._wait_ms(key, limit, now_ms) for key, limit in limits.items())
        if wait_ms:
            return -(-wait_ms // 1000)
        for key in limits:
            started_ms, count = self._window(key, now_ms)
            self._windows[key] = (started_ms, count + 1)
            self._windows.move_to_end(key)
        while len(self._windows) > _REMEMBERED:
            self._windows.popitem(last=False)
        return 0

    def succeed(self, email: str, address: str, now_ms: int) -> None:
        """The password was right: the account begins anew, and the address is given this try back."""
        self._windows.pop(_account(email), None)
        key = f"address {_network(address)}"
        started_ms, count = self._window(key, now_ms)
        if count:
            self._windows[key] = (started_ms, count - 1)

    def clear(self) -> None:
        """Forget all attempts."""
        self._windows.clear()

    def _window(self, key: str, now_ms: int) -> tuple[int, int]:
        started_ms, count = self._windows.get(key, (now_ms, 0))
        return (started_ms, count) if 0 <= now_ms - started_ms < WINDOW_MS else (now_ms, 0)

    def _wait_ms(self, key: str, limit: int, now_ms: int) -> int:
        started_ms, count = self._window(key, now_ms)
        return started_ms + WINDOW_MS - now_ms if count >= limit else 0


def _account(email: str) -> str:
    """A name of one length, however long the text is that somebody sends as an email."""
    return "account " + hashlib.sha256(email.encode(errors="surrogatepass")).hexdigest()


def _network(address: str) -> str:
    """IPv4: the address; IPv6: its /64, since one subscriber has all of it."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    return str(ipaddress.ip_network((parsed, 64), strict=False))
