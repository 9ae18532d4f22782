"""How long to wait after a failure: full jitter, doubling, capped.

Handled here: the delay after the n-th failure in a row, the service's own ``Retry-After``, the reset after a success.

Never handled here: which failures are worth a retry (:mod:`agent.core.outbox` and each error's ``advice``), waiting.

Therefore the caller must draw the random number, wait interruptibly, and call :meth:`Backoff.succeeded` after any
answer that shows the service is well.

Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015 (full jitter); RFC 9110, section
10.2.3 (``Retry-After``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

BASE_S: Final = 1.0
CAP_S: Final = 300.0
RETRY_AFTER_CAP_S: Final = 3600.0
"""A service that asks for more is asked again after this: a typo there must not silence a device for a month."""

# Full jitter may draw a delay of nothing; this much lies between two attempts whatever is drawn.
_FLOOR_S: Final = 0.1
# 2 ** 32 s is beyond any cap, and keeps the power a small number after a year without network.
_DOUBLINGS_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class Backoff:
    """The failures of one connection in a row, and the next wait.

    Attributes:
        base_s: the first delay is drawn from 0 to this.
        cap_s: no drawn delay is longer.
        failures: failures in a row.
    """

    base_s: float = BASE_S
    cap_s: float = CAP_S
    failures: int = 0

    def failed(self, fraction: float, retry_after_s: float | None = None) -> tuple[Backoff, float]:
        """The state after one more failure, and how long to wait now, seconds.

        Args:
            fraction: a random number in [0, 1).
            retry_after_s: what the service asked for; never undercut, and jitter of up to ``base_s`` or a tenth of it
                comes on top, so that a fleet that was sent the same number does not come back in one step.
        """
        ceiling_s = min(self.cap_s, self.base_s * 2.0 ** min(self.failures, _DOUBLINGS_MAX))
        wait_s = max(_FLOOR_S, fraction * ceiling_s)
        if retry_after_s is not None and retry_after_s > 0:
            asked_s = min(retry_after_s, RETRY_AFTER_CAP_S)
            wait_s = max(wait_s, asked_s + fraction * max(self.base_s, asked_s / 10))
        return replace(self, failures=self.failures + 1), wait_s

    def succeeded(self) -> Backoff:
        """The state after a success: the next failure starts small again."""
        return replace(self, failures=0) if self.failures else self
