"""JSON text from outside and to outside, checked more strictly than ``json`` does.

Refused: NaN and infinities, integers beyond 64 bits, NUL and lone surrogates in text, a name twice in one object, more
than 32 levels, bytes that are not UTF-8, a byte order mark. Each of them is a way in which two parsers disagree about
the same bytes (RFC 8259, sections 4, 6, 8, 9).
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from pydantic_core import from_json

from agent.errors import InvalidMessage
from agent.wire.limits import BODY_BYTES, INT_MAX, INT_MIN, JSON_DEPTH

# Every name of an object ends like this; inside a string the same bytes can only occur with a backslash before the
# quote. So there are never fewer matches than names, and as many matches as names left means that none was dropped.
_NAME_END: Final = re.compile(rb'"[ \t\n\r]*:')
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def parse_json(raw: bytes, *, max_bytes: int = BODY_BYTES, max_depth: int = JSON_DEPTH) -> Any:
    """The value that ``raw`` is the JSON text of.

    Raises:
        InvalidMessage: with a sentence that says what is wrong and where.
    """
    if len(raw) > max_bytes:
        raise InvalidMessage(f"{len(raw)} bytes of JSON are more than the limit of {max_bytes}")
    try:
        value = from_json(raw, allow_inf_nan=False, cache_strings="keys")
    except ValueError as exc:
        raise InvalidMessage(_explain(exc, max_depth)) from None
    names, fault = _walk(value, max_depth)
    if fault is not None:
        raise InvalidMessage(fault)
    if len(_NAME_END.findall(raw)) != names:
        json.loads(raw, object_pairs_hook=_refuse_duplicates)
    return value


def parse_object(raw: bytes, *, max_bytes: int = BODY_BYTES, max_depth: int = JSON_DEPTH) -> dict[str, Any]:
    """Parse JSON text as :func:`parse_json` does, and require an object.

    Raises:
        InvalidMessage: with a sentence that says what is wrong and where.
    """
    value = parse_json(raw, max_bytes=max_bytes, max_depth=max_depth)
    if not isinstance(value, dict):
        raise InvalidMessage("the body must be a JSON object")
    return value


def encode_json(value: object) -> bytes:
    """Compact UTF-8 JSON text.

    Raises:
        InvalidMessage: what :func:`find_fault` finds, or something that JSON has no form for.
    """
    fault = find_fault(value)
    if fault is not None:
        raise InvalidMessage(fault)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as exc:
        raise InvalidMessage(f"this cannot be written as JSON: {exc}") from None


def find_fault(value: object, max_depth: int = JSON_DEPTH) -> str | None:
    """Why this value must not go over the wire: one sentence, or None when it may."""
    return _walk(value, max_depth)[1]


def _walk(value: object, max_depth: int) -> tuple[int, str | None]:
    """How many names the objects in ``value`` have, and the first fault. Without recursion: depth is the attacker's."""
    names = 0
    stack: list[tuple[object, int]] = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, dict):
            names += len(item)
            for name in item:
                if not isinstance(name, str):
                    return names, "the names in a JSON object must be text"
                if (fault := _text_fault(name)) is not None:
                    return names, fault
            children: Any = item.values()
        elif isinstance(item, (list, tuple)):
            children = item
        elif (fault := _scalar_fault(item)) is not None:
            return names, fault
        else:
            continue
        if depth + 1 > max_depth:
            return names, f"the JSON is nested deeper than {max_depth} levels"
        stack.extend((child, depth + 1) for child in children)
    return names, None


def _scalar_fault(item: object) -> str | None:
    if isinstance(item, str):
        return _text_fault(item)
    if item is None or isinstance(item, bool):
        return None
    if isinstance(item, int):
        return None if INT_MIN <= item <= INT_MAX else "an integer does not fit into 64 bits"
    if isinstance(item, float):
        return None if math.isfinite(item) else "NaN and infinity are not JSON numbers"
    return f"{type(item).__name__} has no JSON form"


def _text_fault(text: str) -> str | None:
    if "\0" in text:
        return "text must not contain NUL"
    if text.isascii() or not _SURROGATE.search(text):
        return None
    return "text must not contain a lone surrogate"


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The slow way to an object, taken only when the count of names does not add up."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise InvalidMessage("a name occurs twice in the same JSON object")
    return members


def _explain(exc: ValueError, max_depth: int) -> str:
    text = str(exc)
    if "recursion" in text:
        return f"the JSON is nested deeper than {max_depth} levels"
    if "surrogate" in text or "hex escape" in text:
        return f"text must not contain a lone surrogate ({text})"
    return f"not valid JSON: {text}"
