"""What the programs print: text from outside cannot steer the terminal that shows it.

Device names, labels, error texts and log lines come from anybody, and a terminal obeys what it is sent: an escape code
renames its window, hides lines or answers as if somebody had typed. So the two output streams of a program write
control characters as ``\\u001b``, which is also what JSON calls them.
"""

from __future__ import annotations

import io
import re
import sys
from typing import Any, Final, TextIO

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
