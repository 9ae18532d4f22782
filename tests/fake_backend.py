"""The gateway's backend and tokens, faked: in memory, and its store answers when the test lets it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any

from agent.core.values import JsonObject
from agent.errors import ConfigurationError
from agent.wire.command_states import RESULT_STATES
from agent.wire.commands import CommandResult
from gateway.ports import CommandTexts, Hints, NewReading, OpenCommands, Transport, UnknownCommand, UnknownDevice


class FakeBackend:
    """A :class:`~gateway.ports.DeviceBackend`. Thread-safe.

    Attributes:
        readings: what was taken, with its device.
        fault: set it to make the store refuse everything with this error.
        stuck: set it to make the store never answer.
        unknown: devices that the service does not know.
    """

    def __init__(self) -> None:
        self.readings: list[tuple[str, NewReading]] = []
        self.results: list[tuple[str, str, CommandResult]] = []
        self.heard: list[tuple[str, Transport]] = []
        self.fault: Exception | None = None
        self.stuck = False
        self.unknown: set[str] = set()
        self.watched = threading.Event()
        self._commands: dict[str, list[JsonObject]] = {}
        self._watchers: list[tuple[str, Callable[[], None]]] = []
        self._lock = threading.RLock()

    def send(self, device_id: str, command_id: str, **payload: Any) -> None:
        """The service has a command for the device."""
        record = {
            "id": command_id,
            "device_id": device_id,
            "command_payload": payload or {"command": "ping"},
            "status": "queued",
            "created_at": "2026-01-01T00:00:00.000Z",
        }
        with self._lock:
            self._commands.setdefault(device_id, []).append(record)
        self._tell(device_id)

    def open_commands(self, device_id: str) -> OpenCommands:
        if device_id in self.unknown:
            raise UnknownDevice(f"the service does not know {device_id}")
        with self._lock:
            records = [record for record in self._commands.get(device_id, []) if record["status"] not in RESULT_STATES]
        return OpenCommands(tuple(records), "-".join(["v", *(record["id"] for record in records)]))

    def watch(self, device_id: str, on_change: Callable[[], None]) -> Callable[[], None]:
        entry = (device_id, on_change)
        with self._lock:
            self._watchers.append(entry)
        self.watched.set()

        def end() -> None:
            with self._lock:
                if entry in self._watchers:
                    self._watchers.remove(entry)

        return end

    def watch_all(self, on_change: Callable[[str], None]) -> Callable[[], None]:
        raise AssertionError("the HTTP front watches one device at a time")

    @property
    def watchers(self) -> int:
        """How many watch now."""
        with self._lock:
            return len(self._watchers)

    def commands_of(self, device_id: str) -> Future[CommandTexts]:
        with self._lock:
            records = tuple(reversed(self._commands.get(device_id, [])))
        return self._ended(CommandTexts(tuple((json.dumps(record), None) for record in records)))

    def command_of(self, device_id: str, command_id: str) -> Future[CommandTexts]:
        with self._lock:
            records = [record for record in self._commands.get(device_id, []) if record["id"] == command_id]
        return self._ended(CommandTexts(tuple((json.dumps(record), None) for record in records)))

    def take_readings(self, device_id: str, readings: Sequence[NewReading]) -> Future[int]:
        if device_id in self.unknown:
            return self._failed(UnknownDevice(device_id))
        if self.fault is None and not self.stuck:
            known = {(owner, reading.key) for owner, reading in self.readings if reading.key is not None}
            new = [reading for reading in readings if (device_id, reading.key) not in known]
            self.readings += [(device_id, reading) for reading in new]
            return self._ended(len(new))
        return self._ended(0)

    def take_result(self, device_id: str, command_id: str, result: CommandResult) -> Future[JsonObject]:
        with self._lock:
            for record in self._commands.get(device_id, []):
                if record["id"] == command_id:
                    self.results.append((device_id, command_id, result))
                    record.update(result.to_wire())
                    break
            else:
                return self._failed(UnknownCommand(command_id))
        self._tell(device_id)
        return self._ended(dict(record))

    def seen(self, device_id: str, transport: Transport, *, online: bool = True) -> None:
        self.heard.append((device_id, transport))

    def hints(self, device_id: str) -> Hints:
        return Hints(poll_interval_s=10)

    def _tell(self, device_id: str) -> None:
        with self._lock:
            told = [on_change for watched, on_change in self._watchers if watched == device_id]
        for on_change in told:
            on_change()

    def _ended(self, value: Any) -> Future[Any]:
        if self.fault is not None:
            return self._failed(self.fault)
        future: Future[Any] = Future()
        if not self.stuck:
            future.set_result(value)
        return future

    def _failed(self, error: Exception) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(error)
        return future


class FakeTokens:
    """A :class:`~gateway.ports.TokenCheck`: ``tokens`` maps token to device."""

    def __init__(self, **tokens: str) -> None:
        self.tokens = tokens

    def device_of(self, token: str) -> str | None:
        return self.tokens.get(token)

    def device_ids(self) -> Collection[str]:
        return frozenset(self.tokens.values())

    def reload(self) -> None:
        raise ConfigurationError(["there is nothing to read again"], "fake tokens")
