"""Text for a person that a terminal and a log can show, however long the input is that it quotes."""

from __future__ import annotations

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
    quoted between them as much as tells which one it is.

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
