"""One key's quota in one window of the service: how large, how much is left, when the next one begins.

Handled here: learning it out of headers, or out of 429s where there are none; answers that overtake each other; a
window that is not confirmed yet; what other users of the key take.

Never handled here: who of us gets what is left (:mod:`gateway.core.budget`).

Therefore the caller numbers its requests in the order in which it makes them, and takes its requests without an answer
off :attr:`QuotaWindow.left` before it spends any of it.

Why that is enough: ``remaining`` counts everybody, so an answer to a request that was made *after* the last one was
learned knows more, whatever it says; of requests that were under way together the lowest ``remaining`` is the newest.
A window ends for us a moment later than announced, since services round: until then requests are spent out of the old
one, and the first answer out of the new one shows that it has begun.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from agent.wire.rate_limit import RateLimit

WINDOW_S: Final = 60.0
"""The window of a service that announces none: the specification counts by the minute."""

# Services round "seconds until the next window" up or down.
_ROUNDING_S: Final = 1.0
# A guessed quota shrinks by this part with a 429. After each window in which it was used up without one it grows: by
# this part first, twice this part then, and so on, so that a quota that was raised is found in a quarter of an hour.
_SHRINK: Final = 0.05
_GROWTH: Final = 0.02
# A window counts as used up from here on: the last requests of an even spread fall into the next one.
_USED_UP: Final = 0.9
# After a quiet beginning of a window, no more than twice the even pace: the service is spared a spike.
_CATCH_UP: Final = 2.0
_SHORTEST_REST_S: Final = 0.01


class QuotaWindow:
    """The quota, as far as it is known.

    Attributes:
        quota: requests in one window; None when the service announces none and has never answered 429.
        is_announced: headers announced it; False for a guess.
        left: how many of them are left; those under way are not yet taken off.
        window_s: how long a window is, seconds.
        ends_s: when the next one has certainly begun.
        others_per_s: requests per second that other users of the key make.
    """

    def __init__(self) -> None:
        self.quota: int | None = None
        self.is_announced = False
        self.left = 0
        self.window_s = WINDOW_S
        self.ends_s = 0.0
        self.others_per_s = 0.0
        self._learned_at = 0
        self._mine = 0
        self._announced_s = float("-inf")
        self._unannounced_s = float("-inf")
        self._answers = _Trail()
        self._guess = 0.0
        self._growths = 0

    @property
    def even_per_s(self) -> float:
        """The pace of a key without other users. A quota of 0 is asked about once in a window."""
        return max(1, self.quota or 0) / self.window_s

    def spread_per_s(self, now_s: float, under_way: int) -> float:
        """How fast what is left may be spent so that it lasts for the rest of the window.

        What others took until now they are expected to take until its end, though never more than half of what is
        left: so gateways that share a key come to equal parts.
        """
        rest_s = max(self.ends_s - now_s, _SHORTEST_REST_S)
        spendable = max(0, self.left - under_way)
        elapsed_s = max(self.window_s - rest_s, self.window_s / 6)
        others = max(self.others_per_s, self._taken_by_others() / elapsed_s) * rest_s
        return min(_CATCH_UP * self.even_per_s, max(spendable / 2, spendable - others) / rest_s)

    # --- learning -----------------------------------------------------------------------------------------------------

    def answered(self, number: int, newest: int, now_s: float, announced: RateLimit | None) -> None:
        """An answer other than 429 came.

        Args:
            number: the request's.
            newest: the newest request's.
            now_s: when it came.
            announced: what it announces.
        """
        self._answers.note(now_s)
        if announced is None or announced.remaining is None:
            self._unannounced_s = now_s
            self.spent()
        else:
            self._learn(number, newest, announced, announced.remaining, now_s)

    def refused(
        self, number: int, newest: int, now_s: float, announced: RateLimit | None, *, wait_s: float, is_asked: bool
    ) -> None:
        """429 came; arguments as :meth:`answered`, and how long to wait, seconds, and whether the service said so."""
        if announced is not None and announced.remaining is not None:
            self._learn(number, newest, announced, announced.remaining, now_s)
        elif self.is_announced:
            self._start(0, now_s + wait_s, newest)
        elif self.quota is None or number > self._learned_at:
            self._guess_quota(now_s, now_s + wait_s if is_asked and wait_s <= WINDOW_S else None)
            self._start(0, now_s + wait_s, newest)

    def spent(self) -> None:
        """Note a request that ended without such headers, and may have been counted."""
        self.left -= 1
        self._mine += 1

    def roll(self, now_s: float, newest: int) -> float | None:
        """Go to the window of this instant when the last one is over and no answer has shown it; its beginning."""
        if self.quota is None or now_s < self.ends_s:
            return None
        if self.is_announced and self._announced_s < self.ends_s - self.window_s <= self._unannounced_s:
            # Answers without headers: what was announced is a guess from here on, and may grow.
            self.is_announced = False
            self._guess, self._growths = float(self.quota), 0
        if not self.is_announced and self._mine >= max(1, min(self.quota - 1, int(self.quota * _USED_UP))):
            self._growths += 1
            self._guess *= 1 + _GROWTH * self._growths
            self.quota = int(self._guess)
        self._note_others()
        began_s = self.ends_s + (now_s - self.ends_s) // self.window_s * self.window_s
        self._mine = 0
        self._start(max(1, self.quota), began_s + self.window_s, newest)
        return began_s

    def _learn(self, number: int, newest: int, announced: RateLimit, left: int, now_s: float) -> None:
        is_first, is_later = not self.is_announced, number > self._learned_at
        limit = announced.limit if announced.limit is not None else 0 if is_first else self.quota or 0
        self.quota = max(limit, left)
        self.window_s = max(_ROUNDING_S, announced.window_s or WINDOW_S)
        self.is_announced, self._announced_s = True, now_s
        ends_s = self._announced_end(announced.reset_s, now_s, is_first=is_first)
        if is_first:
            self._mine = self.quota - left  # the requests until now count as ours: nothing is known of other users
            self._start(left, ends_s, newest)
        elif abs(ends_s - self.ends_s) < self.window_s / 2 and (left <= self.left or not is_later):
            self._mine += 1
            if left <= self.left:
                self.left, self._learned_at = left, newest
            self.ends_s = min(self.ends_s, ends_s)
        elif is_later or ends_s > self.ends_s:
            self._note_others()
            self._mine = 1
            self._start(left, ends_s, newest)
        # Otherwise it is a late answer out of a window that is over.

    def _announced_end(self, reset_s: float | None, now_s: float, *, is_first: bool) -> float:
        if reset_s is None:
            return now_s + self.window_s if is_first else self.ends_s
        rounding_s = min(_ROUNDING_S, self.window_s / 10)
        return now_s + max(reset_s, rounding_s) + rounding_s

    def _guess_quota(self, now_s: float, ends_s: float | None) -> None:
        """As many requests as were answered in the window that is over now, if that is known, else in the last minute.

        A 429 right at the beginning of what we take for a window says that it is not one, and nothing of its size.
        """
        if self.quota is None:
            self._guess = float(self._answers.since((now_s if ends_s is None else ends_s) - WINDOW_S))
        elif self._mine > 0:
            self._guess = min(self._guess, self._answers.since(now_s - WINDOW_S)) * (1 - _SHRINK)
        self._guess = max(1.0, self._guess)
        self.quota, self.window_s, self._mine, self._growths = int(self._guess), WINDOW_S, 0, 0

    def _start(self, left: int, ends_s: float, newest: int) -> None:
        self.left, self.ends_s, self._learned_at = left, ends_s, newest

    def _taken_by_others(self) -> int:
        # Without headers it is not known.
        return max(0, (self.quota or 0) - max(0, self.left) - self._mine) if self.is_announced else 0

    def _note_others(self) -> None:
        self.others_per_s = (self.others_per_s + self._taken_by_others() / self.window_s) / 2


class _Trail:
    """How many answers came in each second of the last window."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, int]] = deque()

    def note(self, now_s: float) -> None:
        second, count = int(now_s), 1
        if self._seconds and self._seconds[-1][0] == second:
            count += self._seconds.pop()[1]
        self._seconds.append((second, count))
        while self._seconds[0][0] < second - WINDOW_S:
            self._seconds.popleft()

    def since(self, from_s: float) -> int:
        return sum(count for second, count in self._seconds if second >= int(from_s))
