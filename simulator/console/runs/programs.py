"""Other commands of ``fleet-simulator``, run as processes of their own: a scenario or a folder that is too much for one
of them takes no memory and no time of the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from simulator.children import KEPT_VARIABLES, program_path
from simulator.die_with_parent import with_parent
from simulator.service.errors import Unavailable

PROGRAM: Final = "fleet-simulator"
_TIMEOUT_S: Final = 120.0
_OUTPUT_BYTES: Final = 16 * 1024 * 1024
_WAITING_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and what it wrote."""

    exit_code: int
    output: bytes
    errors: str


class Programs:
    """Runs one command at a time; the others wait, a few of them."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._processes: set[asyncio.subprocess.Process] = set()
        self._closing = False

    async def run(self, *words: str) -> Ended:
        """Run ``fleet-simulator WORDS``.

        Raises:
            Unavailable: it took too long or wrote too much, too many wait already, or the service ends.
        """
        if self._waiting >= _WAITING_MAX:
            raise Unavailable("too_busy", "Too many checks wait already.", retry_after_s=5)
        self._waiting += 1
        try:
            async with self._turn:
                return await self._run([str(program_path(PROGRAM)), *words])
        finally:
            self._waiting -= 1

    async def _run(self, command: Sequence[str]) -> Ended:
        if self._closing:
            raise Unavailable("service_ending", "The service ends.")
        environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            *with_parent(command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self._processes.add(process)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                output, errors = await asyncio.gather(_all_of(process.stdout), _all_of(process.stderr))
                return Ended(await process.wait(), output, errors.decode("utf-8", "replace"))
        except TimeoutError:
            text = f"'{PROGRAM} {command[1]}' took longer than {_TIMEOUT_S:g} s and was ended: run it in a terminal."
            raise Unavailable("took_too_long", text) from None
        finally:
            _kill(process)
            await process.wait()
            self._processes.discard(process)

    def close(self) -> None:
        """End what is under way."""
        self._closing = True
        for process in self._processes:
            _kill(process)


async def _all_of(stream: asyncio.StreamReader | None) -> bytes:
    parts: list[bytes] = []
    size = 0
    while stream is not None and (part := await stream.read(65536)):
        parts.append(part)
        size += len(part)
        if size > _OUTPUT_BYTES:
            raise Unavailable("too_large", f"It wrote more than {_OUTPUT_BYTES // 1024**2} MB: run it in a terminal.")
    return b"".join(parts)


def _kill(process: asyncio.subprocess.Process) -> None:
    """The process and all that it has started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
