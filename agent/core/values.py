"""The values that the core decides on and the ports carry. Frozen, slotted, and free of I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Final

JsonObject = dict[str, Any]
"""An opaque JSON object: ``command_payload``, ``result``. The only dict that crosses module borders."""


class CommandState(StrEnum):
    """Where a command stands in the agent's journal."""

    RECEIVED = "received"
    STARTED = "started"
    FINISHED = "finished"
    REPORTED = "reported"
    SKIPPED = "skipped"
    UNDELIVERABLE = "undeliverable"
    """It has a result that the service will never take: kept, and listed in the status."""


class OutcomeStatus(StrEnum):
    """How a command ended, in the wire's words (contract: result ``status``)."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"


class Contract(StrEnum):
    """What a handler promises, and so what happens to a command that a crash caught in ``started``."""

    IDEMPOTENT = "idempotent"
    """Running it twice does the same as once: run again."""
    ONCE = "once"
    """It must not run twice: concluded as failed with error ``indeterminate``."""
    RESTARTS_DEVICE = "restarts_device"
    """It ends this process or boot on purpose: judged by the boot id and the process start."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant on both clocks.

    Attributes:
        monotonic_s: seconds on the boot's monotonic clock; the only one that intervals are measured on.
        wall_s: seconds since the epoch as the device believes; may be wrong.
        boot_id: which boot ``monotonic_s`` belongs to.
    """

    monotonic_s: float
    wall_s: float
    boot_id: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command as the service lists it, already parsed at the edge.

    Attributes:
        id: the service's id, or one derived from content and time when the service gives none.
        payload: the opaque ``command_payload``.
        created_at: seconds since the epoch on the service's clock; None when unknown.
        expires_at: seconds since the epoch on the service's clock; None when it never expires.
        status: the service's word for its state; None on a plain server.
        size_bytes: length of the payload as JSON text.
        fault: why it must not run although it could be read, as ``code: sentence``; None when nothing is wrong. Only
            admission needs it: a journal does not keep it.
        listed_at: when a gateway first saw it on the service's list, seconds since the epoch on the service's clock;
            None when nobody says. It is not kept in the journal.
    """

    id: str
    payload: JsonObject
    created_at: float | None = None
    expires_at: float | None = None
    status: str | None = None
    size_bytes: int = 0
    fault: str | None = None
    listed_at: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended.

    Attributes:
        status: the wire's word.
        result: what the handler returned; goes to the service as ``result``.
        error: why it did not succeed: a stable snake_case word, then a sentence, ``code: sentence``.
    """

    status: OutcomeStatus
    result: JsonObject | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One command in the agent's journal.

    Attributes:
        attempts: how often it was started.
        received, started, finished: when, on the agent's clocks.
        handler: the handler's name from the payload; empty when the payload names none.
        undeliverable: why the service does not have the result; None where it may have.
        canceled_by: who took it back once it had begun; None where nobody did.
    """

    command: Command
    state: CommandState
    handler: str
    received: Moment
    attempts: int = 0
    started: Moment | None = None
    finished: Moment | None = None
    outcome: Outcome | None = None
    undeliverable: str | None = None
    canceled_by: str | None = None


class Priority(IntEnum):
    """Which readings of the backlog go first, and which give way last; the numbers are stored."""

    GAP = -1
    """A gap record: the agent's own word about readings that were dropped. It never gives way."""
    HIGH = 0
    NORMAL = 1
    LOW = 2


@dataclass(frozen=True, slots=True)
class Reading:
    """Named numbers read at one instant: one ``sensor_data`` object.

    Attributes:
        values: reading name -> number, finite.
        at: when they were read.
        priority: among the readings that wait.
    """

    values: dict[str, float]
    at: Moment
    priority: Priority = Priority.NORMAL


@dataclass(frozen=True, slots=True)
class StoredReading:
    """A reading in the outbox.

    Attributes:
        key: the outbox's row number, ascending in the order of acceptance.
        idempotency_key: stays the same over every resend of this reading, also after a crash.
        reading: the reading.
    """

    key: int
    idempotency_key: str
    reading: Reading


IN_PROGRESS: Final = "in_progress"
"""The status of a report that is not the last one of its command."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the uplink sends the service about one command: progress or the end."""

    command_id: str
    status: str
    result: JsonObject | None = None
    error: str | None = None
    started_at: float | None = None
    finished_at: float | None = None


@dataclass(frozen=True, slots=True)
class CommandPoll:
    """One answer of a command source.

    Attributes:
        commands: what is listed, oldest first; empty when ``unchanged``.
        unchanged: the list is the same as last time (304).
        malformed: one sentence for each listed item that could not be parsed; the others still count.
        held: the service held this poll open (long poll), so the next one may follow at once.
        pushed: the commands came by themselves and nobody was asked: waiting for more costs nothing, and what is not
            among them may be open all the same.
        omitted: so many commands at least are listed beside ``commands``, and were not read: there were too many.
        is_whole: no page of the list is missing; else what is not among the commands may be listed all the same.
    """

    commands: tuple[Command, ...] = ()
    unchanged: bool = False
    malformed: tuple[str, ...] = ()
    held: bool = False
    pushed: bool = False
    omitted: int = 0
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class BatchKey:
    """Under which key several readings go, where the other side knows a batch as a whole.

    Attributes:
        key: the batch's, also of a smaller one with which the same batch is tried again.
        was_sent: it was sent before, and nothing is known of it: then "this key was used for another body" means that
            the earlier one is stored.
    """

    key: str
    was_sent: bool = False


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """The result of sending a batch of readings.

    Attributes:
        delivered: keys that the service has stored; delete them.
        refused: key -> reason, refused for good; keep them apart, never retry.
        earlier_is_stored: what was sent under this batch's key before is stored, and these were not read.
    """

    delivered: tuple[int, ...] = ()
    refused: dict[int, str] = field(default_factory=dict)
    earlier_is_stored: bool = False

    @classmethod
    def of(cls, fates: Mapping[int, str | None]) -> SendOutcome:
        """Out of what became of each key: None for stored, else why it never will be."""
        return cls(
            tuple(key for key, reason in fates.items() if reason is None),
            {key: reason for key, reason in fates.items() if reason is not None},
        )


@dataclass(frozen=True, slots=True)
class OutboxStats:
    """What the outbox holds.

    Attributes:
        rows: readings waiting.
        size_bytes: their JSON text.
        oldest_wall_s: when the oldest waiting one was read, epoch seconds; None when none waits or nobody knows.
        refused: readings that the service refused for good, kept with their reason.
        dropped: readings dropped at a bound, or lost before they could be stored, ever.
        accepted, delivered: readings and gap records taken in and handed over, ever.
    """

    rows: int
    size_bytes: int
    oldest_wall_s: float | None
    refused: int
    dropped: int
    accepted: int
    delivered: int
