"""Detects, for requests that are under way, that their account was deleted or the whole state replaced."""

from __future__ import annotations

import asyncio
from typing import Final

from simulator.service.errors import Unavailable

WAIT_S: Final = 10.0
"""How long a request waits at most while the state is replaced."""


class Epochs:
    """Counts deleted accounts and replaced states. A request notes the number when it comes, and compares it later.

    Only the event loop touches it.

    Attributes:
        number: goes up with each deleted account and each replaced state.
        replaced: the number at the last replacement; requests with a lower one came to a state that is gone.
        settled: None, or what is set once the state that is being replaced is the new one, or the old one again.
    """

    def __init__(self) -> None:
        self.number = 0
        self.replaced = 0
        self.settled: asyncio.Event | None = None

    def account_deleted(self) -> None:
        """An account is gone; requests of others go on."""
        self.number += 1

    def begin_replacing(self) -> None:
        """Let requests wait from now on; those that are under way write nothing before it is settled."""
        self.settled = asyncio.Event()
        self.number += 1

    def end_replacing(self, *, is_replaced: bool) -> None:
        """Requests go on; those from before are over when the state is another one now."""
        if is_replaced:
            self.number += 1
            self.replaced = self.number
        if self.settled is not None:
            self.settled.set()
        self.settled = None

    async def wait(self) -> None:
        """Until no state is being replaced.

        Raises:
            Unavailable: that takes long.
        """
        settled = self.settled
        if settled is None:
            return
        try:
            await asyncio.wait_for(settled.wait(), WAIT_S)
        except TimeoutError:
            text = "A snapshot is being loaded; nothing was done. Try again."
            raise Unavailable("state_loading", text, retry_after_s=1) from None
