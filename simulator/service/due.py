"""Scheduled work: commands expire and rules' timers end when the service's clock says so.

The regular tick runs what is due. When the clock is moved, :meth:`Due.advance` visits every instant at which something
falls due, oldest first, with the clock standing at that instant, before it answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from sqlalchemy import Connection

from simulator.service.clock import SettableClock
from simulator.service.failure_log import already_logged
from simulator.service.rules import Rules
from simulator.service.storage import commands

log = logging.getLogger(__name__)

STOPS_MAX: Final = 100_000
"""Instants that one advance visits at most; what is left is carried out at the end, in its own order."""


class DueSource(Protocol):
    """Things of one kind that fall due."""

    def next_due_ms(self) -> int | None:
        """When the next one falls due, milliseconds since the epoch; None for never. From memory: it is asked often."""
        ...

    async def run_due(self, now_ms: int) -> None:
        """Carry out all that is due at ``now_ms``. Called on the event loop; afterwards ``next_due_ms()`` is later."""
        ...


class Due:
    """All sources of scheduled work, done in the order of time. Only the event loop touches it."""

    def __init__(self, clock: SettableClock) -> None:
        self._clock = clock
        self._sources: list[DueSource] = []
        self._moving: asyncio.Lock | None = None

    def register(self, source: DueSource) -> None:
        """Ask this source too from now on. Sources that are due at the same instant run in this order."""
        self._sources.append(source)

    def next_due_ms(self) -> int | None:
        """The next instant at which anything falls due."""
        return min((at for at in (s.next_due_ms() for s in self._sources) if at is not None), default=None)

    async def run_due(self, now_ms: int) -> None:
        """Carry out what is due. One that fails does not keep the others from running: it is tried again later."""
        for source in self._sources:
            at = source.next_due_ms()
            if at is None or at > now_ms:
                continue
            try:
                await source.run_due(now_ms)
            except Exception as exc:  # a full disk must not end the others' work
                if not already_logged(exc):
                    log.exception("%s failed at its time; it is tried again", type(source).__name__)

    def standing(self) -> asyncio.Lock:
        """Held while nobody may move the clock."""
        if self._moving is None:
            self._moving = asyncio.Lock()
        return self._moving

    async def advance(self, to_ms: int) -> None:
        """Move the clock to ``to_ms``, stopping wherever something falls due on the way."""
        async with self.standing():
            for _ in range(STOPS_MAX):
                at = self.next_due_ms()
                if at is None or at > to_ms:
                    break
                now_ms = max(at, self._clock.now_ms())
                self._clock.hold(now_ms)
                await self.run_due(now_ms)
                if self.next_due_ms() == at:  # it failed: the tick tries again, the clock goes on
                    break
            self._clock.set(to_ms)
            await self.run_due(to_ms)


class OverdueCommands:
    """Open commands whose time is over, as what the writer commits before anything else.

    Args:
        deadline: of commands.
        clock: the service's.
        on_ended: called after the commit with the rows of the devices that had them, in the writing thread.
    """

    def __init__(
        self, deadline: commands.Deadline, clock: SettableClock, on_ended: Callable[[Sequence[int]], None]
    ) -> None:
        self._deadline = deadline
        self._clock = clock
        self._on_ended = on_ended

    def is_due(self) -> bool:
        """Whether one may be."""
        return self._deadline.is_due(self._clock.now_ms())

    def carry_out(self, connection: Connection) -> Callable[[], None]:
        """End them; after the commit their devices' polls are answered anew."""
        device_seqs = commands.end_overdue(connection, self._clock.now_ms())
        next_ms = commands.first_end_ms(connection)

        def committed() -> None:
            self._deadline.set(next_ms)
            self._on_ended(device_seqs)

        return committed


class EndsOfCommands:
    """Commands whose time ends, as something that falls due.

    Args:
        deadline: of commands.
        end: ends those whose time is over.
    """

    def __init__(self, deadline: commands.Deadline, end: Callable[[], Awaitable[None]]) -> None:
        self._deadline = deadline
        self._end = end

    def next_due_ms(self) -> int | None:
        """The end of the open command that ends first."""
        return self._deadline.next_ms

    async def run_due(self, _now_ms: int) -> None:
        """End them."""
        await self._end()


class TimersOfRules:
    """Rules whose conditions have held for long enough, as something that falls due.

    Args:
        rules: the enabled ones.
        fire: fires those that are due at an instant, milliseconds since the epoch.
    """

    def __init__(self, rules: Rules, fire: Callable[[int], Awaitable[None]]) -> None:
        self._rules = rules
        self._fire = fire

    def next_due_ms(self) -> int | None:
        """When the next rule fires if no further reading comes."""
        return self._rules.next_due_ms

    async def run_due(self, now_ms: int) -> None:
        """Fire them."""
        await self._fire(now_ms)
