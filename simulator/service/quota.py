"""The quota: so many requests of one key in one calendar minute (specification, "Limits")."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from simulator.service.errors import ApiError

WINDOW_MS: Final = 60_000


class Quota:
    """Counts requests by key. Only the present minute is remembered."""

    def __init__(self) -> None:
        self._window = -1
        self._counts: dict[str, int] = {}

    def count(self, key: str, limit: int, now_ms: int) -> list[tuple[bytes, bytes]]:
        """Count one request of a key that may send ``limit`` in a minute; the headers that say where it stands.

        Raises:
            ApiError: 429: it is one too many. Its headers hold ``Retry-After``, and these.
        """
        window, into_ms = divmod(now_ms, WINDOW_MS)
        if window != self._window:
            self._window, self._counts = window, {}
        used = self._counts[key] = self._counts.get(key, 0) + 1
        left = max(0, limit - used)
        reset_s = -((into_ms - WINDOW_MS) // 1000)
        headers = [
            (b"ratelimit-policy", b'"default";q=%d;w=60' % limit),
            (b"ratelimit", b'"default";r=%d;t=%d' % (left, reset_s)),
            (b"x-ratelimit-limit", b"%d" % limit),
            (b"x-ratelimit-remaining", b"%d" % left),
            (b"x-ratelimit-reset", b"%d" % ((window + 1) * WINDOW_MS // 1000)),
        ]
        if used > limit:
            text = f"More than {limit} requests in this minute; go on in {reset_s} s."
            shown = {name.decode(): value.decode() for name, value in headers}
            raise ApiError(429, "rate_limit_exceeded", text, headers={**shown, "Retry-After": str(reset_s)})
        return headers

    def clear(self, keys: Collection[str] | None = None) -> None:
        """Forget the requests of these keys; of every key when None."""
        self._counts = {} if keys is None else {k: n for k, n in self._counts.items() if k not in keys}
