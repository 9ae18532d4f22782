"""What a server's loop reports while no file is free for a connection: one line now and then, no flood."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from agent.runtime.failure_log import FailureLog

_REPEAT_AFTER_S: Final = 300.0


class AcceptFailures:
    """An exception handler of a loop (:meth:`asyncio.loop.set_exception_handler`).

    The loop of asyncio reports each attempt to accept a connection while no file is free: thousands in a second. Here
    that is one warning in five minutes. Everything else is reported as ever.

    Args:
        log: takes the warning.
        is_ending: the server ends. Asyncio tries again a second after each failed attempt, also on a listener that was
            closed meanwhile; what comes of that is not reported then.
    """

    def __init__(self, log: logging.Logger, is_ending: Callable[[], bool]) -> None:
        self._failure_log = FailureLog(log, time.monotonic, _REPEAT_AFTER_S)
        self._is_ending = is_ending

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report what an attempt to accept, or anything else in the loop, ended with."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
            advice = "raise LimitNOFILE= of the unit or ulimit -n"
            self._failure_log.report("files", f"http=full no connection can be accepted: {error.strerror}; {advice}")
        elif not (self._is_ending() and "_start_serving" in context["message"]):
            loop.default_exception_handler(context)
