"""Work on what comes from outside, done by a program that ends itself when it takes too much time or memory."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Final

from simulator.die_with_parent import with_parent
from simulator.service.errors import unavailable

_ENDED_AFTER_S: Final = 120.0
"""Of a program that hangs, on a machine that is busy; its own limit is of processor time."""
_WAITING_MAX: Final = 16


class ChildProgram:
    """A module of ours that reads standard input, and writes what it found; one input at a time.

    Args:
        module: run as ``python -m``.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._process: asyncio.subprocess.Process | None = None
        self._is_closed = False

    async def run(self, data: bytes) -> bytes | None:
        """What it writes; None when it ended before that, as the input was too much for its limits.

        Raises:
            ApiError: 503: too many wait already, or the service ends.
        """
        if self._waiting >= _WAITING_MAX:
            raise unavailable("busy", "Others wait for the same work: try again.", 2)
        self._waiting += 1
        try:
            async with self._turn:
                output = await self._run(data)
        finally:
            self._waiting -= 1
        if self._is_closed:
            raise unavailable("shutting_down", "The service ends.", 1)
        return output

    async def _run(self, data: bytes) -> bytes | None:
        if self._is_closed:
            return None
        pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        program = with_parent([sys.executable, "-P", "-m", self._module])
        self._process = process = await asyncio.create_subprocess_exec(
            *program, stdin=pipe, stdout=pipe, stderr=nowhere
        )
        output = b""
        try:
            output, _ = await asyncio.wait_for(process.communicate(data), _ENDED_AFTER_S)
        except TimeoutError:
            pass
        finally:
            self._kill()
            code = await process.wait()
        return output if code == 0 else None

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                self._process.kill()

    def close(self) -> None:
        """End what runs, and refuse what waits. Twice does no harm."""
        self._is_closed = True
        self._kill()
