"""The quota of the one key that all devices share: commands go before results, results before readings, polls last.

What is left is read from the service's answers (``RateLimit``, ``X-RateLimit-*``, ``Retry-After``). Where it announces
nothing and nothing is configured, requests go out until it answers 429.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final

import httpx

from agent.errors import RateLimited
from agent.wire.answers import read_retry_after

WINDOW_S: Final = 60.0
_RETRY_S: Final = 10.0
_RETRY_MAX_S: Final = 900.0
# Members of a structured field list (RFC 9651): a name, quoted or not, and its parameters.
_MEMBER: Final = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^\s;,="]+)((?:\s*[;=][^,"]*)?)\s*(?:,|$)')
_NUMBER: Final = re.compile(r"\d{1,15}")
_WINDOW_MAX_S: Final = 86_400.0
# X-RateLimit-Reset is a number of seconds, or a time in seconds or milliseconds since the epoch.
_EPOCH_FROM: Final = 1e9
_EPOCH_MS_FROM: Final = 1e12


class Kind(StrEnum):
    """What a request is for, the most urgent first."""

    COMMANDS = "commands"
    RESULTS = "results"
    READINGS = "readings"
    POLLS = "polls"
    """Reading the same lists of commands again and again."""


# The part of a window that is kept for what is more urgent.
_RESERVED: Final[Mapping[Kind, float]] = {
    Kind.COMMANDS: 0.0,
    Kind.RESULTS: 0.05,
    Kind.READINGS: 0.2,
    Kind.POLLS: 0.5,
}


class Quota:
    """A token bucket that the service's answers correct. Used from one thread.

    Args:
        per_minute: the most requests of a minute; None takes what the service announces.
        monotonic: seconds on the monotonic clock.

    Attributes:
        requests: how many went out, by kind.
        refused: how often the service answered 429.
    """

    def __init__(self, per_minute: int | None, monotonic: Callable[[], float]) -> None:
        self._per_minute = per_minute
        self._monotonic = monotonic
        self._bucket = float(per_minute or 0)
        self._filled_s = monotonic()
        self._limit: int | None = None
        self._left: int | None = None
        self._resets_s = 0.0
        self._blocked_s = 0.0
        self._in_flight = 0
        self.requests: Counter[Kind] = Counter()
        self.refused = 0

    @property
    def limit(self) -> int | None:
        """Requests of one window, as far as it is known."""
        return self._limit if self._per_minute is None else self._per_minute

    @property
    def left(self) -> int | None:
        """Requests that are left in this window; None when it is not known."""
        self._refresh()
        found = [int(self._bucket)] if self._per_minute is not None else []
        found += [] if self._left is None else [self._left]
        return min(found) if found else None

    def wait_s(self, kind: Kind) -> float:
        """Seconds until a request of this kind may go out; 0 when it may go now."""
        now_s = self._monotonic()
        if now_s < self._blocked_s:
            return self._blocked_s - now_s
        self._refresh()
        wait_s, reserved = 0.0, _RESERVED[kind]
        if self._left is not None and self._left <= int(reserved * (self._limit or 0)):
            wait_s = max(1.0, self._resets_s - now_s)
        if self._per_minute is not None:
            missing = 1.0 + int(reserved * self._per_minute) - self._bucket
            if missing > 0:
                wait_s = max(wait_s, missing * WINDOW_S / self._per_minute)
        return wait_s

    @contextmanager
    def request(self, kind: Kind) -> Iterator[None]:
        """Count one request, for as long as it is under way.

        Raises:
            RateLimited: it may not go out now; nothing is counted.
        """
        wait_s = self.wait_s(kind)
        if wait_s > 0:
            raise RateLimited(429, "quota", "the quota of the gateway's key is used up", retry_after_s=wait_s)
        self.requests[kind] += 1
        self._bucket -= 1
        if self._left is not None:
            self._left -= 1
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    def answered(self, status: int, headers: httpx.Headers) -> None:
        """Learn from an answer, while its request is still counted as under way."""
        now_s = self._monotonic()
        found = read_rate_limit(headers)
        if found is not None:
            self._limit = found.limit or self._limit
            if found.remaining is not None:
                # The service has not counted the other requests under way yet.
                self._left = found.remaining - (self._in_flight - 1)
                self._resets_s = now_s + (found.reset_s if found.reset_s is not None else WINDOW_S)
        if status == 429:
            self.refused += 1
            wait_s = min(read_retry_after(headers) or _RETRY_S, _RETRY_MAX_S)
            self._blocked_s = max(self._blocked_s, now_s + wait_s)

    def _refresh(self) -> None:
        now_s = self._monotonic()
        if self._per_minute is not None:
            gained = (now_s - self._filled_s) * self._per_minute / WINDOW_S
            self._bucket = min(float(self._per_minute), self._bucket + gained)
        self._filled_s = now_s
        if self._left is not None and now_s >= self._resets_s:
            self._left = None  # a new window: the next answer tells what is left


# --- what the headers say ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AnnouncedQuota:
    """The key's quota as one answer announces it; ``remaining`` or ``limit`` is known, or both.

    Attributes:
        remaining: requests left in this window; other users of the same key are counted in it.
        limit: requests in one window.
        reset_s: until the next window, seconds from the answer; services round it either way.
    """

    remaining: int | None = None
    limit: int | None = None
    reset_s: float | None = None


def read_rate_limit(headers: Mapping[str, str]) -> AnnouncedQuota | None:
    """The quota in the headers of an answer; None when they have none that can be read.

    Where a service keeps several quotas, the one that leaves the fewest requests per second counts.

    Args:
        headers: names in any case when the mapping takes any case (:class:`httpx.Headers`), else in lower case.
    """
    policies = dict(_members(headers.get("ratelimit-policy", "")))
    members = list(_members(headers.get("ratelimit", "")))
    named = [
        AnnouncedQuota(_number(found["r"]) or 0, _number(policies.get(name, {}).get("q")), _until(found.get("t")))
        for name, found in members
        if "r" in found
    ]
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
            return AnnouncedQuota(remaining, limit, _until(values["reset"], date))
    return None


def _members(value: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Name and parameters of each member; for ``name=value`` the value is the parameter named ``=``."""
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


def _until(reset: str | None, date: str | None = None) -> float | None:
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
