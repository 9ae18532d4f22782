"""``--validate-commands``: payloads against their product's command vocabulary, in a process that may be ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Final

from agent.wire.base import JsonObject
from simulator.service.core.vocabulary import CPU_S, Fault
from simulator.service.errors import Unavailable, invalid, invalid_all

NAMED_BY: Final = "command"
"""The member of a payload that names the command."""
_ANSWER_S: Final = 20.0
"""When the process is ended whatever it does; it ends itself after :data:`CPU_S` of a core's time."""
_KNOWN_MAX: Final = 256
_MODULE: Final = "simulator.service.core.vocabulary"
_TOO_COSTLY: Final = frozenset({1} if sys.platform == "win32" else {-signal.SIGPROF, -signal.SIGKILL})
"""How it ends when its time is over, by itself or by this process."""


class PayloadChecks:
    """Checks payloads one after the other. The process begins with the first check, and anew after a costly one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="service-payload")
        self._is_closed = False
        self._ask = lru_cache(_KNOWN_MAX)(self._ask_anew)  # a rule asks the same for each reading

    async def check(self, vocabulary: Sequence[Mapping[str, Any]], payload: JsonObject) -> None:
        """Refuse a payload that the vocabulary does not have, without holding up the event loop.

        Raises:
            Invalid: naming each fault.
            Unavailable: the service ends.
        """
        if self._is_closed:
            raise _closing()
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self.check_now, vocabulary, payload)
        except asyncio.CancelledError:
            if self._is_closed:
                raise _closing() from None
            raise

    def check_now(self, vocabulary: Sequence[Mapping[str, Any]], payload: JsonObject) -> None:
        """As :meth:`check`, in this thread. An empty vocabulary takes all."""
        if not vocabulary:
            return
        name = payload.get(NAMED_BY)
        known = {definition["name"]: definition for definition in vocabulary}
        if not isinstance(name, str) or name not in known:
            raise invalid(f"command_payload.{NAMED_BY}", f"must be a command of this product: {', '.join(known)}")
        schema = known[name].get("payload_schema")
        if schema is None:
            return
        faults = self._ask(json.dumps([schema, payload]))
        if faults:
            raise invalid_all(list(faults))

    def _ask_anew(self, question: str) -> tuple[Fault, ...]:
        with self._lock:
            if self._is_closed:
                raise _closing()
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", _MODULE],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    encoding="utf-8",
                )
            process = self._process
            assert process.stdin is not None and process.stdout is not None  # noqa: PT018, S101 - both are pipes
            timer = threading.Timer(_ANSWER_S, process.kill)
            timer.daemon = True
            timer.start()
            try:
                process.stdin.write(question + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            except OSError:  # it has ended
                answer = ""
            if not answer:
                process.wait()
            timer.cancel()
            if answer.endswith("\n"):
                return tuple((field, issue) for field, issue in json.loads(answer))
            code = process.returncode
            self._end()
            if self._is_closed:
                raise _closing()
        if code not in _TOO_COSTLY:
            text = f"The process that checks payloads ended with {code}; start it by hand: python -m {_MODULE}"
            raise Unavailable("payload_check_failed", text, retry_after_s=1)
        text = (
            f"the product's payload_schema takes more than {CPU_S:g} s to check: simplify its patterns and references"
        )
        return (("command_payload", text),)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]  # both are pipes

    def close(self) -> None:
        """End the process, and refuse what waits: the service ends. Twice does no harm."""
        self._is_closed = True
        process = self._process
        if process is not None:
            process.kill()  # whoever waits for its answer sees the end of it
        with self._lock:
            self._end()
        self._thread.shutdown(cancel_futures=True)


def _closing() -> Unavailable:
    return Unavailable("shutting_down", "The service ends.", retry_after_s=1)
