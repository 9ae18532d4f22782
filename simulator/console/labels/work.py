"""Label work beside the service's loop, which never waits for it: one job at a time of each sort, and few that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from agent.error_text import bounded
from simulator.labels.errors import LabelError
from simulator.service.errors import Invalid, Unavailable

T = TypeVar("T")
_WAITING_MAX: Final = 4
"""Jobs that may wait for the one in work; more are refused."""


class LabelQueue:
    """Jobs that are done one after the other, in a thread of its own.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._in_hand = 0

    async def do(self, job: Callable[[], T]) -> T:
        """Have a job done. Jobs are bounded by what they are given; one that nobody waits for any more ends by itself.

        Raises:
            Invalid: what was given cannot be worked on; a sentence says why.
            Unavailable: too many jobs wait.
        """
        if self._in_hand > _WAITING_MAX:
            raise Unavailable("label_work_busy", "Other label work is under way. Send it again.", retry_after_s=2)
        self._in_hand += 1
        future = asyncio.get_running_loop().run_in_executor(self._thread, job)
        future.add_done_callback(self._done)
        try:
            return await future
        except LabelError as exc:
            raise Invalid(getattr(exc, "word", "labels_not_made"), bounded(str(exc))) from None

    def _done(self, _: object) -> None:
        self._in_hand -= 1

    async def close(self) -> None:
        """Give up the jobs that wait, and wait for the one in work."""
        shutdown = partial(self._thread.shutdown, cancel_futures=True)
        await asyncio.get_running_loop().run_in_executor(None, shutdown)


class LabelWork:
    """All label work of a service: pictures in one queue and making in another, so that no batch holds up a camera.

    Attributes:
        pictures: for what is decoded.
        making: for what is made.
    """

    def __init__(self) -> None:
        self.pictures = LabelQueue("label-pictures")
        self.making = LabelQueue("label-making")

    async def aclose(self) -> None:
        """End both."""
        await self.pictures.close()
        await self.making.close()
