"""The quota: so many requests of one key in one calendar minute (specification, "Limits")."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from simulator.service.answers import Header

WINDOW_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class QuotaState:
    """Where a key stands after this request.

    Attributes:
        exceeded: this request is one too many.
        reset_s: whole seconds until the next minute, 1 to 60.
        headers: the answer's headers about it.
    """

    exceeded: bool
    reset_s: int
    headers: tuple[Header, ...]


class Quota:
    """Counts requests by key. Only the present minute is remembered, so it never grows beyond the keys in use."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._policy = (b"ratelimit-policy", b'"default";q=%d;w=60' % per_minute)
        self._limit = (b"x-ratelimit-limit", b"%d" % per_minute)
        self._window = -1
        self._counts: dict[str, int] = {}

    def count(self, key: str, now_ms: int) -> QuotaState:
        """Count one request."""
        window, into_ms = divmod(now_ms, WINDOW_MS)
        if window != self._window:
            self._window = window
            self._counts = {}
        used = self._counts[key] = self._counts.get(key, 0) + 1
        left = max(0, self.per_minute - used)
        reset_s = -((into_ms - WINDOW_MS) // 1000)
        headers: tuple[Header, ...] = (
            self._policy,
            (b"ratelimit", b'"default";r=%d;t=%d' % (left, reset_s)),
            self._limit,
            (b"x-ratelimit-remaining", b"%d" % left),
            (b"x-ratelimit-reset", b"%d" % ((window + 1) * WINDOW_MS // 1000)),
        )
        return QuotaState(used > self.per_minute, reset_s, headers)

    def clear(self, keys: Collection[str] | None = None) -> None:
        """These keys begin anew; every key when None."""
        self._counts = {} if keys is None else {k: n for k, n in self._counts.items() if k not in keys}
