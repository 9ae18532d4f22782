"""The file format of a ledger: frames with a checksum, so that a torn tail is found and costs nothing else.

A frame is its kind (one letter), the length of its body and the body's CRC-32, then the body. Nothing here is written
twice or changed later; a reader stops at the first frame that is not whole.

======  ==========================================================================================================
``H``   JSON: which worker, which devices, when the run began. The first frame.
``R``   readings, deflated: :data:`READING_RECORD` after each other, read by :mod:`simulator.fleet.audit.records`
``C``   commands, deflated: :data:`_COMMAND` and the command's id after each other
``S``   what the service gives back, deflated: :data:`STORED_RECORD` after each other
``G``   JSON: records that could not be written, from when to when and why
``E``   JSON: the counts at the end. The last frame; a worker that was killed leaves none.
======  ==========================================================================================================
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO, Final

from agent.config.dialect import AUTO
from agent.core.values import Contract, OutcomeStatus
from agent.wire.command_states import CommandStatus
from simulator.fleet.audit.fleet_ledger import SEQUENCE_NAME

LEDGER_FORMAT: Final = "fleet-ledger/1"
NO_TIME: Final = -(2**63)
"""``recorded`` of a reading that carries no time."""
COUNT_MAX: Final = 2**16 - 1

_HEAD: Final = struct.Struct("<cII")
_BODY_MAX: Final = 64 * 1024 * 1024
_LEVEL: Final = 1

READING_RECORD: Final = struct.Struct("<BxHIIIIIq")
"""kind, count, device, first sequence, digest, time, made (milliseconds since the run's begin), recorded (epoch ms)."""
STORED_RECORD: Final = struct.Struct("<IIIIqq")
"""device, sequence (0 when it has none), digest, place in the device's list, recorded and received (epoch ms)."""
_COMMAND: Final = struct.Struct("<BBBxIIH")
CONTRACTS: Final = tuple(Contract)
STATUSES: Final = tuple(OutcomeStatus)
LISTED_STATES: Final = tuple(CommandStatus)
_NO_STATE: Final = 255
_MADE_MAX: Final = 2**31 - 1
"""Milliseconds: 24 days before or after the run's begin, and what is further away counts as that."""


class ReadingKind(IntEnum):
    """The event of a record for ``count`` readings from ``sequence`` on. Only ``SENT`` has digest and times."""

    SENT = 1
    RESENT = 2
    ACCEPTED = 3
    REFUSED = 4
    UNANSWERED = 5
    RESENT_AFTER_REFUSAL = 6
    """Sent again, and the service had refused it each time: surely not stored then. ``RESENT`` is open about that."""


class CommandKind(IntEnum):
    """What happened to a command."""

    ORDERED = 1
    ORDER_UNANSWERED = 2
    RECEIVED = 3
    STARTED = 4
    FINISHED = 5
    REPORTED = 6
    LISTED = 7
    """The service lists it at the end."""


@dataclass(frozen=True, slots=True)
class CommandEvent:
    """One thing that happened to a command.

    Attributes:
        device: index in the fleet.
        at_ms: since the run's begin; of ``LISTED`` when the service made it, below 0 for before the run, 0 when it does
            not say.
        contract: of ``STARTED``.
        attempt: of ``STARTED``; 1 for the first run.
        status: of ``FINISHED``.
        state: of ``LISTED``; None when the service reports none, or one that nobody knows.
        is_older: of ``RECEIVED``: it carries a time before the run's begin.
    """

    kind: CommandKind
    device: int
    command_id: str
    at_ms: int
    contract: Contract | None = None
    attempt: int = 0
    status: OutcomeStatus | None = None
    state: CommandStatus | None = None
    is_older: bool = False


@dataclass(frozen=True, slots=True)
class LedgerHeader:
    """The first frame of a ledger: its worker, devices and run.

    Attributes:
        first_device, devices: the range of indices.
        began_ms: the run's begin, epoch milliseconds.
        sequence_name: the reading that carries the sequence number; None when readings go without.
        offers: the extensions that the service offers. With ``idempotency-key`` a resend must not make a second
            reading; with ``command-results`` the list of commands must have their results.
        first_number: on the wire sequence numbers count from here; others are another run's.
        time_name: the reading that carries the time of reading, on a server without ``recorded_at``.
        command_lists: what the server's list of a device's commands holds, as the scenario says; see
            :class:`~agent.wire.dialect.CommandLists`.
        command_id, time_zone: as in :class:`~agent.config.dialect.DialectConfig`.
        dated_when_made: the times that readings carry are meant to be those at which they were made: not in a run whose
            scenario makes clocks wrong, and not where readings are of the past, or of no device.
    """

    worker: int
    first_device: int
    devices: int
    began_ms: int
    sequence_name: str | None = SEQUENCE_NAME
    offers: tuple[str, ...] = ()
    first_number: int = 0
    time_name: str | None = None
    command_lists: str | None = None
    command_id: str = AUTO
    time_zone: str = AUTO
    dated_when_made: bool = False


@dataclass(frozen=True, slots=True)
class LedgerGap:
    """Records that are not in the ledger.

    Attributes:
        from_s, to_s: when they were made, since the run's begin.
        records: how many.
        reason: for a person.
    """

    from_s: float
    to_s: float
    records: int
    reason: str


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole frame as it was read."""

    kind: bytes
    body: bytes

    @property
    def size_bytes(self) -> int:
        """Size of the frame in the file, its head included."""
        return _HEAD.size + len(self.body)

    def json(self) -> dict[str, Any]:
        """The body of ``H``, ``G`` and ``E``."""
        value: dict[str, Any] = json.loads(self.body)
        return value

    def commands(self) -> Iterator[CommandEvent]:
        """The body of ``C``."""
        data = zlib.decompress(self.body)
        at = 0
        while at < len(data):
            kind, detail, attempt, device, at_ms, length = _COMMAND.unpack_from(data, at)
            at += _COMMAND.size
            if kind == CommandKind.LISTED and at_ms > _MADE_MAX:
                at_ms -= 1 << 32
            yield CommandEvent(
                CommandKind(kind),
                device,
                data[at : at + length].decode("utf-8", "surrogateescape"),
                at_ms,
                CONTRACTS[detail] if kind == CommandKind.STARTED else None,
                attempt,
                STATUSES[detail] if kind == CommandKind.FINISHED else None,
                LISTED_STATES[detail] if kind == CommandKind.LISTED and detail != _NO_STATE else None,
                is_older=kind == CommandKind.RECEIVED and bool(detail),
            )
            at += length


def make_frame(kind: bytes, body: bytes) -> bytes:
    """The bytes of one frame of a ledger."""
    return _HEAD.pack(kind, len(body), zlib.crc32(body)) + body


def make_json_frame(kind: bytes, value: dict[str, Any]) -> bytes:
    """A frame with a JSON object."""
    return make_frame(kind, json.dumps(value, separators=(",", ":")).encode())


def make_records_frame(kind: bytes, records: bytes | bytearray) -> bytes:
    """A frame of records, deflated."""
    return make_frame(kind, zlib.compress(records, _LEVEL))


def pack_command(
    kind: CommandKind, device: int, command_id: str, at_ms: int, *, detail: int = 0, attempt: int = 0
) -> bytes:
    """One record of a ``C`` frame."""
    name = command_id.encode("utf-8", "surrogateescape")[:COUNT_MAX]
    return _COMMAND.pack(kind, detail, min(attempt, 255), device, at_ms, len(name)) + name


def pack_listed(device: int, command_id: str, made_ms: int, status: str | None) -> bytes:
    """One record of a ``C`` frame: a command as the service lists it.

    Args:
        device: index in the fleet.
        command_id: the service's.
        made_ms: since the run's begin; negative for before it, 0 when the service does not say.
        status: as listed.
    """
    detail = LISTED_STATES.index(CommandStatus(status)) if status in LISTED_STATES else _NO_STATE
    at_ms = max(-_MADE_MAX, min(made_ms, _MADE_MAX)) % (1 << 32)
    return pack_command(CommandKind.LISTED, device, command_id, at_ms, detail=detail)


def pack_event(event: CommandEvent) -> bytes:
    """A record of a ``C`` frame as it was read."""
    if event.kind is CommandKind.LISTED:
        return pack_listed(event.device, event.command_id, event.at_ms, event.state)
    detail = int(event.is_older) if event.contract is None else CONTRACTS.index(event.contract)
    detail = detail if event.status is None else STATUSES.index(event.status)
    return pack_command(event.kind, event.device, event.command_id, event.at_ms, detail=detail, attempt=event.attempt)


def read_frames(path: Path) -> Iterator[Frame]:
    """Every whole frame of a file, from its begin until the first that is not whole.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        while (frame := _read_frame(file)) is not None:
            yield frame


def _read_frame(file: BinaryIO) -> Frame | None:
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    kind, length, checksum = _HEAD.unpack(head)
    if length > _BODY_MAX:
        return None
    body = file.read(length)
    if len(body) < length or zlib.crc32(body) != checksum:
        return None
    return Frame(kind, body)
