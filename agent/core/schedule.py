"""When periodic work falls due: a hashed phase for each device, and missed ticks are skipped.

Handled here: which instants a period has for this device and name, the next one.

Never handled here: waiting, reading a clock.

Therefore the caller must take all times from one monotonic clock, and ask for the next instant *after* the work is
done: work that took three periods is followed by one tick, not by three in a bunch.
"""

from __future__ import annotations

import hashlib
import math

from agent.frozen import dataclass


def phase_s(device_id: str, name: str, period_s: float) -> float:
    """How far into each period this device does this work, seconds in [0, ``period_s``).

    It depends on the arguments alone, so a fleet that was powered on in the same second spreads over the period, and
    a device keeps its place over restarts.
    """
    digest = hashlib.blake2b(f"{device_id}\x1f{name}".encode(), digest_size=8).digest()
    # 53 bits, since a float holds no more: the fraction stays below 1.
    return (int.from_bytes(digest) >> 11) / (1 << 53) * period_s


@dataclass(frozen=True, slots=True)
class Schedule:
    """Instants ``phase_s + n * period_s`` on the monotonic clock.

    Attributes:
        period_s: above 0.
        phase_s: in [0, ``period_s``).
    """

    period_s: float
    phase_s: float

    @classmethod
    def of(cls, device_id: str, name: str, period_s: float) -> Schedule:
        """The schedule of a device's work called ``name``."""
        return cls(period_s, phase_s(device_id, name, period_s))

    def next_after(self, now_s: float) -> float:
        """The first instant after ``now_s``; never ``now_s`` itself."""
        due_s = self.phase_s + (math.floor((now_s - self.phase_s) / self.period_s) + 1) * self.period_s
        # Rounding may land on now_s, which would make the caller run twice at once.
        return due_s if due_s > now_s else due_s + self.period_s
