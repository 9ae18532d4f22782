"""Finds out quickly, for texts that are all alike, that none of some words is in a text."""

from __future__ import annotations

import re
from typing import Final

_OF_VALUES: Final = b"0123456789abcdefABCDEF-"
"""Numbers, times and ids are made of these."""
_LOWER: Final = bytes(range(256)).lower()
_KNOWN_MAX: Final = 1_000
_LENGTH_MAX: Final = 1_024


class WordFilter:
    """Some words, looked for in many texts without regard to case.

    What devices send, and what they are answered, differs in numbers, times and ids only. A text without the characters
    of these, and so without what differs, is its shape. A word without them is in the shape of each text that the word
    is in. A shape in which no such rest of a word is found is remembered, and other texts of the same shape are not
    searched: a search takes several times as long. No other shape is remembered, so no part of a secret is.

    Args:
        words: regular expressions of plain characters, in lower case; none of digits and the letters a to f alone.
    """

    def __init__(self, *words: bytes) -> None:
        self._words = re.compile(b"|".join(words))
        self._rests = re.compile(b"|".join(sorted({word.translate(None, _OF_VALUES) for word in words})))
        self._known: set[bytes] = set()

    def are_in(self, text: bytes) -> bool:
        """Whether one of them is in the text."""
        if len(text) > _LENGTH_MAX:
            return self._words.search(text.lower()) is not None
        shape = text.translate(_LOWER, _OF_VALUES)
        if shape in self._known:
            return False
        if self._rests.search(shape) is not None:
            return self._words.search(text.lower()) is not None
        if len(self._known) < _KNOWN_MAX:
            self._known.add(shape)
        return False
