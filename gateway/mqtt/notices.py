"""Notices to devices, the clock and hints: when a device comes, when the gateway does, when the quota is short."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection
from typing import Final

from agent.adapters.mqtt_session import Message
from agent.ports import Clock
from agent.wire import topics
from agent.wire.mqtt_messages import Notice, encode
from gateway.ports import DeviceBackend

EVERY_S: Final = 60.0
"""How often a device is sent that the quota is used up, seconds, and for how long it is to hold readings back."""

# A fleet that learns of a gateway's start must not come back in one second.
_GREETED_AT_ONCE: Final = 500
_REMEMBERED_MAX: Final = 1000


class NoticeSender:
    """Thread-safe; never blocks. A notice that the broker does not take now is not sent: it is a hint.

    Args:
        backend: has the hints.
        post: hands a message to the broker.
        clock: for waiting.
        service_now: the time in a notice: the service's, which commands are dated by; None takes the clock's.
    """

    def __init__(
        self,
        backend: DeviceBackend,
        post: Callable[[Message], bool],
        clock: Clock,
        service_now: Callable[[], float] | None = None,
    ) -> None:
        self._service_now = service_now or (lambda: clock.now().wall_s)
        self._backend = backend
        self._post = post
        self._clock = clock
        self._lock = threading.Lock()
        self._sent_s: dict[str, float] = {}
        self._to_greet: deque[str] = deque()

    def greet(self, device_ids: Collection[str]) -> None:
        """Queue a notice for each device, after a start: one that backed off may try again. See :meth:`greet_some`."""
        with self._lock:
            self._to_greet = deque(device_ids)

    def greet_some(self) -> None:
        """Send the next few of these notices; to be called about once a second."""
        with self._lock:
            due = [self._to_greet.popleft() for _ in range(min(_GREETED_AT_ONCE, len(self._to_greet)))]
        for device_id in due:
            self._send(device_id)

    def hint(self, device_id: str) -> None:
        """Send a device that sends readings a notice while the quota is used up, once in a while."""
        if not self._backend.hints(device_id).quota_used_up:
            return
        with self._lock:
            if self._now_s() - self._sent_s.get(device_id, float("-inf")) < EVERY_S:
                return
        self.notify(device_id)

    def notify(self, device_id: str) -> None:
        """Send this device a notice now."""
        with self._lock:
            self._sent_s.pop(device_id, None)
            self._sent_s[device_id] = self._now_s()
            if len(self._sent_s) > _REMEMBERED_MAX:
                del self._sent_s[next(iter(self._sent_s))]
        self._send(device_id)

    def _send(self, device_id: str) -> None:
        hints = self._backend.hints(device_id)
        notice = Notice(
            time=self._service_now(),
            retry_after_s=EVERY_S if hints.quota_used_up else None,
            poll_s=hints.poll_interval_s,
        )
        self._post(Message(topics.notice(device_id), encode(notice), qos=0))

    def _now_s(self) -> float:
        return self._clock.now().monotonic_s
