"""Counts of a campaign: first attempts apart from retries, and how long answers took from both beginnings."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from simulator.onboarding.exchange import Exchange

_PERCENTILES: Final = (50, 95, 99)


def class_of(exchange: Exchange) -> str:
    """Of an exchange, as it is counted: 429 is a class of its own, since its answers are the quickest."""
    status = exchange.status
    if status is None:
        return "no answer"
    if status == 429:
        return "429"
    return f"{status // 100}xx"


class Tally:
    """Counts requests. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[bool, str, str]] = Counter()
        self._service_s: dict[str, list[float]] = {}
        self._whole_s: dict[str, list[float]] = {}

    def record(self, *, what: str, attempt: int, intended_at: float, exchange: Exchange) -> None:
        """One request.

        Args:
            what: the action, or ``proof``.
            attempt: from 1.
            intended_at: when it was due, in seconds since the epoch.
            exchange: what was sent and answered.
        """
        kind = class_of(exchange)
        with self._lock:
            self._counts[attempt > 1, what, kind] += 1
            if exchange.answered_s is not None and kind != "429":
                took_s = exchange.answered_s - exchange.sent_s
                self._service_s.setdefault(what, []).append(took_s)
                self._whole_s.setdefault(what, []).append(exchange.sent_at - intended_at + took_s)

    def as_json(self) -> dict[str, Any]:
        """Requests by attempt, action and class; seconds from sending and from when they were due."""
        with self._lock:
            return {
                "first_attempts": self._of(is_retry=False),
                "retries": self._of(is_retry=True),
                "seconds_from_sent": {what: percentiles(values) for what, values in sorted(self._service_s.items())},
                "seconds_from_intended": {what: percentiles(values) for what, values in sorted(self._whole_s.items())},
            }

    def _of(self, *, is_retry: bool) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for (retried, what, kind), count in sorted(self._counts.items()):
            if retried is is_retry:
                found.setdefault(what, {})[kind] = count
        return found


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Exact ones, by the nearest rank, and the largest value."""
    ordered = sorted(values)
    found = {f"p{share}": ordered[max(0, -(-len(ordered) * share // 100) - 1)] for share in _PERCENTILES}
    return {name: round(value, 6) for name, value in {**found, "max": ordered[-1]}.items()}
