"""One line for each request on standard error.

The lines do not pass through :mod:`logging`, which makes a record of each and writes it by itself: those of a tenth of
a second are written at once, by one call of the system.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from typing import Final

from pydantic_core import to_json

from simulator.service.matching import FoundPath
from simulator.service.request_log.entry import ANSWERED
from simulator.service.request_log.logged_paths import LoggedPaths
from simulator.service.request_log.recording import Recording
from simulator.service.request_log.settings import AccessLogStyle

FLUSH_S: Final = 0.1
_WAITING_MAX: Final = 1_000
"""So many lines are written before their time."""


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


class AccessLog:
    """Writes a line for each request to the access log.

    Args:
        style: ``text`` as ``name=value``, or ``json`` as an object on each line.
        find: path -> its template; None when the service has no such path.
        write: where they go; many lines at once.
        now_s: seconds since the epoch.
    """

    def __init__(
        self,
        style: AccessLogStyle,
        find: Callable[[str], FoundPath | None],
        write: Callable[[str], object] = _write,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._line = _json_line if style == "json" else _text_line
        self._paths = LoggedPaths(find)
        self._write = write
        self._now_s = now_s
        self._waiting: list[str] = []
        self._second = -1
        self._prefix = ""

    def add(self, recording: Recording) -> None:
        """Write a request's line within :data:`FLUSH_S`."""
        waiting = self._waiting
        if not waiting:
            asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
        path = recording.logged_path or self._paths.look_up(recording.raw_path)
        waiting.append(self._line(recording, self._time(self._now_s()), path.template))
        if len(waiting) >= _WAITING_MAX:
            self.flush()

    def flush(self) -> None:
        """Write what waits. A standard error that is gone ends nothing."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            try:
                self._write("".join(waiting))
            except (OSError, ValueError):  # a pipe without a reader, or a file that is closed
                logging.getLogger(__name__).debug("the access log cannot be written")

    def _time(self, at_s: float) -> str:
        second = int(at_s)
        if second != self._second:
            self._second = second
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._prefix}.{int((at_s - second) * 1000):03d}Z"


def _text_line(one: Recording, at: str, path: str | None) -> str:
    caller = "-" if one.caller is None else one.caller.api_key
    if " " in caller:  # a partner and its user
        caller = to_json(caller).decode()
    line = (
        f"{at} INFO access: method={one.method or '-'} path={path or '-'} status={one.status or '-'} "
        f"duration_ms={one.duration_s * 1000:.1f} account={caller} request_id={one.request_id.decode() or '-'}"
    )
    if one.outcome != ANSWERED:
        line += f" outcome={one.outcome}"
    if one.is_console:
        line += " console"
    return f"{line} faults={','.join(one.faults)}\n" if one.faults else f"{line}\n"


def _json_line(one: Recording, at: str, path: str | None) -> str:
    line = {
        "time": at,
        "level": "info",
        "logger": "access",
        "method": one.method or None,
        "path": path,
        "status": one.status,
        "duration_ms": round(one.duration_s * 1000, 1),
        "account": None if one.caller is None else one.caller.api_key,
        "request_id": one.request_id.decode() or None,
        "outcome": one.outcome,
        "faults": list(one.faults),
    }
    if one.is_console:
        line["console"] = True
    return f"{to_json(line).decode()}\n"
