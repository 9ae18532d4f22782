"""One line for each request on standard error.

The lines do not pass through :mod:`logging`, which takes several times as long for each as the rest of the log
together: those of one turn of the event loop are written at once.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import time
from collections.abc import Callable
from typing import Final, Literal

from pydantic_core import to_json

from simulator.service.request_log.entry import Entry

AccessLogStyle = Literal["text", "json", "off"]
_PLAIN: Final = re.compile(r"[!-~]+")


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


class AccessLog:
    """Writes the lines.

    Args:
        style: ``text`` as ``name=value``, or ``json`` as an object on each line.
        write: where they go; many lines at once.
        now_s: seconds since the epoch.
    """

    def __init__(
        self, style: AccessLogStyle, write: Callable[[str], None] = _write, now_s: Callable[[], float] = time.time
    ) -> None:
        self._line = _json_line if style == "json" else _text_line
        self._write = write
        self._now_s = now_s
        self._waiting: list[str] = []
        self._second = -1
        self._prefix = ""

    def add(self, entry: Entry) -> None:
        """Write a request's line at the end of this turn of the event loop."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(self._line(entry, self._time()))

    def flush(self) -> None:
        """Write what waits. A standard error that is gone ends nothing."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            try:
                self._write("".join(waiting))
            except (OSError, ValueError):  # a pipe without a reader, or a file that is closed
                logging.getLogger(__name__).debug("the access log cannot be written")

    def _time(self) -> str:
        now_s = self._now_s()
        second = int(now_s)
        if second != self._second:
            self._second = second
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._prefix}.{int((now_s - second) * 1000):03d}Z"


def _text_line(entry: Entry, at: str) -> str:
    caller = "-" if entry.caller is None else entry.caller.api_key
    if not _PLAIN.fullmatch(caller):
        caller = to_json(caller).decode()
    line = (
        f"{at} INFO access: method={entry.method or '-'} path={entry.template or '-'} status={entry.status or '-'} "
        f"duration_ms={entry.duration_s * 1000:.1f} account={caller} request_id={entry.request_id or '-'}"
    )
    if entry.outcome != "answered":
        line += f" outcome={entry.outcome}"
    return f"{line}\n" if entry.fault is None else f"{line} fault={entry.fault}\n"


def _json_line(entry: Entry, at: str) -> str:
    line = {
        "time": at,
        "level": "info",
        "logger": "access",
        "method": entry.method or None,
        "path": entry.template,
        "status": entry.status,
        "duration_ms": round(entry.duration_s * 1000, 1),
        "account": None if entry.caller is None else entry.caller.api_key,
        "request_id": entry.request_id or None,
        "outcome": entry.outcome,
        "fault": entry.fault,
    }
    return f"{to_json(line).decode()}\n"
