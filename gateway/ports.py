"""The gateway's inner border: between its fronts (HTTP, MQTT), its engine, and the tokens of devices.

A front speaks a protocol and decides nothing: it checks who a device is with a :class:`TokenCheck`, parses and bounds
what came, and passes it to the :class:`DeviceBackend`. When the backend's future ends without an error, the data is on
the disk of the gateway; only then may a front answer 2xx or acknowledge. The backend never blocks and needs no event
loop, so that one held poll costs a front nothing but a coroutine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from agent.core.listed import OPEN_STATUSES
from agent.core.values import JsonObject
from agent.errors import AgentError, StorageError
from agent.wire.commands import CommandResult

SHOWN_MAX: Final = 1000
SHOWN_BYTES: Final = 4 * 1024 * 1024
"""So many remembered commands of a device are listed at most, and no more once their records have so many bytes."""


class Transport(StrEnum):
    """How a device reaches the gateway."""

    HTTP = "http"
    MQTT = "mqtt"


class UnknownDevice(AgentError):
    """The service does not know this device (any more): HTTP answers 404 ``device_not_found``."""


class UnknownCommand(AgentError):
    """The service has said that this device has no such command: HTTP answers 404 ``command_not_found``, MQTT
    acknowledges and counts it. A result whose command this gateway has not met is taken: another one may have.
    """


class StoreFull(StorageError):
    """The gateway's store is at its bound: HTTP answers 503 with ``Retry-After``, MQTT does not acknowledge.

    Attributes:
        retry_after_s: when to come again, seconds.
    """

    def __init__(self, message: str, retry_after_s: float = 30.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class NewReading:
    """One reading as it came from a device, checked by the front: finite numbers, at least one.

    Attributes:
        values: reading name -> number.
        recorded_at: epoch seconds on the device's clock; None takes the time of arrival.
        key: the same over every resend of this reading by this device, so that it is kept once; None when the device
            gives none. Over HTTP: the ``Idempotency-Key`` header, with ``/index`` for a reading of an array.
    """

    values: Mapping[str, float]
    recorded_at: float | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class OpenCommands:
    """The commands of one device that wait for a final result.

    Attributes:
        records: command records in the service's shape, oldest first; what has expired is left out.
        version: changes whenever ``records`` does, also over restarts of the gateway; plain ASCII without quotes. HTTP
            uses it as ETag (``"version"``).
    """

    records: tuple[JsonObject, ...] = ()
    version: str = "0"


@dataclass(frozen=True, slots=True)
class CommandTexts:
    """Command records as JSON text, newest first: the store's thread, for which all others wait, does not decode them.

    Attributes:
        rows: each record's text, and when its command ends, epoch seconds on the service's clock; None when it never
            does.
        service_now_s: when they were read out, on the same clock.
    """

    rows: tuple[tuple[str, float | None], ...] = ()
    service_now_s: float = 0.0

    def records(self) -> tuple[JsonObject, ...]:
        """The records as they are now: one that waited beyond its end has expired, also before it is moved."""
        return tuple(self._record(text, expires_at) for text, expires_at in self.rows)

    def _record(self, text: str, expires_at: float | None) -> JsonObject:
        record: JsonObject = json.loads(text)
        is_over = expires_at is not None and expires_at <= self.service_now_s
        if is_over and str(record.get("status", "")).lower() in OPEN_STATUSES:
            record["status"] = "expired"
        return record


@dataclass(frozen=True, slots=True)
class Hints:
    """Load hints for a device.

    Attributes:
        poll_interval_s: how often polling makes sense for this device, seconds.
        quota_used_up: the service's quota is short: readings wait at the gateway, and a device may send fewer.
    """

    poll_interval_s: float
    quota_used_up: bool = False


class DeviceBackend(Protocol):
    """Commands, readings and results of devices, for the fronts.

    Every method may be called from any thread and returns at once. A returned future ends from the store's thread after
    the commit; an asyncio front awaits ``asyncio.wrap_future(future)``. Its exceptions: :class:`StoreFull`, another
    :class:`~agent.errors.StorageError` (nothing was stored: HTTP 503, MQTT no acknowledgement),
    :class:`UnknownDevice`, :class:`UnknownCommand`.
    """

    def open_commands(self, device_id: str) -> OpenCommands:
        """The device's open commands, from memory.

        Raises:
            UnknownDevice: the service does not know it.
        """
        ...

    def watch(self, device_id: str, on_change: Callable[[], None]) -> Callable[[], None]:
        """Have ``on_change`` called after each change of the device's open commands, from a thread of the engine.

        It must return at once and not raise (``loop.call_soon_threadsafe`` and the like). The returned function ends
        the watch and may be called twice. Register first, then read :meth:`open_commands`: so no change is missed.
        """
        ...

    def watch_all(self, on_change: Callable[[str], None]) -> Callable[[], None]:
        """As :meth:`watch`, for every device; ``on_change`` is called with its id."""
        ...

    def busy_devices(self) -> list[str]:
        """The devices with open commands, from memory."""
        ...

    def commands_of(self, device_id: str) -> Future[CommandTexts]:
        """The device's commands that the gateway remembers, concluded ones too; from the store.

        The newest :data:`SHOWN_MAX`, or as many of them as have :data:`SHOWN_BYTES` together.
        """
        ...

    def command_of(self, device_id: str, command_id: str) -> Future[CommandTexts]:
        """The texts of one command; empty when it is not known."""
        ...

    def canceled_of(self, device_id: str, command_ids: Collection[str]) -> Future[tuple[JsonObject, ...]]:
        """The records of those of these commands that the service has canceled; from the store."""
        ...

    def take_readings(self, device_id: str, readings: Sequence[NewReading]) -> Future[int]:
        """Keep readings until the service has them; the future's value is how many of them were new.

        All of them or none. A reading whose key is remembered from before is not kept a second time and is no error.
        """
        ...

    def take_result(self, device_id: str, command_id: str, result: CommandResult) -> Future[JsonObject]:
        """Keep a result (or ``in_progress``) until the service has it; the value is the command record afterwards.

        The same result again changes nothing; another final result after the first is ignored, and the record says
        the first. With a final one the command is no longer open, before the service knows.
        """
        ...

    def seen(self, device_id: str, transport: Transport, *, online: bool = True) -> None:
        """Note a sign of life of the device; kept in memory and saved once in a while.

        For a device that was away the service is asked soon, so call this before :meth:`open_commands`.

        Args:
            device_id: the device.
            transport: over which front.
            online: False when its connection ended.
        """
        ...

    def hints(self, device_id: str) -> Hints:
        """Poll interval and quota state, to be passed on (``notice``, ``Cache-Control``)."""
        ...


class TokenCheck(Protocol):
    """The device tokens. Thread-safe; answers from memory."""

    def device_of(self, token: str) -> str | None:
        """The device that this token belongs to; None when it is revoked or unknown. Constant time."""
        ...

    def device_ids(self) -> Collection[str]:
        """The devices with at least one valid token: whom the gateway serves and polls for."""
        ...

    def reload(self) -> None:
        """Read the tokens again (``SIGHUP``).

        Raises:
            ConfigurationError: the file cannot be used; the tokens from before stay in force.
        """
        ...


@dataclass(frozen=True, slots=True)
class FrontStatus:
    """State of a front, for ``gateway status`` and the metrics.

    Attributes:
        state: one word, such as ``listening``, ``connected``, ``unreachable``.
        detail: one sentence; empty when all is well.
        counts: name -> how often since the start, such as ``invalid_json``; snake_case names.
    """

    state: str
    detail: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)


class Front(Protocol):
    """A way for devices to reach the gateway; started after the engine, stopped before it."""

    name: str

    def start(self) -> None:
        """Begin; returns once devices can be served or, for a broker, once connecting has begun.

        Raises:
            ConfigurationError: it never can be, such as a certificate that cannot be read.
            OSError: the address cannot be bound.
        """
        ...

    def stop(self, timeout_s: float) -> bool:
        """Take nothing new, end what is held, and return; True when all threads have ended in time."""
        ...

    def status(self) -> FrontStatus:
        """The front's state and counts, for ``device-gateway status``."""
        ...
