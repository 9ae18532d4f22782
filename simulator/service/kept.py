"""What a device's poll answers, kept for as long as nothing of it changes: most polls find what the last one found.

Every change of a device's commands goes through :meth:`simulator.service.waiting.Waiters.wake`, which also wakes the
held polls; there the answer is forgotten. Only one service writes to a database, so no change comes from elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simulator.service.answers import Answer

KEPT_MAX: Final = 50_000
"""Answers kept at most; then the one that was kept first goes."""
KEPT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of their bodies at most; most are empty lists, and few devices have much to do at once."""
_Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class KeptPoll:
    """The answer to a device's poll.

    Attributes:
        device_seq: the device's row.
        answer: with its tag as the first header.
        until_ms: when the first command in it ends, milliseconds since the epoch: from then on it is not true.
    """

    device_seq: int
    answer: Answer
    until_ms: int | None = None


class KeptPolls:
    """(account, device id) -> what ``GET /devices/{id}/commands?status=open`` answers."""

    def __init__(self) -> None:
        self._polls: dict[_Key, KeptPoll] = {}
        self._keys: dict[int, _Key] = {}
        self._bytes = 0

    def find(self, manufacturer_seq: int, device_id: str, now_ms: int) -> KeptPoll | None:
        """The answer; None when it has to be made."""
        poll = self._polls.get((manufacturer_seq, device_id))
        return None if poll is None or (poll.until_ms is not None and poll.until_ms <= now_ms) else poll

    def keep(self, manufacturer_seq: int, device_id: str, poll: KeptPoll) -> None:
        """Keep it. Nothing of the device may have changed since it was read."""
        self.forget(poll.device_seq)
        key = (manufacturer_seq, device_id)
        self._polls[key] = poll
        self._keys[poll.device_seq] = key
        self._bytes += len(poll.answer.body)
        while len(self._polls) > KEPT_MAX or self._bytes > KEPT_BYTES:
            self.forget(next(iter(self._keys)))

    def forget(self, device_seq: int) -> None:
        """The device's commands have changed, or it is gone."""
        key = self._keys.pop(device_seq, None)
        if key is not None:
            self._bytes -= len(self._polls.pop(key).answer.body)

    def clear(self) -> None:
        """Everything may have changed."""
        self._polls.clear()
        self._keys.clear()
        self._bytes = 0
