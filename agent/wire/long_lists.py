"""Cutting a very long JSON list down before it is parsed: parsed, it takes ten times the memory of its text.

What is left are both ends: new items are at one of them, whichever order a server lists in. What was in the middle
comes when the list has become shorter.
"""

from __future__ import annotations

import json
from collections import deque
from itertools import islice
from typing import Final

ITEMS_MAX: Final = 20_000
"""So many commands of one list are looked at: half of them from its beginning, half from its end."""

_SPACE: Final = " \t\n\r"
_LEAST_BYTES: Final = 2
_COMMAS: Final = 25


def cut_list(raw: bytes, most: int = ITEMS_MAX) -> tuple[bytes, int]:
    """The same JSON text with at most so many items in its arrays of objects, and how many items were left out.

    What is no JSON comes back as it is: parsing it raises the error. Only arrays that are the text itself or are found
    through members of objects are cut, not arrays inside arrays.
    """
    if len(raw) < most * _LEAST_BYTES:
        return raw, 0
    # Of the items of an array, each but one has a comma before it; most lists have many other commas, too.
    if raw.count(b"{") + raw.count(b"[") <= most and raw.count(b",") < _COMMAS * most:
        return raw, 0
    # One character for each byte, and the structure of JSON is ASCII: positions are the same.
    text = raw.decode("latin-1")
    cuts: list[tuple[int, int, int]] = []
    try:
        _find_cuts(text, most, cuts)
    except (ValueError, IndexError, RecursionError):
        return raw, 0
    for begin, end, _ in reversed(cuts):
        raw = raw[:begin] + b"," + raw[end:]
    return raw, sum(count for _, _, count in cuts)


def _find_cuts(text: str, most: int, cuts: list[tuple[int, int, int]]) -> None:
    """Collect (begin, end, items) of what to leave out: from the end of one item to the beginning of another."""
    decoder = json.JSONDecoder(strict=False)
    at = _skip(text, 0)
    objects = 0  # that are open here
    while True:
        if text[at] == "[":
            at = _walk_array(decoder, text, at + 1, most, cuts)
        elif text[at] == "{":
            objects += 1
            at = _skip(text, at + 1)
            if text[at] != "}":
                at = _after_name(decoder, text, at)
                continue
        else:
            at = decoder.raw_decode(text, at)[1]
        # A value has ended, or an empty object is about to.
        while objects and text[at := _skip(text, at)] == "}":
            objects -= 1
            at += 1
        if not objects:
            return
        if text[at] != ",":
            raise ValueError
        at = _after_name(decoder, text, _skip(text, at + 1))


def _after_name(decoder: json.JSONDecoder, text: str, at: int) -> int:
    """Where the value of the member begins whose name begins here."""
    at = _skip(text, decoder.raw_decode(text, at)[1])
    if text[at] != ":":
        raise ValueError
    return _skip(text, at + 1)


def _walk_array(decoder: json.JSONDecoder, text: str, at: int, most: int, cuts: list[tuple[int, int, int]]) -> int:
    """Where the array whose first item begins about here has ended."""
    count, head_end = 0, 0
    begins: deque[int] = deque(maxlen=most - most // 2)
    at = _skip(text, at)
    while text[at] != "]":
        begins.append(at)
        at = _skip(text, decoder.raw_decode(text, at)[1])
        count += 1
        if count == most // 2:
            head_end = at
        if text[at] == ",":
            at = _skip(text, at + 1)
        elif text[at] != "]":
            raise ValueError
    if count > most:
        cuts.append((head_end, next(islice(begins, 1)), count - most))
    return at + 1


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
