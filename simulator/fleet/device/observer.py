"""Observers of exchanges: the measurement, and what keeps the last sentences about failures."""

from __future__ import annotations

from simulator.fleet.outcomes import Attempt, OutcomeClass


class Observer:
    """Base of observers, one for all devices of a worker; measures nothing by itself.

    Called from the loop's thread for each exchange: cheap, and never blocking.
    """

    def exchanged(
        self,
        operation: str,
        outcome: OutcomeClass,
        device: int,
        *,
        intended_s: float,
        ready_s: float,
        sent_s: float | None,
        now_s: float,
        attempt: Attempt,
    ) -> None:
        """A request ended.

        Args:
            operation: such as ``http.poll``.
            outcome: how.
            device: index in the fleet.
            intended_s: when it was due by the device's plan, on the loop's clock: waiting is measured from here.
            ready_s: from when on only the generator kept it waiting, and not an earlier request of the same device; a
                generator that lags is seen by this.
            sent_s: when its bytes went to the socket; None when nothing went out.
            now_s: when the answer was whole, or it was given up.
            attempt: whether it went out before, and what the service may have of that.
        """

    def faulted(self, operation: str, device: int, sentence: str) -> None:
        """Why an exchange was no good one, for a person."""
