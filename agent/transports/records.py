"""Command records as the wire brings them, as the commands that the core decides on."""

from __future__ import annotations

from collections.abc import Iterable

from agent.core.values import Command
from agent.errors import InvalidMessage
from agent.wire.commands import CommandRecord


def read_records(records: Iterable[CommandRecord], device_id: str) -> tuple[tuple[Command, ...], tuple[str, ...]]:
    """The records as commands, oldest first, and a sentence for each that cannot be taken."""
    commands: list[Command] = []
    malformed: list[str] = []
    for record in records:
        if record.device_id is not None and record.device_id != device_id:
            malformed.append(f"a command for device {record.device_id[:80]!r} is in this device's list: it is skipped")
            continue
        try:
            commands.append(
                Command(
                    id=record.stable_id(),
                    payload=record.command_payload,
                    created_at=record.created_at,
                    expires_at=record.expires_at,
                    status=record.status,
                    size_bytes=record.payload_size_bytes(),
                    fault=record.fault,
                    listed_at=record.listed_at,
                )
            )
        except InvalidMessage as error:
            malformed.append(str(error))
    return oldest_first(commands), tuple(malformed)


def oldest_first(commands: Iterable[Command]) -> tuple[Command, ...]:
    """By ``created_at``, as the device works them off, those without one first; equal ones keep their order."""
    return tuple(sorted(commands, key=lambda command: command.created_at or 0.0))
