"""Which device to ask the service about next, for one gateway with thousands of devices.

Handled here: devices with recent activity often and idle ones seldom, all within a bound; a fair order when the quota
is too short for that; a hint that a device has news; a slow reconcile where the service sends news by itself.

Never handled here: how many requests may be made (:mod:`gateway.core.budget`), the request, waiting.

Therefore the caller must report what became of every device that :meth:`FairPolling.next_due` hands out
(``poll_succeeded`` or ``poll_failed``), take all times from one monotonic clock, and use it from one thread at a time.

How it works. A device that was active ``s`` seconds ago is asked again after a fifth of ``s``, never faster than
``fast_s`` nor slower than ``idle_s``. Three lanes hold the devices: those with a hint, the active, the idle; in a lane
the earliest deadline goes first. Lanes with a device that is due take turns by weight, so a lane with more devices than
the quota allows stretches its own intervals evenly and never those of another lane to nothing. A lane with nothing due
leaves its turns to the others. Every operation takes O(log n) steps; only the loss of the event stream looks at all.

Source: C. L. Liu and J. W. Layland, "Scheduling Algorithms for Multiprogramming", 1973 (earliest deadline first); C. A.
Waldspurger and W. E. Weihl, "Stride Scheduling", 1995 (turns by weight).
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from agent.core.schedule import phase_s

# Asked again after this part of the time since the last activity: some twenty times before a device counts as idle.
_AGE_PART: Final = 0.2
# So many entries that no longer count may lie in a heap, beside one for each device, before they are dropped.
_SUPERSEDED: Final = 64


@dataclass(frozen=True, slots=True)
class FairIntervals:
    """The bounds, seconds, ascending, all above 0.

    Attributes:
        fast_s: right after activity.
        idle_s: no device waits longer for its turn, unless the quota is short.
        reconcile_s: instead of ``idle_s`` and for every device while the service sends news by itself.
    """

    fast_s: float = 2.0
    idle_s: float = 60.0
    reconcile_s: float = 900.0

    def after(self, quiet_s: float, *, has_stream: bool) -> float:
        """How soon to ask again about a device whose last activity is ``quiet_s`` ago."""
        if has_stream:
            return self.reconcile_s
        return min(self.idle_s, max(self.fast_s, quiet_s * _AGE_PART))


class PollClass(IntEnum):
    """Classes of devices that are polled in turn; the value is the weight.

    The active lane is the light one: it has few devices, so a third of the polls still asks each of them far more often
    than the idle ones, most of which are where the next command goes.
    """

    ACTIVE = 2
    IDLE = 4
    HINTED = 8


@dataclass(slots=True)
class _Device:
    active_s: float
    lane: PollClass
    due_s: float
    # The number of its only valid entry in a heap; 0 while it is handed out.
    entry: int = 0
    hinted: bool = False
    again: bool = False


class FairPolling:
    """The order of polls.

    Args:
        intervals: how often.
    """

    def __init__(self, intervals: FairIntervals | None = None) -> None:
        self._intervals = intervals or FairIntervals()
        self._devices: dict[str, _Device] = {}
        self._heaps: dict[PollClass, list[tuple[float, int, str]]] = {lane: [] for lane in PollClass}
        self._passes = dict.fromkeys(PollClass, 0.0)
        self._virtual = 0.0
        self._numbers = itertools.count(1)
        self._has_stream = False

    def __len__(self) -> int:
        return len(self._devices)

    def __contains__(self, device_id: object) -> bool:
        return device_id in self._devices

    # --- devices ------------------------------------------------------------------------------------------------------

    def add(self, device_id: str, now_s: float) -> None:
        """Ask about this device from now on: the first time within ``idle_s``, at a moment that its id gives.

        A gateway that starts with 10,000 devices has them spread over the interval. For a device that has just come
        on, call :meth:`mark_active` too. A device that is there already stays as it is.
        """
        if device_id in self._devices:
            return
        due_s = now_s + phase_s(device_id, "poll", self._intervals.idle_s)
        device = self._devices[device_id] = _Device(float("-inf"), PollClass.IDLE, due_s)
        self._enqueue(device_id, device)

    def remove(self, device_id: str) -> None:
        """Never ask about this device again. An unknown one does no harm."""
        self._devices.pop(device_id, None)

    # --- polling ------------------------------------------------------------------------------------------------------

    def next_due(self, now_s: float, limit: int = 1) -> list[str]:
        """The devices to ask about now, in this order, at most ``limit``; each is handed out once until it was seen."""
        found: list[str] = []
        while len(found) < limit:
            lanes = [lane for lane in PollClass if self._is_due(lane, now_s)]
            if not lanes:
                break
            lane = min(lanes, key=lambda each: (self._passes[each], -each))
            # A lane that had nothing due for long must not make up for it now.
            self._virtual = max(self._virtual, self._passes[lane])
            self._passes[lane] = self._virtual + 1 / lane
            _, _, device_id = heapq.heappop(self._heaps[lane])
            device = self._devices[device_id]
            device.entry, device.hinted = 0, False
            found.append(device_id)
        return found

    def next_due_s(self) -> float | None:
        """When the next device falls due; in the past when one is already; None when there is no device to ask."""
        heads = [self._heaps[lane][0][0] for lane in PollClass if self._trim(lane)]
        return min(heads, default=None)

    def poll_succeeded(self, device_id: str, now_s: float, *, news: bool) -> None:
        """Note that the service answered a poll of this device.

        Args:
            device_id: which device was asked about.
            now_s: now.
            news: there was a command that had not been known. One that is merely still open is none: its device may
                be off for a week, and would be asked about every ``fast_s`` all that time.
        """
        device = self._devices.get(device_id)
        if device is None:
            return
        if news:
            device.active_s = now_s
        self._plan(device_id, device, now_s)

    def poll_failed(self, device_id: str, now_s: float) -> None:
        """The service did not answer: the device's turn comes again, and a hint is not forgotten."""
        device = self._devices.get(device_id)
        if device is None:
            return
        device.again = device.again or device.lane is PollClass.HINTED
        self._plan(device_id, device, now_s)

    def mark_active(self, device_id: str, now_s: float) -> None:
        """Ask about it as soon as the quota allows: the service or the device gave a sign that there may be news.

        The first poll after this is made after it: a hint that comes while the device is being asked about leads to
        one more.
        """
        device = self._devices.get(device_id)
        if device is None:
            return
        device.active_s = now_s
        if device.entry == 0:
            device.again = True
        elif not device.hinted:
            self._hint(device_id, device, now_s)

    # --- news by themselves -------------------------------------------------------------------------------------------

    def stream_changed(self, now_s: float, *, is_connected: bool) -> None:
        """The service's stream of events began, or ended.

        While it runs, each device is still asked about once when its turn comes (news from before the stream began are
        in no event), then only every ``reconcile_s``. When it ends, all are asked about within ``idle_s``.
        """
        had_stream, self._has_stream = self._has_stream, is_connected
        if is_connected or not had_stream:
            return
        for device_id, device in self._devices.items():
            latest_s = now_s + phase_s(device_id, "poll", self._intervals.idle_s)
            if device.entry and device.due_s > latest_s:
                device.due_s, device.lane = latest_s, self._lane_of(device, now_s)
                self._enqueue(device_id, device)

    def overdue(self, now_s: float) -> int:
        """How many devices wait for their turn beyond their deadline; looks at all: for a status, not for each poll."""
        return sum(1 for device in self._devices.values() if device.entry and device.due_s <= now_s)

    def _hint(self, device_id: str, device: _Device, now_s: float) -> None:
        device.hinted, device.lane, device.due_s = True, PollClass.HINTED, now_s
        self._enqueue(device_id, device)

    def _plan(self, device_id: str, device: _Device, now_s: float) -> None:
        if device.again:
            device.again = False
            self._hint(device_id, device, now_s)
            return
        if device.entry:
            return  # it was not handed out
        quiet_s = now_s - device.active_s
        device.due_s = now_s + self._intervals.after(quiet_s, has_stream=self._has_stream)
        device.lane = self._lane_of(device, now_s)
        self._enqueue(device_id, device)

    def _lane_of(self, device: _Device, now_s: float) -> PollClass:
        interval_s = self._intervals.after(now_s - device.active_s, has_stream=False)
        return PollClass.ACTIVE if interval_s < self._intervals.idle_s else PollClass.IDLE

    def _enqueue(self, device_id: str, device: _Device) -> None:
        device.entry = next(self._numbers)
        heap = self._heaps[device.lane]
        heapq.heappush(heap, (device.due_s, device.entry, device_id))
        if len(heap) > 2 * len(self._devices) + _SUPERSEDED:
            # Each hint leaves the device's earlier entry behind, which would stay until its time came.
            heap[:] = [each for each in heap if self._counts(each)]
            heapq.heapify(heap)

    def _is_due(self, lane: PollClass, now_s: float) -> bool:
        due = self._trim(lane) and self._heaps[lane][0][0] <= now_s
        if not due:
            self._passes[lane] = max(self._passes[lane], self._virtual)
        return due

    def _trim(self, lane: PollClass) -> bool:
        """Drop entries that no longer count from the top; False when the lane is empty."""
        heap = self._heaps[lane]
        while heap:
            if self._counts(heap[0]):
                return True
            heapq.heappop(heap)
        return False

    def _counts(self, item: tuple[float, int, str]) -> bool:
        """Whether an item of a heap is its device's valid entry."""
        _, entry, device_id = item
        device = self._devices.get(device_id)
        return device is not None and device.entry == entry
