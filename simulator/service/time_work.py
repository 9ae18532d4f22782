"""What the time alone brings about in a service: ends of commands, timers of rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from simulator.service.storage import commands

if TYPE_CHECKING:
    from simulator.service.service import Service


class OverdueCommands:
    """Open commands whose time is over, as what the writer commits before anything else."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def is_due(self) -> bool:
        """Whether one may be."""
        return self._service.deadline.is_due(self._service.clock.now_ms())

    def carry_out(self, connection: Connection) -> Callable[[], None]:
        """End them; after the commit their devices' polls are answered anew."""
        service = self._service
        device_seqs = commands.end_overdue(connection, service.clock.now_ms())
        next_ms = commands.first_end_ms(connection)

        def committed() -> None:
            service.deadline.set(next_ms)
            service.commands_have_ended(device_seqs)

        return committed


class EndsOfCommands:
    """Commands whose time ends, as something that falls due."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def next_due_ms(self) -> int | None:
        """The end of the open command that ends first."""
        return self._service.deadline.next_ms

    async def run_due(self, _now_ms: int) -> None:
        """End them."""
        await self._service.settle_due()


class TimersOfRules:
    """Rules whose conditions have held for long enough, as something that falls due."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def next_due_ms(self) -> int | None:
        """When the next rule fires if no further reading comes."""
        return self._service.rules.next_due_ms

    async def run_due(self, now_ms: int) -> None:
        """Fire them."""
        await self._service.fire_timers(now_ms)
