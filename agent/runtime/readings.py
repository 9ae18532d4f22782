"""Sends readings until the outbox is empty: nothing that happens to a result delays one."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from agent.core.batch_size import BatchSize
from agent.core.outbox import batch_key
from agent.core.values import BatchKey, SendOutcome, StoredReading
from agent.errors import StorageError, Unanswered
from agent.runtime.sending import SendLoop, SendParts

if TYPE_CHECKING:
    from agent.store.outbox import Outbox

_log = logging.getLogger(__name__)

IN_FLIGHT: Final = "uplink.in_flight"

# An earlier process that had more than this waiting sent arrays, and remembered the last one.
_RESENT_SINGLY: Final = 1000
# What a reading has beside its values when it is sent: the device's id, the time, punctuation.
_ENVELOPE_BYTES: Final = 120
# So long the stop may go on handing over readings.
_LAST_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Batch:
    """Readings that go under one key, until the fate of each is known.

    Attributes:
        key: of the whole.
        rows: what is left of it, in its order.
        begins_at: so many of it are done already.
        sent: the sizes in which the beginning of ``rows`` was sent without an answer; the service may have stored one
            of these batches, and no other.
        probe: so many go next, to find out which of ``sent`` it is; 0 for as many as the link carries.
    """

    key: str
    rows: tuple[int, ...]
    begins_at: int = 0
    sent: tuple[int, ...] = ()
    probe: int = 0

    @classmethod
    def of(cls, readings: Sequence[StoredReading], *, sent: tuple[int, ...] = ()) -> _Batch:
        """These together."""
        key = readings[0].idempotency_key if len(readings) == 1 else batch_key(readings)
        return cls(key, tuple(stored.key for stored in readings), sent=sent)

    @property
    def is_alone(self) -> bool:
        """One reading under its own key."""
        return len(self.rows) == 1 and not self.begins_at

    @property
    def wire_key(self) -> BatchKey:
        """What is left has a key of its own, which names where it begins."""
        return BatchKey(f"{self.key}+{self.begins_at}" if self.begins_at else self.key, was_sent=bool(self.sent))

    def without_first(self, count: int) -> _Batch | None:
        """The fate of so many is known; None when nothing is left."""
        rest = self.rows[count:]
        return _Batch(self.key, rest, self.begins_at + count) if rest else None

    def to_json(self) -> str:
        """For the journal."""
        return json.dumps([self.key, self.rows, self.begins_at, self.sent, self.probe])

    @classmethod
    def from_json(cls, text: str) -> _Batch:
        """Out of the journal.

        Raises:
            ValueError, TypeError: it is none.
        """
        key, rows, begins_at, sent, probe = json.loads(text)
        return cls(str(key), tuple(map(int, rows)), int(begins_at), tuple(map(int, sent)), int(probe))


class ReadingStream(SendLoop):
    """Sends readings in batches: live ones first, then the backlog.

    A batch that was not answered is tried again before anything else, under the same key: as it was, or only its
    beginning where it was too large for the link. The other side stores no more than one of them, and says so.

    Args:
        parts: what it needs.
        outbox: what waits.
        batch_size: how many readings go at once.
        apart_s: how far apart two batches are at least that are not full, seconds. Readings may be committed sooner,
            together with a command; they wait for their batch all the same.
        takes_arrays: one request carries many readings; else each is a request of its own. May ask the service, and
            raise its errors.
        repeats_batches: the other side may know a batch only as a whole, so the same readings go together again; False
            where it knows each reading by its own key.
    """

    def __init__(
        self,
        parts: SendParts,
        outbox: Outbox,
        *,
        batch_size: int = 500,
        apart_s: float = 1.0,
        takes_arrays: Callable[[], bool] = lambda: True,
        repeats_batches: bool = True,
    ) -> None:
        super().__init__("readings", parts)
        self._outbox = outbox
        self._batch_size = batch_size
        self._apart_s = apart_s
        self._takes_arrays = takes_arrays
        self._repeats_batches = repeats_batches
        self._size = BatchSize()
        self._batch: _Batch | None = None
        self._noted: str | None = None
        self._singly_to = 0
        self._began_s = self._due_s - apart_s

    def begin(self) -> None:
        """Remember what an earlier process may have sent without learning its fate."""
        if not self._repeats_batches:
            return
        try:
            self._noted = self._journal.setting(IN_FLIGHT)
            if self._noted:
                self._batch = _Batch.from_json(self._noted)
            if self._outbox.stats().rows <= _RESENT_SINGLY:
                waiting = self._outbox.next_batch(_RESENT_SINGLY)
                self._singly_to = max((stored.key for stored in waiting), default=0)
        except (StorageError, ValueError, TypeError) as error:
            _log.warning("readings=unsure what was sent last cannot be remembered: %s", error)

    def receive(self, message: object) -> None:
        """Take a message: whether new readings are urgent, or else may wait for others; or the connection is back."""
        if message is False:
            self._due_s = min(self._due_s, self._began_s + self._apart_s)
        else:
            super().receive(message)

    def send_last(self) -> None:
        """What takes too long for the stop stays in the store."""
        until_s = self._now_s() + _LAST_S
        while self.send() and self._now_s() < until_s:
            pass

    def send(self) -> bool:
        """Send one batch; True when more can follow at once."""
        self._began_s = self._now_s()
        again = self._again()
        found = again or self._outbox.next_batch(self._batch_size)
        if not found:
            self.went_well()
            return False
        waiting = len(found)
        # Asked only with something to send, since the answer may cost a request. One by one each has its own key.
        goes_together = self._takes_arrays() and self._repeats_batches
        if not goes_together:
            self._batch = None
        if self._batch is None:
            # What an earlier process may have sent alone goes alone again, so that its own key counts.
            found = [stored for stored in found if stored.key <= self._singly_to][:1] or found
        probe = self._batch.probe if self._batch is not None else 0
        part = found[: probe or self._size.fit(map(_size_bytes, found))]
        batch = self._remember(part) if goes_together else None
        began_s = self._now_s()
        try:
            outcome = self._parts.uplink.send(part, None if batch is None else batch.wire_key)
        except Unanswered:
            self._not_answered(part)
            raise
        self.went_well()
        if len(part) < len(found):
            self._size = self._size.after_answer(self._now_s() - began_s)
        if outcome.earlier_is_stored and batch is not None:
            others = tuple(count for count in batch.sent if count != len(part)) or (len(part),)
            if len(others) > 1:
                # One of them is stored: the same once more is answered as it was, and another is told apart.
                self._batch = replace(batch, sent=others, probe=min(others))
                return True
            part = self._outbox.again(batch.rows[: others[0]])
            outcome = SendOutcome(tuple(stored.key for stored in part))
        for key, reason in outcome.refused.items():
            text = f"reading={key} was refused for good and is not sent again: {reason}"
            self._failure_log.report(f"refused {reason.split(':', 1)[0]}", text)
        self._outbox.settle(outcome)
        known = {*outcome.delivered, *outcome.refused}
        if self._batch is not None:
            left = [stored for stored in part if stored.key not in known]
            self._batch = _Batch.of(left, sent=(len(left),)) if left else self._batch.without_first(len(part))
        is_all = not again and len(part) == waiting < self._batch_size
        return bool(known) and not is_all

    def _again(self) -> Sequence[StoredReading]:
        """What is left of the batch whose fate is unknown; none when there is none, or no longer as it was."""
        if self._batch is None:
            return ()
        found = self._outbox.again(self._batch.rows)
        if len(found) != len(self._batch.rows):
            self._batch = None
        return found

    def _remember(self, part: Sequence[StoredReading]) -> _Batch | None:
        """Before the first byte leaves: which readings go together. The batch as it was before; None for one alone.

        What goes alone among few is not written down: the next process sends each of those that it finds alone.
        """
        batch = self._batch or _Batch.of(part)
        self._batch = replace(batch, sent=tuple(dict.fromkeys((*batch.sent, len(part)))))
        text = self._batch.to_json()
        if text != self._noted and not (batch.is_alone and self._outbox.stats().rows <= _RESENT_SINGLY // 2):
            self._journal.put_setting(IN_FLIGHT, text)
            self._noted = text
        return None if batch.is_alone else batch

    def _not_answered(self, part: Sequence[StoredReading]) -> None:
        if len(part) == 1:
            return
        self._size = self._size.after_no_answer(sum(map(_size_bytes, part)))
        # After a batch that was too large for the link the next one is another, so it need not wait for long.
        self._retry_policy.succeeded()
        fewer = self._size.fit(map(_size_bytes, part))
        text = (
            f"readings=slow: {len(part)} readings at once were not answered in time, so {fewer} go at once from now on"
        )
        self._failure_log.report("slow", text)


def _size_bytes(stored: StoredReading) -> int:
    return _ENVELOPE_BYTES + len(json.dumps(stored.reading.values))
