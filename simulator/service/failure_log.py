"""Failures of the storage in the log: one line for each distinct failure, however many requests meet it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from simulator.service.errors import Unavailable

AGAIN_S: Final = 60.0
"""A failure that goes on is logged again after so long, with how often it came."""
_DISTINCT_MAX: Final = 100
_LINE_CHARACTERS: Final = 300
_OF_THE_STORAGE: Final = (OperationalError, InterfaceError, PoolTimeoutError, TimeoutError)
"""What a full disk or a server that is gone raises; anything else is a mistake of this program."""


def first_line(exc: BaseException) -> str:
    """What an error says, in one line; the driver's own words rather than the statement that met them."""
    cause = exc.orig if isinstance(exc, DBAPIError) and exc.orig is not None else exc
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return lines[0].rstrip(".")[:_LINE_CHARACTERS] if lines else type(cause).__name__


def already_logged(exc: Exception) -> bool:
    """Whether it answers a failure of the storage, which was logged where it was met."""
    return isinstance(exc, Unavailable)


class FailureLog:
    """Logs failures, each distinct one once a minute. One thread uses it.

    Args:
        log: where to.
        monotonic: the clock for the minute, seconds.
    """

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._monotonic = monotonic
        self._logged: dict[str, tuple[float, int]] = {}

    def report(self, what: str, exc: Exception) -> None:
        """Log it, or count it when the same was logged within the last minute.

        The traceback comes along at level DEBUG, and always when the storage itself is not to blame.

        Args:
            what: what could not be done, the same words for the same failure.
            exc: why.
        """
        line = f"{what}: {first_line(exc)}"
        now_s = self._monotonic()
        logged_s, repeated = self._logged.get(line, (now_s - AGAIN_S, 0))
        if now_s - logged_s < AGAIN_S:
            self._logged[line] = (logged_s, repeated + 1)
            return
        if len(self._logged) >= _DISTINCT_MAX:
            self._logged.clear()
        self._logged[line] = (now_s, 0)
        with_traceback = self._log.isEnabledFor(logging.DEBUG) or not isinstance(exc, _OF_THE_STORAGE)
        again = f" (and {repeated} times more since this was last said)" if repeated else ""
        self._log.error("%s%s", line, again, exc_info=exc if with_traceback else None)
