"""How values are written on the wire: JSON text, checked more strictly than ``json`` does, and times.

Refused in JSON: NaN and infinities, integers beyond 64 bits, NUL and lone surrogates in text, a name twice in one
object, more than 32 levels, bytes that are not UTF-8, a byte order mark. Each of them is a way in which two parsers
disagree about the same bytes (RFC 8259, sections 4, 6, 8, 9).

A time is RFC 3339 text in UTC with milliseconds; inputs may also be epoch milliseconds. Inside the program it is
seconds since the epoch as a float.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta, tzinfo
from email.utils import parsedate_to_datetime
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
    _, fault = _walk(value, JSON_DEPTH)
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


# --- times ------------------------------------------------------------------------------------------------------------

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
# Years 1 to 9999, as far as RFC 3339 goes.
_MIN_MS: Final = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
_MAX_MS: Final = (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) - _EPOCH) // _MS

_RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,30})?(?:[Zz]|[+-]\d\d:?\d\d)", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,19}(?:\.\d{1,12})?", re.ASCII)
_LEAP_SECOND: Final = re.compile(r"(?<=:\d\d):60")
_UTC_WORD: Final = re.compile(r" ?(?:UTC|GMT|Z)$", re.IGNORECASE)
_TEXT_MAX: Final = 80
_REQUIRED: Final = "a time must be RFC 3339 text such as 2026-01-01T00:00:00Z or epoch milliseconds"
_READABLE: Final = (
    "a time must be RFC 3339 text such as 2026-01-01T00:00:00Z, an HTTP date, or epoch seconds or milliseconds"
)


def to_rfc3339(epoch_s: float) -> str:
    """Seconds since the epoch as ``2026-01-01T00:00:00.000Z``, rounded to the millisecond.

    Raises:
        InvalidMessage: not a time in the years 1 to 9999.
    """
    try:
        ms = round(epoch_s * 1000)
    except (OverflowError, ValueError):
        raise InvalidMessage("a time must be a finite number of seconds since 1970") from None
    return (_EPOCH + _in_range(ms) * _MS).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(value: str | int) -> float:
    """Seconds since the epoch out of RFC 3339 text, epoch milliseconds, or the latter as digits (a query parameter).

    More than three decimals are cut to microseconds; a leap second (``:60``) is the second after.

    Raises:
        InvalidMessage: neither of them, or outside the years 1 to 9999.
    """
    if isinstance(value, str) and _RFC_3339.fullmatch(value):
        return _read_iso(value, UTC)
    if isinstance(value, str) and _NUMBER.fullmatch(value) and "." not in value:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidMessage(_REQUIRED)
    return _in_range(value) / 1000


def parse_received_time(value: object, zone: tzinfo = UTC) -> float:
    """Seconds since the epoch out of an answer: ISO 8601, also without zone, seconds or time of day; an HTTP date;
    epoch seconds or milliseconds, told by their size, also as digits.

    Args:
        value: the JSON value.
        zone: of a time that names none.

    Raises:
        InvalidMessage: not a time, or outside the years 1 to 9999.
    """
    if isinstance(value, str):
        text = value.strip()
        if len(text) > _TEXT_MAX or not text.isascii():
            raise InvalidMessage(_READABLE)
        if not _NUMBER.fullmatch(text):
            return _read_iso(text, zone)
        value = float(text) if "." in text else int(text)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) <= _MAX_MS:
        raise InvalidMessage(_READABLE)
    return float(value) if _MIN_MS / 1000 <= value < (_MAX_MS + 1) / 1000 else value / 1000


def _read_iso(text: str, zone: tzinfo) -> float:
    """A date and time as text: ISO 8601, or that of a header (RFC 5322)."""
    plain, leap_s = _LEAP_SECOND.subn(":59", text)
    try:
        try:
            at = datetime.fromisoformat(_UTC_WORD.sub("+00:00", plain))
        except ValueError:
            at = parsedate_to_datetime(text)
        since = (at if at.tzinfo else at.replace(tzinfo=zone)) - _EPOCH + timedelta(seconds=leap_s)
    except (ValueError, TypeError, OverflowError, IndexError):
        raise InvalidMessage(f"{_READABLE}, and exist in the calendar") from None
    _in_range(since // _MS)
    return since / timedelta(seconds=1)


def _in_range(ms: int) -> int:
    if not _MIN_MS <= ms <= _MAX_MS:
        raise InvalidMessage("a time must lie in the years 1 to 9999")
    return ms
