"""Commands: queue, delivery, results, and the end of their time."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json, to_json
from sqlalchemy import Connection, Row, bindparam, func, insert, select, update

from agent.wire.base import JsonObject
from agent.wire.command_states import OPEN_STATES, CommandStatus
from agent.wire.commands import CommandResult
from agent.wire.limits import OPEN_COMMANDS_MAX, TTL_DEFAULT_S
from agent.wire.sending import SendCommand
from simulator.service.core.lifecycle import EVENT_OF_STATUS, MOVES, Event, move
from simulator.service.errors import Conflict, not_found
from simulator.service.storage.lists import Rows, Window, fetch
from simulator.service.storage.tables import commands, devices
from simulator.service.times import show_time, show_time_or_none

OPEN: Final = tuple(sorted(OPEN_STATES))
_REASONS: Final = {
    Event.LAPSE: {
        CommandStatus.EXPIRED: "not delivered in time",
        CommandStatus.TIMED_OUT: "no result in time",
    },
    Event.CANCEL: {CommandStatus.CANCELED: "the device was removed"},
}


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """A command as the service answers it; times are RFC 3339."""

    id: str
    device_id: str
    command_payload: JsonObject
    status: CommandStatus
    status_reason: str | None
    result: JsonObject | None
    created_at: str
    delivered_at: str | None
    completed_at: str | None
    expires_at: str


class Deadline:
    """When the next open command's time is over, so that no transaction has to look before.

    The value never runs ahead of what is committed: it may be too early, which costs a look in vain, and is never too
    late. Commands are ended in a transaction of their own (:class:`simulator.service.storage.writer.Writer`), never
    inside an operation that may be refused and rolled back.
    """

    def __init__(self) -> None:
        self._next_ms: int | None = None
        self._guard = threading.Lock()

    @property
    def next_ms(self) -> int | None:
        """When that is, milliseconds since the epoch."""
        return self._next_ms

    def is_due(self, now_ms: int) -> bool:
        """Whether a command's time may be over."""
        next_ms = self._next_ms
        return next_ms is not None and next_ms <= now_ms

    def note(self, expires_ms: int) -> None:
        """A command was queued."""
        with self._guard:
            if self._next_ms is None or expires_ms < self._next_ms:
                self._next_ms = expires_ms

    def load(self, connection: Connection) -> None:
        """Read it from the storage; inside a transaction that changes commands, only when it cannot be refused."""
        self.set(first_end_ms(connection))

    def set(self, next_ms: int | None) -> None:
        """The transaction that found ``next_ms`` is committed."""
        with self._guard:
            self._next_ms = next_ms

    def doubt(self) -> None:
        """What is stored is not known, since a transaction was rolled back or its commit broke off: look again."""
        self.set(0)


def first_end_ms(connection: Connection) -> int | None:
    """When the time of the next open command is over, milliseconds since the epoch; None without one."""
    return connection.execute(select(func.min(commands.c.expires_at)).where(commands.c.status.in_(OPEN))).scalar()


def end_overdue(connection: Connection, now_ms: int) -> list[int]:
    """End the open commands whose time is over.

    Returns:
        The rows of the devices that had them.
    """
    due = (commands.c.status.in_(OPEN), commands.c.expires_at <= now_ms)
    device_seqs = list(connection.execute(select(commands.c.device_seq).where(*due).distinct()).scalars())
    if device_seqs:
        _end_open(connection, Event.LAPSE, due, completed_at=commands.c.expires_at)
    return device_seqs


def cancel_open(connection: Connection, device_seq: int, now_ms: int) -> None:
    """The device is removed: its open commands are canceled."""
    mine = (commands.c.device_seq == device_seq, commands.c.status.in_(OPEN))
    _end_open(connection, Event.CANCEL, mine, completed_at=now_ms)


def _end_open(connection: Connection, event: Event, which: tuple[Any, ...], completed_at: Any) -> None:
    for status in OPEN:
        after = MOVES[CommandStatus(status)][event]
        connection.execute(
            update(commands)
            .where(*which, commands.c.status == status)
            .values(status=after.value, status_reason=_REASONS[event][after], completed_at=completed_at)
        )


def show(row: Row[Any], device_id: str) -> CommandRecord:
    """The command record, as the wire has it."""
    return CommandRecord(
        id=row.id,
        device_id=device_id,
        command_payload=from_json(row.command_payload),
        status=CommandStatus(row.status),
        status_reason=row.status_reason,
        result=None if row.result is None else from_json(row.result),
        created_at=show_time(row.created_at),
        delivered_at=show_time_or_none(row.delivered_at),
        completed_at=show_time_or_none(row.completed_at),
        expires_at=show_time(row.expires_at),
    )


def queue(
    connection: Connection, device: Row[Any], request: SendCommand, command_id: str, now_ms: int, *, deadline: Deadline
) -> CommandRecord:
    """Add a command to its device's queue.

    Raises:
        Conflict: ``command_queue_full``.
    """
    mine = (
        select(func.count())
        .select_from(commands)
        .where(commands.c.device_seq == device.seq, commands.c.status.in_(OPEN))
    )
    if connection.execute(mine).scalar_one() >= OPEN_COMMANDS_MAX:
        raise Conflict(
            "command_queue_full",
            f"This device has {OPEN_COMMANDS_MAX} open commands: wait until it has ended some, or they expire.",
        )
    expires_ms = now_ms + (request.ttl_seconds or TTL_DEFAULT_S) * 1000
    connection.execute(
        insert(commands).values(
            id=command_id,
            manufacturer_seq=device.manufacturer_seq,
            device_seq=device.seq,
            command_payload=to_json(request.command_payload).decode(),
            status=CommandStatus.QUEUED.value,
            created_at=now_ms,
            expires_at=expires_ms,
        )
    )
    deadline.note(expires_ms)
    return show(find(connection, device, command_id), device.id)


def find(connection: Connection, device: Row[Any], command_id: str) -> Row[Any]:
    """One command of a device.

    Raises:
        NotFound: ``command_not_found``.
    """
    statement = select(commands).where(commands.c.id == command_id, commands.c.device_seq == device.seq)
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise not_found("command", command_id)
    return row


def list_page(
    connection: Connection,
    device_seq: int,
    statuses: Collection[str] | None,
    window: Window,
    *,
    ends_after_ms: int | None = None,
) -> Rows[Row[Any]]:
    """Commands of a device in the order of sending, one more than the window takes.

    Args:
        connection: to read from.
        device_seq: the device's row.
        statuses: of these states; None for all.
        window: which of them.
        ends_after_ms: leaves out what ends at this instant or before: a device is never handed what is over, even
            where ending it has failed or comes a moment later.
    """
    c = commands.c
    statement = select(commands).where(c.device_seq == device_seq)
    if statuses is not None:
        statement = statement.where(c.status.in_(sorted(statuses)))
    if ends_after_ms is not None:
        statement = statement.where(c.expires_at > ends_after_ms)
    return fetch(connection, statement, window, c.seq)


_DELIVERED: Final = (
    update(commands)
    .where(commands.c.seq == bindparam("row_seq"), commands.c.status == CommandStatus.QUEUED.value)
    .values(status=MOVES[CommandStatus.QUEUED][Event.DELIVER].value, delivered_at=bindparam("at_ms"))
)


def deliver(connection: Connection, rows: Sequence[Row[Any]], now_ms: int) -> None:
    """The device's poll lists these: those that are queued are delivered now."""
    queued = [{"row_seq": row.seq, "at_ms": now_ms} for row in rows if row.status == CommandStatus.QUEUED]
    if queued:
        connection.execute(_DELIVERED, queued)


def report(
    connection: Connection, device: Row[Any], command_id: str, said: CommandResult, now_ms: int
) -> CommandRecord:
    """Take a result, or the news that a command is in progress.

    The same result again answers the same record: the answer to the first may have been lost.

    Raises:
        ServiceError: not found, or ``command_not_open``.
    """
    row = find(connection, device, command_id)
    event = EVENT_OF_STATUS[said.status]
    before = CommandStatus(row.status)
    after = move(before, event)
    result = None if said.result is None else to_json(said.result).decode()
    if after is None:
        if before == said.status and row.result == result and row.status_reason == said.error:
            return show(row, device.id)
        raise Conflict("command_not_open", f"This command is {before.value} already and takes no {said.status}.")
    values: dict[str, Any] = {"status": after.value, "delivered_at": row.delivered_at or now_ms}
    if said.result is not None or event is not Event.PROGRESS:
        values["result"] = result
    if said.error is not None or event is not Event.PROGRESS:
        values["status_reason"] = said.error
    if event is not Event.PROGRESS:
        values["completed_at"] = now_ms
    connection.execute(update(commands).where(commands.c.seq == row.seq).values(**values))
    return show(find(connection, device, command_id), device.id)


def newest(connection: Connection, manufacturer_seq: int) -> tuple[int, str] | None:
    """Number and id of the account's last command."""
    c = commands.c
    statement = select(c.seq, c.id).where(c.manufacturer_seq == manufacturer_seq).order_by(c.seq.desc()).limit(1)
    row = connection.execute(statement).one_or_none()
    return None if row is None else (row.seq, row.id)


def place_of(connection: Connection, manufacturer_seq: int, command_id: str) -> int | None:
    """The number of a command of the account."""
    c = commands.c
    return connection.execute(
        select(c.seq).where(c.id == command_id, c.manufacturer_seq == manufacturer_seq)
    ).scalar_one_or_none()


def was_renumbered(connection: Connection, seq: int, command_id: str) -> bool:
    """Whether all commands were deleted since this one had its number, so that numbers began anew.

    A command that is gone, and later ones that are there, are no sign of it: old ones may be deleted by themselves.
    """
    holder = connection.execute(select(commands.c.id).where(commands.c.seq == seq)).scalar_one_or_none()
    if holder is not None:
        return bool(holder != command_id)
    newest_seq = connection.execute(select(func.max(commands.c.seq))).scalar()
    return newest_seq is None or newest_seq < seq


def list_sent(
    connection: Connection, manufacturer_seq: int, after_seq: int, limit: int
) -> list[tuple[int, CommandRecord]]:
    """The account's commands in the order of sending, with their numbers. One writer makes numbers ascend by commit."""
    c = commands.c
    statement = (
        select(commands, devices.c.id.label("device_id"))
        .join(devices, devices.c.seq == c.device_seq)
        .where(c.manufacturer_seq == manufacturer_seq, c.seq > after_seq)
        .order_by(c.seq)
        .limit(limit)
    )
    return [(row.seq, show(row, row.device_id)) for row in connection.execute(statement)]
