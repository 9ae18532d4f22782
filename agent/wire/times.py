"""Times on the wire: RFC 3339 text in UTC with milliseconds; inputs may also be epoch milliseconds.

Inside the program a time is seconds since the epoch as a float.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final

from agent.errors import InvalidMessage

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
# Years 1 to 9999, as far as RFC 3339 goes.
_MIN_MS: Final = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
_MAX_MS: Final = (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) - _EPOCH) // _MS

_RFC_3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,30}))?(?:([Zz])|([+-])(\d\d):?(\d\d))?",
    re.ASCII,
)
_DIGITS: Final = re.compile(r"-?\d{1,18}", re.ASCII)


def to_rfc3339(epoch_s: float) -> str:
    """Seconds since the epoch as ``2026-01-01T00:00:00.000Z``, rounded to the millisecond.

    Raises:
        InvalidMessage: not a time in the years 1 to 9999.
    """
    try:
        ms = round(epoch_s * 1000)
    except (OverflowError, ValueError):
        raise InvalidMessage("a time must be a finite number of seconds since 1970") from None
    if not _MIN_MS <= ms <= _MAX_MS:
        raise InvalidMessage("a time must lie in the years 1 to 9999")
    return (_EPOCH + ms * _MS).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(value: str | int) -> float:
    """Seconds since the epoch out of RFC 3339 text, epoch milliseconds, or the latter as digits (a query parameter).

    More than three decimals are cut to microseconds; a leap second (``:60``) is the second after.

    Raises:
        InvalidMessage: neither of them, or outside the years 1 to 9999.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return _from_ms(value)
    if not isinstance(value, str):
        raise InvalidMessage("a time must be RFC 3339 text such as 2026-01-01T00:00:00Z or epoch milliseconds")
    if _DIGITS.fullmatch(value):
        return _from_ms(int(value))
    match = _RFC_3339.fullmatch(value)
    if match is None or (match[8] is None and match[9] is None):
        raise InvalidMessage("a time must be RFC 3339 text such as 2026-01-01T00:00:00Z or epoch milliseconds")
    return _from_match(match)


def parse_received_time(value: object, zone: tzinfo = UTC) -> float:
    """As :func:`parse_time`, for answers: every form that common frameworks write, see
    :func:`agent.wire.received_times.parse_any_time`.

    Args:
        value: the JSON value.
        zone: of a time that names none.

    Raises:
        InvalidMessage: not a time.
    """
    if isinstance(value, str):
        match = _RFC_3339.fullmatch(value)
        if match is not None and (match[8] or match[9]):
            return _from_match(match)
    from agent.wire.received_times import parse_any_time  # most services write RFC 3339

    return parse_any_time(value, zone)


def _from_match(match: re.Match[str]) -> float:
    year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
    micros = int((match[7] or "").ljust(6, "0")[:6])
    leap = second == 60
    zone: timezone = UTC
    try:
        if match[9]:
            offset = timedelta(hours=int(match[10]), minutes=int(match[11]))
            zone = timezone(offset if match[9] == "+" else -offset)
        at = datetime(year, month, day, hour, minute, 59 if leap else second, micros, tzinfo=zone)
    except ValueError as exc:
        raise InvalidMessage(f"a time must exist in the calendar: {exc}") from None
    since = at - _EPOCH + timedelta(seconds=leap)
    if not _MIN_MS * _MS <= since <= _MAX_MS * _MS + timedelta(microseconds=999):
        raise InvalidMessage("a time must lie in the years 1 to 9999")
    return since / timedelta(seconds=1)


def _from_ms(ms: int) -> float:
    if not _MIN_MS <= ms <= _MAX_MS:
        raise InvalidMessage("a time must lie in the years 1 to 9999")
    return ms / 1000
