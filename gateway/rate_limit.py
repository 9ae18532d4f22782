"""The quota of a key, read from the headers of an answer in the forms that are in use.

Source: draft-ietf-httpapi-ratelimit-headers, version 10 (``RateLimit: "default";r=50;t=30``, ``RateLimit-Policy:
"default";q=100;w=60``), version 7 (``RateLimit: limit=100, remaining=50, reset=30``), version 6 (``RateLimit-Limit``,
``-Remaining``, ``-Reset``), and the custom ``X-RateLimit-*``. The specification gives no numbers, only that requests
are counted by key and minute ("Limits").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

# Members of a structured field list (RFC 9651): a name, quoted or not, and its parameters.
_MEMBER: Final = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^\s;,="]+)((?:\s*[;=][^,"]*)?)\s*(?:,|$)')
_NUMBER: Final = re.compile(r"\d{1,15}")
_WINDOW_MAX_S: Final = 86_400.0
# X-RateLimit-Reset is a number of seconds, or a time in seconds or milliseconds since the epoch.
_EPOCH_FROM: Final = 1e9
_EPOCH_MS_FROM: Final = 1e12


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The key's quota by one answer. At least ``remaining`` or ``limit`` is known.

    Attributes:
        remaining: requests left in this window; other users of the same key are counted in it.
        limit: requests in one window.
        window_s: how long a window is, seconds.
        reset_s: until the next window, seconds from the answer; services round it either way.
    """

    remaining: int | None = None
    limit: int | None = None
    window_s: float | None = None
    reset_s: float | None = None


def read_rate_limit(headers: Mapping[str, str]) -> RateLimit | None:
    """The quota in the headers of an answer; None when they have none that can be read.

    Where a service keeps several quotas, the one that leaves the fewest requests per second counts.

    Args:
        headers: names in any case when the mapping takes any case (:class:`httpx.Headers`), else in lower case.
    """
    policies = dict(_members(headers.get("ratelimit-policy", "")))
    members = list(_members(headers.get("ratelimit", "")))
    named = [_of_member(name, parameters, policies) for name, parameters in members if "r" in parameters]
    if named:
        return min(named, key=lambda each: (each.remaining or 0) / max(1.0, each.reset_s or 1.0))
    plain = {name: parameters["="] for name, parameters in members if "=" in parameters}
    date = headers.get("date")
    for values in (
        {name: plain.get(name) for name in ("limit", "remaining", "reset")},
        {name: headers.get(f"ratelimit-{name}") for name in ("limit", "remaining", "reset")},
        {name: headers.get(f"x-ratelimit-{name}") for name in ("limit", "remaining", "reset")},
    ):
        limit, remaining = _number(values["limit"]), _number(values["remaining"])
        if limit is not None or remaining is not None:
            window_s = next((_seconds(each.get("w")) for each in policies.values()), None)
            return RateLimit(remaining, limit, window_s, _until(values["reset"], date))
    return None


def _of_member(name: str, parameters: Mapping[str, str], policies: Mapping[str, Mapping[str, str]]) -> RateLimit:
    policy = policies.get(name, {})
    return RateLimit(
        _number(parameters.get("r")) or 0,
        _number(policy.get("q")),
        _seconds(policy.get("w")),
        _seconds(parameters.get("t")),
    )


def _members(value: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Name and parameters of each member; what follows an ``=`` right after the name has the name ``=``."""
    for match in _MEMBER.finditer(value):
        rest = match[2].strip()
        parameters = {"=": rest[1:]} if rest.startswith("=") else {}
        for part in rest.split(";")[1:]:
            name, _, text = part.strip().partition("=")
            parameters[name] = text
        yield match[1].strip('"'), parameters


def _number(text: str | None) -> int | None:
    # A list such as "100, 100;w=60" begins with the number that counts.
    match = None if text is None else _NUMBER.match(text.strip())
    return None if match is None else int(match[0])


def _seconds(text: str | None) -> float | None:
    number = _number(text)
    return None if number is None else min(float(number), _WINDOW_MAX_S)


def _until(reset: str | None, date: str | None) -> float | None:
    """Seconds until a reset; a time is compared with the answer's own ``Date``, since our clock may be wrong."""
    number = _number(reset)
    if number is None or number < _EPOCH_FROM:
        return None if number is None else min(float(number), _WINDOW_MAX_S)
    try:
        now_s = parsedate_to_datetime(date or "").timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    at_s = number / 1000 if number >= _EPOCH_MS_FROM else float(number)
    return min(max(at_s - now_s, 0.0), _WINDOW_MAX_S)
