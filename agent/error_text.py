"""Error texts for a person: bounded, however long the input is that they quote; and what a disk refused."""

from __future__ import annotations

import errno
import os
import re
from typing import Final

WORD_MAX: Final = 500
"""Characters without a space between them."""
LINE_MAX: Final = 2000
LINES_MAX: Final = 200
_LONG_WORD: Final = re.compile(rf"\S{{{WORD_MAX + 1},}}")


def bounded(text: str) -> str:
    """The text with long words and lines cut in their middle, and the lines beyond :data:`LINES_MAX` counted.

    What is wrong stands at the begin of our sentences and its fix at the end: both stay, and of the input that is
    quoted between them enough to recognise it.

    Args:
        text: one line or several.

    Returns:
        The text itself when no word, no line and not their number is beyond the bounds.
    """
    lines = text.split("\n")
    kept = [_cut(_LONG_WORD.sub(_cut_word, line), LINE_MAX) for line in lines[:LINES_MAX]]
    if len(lines) > LINES_MAX:
        kept.append(f"[{len(lines) - LINES_MAX} further lines]")
    return "\n".join(kept)


def _cut_word(word: re.Match[str]) -> str:
    return _cut(word[0], WORD_MAX // 3)


def _cut(text: str, length: int) -> str:
    """The text, or its begin and end of together ``length`` characters and how many are left out between them."""
    if len(text) <= length:
        return text
    head = length * 2 // 3
    tail = length - head
    return f"{text[:head]}[{len(text) - length} characters left out]{text[-tail:]}"


_HINTS: Final = {
    errno.ENOSPC: "make room there, or name another folder",
    errno.EDQUOT: "make room there, or name another folder",
    errno.EFBIG: "allow larger files, or name another folder",
    errno.EROFS: "name a folder that can be written",
    errno.EACCES: "name a folder that this user may write",
    errno.EPERM: "name a folder that this user may write",
    errno.ENOENT: "make it first, or name another one",
    errno.ENOTDIR: "name a folder",
    errno.EISDIR: "name a file",
    errno.ENAMETOOLONG: "name a shorter one",
    errno.EIO: "the disk fails; name another folder",
}
_WITHOUT_A_PATH: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
"""Errors that only a file system has; the others may be a socket's when they name no file."""


def disk_refusal(error: OSError) -> str | None:
    """One line on what the file system refused and what to do about it; None when the error is not of a file."""
    hint = _HINTS.get(error.errno or 0)
    if hint is None or (error.filename is None and error.errno not in _WITHOUT_A_PATH):
        return None
    what = f"{os.fsdecode(error.filename)!s}" if isinstance(error.filename, str | bytes) else "a file"
    return f"{what} cannot be written or read: {error.strerror}; {hint}"
