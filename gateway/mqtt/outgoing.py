"""Commands on their way to devices over MQTT.

An open one goes out once per connection, and again when its device comes back. One that the service cancels goes out
once more, with that status.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from agent.adapters.mqtt_session import Message
from agent.core.values import JsonObject
from agent.errors import AgentError, InvalidMessage
from agent.threads import OnCrash, WatchedThread, only_logged
from agent.wire import topics
from agent.wire.json_text import encode_json
from agent.wire.times import parse_time
from gateway.ports import DeviceBackend, UnknownDevice

_AGAIN_S: Final = 1.0
_STORE_S: Final = 10.0


class CommandPublisher:
    """A thread that publishes the open commands of devices.

    Args:
        backend: has the open commands, and calls back when they change.
        post: hands a message to the broker; False when it cannot now.
        is_up: there is a connection.
        service_now: epoch seconds on the service's clock, for what is left of a command's time.
        notify: sends a device the time, before its commands: by it the device finds those that are history.
        on_crash: see :class:`~agent.threads.WatchedThread`.
    """

    def __init__(
        self,
        backend: DeviceBackend,
        post: Callable[[Message], bool],
        is_up: Callable[[], bool],
        service_now: Callable[[], float],
        notify: Callable[[str], None] = lambda _device_id: None,
        *,
        on_crash: OnCrash = only_logged,
    ) -> None:
        self._notify = notify
        self._backend = backend
        self._post = post
        self._is_up = is_up
        self._service_now = service_now
        self._changed = threading.Condition()
        # Device -> publish all of its commands, not only those that were not published yet.
        self._waiting: dict[str, bool] = {}
        self._published: dict[str, set[str]] = {}
        self._stopping = False
        self._end_watch: Callable[[], None] = lambda: None
        self._thread = WatchedThread(self._run, name="mqtt-commands", on_crash=on_crash)

    def start(self) -> None:
        """Begin to send commands to devices."""
        self._end_watch = self._backend.watch_all(self.publish)
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End; True when the thread has ended in time."""
        self._end_watch()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        return self._thread.has_ended(timeout_s)

    def publish(self, device_id: str, *, again: bool = False) -> None:
        """Look at this device soon.

        Args:
            device_id: the device.
            again: it has just come back: publish what was published before, too.
        """
        with self._changed:
            self._waiting[device_id] = again or self._waiting.get(device_id, False)
            self._changed.notify_all()

    def publish_all(self) -> None:
        """Note a new connection: what was published over the last one may be lost."""
        for device_id in self._backend.busy_devices():
            self._notify(device_id)
            self.publish(device_id, again=True)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    return
                waiting, self._waiting = self._waiting, {}
            if not self._work(waiting):
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, _AGAIN_S)

    def _work(self, waiting: dict[str, bool]) -> bool:
        """False when the broker is too slow; the rest waits again."""
        for number, (device_id, again) in enumerate(waiting.items()):
            if not self._publish(device_id, again=again):
                if not self._is_up():
                    return True  # publish_all comes with the next connection
                for left in list(waiting)[number:]:
                    self.publish(left, again=waiting[left])
                return False
        return True

    def _publish(self, device_id: str, *, again: bool) -> bool:
        try:
            records = self._backend.open_commands(device_id).records
        except UnknownDevice:
            records = ()
        before = set() if again else self._published.get(device_id, set())
        now_open = {str(record["id"]): record for record in records}
        done = before & now_open.keys()
        taken_back, took_all = self._take_back(device_id, self._published.get(device_id, set()) - now_open.keys())
        done |= taken_back
        for command_id, record in now_open.items():
            if command_id in done:
                continue
            left_s = self._left_s(record)
            if left_s is not None and left_s <= 0:
                continue  # it ended while those before it were posted
            message = self._message(device_id, command_id, record)
            took_all = took_all and (message is None or self._post(message))
            if not took_all:
                break
            done.add(command_id)
        if done:
            self._published[device_id] = done
        else:
            self._published.pop(device_id, None)
        return took_all

    def _take_back(self, device_id: str, vanished: set[str]) -> tuple[set[str], bool]:
        """Send the device which of the commands that are open no more were canceled.

        Returns:
            The ones to look at again, and whether the broker took all.
        """
        if not vanished:
            return set(), True
        try:
            canceled = self._backend.canceled_of(device_id, vanished).result(_STORE_S)
        except (AgentError, TimeoutError):
            return vanished, False  # the store says so in the log; a look a second later asks it again
        left = {str(record["id"]): record for record in canceled}
        for command_id, record in list(left.items()):
            message = self._message(device_id, command_id, record)
            if message is not None and not self._post(message):
                return set(left), False
            del left[command_id]
        return set(), True

    def _message(self, device_id: str, command_id: str, record: JsonObject) -> Message | None:
        try:
            topic = topics.command(device_id, command_id)
        except InvalidMessage:
            return None  # its id fits into no topic: the device gets it over HTTP
        left_s = self._left_s(record)
        return Message(topic, encode_json(record), expiry_s=None if left_s is None else max(1, int(left_s)))

    def _left_s(self, record: JsonObject) -> float | None:
        """Seconds to a command's end; None when it has none."""
        expires_at = record.get("expires_at")
        return None if expires_at is None else parse_time(expires_at) - self._service_now()
