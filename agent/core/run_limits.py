"""How long one run of a handler may take, as a whole and without a sign of life.

Never handled here: reading a clock, ending the run. All times are on the monotonic clock, seconds.
"""

from __future__ import annotations

from agent.frozen import dataclass


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of one run.

    Attributes:
        timeout_s: from its beginning to its end.
        inactivity_s: from one sign of life to the next; None asks for none.
    """

    timeout_s: float
    inactivity_s: float | None = None

    def ends_at(self, begun_s: float, alive_s: float) -> float:
        """When the run is out of time, unless it shows a sign of life before.

        Args:
            begun_s: when it began.
            alive_s: when it last showed a sign of life; its beginning is the first.
        """
        end_s = begun_s + self.timeout_s
        return end_s if self.inactivity_s is None else min(end_s, alive_s + self.inactivity_s)

    def fault(self, handler: str, begun_s: float, alive_s: float, now_s: float) -> str | None:
        """Why the run must end now, as ``code: sentence``; None while it may go on."""
        if now_s >= begun_s + self.timeout_s:
            return f"timeout: {handler!r} ran longer than {self.timeout_s:g} s"
        if self.inactivity_s is not None and now_s >= alive_s + self.inactivity_s:
            return f"inactive: {handler!r} gave no sign of life for {self.inactivity_s:g} s"
        return None
