"""Sends readings until the outbox is empty, and backs off by itself: nothing that happens to a result delays one."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from agent.core.batch_size import BatchSize
from agent.core.outbox import batch_key
from agent.core.values import BatchKey, SendOutcome, StoredReading
from agent.errors import InvalidMessage, Offline, ServiceError, StorageError, Unanswered
from agent.runtime.failure_log import FailureLog
from agent.runtime.health import Health
from agent.runtime.retry_policy import RetryPolicy, describe
from agent.runtime.service import Actor

if TYPE_CHECKING:
    from agent.ports import Clock, Uplink
    from agent.store.journal import Journal
    from agent.store.outbox import Outbox

_log = logging.getLogger(__name__)

PART: Final = "readings"
IN_FLIGHT: Final = "uplink.in_flight"

# An earlier process that had more than this waiting sent arrays, and remembered the last one.
_RESENT_SINGLY: Final = 1000
_STORE_RETRY_S: Final = 5.0
# What a reading has beside its values when it is sent: the device's id, the time, punctuation.
_ENVELOPE_BYTES: Final = 120
# After a batch that was too large for the link the next one is another, so it need not wait for long.
_SMALLER_AFTER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Batch:
    """Readings that go under one key, until the fate of each is known.

    Attributes:
        key: of the whole.
        rows: what is left of it, in its order.
        begins_at: so many of it are done already.
        sent: how many of ``rows`` were sent and not answered, each number once: one of these is what may be stored.
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


class ReadingUplink(Actor):
    """Sends readings in batches: live ones first, then the backlog.

    A batch that was not answered is tried again before anything else, under the same key: as it was, or only its
    beginning where it was too large for the link. The other side stores no more than one of them, and says so.

    Messages: :data:`READING`: the outbox has committed a reading; :data:`CONNECTED`: the connection is back.

    Args:
        first_s: how long after the start the first request comes, seconds.
        batch_size: how many readings go at once.
        apart_s: how far apart two batches are at least that are not full, seconds: a commit for another reason takes
            readings along, and each is no request of its own.
        look_s: how often to look without a message, seconds.
        takes_arrays: one request carries many readings; else each is a request of its own. May ask the service, and
            raise its errors.
        last_s: how long the stop may go on handing over readings, seconds.
        repeats_batches: the other side may know a batch only as a whole, so the same readings go together again; False
            where it knows each reading by its own key.
    """

    READING: Final = "reading"
    CONNECTED: Final = "connected"

    def __init__(
        self,
        *,
        uplink: Uplink,
        journal: Journal,
        outbox: Outbox,
        clock: Clock,
        retry_policy: RetryPolicy,
        health: Health,
        on_server_time: Callable[[float], None] = lambda _wall_s: None,
        first_s: float = 0.0,
        batch_size: int = 500,
        apart_s: float = 1.0,
        look_s: float = 300.0,
        last_s: float = 1.0,
        repeat_after_s: float = 300.0,
        repeats_batches: bool = True,
        takes_arrays: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(PART)
        self._takes_arrays = takes_arrays
        self._repeats_batches = repeats_batches
        self._uplink = uplink
        self._journal = journal
        self._outbox = outbox
        self._clock = clock
        self._retry_policy = retry_policy
        self._health = health
        self._on_server_time = on_server_time
        self._batch_size = batch_size
        self._apart_s = apart_s
        self._look_s = look_s
        self._last_s = last_s
        self._failure_log = FailureLog(_log, lambda: clock.now().monotonic_s, repeat_after_s)
        self._size = BatchSize()
        self._batch: _Batch | None = None
        self._noted: str | None = None
        self._is_smaller = False
        self._singly_to = 0
        # What an earlier process left is sent at once.
        self._due_s = self._clock.now().monotonic_s
        self._began_s = self._due_s - apart_s
        self._not_before_s = self._due_s + first_s

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

    def receive(self, message: str) -> None:
        """Take a message: a new reading, or the connection is back."""
        if message == self.CONNECTED:
            self._due_s = self._not_before_s = self._clock.now().monotonic_s
        else:
            self._due_s = min(self._due_s, self._began_s + self._apart_s)

    def due_at(self) -> float:
        """When something waits, but never before a back-off is over."""
        return max(self._due_s, self._not_before_s)

    def step(self) -> None:
        """Send one batch of readings."""
        self._began_s = self._clock.now().monotonic_s
        self._due_s = self._began_s + self._look_s
        try:
            more = self._send_readings()
        except StorageError as error:
            self._failure_log.report("store", f"readings=waiting: the store cannot be read or written: {error}")
            self._not_before_s = self._clock.now().monotonic_s + _STORE_RETRY_S
            self._due_s = self._not_before_s
        except (ServiceError, InvalidMessage) as error:
            self._back_off(error)
        else:
            self._retry_policy.succeeded()
            self._failure_log.recovered("store", "readings=ok: the store works again")
            self._failure_log.recovered(PART, "readings=ok: the service takes readings again")
            self._health.put(PART, "ok")
            if more:
                self._due_s = self._clock.now().monotonic_s

    def finish(self) -> None:
        """One last try to hand over what waits; whatever fails, or takes too long for the stop, stays in the store."""
        if self._clock.now().monotonic_s < self._not_before_s:
            return
        until_s = self._clock.now().monotonic_s + self._last_s
        try:
            while self._send_readings() and self._clock.now().monotonic_s < until_s:
                pass
        except (StorageError, ServiceError, InvalidMessage) as error:
            _log.info("readings=stopped what waits goes with the next start: %s", error)

    def _send_readings(self) -> bool:
        """Send one batch; True when more can follow at once."""
        again = self._again()
        found = again or self._outbox.next_batch(self._batch_size)
        if not found:
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
        began_s = self._clock.now().monotonic_s
        try:
            outcome = self._uplink.send(part, None if batch is None else batch.wire_key)
        except Unanswered:
            self._not_answered(part)
            raise
        if len(part) < len(found):
            self._size = self._size.after_answer(self._clock.now().monotonic_s - began_s)
        if outcome.server_time is not None:
            self._on_server_time(outcome.server_time)
        if outcome.earlier_is_stored and batch is not None:
            others = tuple(count for count in batch.sent if count != len(part)) or (len(part),)
            if len(others) > 1:
                # One of them is stored: the same once more is answered as it was, and another is told apart.
                self._batch = replace(batch, sent=others, probe=min(others))
                return True
            part = self._outbox.again(batch.rows[: others[0]])
            outcome = SendOutcome(tuple(stored.key for stored in part))
        for key, reason in outcome.refused.items():
            text = f"reading={key} was refused for good and is set aside: {reason}"
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
        self._is_smaller = True
        fewer = self._size.fit(map(_size_bytes, part))
        text = (
            f"readings=slow: {len(part)} readings at once were not answered in time, so {fewer} go at once from now on"
        )
        self._failure_log.report("slow", text)

    def _back_off(self, error: ServiceError | InvalidMessage) -> None:
        delay_s = self._retry_policy.failed(error)
        if self._is_smaller:
            delay_s, self._is_smaller = min(delay_s, _SMALLER_AFTER_S), False
        self._not_before_s = self._clock.now().monotonic_s + delay_s
        self._due_s = self._not_before_s
        state, text, every_s = describe(error)
        if not isinstance(error, Offline):  # the part that keeps the connection logs it
            self._failure_log.report(PART, f"readings={state}: {text}; next try in {delay_s:.0f} s", every_s=every_s)
        self._health.put(PART, state, text)


def _size_bytes(stored: StoredReading) -> int:
    return _ENVELOPE_BYTES + len(json.dumps(stored.reading.values))
