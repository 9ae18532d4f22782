"""Which devices the gateway serves, as fast as a look into a set."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Final

FRESH_S: Final = 1.0
"""How old the set may be, seconds."""


class Roster:
    """The devices with a valid token. Thread-safe.

    Args:
        device_ids: who they are now.
        monotonic: seconds on the monotonic clock.
    """

    def __init__(self, device_ids: Callable[[], Collection[str]], monotonic: Callable[[], float]) -> None:
        self._device_ids = device_ids
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: frozenset[str] = frozenset()
        self._read_s = float("-inf")

    def serves(self, device_id: str) -> bool:
        """Whether the device has a valid token; a change counts after :data:`FRESH_S` at the latest."""
        return device_id in self.devices()

    def devices(self) -> frozenset[str]:
        """The ids of all devices with a valid token."""
        now_s = self._monotonic()
        with self._lock:
            if now_s - self._read_s >= FRESH_S:
                self._known = frozenset(self._device_ids())
                self._read_s = now_s
            return self._known
