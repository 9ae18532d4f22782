"""Which devices the gateway serves, and which of them are its own, as fast as a look into a set."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Final

from gateway.core.share import Share

FRESH_S: Final = 1.0
"""How old the sets may be, seconds."""


class Roster:
    """The devices with a valid token. Thread-safe.

    Args:
        device_ids: who they are now.
        monotonic: seconds on the monotonic clock.
        share: the part whose commands this gateway fetches.
    """

    def __init__(self, device_ids: Callable[[], Collection[str]], monotonic: Callable[[], float], share: Share) -> None:
        self._device_ids = device_ids
        self._monotonic = monotonic
        self._share = share
        self._lock = threading.Lock()
        self._known: frozenset[str] = frozenset()
        self._own: frozenset[str] = frozenset()
        self._read_s = float("-inf")

    def serves(self, device_id: str) -> bool:
        """Whether the device has a valid token; a change counts after :data:`FRESH_S` at the latest."""
        return device_id in self.devices()

    def devices(self) -> frozenset[str]:
        """The ids of all devices with a valid token."""
        return self._read()[0]

    def own(self) -> frozenset[str]:
        """The devices whose commands this gateway fetches; all of them where there is one gateway."""
        return self._read()[1]

    def _read(self) -> tuple[frozenset[str], frozenset[str]]:
        now_s = self._monotonic()
        with self._lock:
            if now_s - self._read_s >= FRESH_S:
                known = frozenset(self._device_ids())
                if known != self._known:
                    self._known, self._own = known, frozenset(filter(self._share.has, known))
                self._read_s = now_s
            return self._known, self._own
