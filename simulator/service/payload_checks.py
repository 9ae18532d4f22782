"""``--validate-commands``: payloads against their product's command vocabulary, in a process that may be ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.wire.base import JsonObject
from simulator.service.errors import ApiError, invalid, invalid_all, unavailable
from simulator.service.payload_schemas import CPU_S, Problem

NAMED_BY: Final = "command"
"""The member of a payload that names the command."""
_ANSWER_S: Final = 20.0
"""When the process is ended whatever it does; it ends itself after :data:`CPU_S` of a core's time."""
_ANSWER_BYTES: Final = 16 * 1024 * 1024
_MODULE: Final = "simulator.service.payload_schemas"
_TOO_COSTLY: Final = frozenset({1} if sys.platform == "win32" else {-signal.SIGPROF, -signal.SIGKILL})
"""How it ends when its time is over, by itself or by this process."""


class PayloadChecks:
    """Checks payloads one after the other. The process begins with the first check, and anew after a costly one."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._is_closed = False

    async def check(self, vocabulary: Sequence[Mapping[str, Any]], payload: JsonObject) -> None:
        """Refuse a payload that the vocabulary does not have. An empty vocabulary takes all.

        Raises:
            ApiError: 400 naming each problem; 503 when the service ends.
        """
        if not vocabulary:
            return
        known = {definition["name"]: definition for definition in vocabulary}
        name = payload.get(NAMED_BY)
        if not isinstance(name, str) or name not in known:
            raise invalid(f"command_payload.{NAMED_BY}", f"must be a command of this product: {', '.join(known)}")
        schema = known[name].get("payload_schema")
        if schema is None:
            return
        async with self._lock:
            problems = await self._ask(json.dumps([schema, payload]))
        if problems:
            raise invalid_all(problems)

    async def _ask(self, question: str) -> list[Problem]:
        if self._is_closed:
            raise _closing()
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", _MODULE),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=_ANSWER_BYTES,
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018, S101 - both are pipes
        answer = b""
        try:
            process.stdin.write(question.encode() + b"\n")
            answer = await asyncio.wait_for(process.stdout.readline(), _ANSWER_S)
        except TimeoutError:
            pass
        finally:
            if not answer.endswith(b"\n"):  # it has ended, or its answer would be taken for the next one's
                self._process = None
                _kill(process)
                code = await process.wait()
        if answer.endswith(b"\n"):
            return [(field, issue) for field, issue in json.loads(answer)]
        if self._is_closed:
            raise _closing()
        if code not in _TOO_COSTLY:
            text = f"The process that checks payloads ended with {code}; start it by hand: python -m {_MODULE}"
            raise unavailable("payload_check_failed", text, 1)
        issue = (
            f"the product's payload_schema takes more than {CPU_S:g} s to check: simplify its patterns and references"
        )
        return [("command_payload", issue)]

    def close(self) -> None:
        """End the process, and refuse what waits: the service ends. Twice does no harm."""
        self._is_closed = True
        if self._process is not None:
            _kill(self._process)  # whoever waits for its answer sees the end of it

    async def closed(self) -> None:
        """Return when the process has ended, after :meth:`close`."""
        if self._process is not None:
            await self._process.wait()


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended by itself
        process.kill()


def _closing() -> ApiError:
    return unavailable("shutting_down", "The service ends.", 1)
