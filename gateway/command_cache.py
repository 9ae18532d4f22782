"""The open commands of every device, in memory, with callbacks for changes. Thread-safe."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gateway.ports import OpenCommands
from gateway.store.values import StoredCommand

_EMPTY = OpenCommands()


@dataclass(slots=True)
class _Place:
    commands: tuple[StoredCommand, ...] = ()
    shown: OpenCommands = _EMPTY
    watchers: list[Callable[[], None]] = field(default_factory=list)


class CommandCache:
    """The open commands of each device, oldest first, and the callbacks to call when they change.

    Args:
        service_now: epoch seconds on the service's clock, for what expires.
    """

    def __init__(self, service_now: Callable[[], float]) -> None:
        self._service_now = service_now
        self._lock = threading.Lock()
        self._places: dict[str, _Place] = {}
        self._watchers: list[Callable[[str], None]] = []

    def service_now(self) -> float:
        """Epoch seconds on the service's clock."""
        return self._service_now()

    def load(self, commands: Iterable[StoredCommand]) -> None:
        """Fill it at the start; no watcher is called."""
        by_device: dict[str, list[StoredCommand]] = {}
        for command in commands:
            by_device.setdefault(command.device_id, []).append(command)
        for device_id, own in by_device.items():
            self.put(device_id, own)

    def put(self, device_id: str, commands: Sequence[StoredCommand]) -> bool:
        """Set the device's open commands, oldest first; True when that is news."""
        shown = _show(commands)
        with self._lock:
            place = self._places.get(device_id)
            if place is None:
                if not commands:
                    return False
                place = self._places[device_id] = _Place()
            place.commands = tuple(commands)
            is_news = shown.version != place.shown.version
            place.shown = shown
            watchers = list(place.watchers) if is_news else []
            watchers_of_all = list(self._watchers) if is_news else []
            self._drop_if_empty(device_id, place)
        for on_change in watchers:
            on_change()
        for on_any_change in watchers_of_all:
            on_any_change(device_id)
        return is_news

    def get(self, device_id: str) -> OpenCommands:
        """The device's open commands that have not expired."""
        with self._lock:
            place = self._places.get(device_id)
            commands, shown = ((), _EMPTY) if place is None else (place.commands, place.shown)
        if not any(command.expires_at is not None for command in commands):
            return shown
        now_s = self._service_now()
        left = [command for command in commands if command.expires_at is None or command.expires_at > now_s]
        return shown if len(left) == len(commands) else _show(left)

    def watch(self, device_id: str, on_change: Callable[[], None]) -> Callable[[], None]:
        """Have ``on_change`` called after each change of the device's open commands, from a thread of the engine."""
        with self._lock:
            place = self._places.setdefault(device_id, _Place())
            place.watchers.append(on_change)

        def end() -> None:
            with self._lock:
                if on_change in place.watchers:
                    place.watchers.remove(on_change)
                    self._drop_if_empty(device_id, place)

        return end

    def watch_all(self, on_change: Callable[[str], None]) -> Callable[[], None]:
        """As :meth:`watch`, for every device; ``on_change`` is called with its id."""
        with self._lock:
            self._watchers.append(on_change)

        def end() -> None:
            with self._lock:
                if on_change in self._watchers:
                    self._watchers.remove(on_change)

        return end

    def devices(self) -> list[str]:
        """The devices with open commands."""
        with self._lock:
            return [device_id for device_id, place in self._places.items() if place.commands]

    def counts(self) -> tuple[int, int]:
        """Open commands, and held polls, of all devices."""
        with self._lock:
            places = list(self._places.values())
            return sum(len(place.commands) for place in places), sum(len(place.watchers) for place in places)

    def _drop_if_empty(self, device_id: str, place: _Place) -> None:
        # A fleet that is idle costs nothing here.
        if not place.commands and not place.watchers and self._places.get(device_id) is place:
            del self._places[device_id]


def _show(commands: Sequence[StoredCommand]) -> OpenCommands:
    if not commands:
        return _EMPTY
    # The service's own steps (queued, delivered) are no news to a device; that it works on one is.
    marks = "\n".join(f"{command.id} {command.record.get('status') == 'in_progress'}" for command in commands)
    version = hashlib.blake2b(marks.encode(), digest_size=12).hexdigest()
    return OpenCommands(tuple(command.record for command in commands), version)
