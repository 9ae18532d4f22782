"""How often somebody may guess a password: so many tries for each address and each account, then a wait."""

from __future__ import annotations

import hashlib
import ipaddress
from collections import OrderedDict
from typing import Final

WINDOW_MS: Final = 15 * 60_000
OF_ACCOUNT: Final = 10
"""Wrong passwords for one email in a window."""
OF_ADDRESS: Final = 50
"""Wrong passwords from one address in a window: an office has one address for many people."""
_REMEMBERED: Final = 20_000


class Attempts:
    """Counts tries in windows that begin with the first one.

    A try counts before its password is checked, so a hundred at once are a hundred; a right password takes it back.
    An email that nobody has counts like any other, so a wait does not show who is known.
    """

    def __init__(self) -> None:
        self._windows: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def begin(self, email: str, address: str, now_ms: int) -> int:
        """Count a try.

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
        """Everybody begins anew."""
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
    if parsed.version == 4:  # noqa: PLR2004 - IPv4
        return str(parsed)
    return str(ipaddress.ip_network((parsed, 64), strict=False))
