"""Times in answers, in every form that common frameworks write; requests have the strict form of ``times``.

Apart from :mod:`agent.wire.times`: a device whose service writes RFC 3339 never imports it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final

from agent.errors import InvalidMessage

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_S: Final = -62_135_596_800
_MAX_S: Final = 253_402_300_800
_UNITS_PER_S: Final = (1, 1_000, 1_000_000, 1_000_000_000)
_YEARS: Final = range(1970, 2200)
"""Digits without any separator are a date only in these years; else they are a number."""
_TEXT_MAX: Final = 80
_FAULT: Final = (
    "a time must be RFC 3339 text such as 2026-01-01T00:00:00Z, an HTTP date, or epoch seconds, milliseconds, "
    "microseconds or nanoseconds"
)

_ZONE: Final = r"(?P<zone>Z|UTC|UT|GMT|[A-Z]{3}|(?:UTC|GMT)?[+-]\d\d(?::?\d\d)?)"
_CLOCK: Final = r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,30}))?)?"
_FLAGS: Final = re.ASCII | re.IGNORECASE
_FORMS: Final = tuple(
    re.compile(form, _FLAGS)
    for form in (
        # 2026-01-01T00:00:00.000+00:00, 2026-01-01 00:00 UTC, 2026/01/01 00:00:00 +0000 UTC, 2026-01-01
        (
            rf"(?P<year>\d{{4}})([-/])(?P<month>\d\d)\2(?P<day>\d\d)"
            rf"(?:(?:T| {{1,3}}){_CLOCK}(?: ?{_ZONE}(?: [A-Z]{{3,4}})?)?(?:\[[\w/+-]{{1,40}}\])?)?"
        ),
        # 20260101T000000Z, 20260101T0000+01
        (
            r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)"
            r"[T ](?P<hour>\d\d)(?P<minute>\d\d)(?:(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,30}))?)?"
            rf" ?{_ZONE}?"
        ),
        # Thu, 01 Jan 2026 00:00:00 GMT (RFC 1123); Thursday, 01-Jan-26 00:00:00 GMT (RFC 850)
        (
            r"(?:[A-Z]{3,9},? )?(?P<day>\d{1,2})([ -])(?P<name>[A-Z]{3,9})\2(?P<year>\d{4}|\d\d) "
            rf"{_CLOCK}(?: {_ZONE})?"
        ),
        # Thu Jan  1 00:00:00 2026 (asctime), Thu Jan  1 00:00:00 UTC 2026 (date)
        rf"[A-Z]{{3,9}} (?P<name>[A-Z]{{3}}) {{1,2}}(?P<day>\d{{1,2}}) {_CLOCK}(?: {_ZONE})? (?P<year>\d{{4}})",
        # Thu Jan 01 2026 00:00:00 GMT+0000 (Coordinated Universal Time): JavaScript's Date.toString()
        rf"[A-Z]{{3}} (?P<name>[A-Z]{{3}}) (?P<day>\d\d) (?P<year>\d{{4}}) {_CLOCK} {_ZONE}(?: \([^()]{{1,60}}\))?",
    )
)
_COMPACT: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d))?", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,19}(?:\.\d{1,12})?", re.ASCII)
_DOT_NET: Final = re.compile(r"/Date\((-?\d{1,18})(?:[+-]\d{4})?\)/", re.ASCII)
_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d\d):?(\d\d)?", re.ASCII)
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_HOURS: Final = {  # RFC 5322, section 4.3
    "EST": -5,
    "EDT": -4,
    "CST": -6,
    "CDT": -5,
    "MST": -7,
    "MDT": -6,
    "PST": -8,
    "PDT": -7,
}
_UTC_NAMES: Final = frozenset({"Z", "UTC", "UT", "GMT"})


def parse_any_time(value: object, zone: tzinfo = UTC) -> float:
    """Seconds since the epoch, whatever form the time has.

    Text: RFC 3339 and ISO 8601 with all their variants, also the basic format, without seconds and date only (the
    beginning of that day); RFC 1123, RFC 850, asctime, ``Date.toString()``; epoch digits. Numbers: the unit (seconds,
    milliseconds, microseconds, nanoseconds) follows from the size, so that the time lies before the year 10000.
    Objects: ``{"$date": ...}`` (MongoDB's extended JSON).

    Args:
        value: the JSON value.
        zone: of a time that names none.

    Raises:
        InvalidMessage: not a time, or outside the years 1 to 9999.
    """
    if isinstance(value, dict):
        value = _unpack(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _from_number(value)
    if not isinstance(value, str):
        raise InvalidMessage(_FAULT)
    text = value.strip()
    if len(text) > _TEXT_MAX or not text.isascii():
        raise InvalidMessage(_FAULT)
    compact = _from_compact(text, zone)
    if compact is not None:
        return compact
    if _NUMBER.fullmatch(text):
        return _from_number(float(text) if "." in text else int(text))
    dot_net = _DOT_NET.fullmatch(text)
    if dot_net is not None:
        return _in_calendar(int(dot_net[1]) / 1000)
    match = next((found for found in (form.fullmatch(text) for form in _FORMS) if found is not None), None)
    if match is None:
        raise InvalidMessage(_FAULT)
    return _from_parts(match.groupdict(), zone)


def _unpack(value: dict[str, object]) -> object:
    inner = value.get("$date") if len(value) == 1 else None
    if isinstance(inner, dict) and len(inner) == 1:
        return inner.get("$numberLong")
    return inner


def _from_number(value: float) -> float:
    if value != value:
        raise InvalidMessage("a time must be a finite number")
    for units in _UNITS_PER_S:
        if abs(value) < _MAX_S * units:
            return _in_calendar(value / units)
    raise InvalidMessage("a time must lie in the years 1 to 9999")


def _from_compact(text: str, zone: tzinfo) -> float | None:
    """20260101 and 20260101000000 as some servers write them; None when the digits are no such date."""
    match = _COMPACT.fullmatch(text)
    if match is None or int(match[1]) not in _YEARS:
        return None
    parts = [int(part) for part in match.groups() if part]
    try:
        return _seconds(datetime(*parts, tzinfo=zone))  # type: ignore[arg-type,misc]  # three or six whole numbers
    except ValueError:
        return None


def _from_parts(parts: dict[str, str | None], zone: tzinfo) -> float:
    year, second = int(parts["year"] or 0), int(parts.get("second") or 0)
    if len(parts["year"] or "") == 2:
        year += 2000 if year < 77 else 1900
    micros = int((parts.get("fraction") or "").ljust(6, "0")[:6])
    leap = second == 60
    try:
        at = datetime(
            year,
            _month(parts),
            int(parts["day"] or 0),
            int(parts.get("hour") or 0),
            int(parts.get("minute") or 0),
            59 if leap else second,
            micros,
            tzinfo=_zone(parts.get("zone"), zone),
        )
        return _in_calendar(_seconds(at) + leap)
    except (ValueError, OverflowError) as exc:
        raise InvalidMessage(f"a time must exist in the calendar: {exc}") from None


def _month(parts: dict[str, str | None]) -> int:
    name = parts.get("name")
    if name is None:
        return int(parts["month"] or 0)
    return _MONTHS.index(name[:3].lower()) + 1


def _zone(text: str | None, default: tzinfo) -> tzinfo:
    if text is None:
        return default
    name = text.upper()
    if name in _UTC_NAMES:
        return UTC
    if name in _HOURS:
        return timezone(timedelta(hours=_HOURS[name]))
    match = _OFFSET.fullmatch(name)
    if match is None:
        raise ValueError("its zone is not known")
    offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
    return timezone(offset if match[1] == "+" else -offset)


def _seconds(at: datetime) -> float:
    return (at - _EPOCH) / timedelta(seconds=1)


def _in_calendar(epoch_s: float) -> float:
    if not _MIN_S <= epoch_s < _MAX_S:
        raise InvalidMessage("a time must lie in the years 1 to 9999")
    return epoch_s
