"""Times on the wire: RFC 3339 text in UTC with milliseconds; inputs may also be epoch milliseconds.

Inside the program a time is seconds since the epoch as a float.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from email.utils import parsedate_to_datetime
from typing import Final

from agent.errors import InvalidMessage

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
