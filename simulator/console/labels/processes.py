"""Label work in processes of its own, one job at a time, each within its time. The service's loop never waits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from simulator.children import KEPT_VARIABLES
from simulator.console.labels.worker import LENGTHS
from simulator.die_with_parent import with_parent
from simulator.service.errors import Invalid, Unavailable

log = logging.getLogger(__name__)

_START_S: Final = 60.0
"""How long a process may take until it works: its libraries take seconds on a busy machine."""
_IDLE_S: Final = 300.0
"""A process that has had nothing to do for so long is ended."""
_MODULE: Final = "simulator.console.labels.worker"


class LabelProcess:
    """One process for jobs, started with the first one, and again after it was ended.

    Args:
        waiting_max: jobs that may wait for the one in work; more are refused.
        idle_s: it is ended when it has had nothing to do for so long.
    """

    def __init__(self, *, waiting_max: int, idle_s: float = _IDLE_S) -> None:
        self._waiting_max = waiting_max
        self._idle_s = idle_s
        self._in_hand = 0
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._leaving: list[asyncio.subprocess.Process] = []
        self._idle: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process while there is one."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    async def do(
        self, job: Mapping[str, Any], body: bytes = b"", *, limit_s: float, too_long: str
    ) -> tuple[dict[str, Any], bytes]:
        """Have a job done.

        Args:
            job: see :func:`simulator.console.labels.worker.answer`.
            body: a picture's bytes.
            limit_s: how long it may take; it is ended then.
            too_long: the sentence for that.

        Returns:
            What the worker answers, and a document.

        Raises:
            Invalid: what was given cannot be worked on; a sentence says why.
            Unavailable: too many jobs wait, or the process ended.
        """
        if self._in_hand > self._waiting_max:
            raise Unavailable("label_work_busy", "Other label work is under way. Send it again.", retry_after_s=2)
        self._in_hand += 1
        try:
            async with self._turn:
                return await self._do(job, body, limit_s, too_long)
        finally:
            self._in_hand -= 1

    async def _do(
        self, job: Mapping[str, Any], body: bytes, limit_s: float, too_long: str
    ) -> tuple[dict[str, Any], bytes]:
        self._stop_timer()
        began_s = time.monotonic()
        try:
            process = await self._running()
            async with asyncio.timeout(limit_s):
                answer, document = await _exchange(process, job, body)
        except TimeoutError:
            await self._end()
            raise Invalid("label_work_too_long", too_long) from None
        except (asyncio.IncompleteReadError, OSError):
            await self._end()
            log.warning("a process for label work ended by itself after %.1f s", time.monotonic() - began_s)
            text = "A decoder ended its process over this. Send another picture, or other labels."
            raise Unavailable("label_work_ended", text, retry_after_s=1) from None
        except BaseException:  # what comes from it now would be taken for the next answer
            await self._end()
            raise
        self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._let_go)
        if "failure" in answer:
            log.error("label work failed:\n%s", answer["failure"])
            raise Unavailable("label_work_failed", "The service failed on this; its log says why.", retry_after_s=1)
        if "problem" in answer:
            raise Invalid(answer["problem"]["word"], answer["problem"]["text"])
        return answer, document

    async def _running(self) -> asyncio.subprocess.Process:
        if self._closed:
            raise Unavailable("label_work_ended", "The service is about to end.", retry_after_s=1)
        self._leaving = [one for one in self._leaving if one.returncode is None]
        if self._process is not None and self._process.returncode is None:
            return self._process
        # -P: nothing is imported from the folder that the service was started in.
        command = with_parent([sys.executable, "-P", "-m", _MODULE])
        self._process = process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ},
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_START_S):
                await _receive(process)
        except TimeoutError:
            await self._end()
            text = f"A process for label work did not start within {_START_S:g} s: is this machine short of memory?"
            raise Unavailable("label_work_busy", text, retry_after_s=5) from None
        return process

    def _stop_timer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _let_go(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()  # which ends it
            self._leaving.append(process)

    async def _end(self) -> None:
        self._stop_timer()
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    async def close(self) -> None:
        """End the process; a job in work is given up."""
        self._closed = True
        await self._end()
        for process in self._leaving:
            await process.wait()


async def _exchange(
    process: asyncio.subprocess.Process, job: Mapping[str, Any], body: bytes
) -> tuple[dict[str, Any], bytes]:
    if process.stdin is None:
        raise ConnectionResetError
    shown = json.dumps(job).encode()
    process.stdin.write(LENGTHS.pack(len(shown), len(body)) + shown)
    process.stdin.write(body)
    await process.stdin.drain()
    return await _receive(process)


async def _receive(process: asyncio.subprocess.Process) -> tuple[dict[str, Any], bytes]:
    if process.stdout is None:
        raise ConnectionResetError
    head_bytes, body_bytes = LENGTHS.unpack(await process.stdout.readexactly(LENGTHS.size))
    head: dict[str, Any] = json.loads(await process.stdout.readexactly(head_bytes))
    return head, await process.stdout.readexactly(body_bytes)


class LabelWork:
    """All label work of a service: pictures in one process and making in another, so that no batch holds up a camera.

    Attributes:
        pictures: for what is decoded.
        making: for what is made.
    """

    def __init__(self) -> None:
        self.pictures = LabelProcess(waiting_max=4)
        self.making = LabelProcess(waiting_max=4)

    async def aclose(self) -> None:
        """End both processes."""
        await self.pictures.close()
        await self.making.close()
