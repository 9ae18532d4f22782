"""Where log lines go and how they look: standard error, one line each, never a secret."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Final

from agent.wire.secret import redact

_PRIORITIES: Final = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


class TextFormatter(logging.Formatter):
    """``time=... level=info thread=uplink text``; under journald with its priority instead of time and level."""

    def __init__(self, *, under_journald: bool) -> None:
        super().__init__()
        self._under_journald = under_journald

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback after it when there is one."""
        text = _message(record)
        if self._under_journald:
            priority = _PRIORITIES.get(record.levelno, 6)
            # Every line of a traceback needs its priority too (sd-daemon(3)).
            return "\n".join(f"<{priority}>{line}" for line in text.split("\n"))
        return f"time={_time(record)} level={record.levelname.lower()} thread={record.threadName} {text}"


class JsonFormatter(logging.Formatter):
    """One object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        members: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "thread": record.threadName,
            "logger": record.name,
            "message": _message(record),
        }
        return json.dumps(members, ensure_ascii=False)


def set_up_logging(level: str, style: str, *, under_journald: bool = False) -> None:
    """Log to standard error.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        style: ``text`` or ``json``.
        under_journald: standard error goes to journald, which has the time already.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter(under_journald=under_journald))
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


def _message(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info:
        text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
    else:
        # One event, one line: what comes from outside must not forge a second one.
        text = text.replace("\r", " ").replace("\n", " ")
    return redact(text)


def _time(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
