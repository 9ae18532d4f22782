"""Deletes the oldest readings and ended commands beyond the numbers that are to be kept."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from simulator.service.storage import deleting
from simulator.service.storage.writer import Writer

log = logging.getLogger(__name__)

EVERY_S: Final = 5.0
"""Seconds between two cuts, by the machine's clock: the service's may stand still."""


@dataclass(slots=True)
class _RowLimit:
    """How many rows of one kind are kept.

    Attributes:
        cut: deletes a bounded number of those beyond so many; how many it deleted.
    """

    what: str
    option: str
    keep: int
    cut: Callable[[Connection, int], int]
    was_reached: bool = False


class Keeping:
    """Cuts what is beyond its bound, some rows in each transaction. Only the event loop touches it.

    Args:
        writer: deletes.
        readings: how many are kept, the newest by arrival; None for all.
        commands: how many ended ones are kept, the newest by their sending; None for all.
        now_s: the machine's clock.
    """

    def __init__(
        self,
        writer: Writer,
        readings: int | None,
        commands: int | None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._now_s = now_s
        self._next_s = 0.0
        self._bounds = tuple(
            _RowLimit(what, option, keep, cut)
            for what, option, keep, cut in (
                ("readings", "--keep-readings", readings, deleting.cut_readings),
                ("ended commands", "--keep-commands", commands, deleting.cut_commands),
            )
            if keep is not None
        )

    async def cut_when_due(self) -> None:
        """Cut, when the last time is long enough ago."""
        if not self._bounds or self._now_s() < self._next_s:
            return
        for bound in self._bounds:
            await self._cut(bound)
        self._next_s = self._now_s() + EVERY_S

    async def _cut(self, bound: _RowLimit) -> None:
        rows = deleting.ROWS_AT_ONCE
        while rows >= deleting.ROWS_AT_ONCE:
            rows = await self._writer.submit(lambda connection: bound.cut(connection, bound.keep))
            if rows and not bound.was_reached:
                bound.was_reached = True
                log.warning(
                    "there are more than %d %s: the oldest are deleted from now on; %s keeps more",
                    bound.keep,
                    bound.what,
                    bound.option,
                )
