"""Distinguishes the service's own web pages from others, for coroutines that share a pool of connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from agent.errors import ServiceError
from agent.wire.answers import Answer
from agent.wire.identity import PROOF_PATH
from simulator.fleet.device.answers import judge
from simulator.fleet.device.web_pages import Proved, WebPages, is_proof_answer
from simulator.fleet.engine.pool import HttpPool
from simulator.fleet.engine.ports import HttpAnswer
from simulator.watched import start_task


class PoolPages:
    """Judges answers as :class:`~simulator.fleet.device.web_pages.WebPages` does; awaits the proof where one is needed.

    Args:
        pool: the connections to the target.
        headers: the credential for the proof.
        now: monotonic seconds.
    """

    def __init__(
        self, pool: HttpPool, headers: Callable[[], Mapping[str, str]], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._pool = pool
        self._headers = headers
        self._pages = WebPages(self._prove, now)
        self._proof: asyncio.Task[None] | None = None

    async def judge(self, method: str, target: str, answer: HttpAnswer) -> Answer:
        """A good answer as the agent's client has it.

        Args:
            method: of the request.
            target: path and query, percent-encoded.
            answer: what came.

        Raises:
            ServiceError: see :func:`simulator.fleet.device.answers.judge`.
        """
        found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def sorted_out(is_meant: bool) -> None:
            if not found.done():  # its task was canceled
                found.set_result(is_meant)

        self._pages.sort(None, method, target, answer, sorted_out)
        return judge(answer, page_is_meant=await found)

    def _prove(self, _device: int, proved: Proved) -> None:
        self._proof = start_task(self._ask(proved), "proof")

    async def _ask(self, proved: Proved) -> None:
        good = False
        try:
            good = is_proof_answer(await self._pool.request("GET", PROOF_PATH, headers=self._headers()))
        except ServiceError:
            pass
        finally:
            proved(good)
