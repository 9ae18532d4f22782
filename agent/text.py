"""Texts for a person: bounded however long the input is that they quote, and without what would steer a terminal.

Device names, labels, error texts and log lines come from anybody, and a terminal obeys what it is sent: an escape code
renames its window, hides lines or answers as if somebody had typed. So the two output streams of a program write
control characters as ``\\u001b``, which is also what JSON calls them.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from typing import Any, Final, TextIO

LINE_MAX: Final = 1000
"""Characters."""
LINES_MAX: Final = 200


def bounded(text: str) -> str:
    """The text with long lines cut in their middle, and the lines beyond :data:`LINES_MAX` counted.

    What is wrong stands at the begin of our sentences and its fix at the end: both stay, and of the input that is
    quoted between them enough to recognise it.
    """
    lines = text.split("\n")
    kept = []
    for line in lines[:LINES_MAX]:
        left_out = len(line) - LINE_MAX
        if left_out > 0:
            head, tail = line[: LINE_MAX * 2 // 3], line[-LINE_MAX // 3 :]
            line = f"{head}[{left_out} characters left out]{tail}"
        kept.append(line)
    if len(lines) > LINES_MAX:
        kept.append(f"[{len(lines) - LINES_MAX} further lines]")
    return "\n".join(kept)


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_WITHOUT_A_PATH: Final = _FULL | {errno.EFBIG, errno.EROFS, errno.EIO}
"""Errors that only a file system has; the others may be a socket's when they name no file."""


def disk_refusal(error: OSError) -> str | None:
    """One line on what the file system refused and what to do about it; None when the error is not of a file."""
    if error.filename is None and error.errno not in _WITHOUT_A_PATH:
        return None
    what = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "a file"
    hint = "make room there" if error.errno in _FULL else "let this user read and write it"
    return f"{what} cannot be written or read: {error.strerror}; {hint}, or name another place"


# --- the terminal ---------------------------------------------------------------------------------------------------

_STEERING: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # all controls but tab, line feed and carriage return
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"  # order of writing, line ends, half characters
    "|\r(?!\n)"
)


def escape(text: str) -> str:
    """The text with terminal control characters written as ``\\uXXXX`` escapes."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class EscapingStream:
    """A text stream whose text is escaped; in all else the stream that it stands before.

    Args:
        stream: where the text goes.
    """

    def __init__(self, stream: TextIO) -> None:
        self.plain = stream

    @property
    def encoding(self) -> str:
        """As it was; for ASCII another one: click would write around a stream that says so."""
        return (
            "utf-8"
            if (self.plain.encoding or "ascii").lower() in {"ascii", "us-ascii", "ansi_x3.4-1968"}
            else (self.plain.encoding)
        )

    def write(self, text: str) -> int:
        """Write a text, escaped."""
        return self.plain.write(escape(text))

    def writelines(self, lines: Any) -> None:
        """Write several texts, escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


def protect_terminal() -> None:
    """Have standard output and error escaped from now on, with ``?`` for what the terminal's encoding lacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or isinstance(stream, EscapingStream):
            continue
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
        setattr(sys, name, EscapingStream(stream))


def unescaped(stream: TextIO) -> TextIO:
    """Where a program writes its own control sequences; what else it writes there it escapes itself."""
    return stream.plain if isinstance(stream, EscapingStream) else stream
