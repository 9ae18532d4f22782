"""Which extensions the service offers, asked once in a while (``GET /.well-known/device-service``)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from agent.errors import ServiceError
from agent.wire.device_client import DeviceClient

if TYPE_CHECKING:
    from agent.ports import Clock

REFRESH_S: Final = 3600.0


class Discovery:
    """The offered extensions, remembered for an hour. Shared by source and uplink; thread-safe.

    Args:
        client: who to ask with.
        clock: when to ask again.
    """

    def __init__(self, client: DeviceClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._offered: frozenset[str] | None = None
        self._asked_at_s = 0.0

    def offers(self, extension: str) -> bool:
        """True when the service offers this extension; asks the service when it was not asked within the hour.

        Raises:
            ServiceError: it could not be asked and never was before; later failures keep the last answer.
        """
        now_s = self._clock.now().monotonic_s
        with self._lock:
            if self._offered is None or now_s - self._asked_at_s > REFRESH_S:
                self._refresh(now_s)
            return self._offered is not None and extension in self._offered

    def _refresh(self, now_s: float) -> None:
        try:
            self._offered = self._client.discover()
        except ServiceError:
            if self._offered is None:
                raise
        self._asked_at_s = now_s

    def knows(self, extension: str) -> bool:
        """As :meth:`offers`, but asks nobody: False while the service was never asked."""
        with self._lock:
            return self._offered is not None and extension in self._offered

    def forget(self) -> None:
        """The service did not do what it offered: ask again before the next use."""
        with self._lock:
            self._offered = None
