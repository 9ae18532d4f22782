"""One key's quota in one window of the service, as its headers announce it: how large, how much is left, until when.

Handled here: answers that overtake each other; a window that is not confirmed yet. What other users of the key take is
in ``remaining``, which counts everybody.

Never handled here: who of us gets what is left (:mod:`gateway.core.budget`).

Therefore the caller numbers its requests in the order in which it makes them, and takes its requests without an answer
off :attr:`QuotaWindow.left` before it spends any of it.

Why that is enough: an answer to a request that was made *after* the last one was learned knows more, whatever it says;
of requests that were under way together the lowest ``remaining`` is the newest. A window ends for us a moment later
than announced, since services round: until then requests are spent out of the old one, and the first answer out of the
new one shows that it has begun.
"""

from __future__ import annotations

from typing import Final

from agent.wire.rate_limit import RateLimit

WINDOW_S: Final = 60.0
"""The window of a service that announces none: the specification counts by the minute."""

# Services round "seconds until the next window" up or down.
_ROUNDING_S: Final = 1.0
# After a quiet beginning of a window, no more than twice the even pace: the service is spared a spike.
_CATCH_UP: Final = 2.0
_SHORTEST_REST_S: Final = 0.01


class QuotaWindow:
    """The quota, as far as it is announced.

    Attributes:
        quota: requests in one window; None when the service announces none.
        left: how many of them are left; those under way are not yet taken off.
        window_s: how long a window is, seconds.
        ends_s: when the next one has certainly begun.
    """

    def __init__(self) -> None:
        self.quota: int | None = None
        self.left = 0
        self.window_s = WINDOW_S
        self.ends_s = 0.0
        self._learned_at = 0
        self._announced_s = float("-inf")
        self._unannounced_s = float("-inf")

    @property
    def even_per_s(self) -> float:
        """The pace of an even spread. A quota of 0 is asked about once in a window."""
        return max(1, self.quota or 0) / self.window_s

    def spread_per_s(self, now_s: float, under_way: int) -> float:
        """How fast what is left may be spent so that it lasts for the rest of the window."""
        rest_s = max(self.ends_s - now_s, _SHORTEST_REST_S)
        return min(_CATCH_UP * self.even_per_s, max(0, self.left - under_way) / rest_s)

    def answered(self, number: int, newest: int, now_s: float, announced: RateLimit | None) -> None:
        """An answer other than 429 came.

        Args:
            number: the request's.
            newest: the newest request's.
            now_s: when it came.
            announced: what it announces.
        """
        if announced is None or announced.remaining is None:
            self._unannounced_s = now_s
            self.spent()
        else:
            self._learn(number, newest, announced, announced.remaining, now_s)

    def refused(self, number: int, newest: int, now_s: float, announced: RateLimit | None, *, wait_s: float) -> None:
        """429 came; arguments as :meth:`answered`, and how long to wait, seconds."""
        if announced is not None and announced.remaining is not None:
            self._learn(number, newest, announced, announced.remaining, now_s)
        elif self.quota is not None:
            self._start(0, now_s + wait_s, newest)

    def spent(self) -> None:
        """Note a request that ended without such headers, and may have been counted."""
        self.left -= 1

    def roll(self, now_s: float, newest: int) -> float | None:
        """Go to the window of this instant when the last one is over and no answer has shown it; its beginning."""
        if self.quota is None or now_s < self.ends_s:
            return None
        if self._announced_s < self.ends_s - self.window_s <= self._unannounced_s:
            self.quota = None  # it is announced no more
            return None
        began_s = self.ends_s + (now_s - self.ends_s) // self.window_s * self.window_s
        self._start(max(1, self.quota), began_s + self.window_s, newest)
        return began_s

    def _learn(self, number: int, newest: int, announced: RateLimit, left: int, now_s: float) -> None:
        is_first, is_later = self.quota is None, number > self._learned_at
        limit = announced.limit if announced.limit is not None else self.quota or 0
        self.quota = max(limit, left)
        self.window_s = max(_ROUNDING_S, announced.window_s or WINDOW_S)
        self._announced_s = now_s
        ends_s = self._announced_end(announced.reset_s, now_s, is_first=is_first)
        if is_first:
            self._start(left, ends_s, newest)
        elif abs(ends_s - self.ends_s) < self.window_s / 2 and (left <= self.left or not is_later):
            if left <= self.left:
                self.left, self._learned_at = left, newest
            self.ends_s = min(self.ends_s, ends_s)
        elif is_later or ends_s > self.ends_s:
            self._start(left, ends_s, newest)
        # Otherwise it is a late answer out of a window that is over.

    def _announced_end(self, reset_s: float | None, now_s: float, *, is_first: bool) -> float:
        if reset_s is None:
            return now_s + self.window_s if is_first else self.ends_s
        rounding_s = min(_ROUNDING_S, self.window_s / 10)
        return now_s + max(reset_s, rounding_s) + rounding_s

    def _start(self, left: int, ends_s: float, newest: int) -> None:
        self.left, self.ends_s, self._learned_at = left, ends_s, newest
