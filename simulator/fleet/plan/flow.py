"""How many arrivals there were by a time, and when the n-th comes: rates that go with the phases and the ramps.

The rate is a straight line between two knots, so the count is a parabola: both ways are closed formulas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simulator.fleet.plan.hashed_random import Floats
from simulator.fleet.plan.timeline import Timeline

_FLAT: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Flow:
    """Arrivals over time. Arrays of knots, one entry for each stretch with one slope.

    Attributes:
        begin_s: of the stretch.
        rate: arrivals per second at its begin.
        slope: how much the rate changes per second.
        before: arrivals until its begin.
        end_s: of the last stretch; nothing arrives after it.
        total: arrivals until then.
    """

    begin_s: Floats
    rate: Floats
    slope: Floats
    before: Floats
    end_s: float
    total: float

    @classmethod
    def of(cls, timeline: Timeline, rate_per_s: float, *, with_ramps: bool) -> Flow:
        """The flow of a rate.

        Args:
            timeline: whose rate factors it follows.
            rate_per_s: with the whole fleet online and factor 1.
            with_ramps: it also goes with the share of the fleet that is online.
        """
        rows: list[tuple[float, float, float, float]] = []
        total = 0.0
        for span in timeline.spans:
            full = rate_per_s * span.rate_factor
            first, last = (span.online_from, span.online_to) if with_ramps else (1.0, 1.0)
            ramp_s = min(span.duration_s, span.end_s - span.begin_s)
            for begin_s, length_s, low, high in (
                (span.begin_s, ramp_s, first * full, last * full),
                # At a barrier nobody asks for more: what it waits for may be that nothing is open any more.
                (span.begin_s + ramp_s, span.end_s - span.begin_s - ramp_s, 0.0, 0.0),
            ):
                if length_s > 0:
                    rows.append((begin_s, low, (high - low) / length_s, total))
                    total += (low + high) / 2 * length_s
        table = np.array(rows, dtype=np.float64)
        return cls(table[:, 0], table[:, 1], table[:, 2], table[:, 3], timeline.end_s, total)

    def count_by(self, time_s: float) -> float:
        """Arrivals until ``time_s``, with fractions."""
        at_s = min(max(time_s, 0.0), self.end_s)
        row = max(int(np.searchsorted(self.begin_s, at_s, side="right")) - 1, 0)
        offset_s = at_s - self.begin_s[row]
        return float(self.before[row] + self.rate[row] * offset_s + self.slope[row] / 2 * offset_s * offset_s)

    def times_of(self, counts: npt.NDArray[np.floating[Any]]) -> Floats:
        """When each count is reached, seconds; counts beyond the total give infinity."""
        row = np.maximum(np.searchsorted(self.before, counts, side="right") - 1, 0)
        rate, slope, wanted = self.rate[row], self.slope[row], counts - self.before[row]
        # The root of slope/2 x^2 + rate x = wanted, in the form that keeps its digits where the slope is small.
        root = np.sqrt(np.maximum(rate * rate + 2.0 * slope * wanted, 0.0))
        divisor = rate + root
        offset_s = np.divide(2.0 * wanted, divisor, out=np.zeros_like(wanted), where=divisor > _FLAT)
        return np.where(counts < self.total, self.begin_s[row] + offset_s, np.inf)
