"""One wave in memory: how many of its devices are in which state, and which one to look at next."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from typing import Final

from gateway.rollout.book import Row
from gateway.rollout.plan import Counts, DeviceState

_FIRST_LOOK_S: Final = 1.0
_LONGEST_LOOK_S: Final = 30.0


class Wave:
    """One wave in memory.

    Args:
        number: from 1.
        rows: its devices.
        last_sent_at: when its last command was sent, epoch seconds; 0 when none was.
    """

    def __init__(self, number: int, rows: Iterable[Row], last_sent_at: float) -> None:
        self.number = number
        self.last_sent_at = last_sent_at
        self.looks = CheckSchedule()
        self._states: dict[int, DeviceState] = {}
        self._counts: Counter[DeviceState] = Counter()
        for row in rows:
            self._states[row.position] = row.state
            self._counts[row.state] += 1
            if row.state is DeviceState.SENT:
                self.looks.add(row, row.sent_at or 0.0)

    @property
    def counts(self) -> Counts:
        """How many of the wave's devices are in which state."""
        return Counts(**{state.value: self._counts[state] for state in DeviceState})

    def put(self, row: Row, state: DeviceState) -> None:
        """A device is in another state now."""
        self._counts[self._states[row.position]] -= 1
        self._counts[state] += 1
        self._states[row.position] = state

    def sent(self, row: Row, now_s: float) -> None:
        """A device's command was sent."""
        self.put(row, DeviceState.SENT)
        self.last_sent_at = now_s
        self.looks.add(row, now_s)


class CheckSchedule:
    """Which device to look at next: soon after its command was sent, then ever more seldom. Times: epoch seconds."""

    def __init__(self) -> None:
        self._queue: list[tuple[float, int, Row]] = []
        self._since_s: dict[int, float] = {}

    @property
    def next_s(self) -> float | None:
        """When the next one is due; None when there is none."""
        return self._queue[0][0] if self._queue else None

    def add(self, row: Row, sent_s: float) -> None:
        """Look at a device whose command was sent."""
        self._since_s[row.position] = sent_s
        heapq.heappush(self._queue, (sent_s + _FIRST_LOOK_S, row.position, row))

    def take(self, now_s: float, *, is_last: bool) -> Row | None:
        """The next device that is due, or with ``is_last`` the next one at all."""
        if not self._queue or (not is_last and self._queue[0][0] > now_s):
            return None
        return heapq.heappop(self._queue)[2]

    def again(self, row: Row, now_s: float) -> None:
        """Look at it again later: after a fifth of the time since its command was sent."""
        wait_s = min(max((now_s - self._since_s[row.position]) / 5, _FIRST_LOOK_S), _LONGEST_LOOK_S)
        heapq.heappush(self._queue, (now_s + wait_s, row.position, row))
