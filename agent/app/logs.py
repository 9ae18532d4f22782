"""Where log lines go and how they look: standard error, one line each, bounded, never a secret.

What stands in a line comes in part from outside: ids, a handler's words, a service's error texts. So a line is made of
printable characters, only a traceback has further lines (each of them indented, so that none passes for a line of its
own), and what looks like a secret or is one of this process's own is masked, tracebacks included.

Source: sd-daemon(3) for the priorities, journald.conf(5) for the length of a line (``LineMax``, 48 KiB).
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from agent.core.values import JsonObject
from agent.text import unescaped
from agent.wire.secret import mask

LINES: Final = 200
CHARACTERS: Final = 400

_log = logging.getLogger(__name__)

_PRIORITIES: Final = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}

# Characters; with four bytes for each a line still stays below journald's 48 KiB.
_MESSAGE_MAX: Final = 3000
_EXCEPTION_MAX: Final = 6000
_CUT: Final = "...[cut]..."
# What a handler raises or logs may be 100 MB: so much of each end is kept before anything looks for secrets in it.
_END_MAX: Final = 64 * 1024


class LineFormatter(logging.Formatter):
    """Makes a line of a record: ``time=... level=info thread=readings text``.

    Args:
        under_journald: the reader of standard error has the time already, and takes a priority before each line.
    """

    def __init__(self, *, under_journald: bool = False) -> None:
        super().__init__()
        self._under_journald = under_journald

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback after it, indented, when there is one."""
        try:
            message = record.getMessage()
        except Exception as error:  # noqa: BLE001 - a plug-in's format string; its line must not end the thread
            message = f"{record.msg} (its arguments do not fit: {type(error).__name__})"
        # What a logger adapter adds to all its lines: extra={"members": {...}}.
        own = getattr(record, "members", None)
        prefix = "".join(f"{name}={value} " for name, value in own.items()) if isinstance(own, dict) else ""
        message = _printable(_shown(prefix + message, _MESSAGE_MAX))
        trace = []
        if record.exc_info and record.exc_info[0] is not None:
            # The record's own cache is left alone: it would be shown unmasked by another handler. The end of a
            # traceback says what was raised, so its middle is what goes.
            whole = logging.Formatter().formatException(record.exc_info)
            trace = [_printable(line) for line in _shown(whole, _EXCEPTION_MAX).split("\n")]
        if self._under_journald:
            # journald takes the priority off again; every line of a traceback needs it.
            priority = f"<{_PRIORITIES.get(record.levelno, 6)}>"
            return "\n".join([priority + message, *(f"{priority}  | {line}" for line in trace)])
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        first = f"time={at} level={record.levelname.lower()} thread={record.threadName} {message}"
        return "\n".join([first, *(f"  | {line}" for line in trace)])


def _shown(text: str, characters: int) -> str:
    """The text without secrets, its middle cut out where it is too long.

    Masked before it is cut to its length, since half a secret is one, too; where an enormous text is cut before that,
    the word at the cut goes.
    """
    if len(text) > 2 * _END_MAX:
        text = text[:_END_MAX].rsplit(None, 1)[0] + _CUT + text[-_END_MAX:].split(None, 1)[-1]
    text = mask(text)
    if len(text) <= characters:
        return text
    kept = (characters - len(_CUT)) // 2
    return f"{text[:kept]}{_CUT}{text[-kept:]}"


def _printable(text: str) -> str:
    # A line end would forge a second line, an escape sequence would write over the terminal.
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)


def set_up_logging(level: str, *, under_journald: bool = False) -> None:
    """Log to standard error.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        under_journald: standard error goes to journald, which has the time already and takes a priority.
    """
    handler = logging.StreamHandler(unescaped(sys.stderr))  # the lines are made printable here
    handler.setFormatter(LineFormatter(under_journald=under_journald))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # They log every request with its address and headers.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # A handler's broken stderr must not end the agent.
    logging.raiseExceptions = False


class LogRing(logging.Handler):
    """Keeps the last :data:`LINES` lines, each cut to :data:`CHARACTERS`: some 30 KB, at most 80."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(LineFormatter())
        self._lines: deque[str] = deque(maxlen=LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line of a record in the ring."""
        try:
            self._lines.append(self.format(record)[:CHARACTERS])
        except Exception:  # noqa: BLE001 - as every handler of the log: a line that cannot be written must not end the agent
            self.handleError(record)

    def lines(self) -> list[str]:
        """The kept lines, oldest first."""
        return list(self._lines)


class LogLevel:
    """The level that the command ``log_level`` has set for a time. It does not survive a restart. Thread-safe.

    Args:
        configured: the level that the configuration asks for.
        schedule: ``(delay_s, call)``: calls later.
    """

    def __init__(self, configured: str, schedule: Callable[[float, Callable[[], object]], object]) -> None:
        self._configured = configured
        self._schedule = schedule
        self._lock = threading.Lock()
        self._ends_s = 0.0  # on time.monotonic()

    def set(self, level: str, for_s: float) -> JsonObject:
        """Set the level for ``for_s`` seconds, and say what it was before; 0 takes back what is set."""
        root = logging.getLogger()
        with self._lock:
            before = logging.getLevelName(root.level).lower()
            now = level if for_s else self._configured
            root.setLevel(now.upper())
            self._ends_s = time.monotonic() + for_s
            _log.warning("log_level=%s for_s=%.0f before=%s", now, for_s, before)
        if for_s:
            self._schedule(for_s, self._end)
        return {"level": now, "for_s": for_s, "before": before}

    def _end(self) -> None:
        with self._lock:
            if self._ends_s <= time.monotonic():  # else another command has set it since
                logging.getLogger().setLevel(self._configured.upper())
                _log.warning("log_level=back")
