"""Changes of a device's commands: who waits for them, and which answers they make out of date."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.types import Receive

from simulator.service.kept import KeptPolls


class Waiters:
    """Wakes held polls. Only the event loop touches it. It remembers a device only while somebody waits for it.

    Attributes:
        kept: the answers of polls; a change makes its device's one out of date.
    """

    def __init__(self) -> None:
        self.kept = KeptPolls()
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}
        self.closing = False

    def join(self, device_seq: int) -> asyncio.Future[None]:
        """A future that ends with the next change. Join before reading, so that no change falls in between."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.closing:
            future.set_result(None)
        else:
            self._waiting.setdefault(device_seq, set()).add(future)
        return future

    def leave(self, device_seq: int, future: asyncio.Future[None]) -> None:
        """Stop waiting."""
        waiting = self._waiting.get(device_seq)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._waiting[device_seq]
        future.cancel()

    def wake(self, device_seq: int) -> None:
        """The device's commands have changed."""
        self.kept.forget(device_seq)
        for future in self._waiting.pop(device_seq, ()):
            if not future.done():
                future.set_result(None)

    def wake_all(self) -> None:
        """Everything may have changed."""
        self.kept.clear()
        for device_seq in list(self._waiting):
            self.wake(device_seq)

    def close(self) -> None:
        """The service ends: nobody is held any longer."""
        self.closing = True
        self.wake_all()


async def hold(change: asyncio.Future[None], receive: Receive, timeout_s: float) -> bool:
    """Wait for the change, but not longer than the caller stays connected.

    Returns:
        False when the caller has gone.
    """
    gone = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({change, gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return not gone.done()
    finally:
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
