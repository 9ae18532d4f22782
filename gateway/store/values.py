"""The values that go into the gateway's store and come out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agent.core.values import JsonObject


class StoredState(StrEnum):
    """Where a command stands at the gateway."""

    OPEN = "open"
    """The device has not reported how it ended."""
    CONCLUDED = "concluded"
    """It has ended; the result waits to be sent to the service."""
    REPORTED = "reported"
    """The service has taken the result, or never will (then it is set aside)."""
    GONE = "gone"
    """The service no longer lists it: expired, canceled (then its record says so), or concluded elsewhere."""
    UNKNOWN = "unknown"
    """The service has no such command for this device: the device made it up, or it was deleted."""


@dataclass(frozen=True, slots=True)
class StoreBounds:
    """How much may wait for the service. Beyond rows and bytes nothing more is taken; beyond the age it is dropped.

    Attributes:
        max_rows: readings.
        max_bytes: their JSON text, and that of results.
        max_age_s: since they were taken from their device.
        max_results: results.
    """

    max_rows: int = 1_000_000
    max_bytes: int = 1024**3
    max_age_s: float = 7 * 86_400.0
    max_results: int = 100_000


@dataclass(frozen=True, slots=True)
class StoredCommand:
    """A command of one device.

    Attributes:
        id: the service's id, or one derived from its content.
        record: the record as devices get it.
        expires_at: epoch seconds on the service's clock; None when it never expires.
        is_open: its device has not reported how it ended.
    """

    device_id: str
    id: str
    record: JsonObject
    created_at: float | None = None
    expires_at: float | None = None
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The changes that a list of the service's made for one device.

    Attributes:
        new: ids that were not known before.
        gone: how many open ones the service no longer lists.
        open: the open commands now, oldest first.
        left: how many were not taken, since the device has as many open ones as are held for one device.
        dropped: how many of the oldest are not handed to the device any more, for the same reason.
    """

    new: tuple[str, ...]
    gone: int
    open: tuple[StoredCommand, ...]
    left: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class ListRead:
    """One look at the service's list of a device's commands.

    Attributes:
        at_s: when it began, seconds since the epoch on the service's clock; None when it is not known.
        until_s: when what is taken of it was read, on the same clock.
        is_truth: the list holds the open commands and no others, so one that is missing has ended. Else a list says
            nothing about what is not on it.
        holds_history: commands on it may be of any age; False where the configuration says that all of them are to do.
    """

    at_s: float | None = None
    until_s: float | None = None
    is_truth: bool = True
    holds_history: bool = True


@dataclass(frozen=True, slots=True)
class WaitingResult:
    """A result that waits to be sent to the service.

    Attributes:
        seq: ascending in the order of arrival; changes when a later result takes this one's place.
        finished_wall_s: when the gateway took it, epoch seconds.
    """

    seq: int
    device_id: str
    command_id: str
    status: str
    result: JsonObject | None
    error: str | None
    finished_wall_s: float


@dataclass(frozen=True, slots=True)
class Batch:
    """What goes to the service as one request.

    Attributes:
        key: its idempotency key, for ever the same.
        items: request bodies of single readings.
    """

    id: int
    key: str
    items: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True)
class Presence:
    """When and over which transport a device was last seen."""

    transport: str
    online: bool
    seen_wall_s: float


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What the store holds.

    Attributes:
        readings: waiting, those in batches too.
        size_bytes: their JSON text.
        oldest_wall_s: when the oldest waiting one was taken; None when none waits.
        results: waiting.
        commands: state -> how many.
        set_aside: refused by the service for good and kept with the reason.
        counters: name -> how often ever.
    """

    readings: int = 0
    size_bytes: int = 0
    oldest_wall_s: float | None = None
    results: int = 0
    commands: Mapping[str, int] = field(default_factory=dict)
    set_aside: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
