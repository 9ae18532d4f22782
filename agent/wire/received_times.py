"""Times in answers: ISO 8601, HTTP dates, and numbers by their size; requests have the strict form of ``times``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from email.utils import parsedate_to_datetime
from typing import Final

from agent.errors import InvalidMessage

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_S: Final = -62_135_596_800
_MAX_S: Final = 253_402_300_800
_UNITS_PER_S: Final = (1, 1_000, 1_000_000, 1_000_000_000)
_TEXT_MAX: Final = 80
_FAULT: Final = (
    "a time must be RFC 3339 text such as 2026-01-01T00:00:00Z, an HTTP date, or epoch seconds, milliseconds, "
    "microseconds or nanoseconds"
)
_NUMBER: Final = re.compile(r"-?\d{1,19}(?:\.\d{1,12})?", re.ASCII)
_ISO: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d(?::\d\d(?:[.,]\d{1,30})?)?) ?(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII | re.IGNORECASE,
)
_UTC_WORDS: Final = frozenset({"Z", "UTC", "GMT"})


def parse_any_time(value: object, zone: tzinfo = UTC) -> float:
    """Seconds since the epoch, whatever form the time has.

    Text: ISO 8601, also without seconds, and date only (the beginning of that day); HTTP dates; epoch digits. Numbers:
    the unit (seconds, milliseconds, microseconds, nanoseconds) follows from the size, so that the time lies before the
    year 10000.

    Args:
        value: the JSON value.
        zone: of a time that names none.

    Raises:
        InvalidMessage: not a time, or outside the years 1 to 9999.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _from_number(value)
    if not isinstance(value, str):
        raise InvalidMessage(_FAULT)
    text = value.strip()
    if len(text) > _TEXT_MAX or not text.isascii():
        raise InvalidMessage(_FAULT)
    if _NUMBER.fullmatch(text):
        return _from_number(float(text) if "." in text else int(text))
    try:
        at = _from_text(text)
        return _in_calendar(((at if at.tzinfo else at.replace(tzinfo=zone)) - _EPOCH) / timedelta(seconds=1))
    except (ValueError, TypeError, OverflowError):
        raise InvalidMessage(_FAULT) from None


def _from_text(text: str) -> datetime:
    match = _ISO.fullmatch(text)
    if match is None:
        return parsedate_to_datetime(text)
    date, clock, offset = match.groups()
    if offset is not None:
        offset = "+00:00" if offset.upper() in _UTC_WORDS else offset
    return datetime.fromisoformat(date if clock is None else f"{date}T{clock}{offset or ''}")


def _from_number(value: float) -> float:
    if value != value:
        raise InvalidMessage("a time must be a finite number")
    for units in _UNITS_PER_S:
        if abs(value) < _MAX_S * units:
            return _in_calendar(value / units)
    raise InvalidMessage("a time must lie in the years 1 to 9999")


def _in_calendar(epoch_s: float) -> float:
    if not _MIN_S <= epoch_s < _MAX_S:
        raise InvalidMessage("a time must lie in the years 1 to 9999")
    return epoch_s
