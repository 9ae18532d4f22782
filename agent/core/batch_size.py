"""How much is sent at once: so much as the link carries within the time that an answer may take.

Begins small, doubles while answers come soon, is quartered when none comes in time, and then grows slowly towards the
size that was too much. Only whole items are sent, and one is always allowed, however large it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

FIRST_BYTES: Final = 16 * 1024
MOST_BYTES: Final = 128 * 1024
LEAST_BYTES: Final = 64

_SOON_S: Final = 1.0
_GROW_SLOWLY: Final = 8
# So many answers in a row at the size just below before that which was too much is tried again.
_TRY_AGAIN_AFTER: Final = 30


@dataclass(frozen=True, slots=True)
class BatchSize:
    """How many bytes go at once.

    Attributes:
        size_bytes: of one batch.
        too_much_bytes: this much was not answered in time; None while nothing was.
        answered: batches in a row since then.
    """

    size_bytes: int = FIRST_BYTES
    too_much_bytes: int | None = None
    answered: int = 0

    def fit(self, sizes_bytes: Iterable[int]) -> int:
        """How many of the first of these go at once; at least one."""
        count, left_bytes = 0, self.size_bytes
        for size_bytes in sizes_bytes:
            left_bytes -= size_bytes
            if left_bytes < 0 and count:
                break
            count += 1
        return count

    def after_no_answer(self, sent_bytes: int) -> BatchSize:
        """No answer came in time to so much."""
        size_bytes = max(LEAST_BYTES, min(sent_bytes, self.size_bytes) // 4)
        return BatchSize(size_bytes, max(LEAST_BYTES, sent_bytes))

    def after_answer(self, took_s: float) -> BatchSize:
        """A batch that was as large as it may be was answered after so long."""
        if self.too_much_bytes is None:
            grown = 2 * self.size_bytes if took_s < _SOON_S else self.size_bytes
            return replace(self, size_bytes=min(MOST_BYTES, grown))
        if took_s >= _SOON_S:
            return self
        if self.answered >= _TRY_AGAIN_AFTER:
            return BatchSize(self.size_bytes)
        is_far = 2 * self.size_bytes <= self.too_much_bytes // 2
        grown = 2 * self.size_bytes if is_far else self.size_bytes + max(1, self.size_bytes // _GROW_SLOWLY)
        bounded = min(grown, max(self.size_bytes, self.too_much_bytes - 1))
        return replace(self, size_bytes=bounded, answered=self.answered + 1)
