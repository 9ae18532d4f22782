"""Where log lines go and how they look: standard error, one line each, bounded, never a secret.

What stands in a line comes in part from outside: ids, a handler's words, a service's error texts. So a line is made of
printable characters, only a traceback has further lines (each of them indented, so that none passes for a line of its
own), and what looks like a secret or is one of this process's own is masked last of all, tracebacks included.

Source: sd-daemon(3) for the priorities, journald.conf(5) for the length of a line (``LineMax``, 48 KiB).
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from agent.core.values import JsonObject
from agent.wire.secret import mask

_log = logging.getLogger(__name__)

_PRIORITIES: Final = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}

# Characters; with four bytes for each and JSON's escapes a line still stays below journald's 48 KiB.
_MESSAGE_MAX: Final = 3000
_EXCEPTION_MAX: Final = 6000
_VALUE_MAX: Final = 200
_CUT: Final = "...[cut]..."
# What a handler raises or logs may be 100 MB: its ends are kept before anything looks for secrets in it. Where it is
# cut, so much more goes that no half of a secret is left.
_END_MAX: Final = 64 * 1024
_MARGIN: Final = 8 * 1024

# "command=%s handler=%s state=started" in a template of ours: the value is a word of ours or the next argument.
_TEMPLATE: Final = re.compile(
    r"%%|(?:(?<![\w.])(?P<name>[a-z_]+)=)?%(?P<form>[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])"
    r"|(?<![\w.])(?P<named>[a-z_]+)=(?P<word>[a-z_]+)(?![\w.-])"
)
# "sensor=board state=failing: ..." where the text was put together before: only what stands in front of it all.
_LEADING: Final = re.compile(r"([a-z_]+)=([\w.-]{1,80})(:?)(?: |$)")


class LineFormatter(logging.Formatter):
    """Makes a line of a record: ``time=... level=info thread=readings text``, or an object of JSON.

    In JSON what the line says as ``key=value`` is a member of its own, beside ``message``.

    Args:
        style: ``text`` or ``json``.
        under_journald: the reader of standard error has the time already, and takes a priority before each line.
    """

    def __init__(self, style: str = "text", *, under_journald: bool = False) -> None:
        super().__init__()
        self._is_json = style == "json"
        self._under_journald = under_journald

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback after it, indented, when there is one."""
        message, trace = _message(record), _exception(record)
        at, level = _time(record), record.levelname.lower()
        if self._is_json:
            members = {name: _clean(value, _VALUE_MAX) for name, value in _fields(record, message).items()}
            members |= {"time": at, "level": level, "logger": record.name, "thread": str(record.threadName)}
            members |= {"message": message, **({"exception": trace} if trace else {})}
            text = json.dumps(members, ensure_ascii=False)
        else:
            text = message if self._under_journald else f"time={at} level={level} thread={record.threadName} {message}"
            text += "".join(f"\n  | {line}" for line in trace.splitlines())
        if not self._under_journald:
            return text
        # Every line of a traceback needs its priority too. journald takes it off again, so it stores the object alone.
        return "\n".join(f"<{_PRIORITIES.get(record.levelno, 6)}>{line}" for line in text.split("\n"))


def set_up_logging(level: str, style: str, *, under_journald: bool = False) -> None:
    """Log to standard error.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        style: ``text`` or ``json``.
        under_journald: standard error goes to journald, which has the time already and takes a priority.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(style, under_journald=under_journald))
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
    try:
        text = record.getMessage()
    except Exception as error:  # noqa: BLE001 - a plug-in's format string; its line must not end the thread
        text = f"{record.msg} (its arguments do not fit: {type(error).__name__})"
    own = " ".join(f"{name}={value}" for name, value in _own_fields(record).items())
    return _clean(f"{own} {text}" if own else text, _MESSAGE_MAX)


def _own_fields(record: logging.LogRecord) -> dict[str, object]:
    """Members that a logger adapter adds to all its lines: ``extra={"members": {...}}``."""
    members = getattr(record, "members", None)
    return members if isinstance(members, dict) else {}


def _exception(record: logging.LogRecord) -> str:
    """The traceback, bounded; its end says what was raised, so its middle is what goes. Empty when there is none."""
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    # The record's own cache is left alone: it would be shown unmasked by another handler.
    trace = mask(_ends(logging.Formatter().formatException(record.exc_info)))
    return "\n".join(_printable(line) for line in _bounded(trace, _EXCEPTION_MAX).split("\n"))


def _fields(record: logging.LogRecord, message: str) -> dict[str, str]:
    """The ``key=value`` pairs of a line, read from its template: text from outside makes no field."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    said = {name: str(value) for name, value in _own_fields(record).items()}
    said |= _template_fields(str(record.msg), arguments) if arguments else ()
    if not said:
        said |= _leading_fields(message)
    error = record.exc_info[1] if record.exc_info else None
    error = error or next((each for each in arguments if isinstance(each, BaseException)), None)
    return said if error is None else {"error": f"{type(error).__name__}: {error}", **said}


def _template_fields(template: str, arguments: tuple[object, ...]) -> Iterator[tuple[str, str]]:
    position = 0
    for match in _TEMPLATE.finditer(template):
        if match["form"]:
            if match["name"] and position < len(arguments):
                yield match["name"], str(arguments[position])
            position += 1
        elif match["named"]:
            yield match["named"], match["word"]


def _leading_fields(text: str) -> Iterator[tuple[str, str]]:
    """Of a text that was put together before it was logged: what stands in front of the first other word."""
    while match := _LEADING.match(text):
        yield match[1], match[2]
        if match[3]:
            return
        text = text[match.end() :]


def _clean(text: str, characters: int) -> str:
    """One printable line without secrets, of at most so many characters. Masked first: half a secret is one, too."""
    return _bounded(_printable(mask(_ends(text))), characters)


def _ends(text: str) -> str:
    """The text, or the beginning and the end of an enormous one."""
    if len(text) <= 2 * (_END_MAX + _MARGIN):
        return text
    return f"{_whole_words(text[: _END_MAX + _MARGIN])}{_CUT}{_whole_words(text[-_END_MAX - _MARGIN :], -1)}"


def _whole_words(text: str, direction: int = 1) -> str:
    """Without what may be half a word at its end, or at its beginning with direction -1."""
    if direction < 0:
        space = text.find(" ", 0, _MARGIN)
        return text[space if space >= 0 else _MARGIN :]
    space = text.rfind(" ", len(text) - _MARGIN)
    return text[: space if space >= 0 else -_MARGIN]


def _printable(text: str) -> str:
    # A line end would forge a second line, an escape sequence would write over the terminal.
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)


def _bounded(text: str, characters: int) -> str:
    if len(text) <= characters:
        return text
    kept = (characters - len(_CUT)) // 2
    return f"{text[:kept]}{_CUT}{text[-kept:]}"


def _time(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


LINES: Final = 200
CHARACTERS: Final = 400
_CHECK_LEVEL_S: Final = 10.0


class LogRing(logging.Handler):
    """Keeps the last :data:`LINES` lines, each cut to :data:`CHARACTERS`: some 30 KB, at most 80.

    Args:
        formatter: makes a line of a record, without secrets.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
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
        # When the level goes back, seconds on time.monotonic(); None while it is the configuration's.
        self._ends_s: float | None = None
        self._is_scheduled = False

    def set(self, level: str, for_s: float) -> JsonObject:
        """Set the level for ``for_s`` seconds; 0 takes back what is set."""
        root = logging.getLogger()
        before = logging.getLevelName(root.level).lower()
        with self._lock:
            self._ends_s = time.monotonic() + for_s
            root.setLevel(level.upper())
            self._end_if_over()
            now = logging.getLevelName(root.level).lower()
            _log.warning("log_level=%s for_s=%.0f before=%s", now, for_s, before)
            self._schedule_next(for_s)
        return {"level": now, "for_s": for_s, "before": before}

    def _schedule_next(self, delay_s: float) -> None:
        # One timer, however many commands come: an end may be late by one check.
        if self._ends_s is not None and not self._is_scheduled:
            self._is_scheduled = True
            self._schedule(min(delay_s, _CHECK_LEVEL_S), self._check)

    def _check(self) -> None:
        with self._lock:
            self._is_scheduled = False
            self._end_if_over()
            self._schedule_next(_CHECK_LEVEL_S)

    def _end_if_over(self) -> None:
        if self._ends_s is not None and self._ends_s <= time.monotonic():
            self._ends_s = None
            logging.getLogger().setLevel(self._configured.upper())
            _log.warning("log_level=back")
