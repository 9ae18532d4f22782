"""Sends readings until the outbox is empty, and backs off by itself: nothing that happens to a result delays one."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from agent.core.outbox import is_live
from agent.core.values import StoredReading
from agent.errors import InvalidMessage, Offline, ServiceError, StorageError
from agent.runtime.failure_log import FailureLog
from agent.runtime.health import Health
from agent.runtime.retry_policy import RetryPolicy, describe
from agent.runtime.service import Actor

if TYPE_CHECKING:
    from agent.ports import Clock, Journal, Outbox, Uplink

_log = logging.getLogger(__name__)

PART: Final = "readings"
IN_FLIGHT: Final = "uplink.in_flight"

# An earlier process that had more than this waiting sent arrays, and remembered the last one.
_RESENT_SINGLY: Final = 1000
_STORE_RETRY_S: Final = 5.0
# A backlog that goes reading by reading takes as long as it took to grow, but no longer than this.
_DRAIN_MAX_S: Final = 3600.0
_AWAY_UNKNOWN_S: Final = 600.0


class ReadingUplink(Actor):
    """Sends readings in batches: live ones first, then the backlog; a batch whose fate is unknown goes again as it was.

    Messages: :data:`READING`: the outbox has committed a reading; :data:`CONNECTED`: the connection is back.

    Args:
        first_s: how long after the start the first request comes, seconds.
        batch_size: how many readings go at once.
        apart_s: how far apart two batches are at least that are not full, seconds: a commit for another reason takes
            readings along, and each is no request of its own.
        look_s: how often to look without a message, seconds.
        takes_arrays: one request carries many readings; else each is a request of its own, and a backlog is paced. May
            ask the service, and raise its errors.
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
        self._in_flight: tuple[int, ...] = ()
        self._noted: tuple[int, ...] = ()
        self._singly_to = 0
        self._away_since_s: float | None = None
        self._pace_s = 0.0
        self._backlog_at_s = 0.0
        # What an earlier process left is sent at once.
        self._due_s = self._clock.now().monotonic_s
        self._began_s = self._due_s - apart_s
        self._not_before_s = self._due_s + first_s

    def begin(self) -> None:
        """Remember what an earlier process may have sent without learning its fate."""
        try:
            rows = self._outbox.stats().rows
            # How long it could not be sent is not known; a fleet whose power comes back has a backlog all at once.
            self._away_since_s = self._clock.now().monotonic_s - _AWAY_UNKNOWN_S if rows else None
            if not self._repeats_batches:
                return
            self._noted = self._in_flight = tuple(json.loads(self._journal.setting(IN_FLIGHT) or "[]"))
            if rows <= _RESENT_SINGLY:
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
        # The batch whose fate is unknown goes again as it was: its idempotency key follows from what is in it.
        again = self._outbox.again(self._in_flight) if self._in_flight else []
        found: Sequence[StoredReading] = again or self._outbox.next_batch(self._batch_size)
        # A batch that is not full is all that waits.
        waiting = len(found) if not again and len(found) < self._batch_size else None
        # Asked only with something to send, since the answer may cost a request.
        if found and not self._takes_arrays():
            # One by one each has a key of its own.
            found = self._paced(self._outbox.next_batch(self._batch_size) if again else found)
            again = []
        # What an earlier process may have sent alone goes alone again, so its own key counts.
        alone = [stored for stored in found if stored.key <= self._singly_to][:1]
        batch = again or alone or found
        if not batch:
            return False
        if self._repeats_batches:
            self._remember(tuple(stored.key for stored in batch), waiting)
        outcome = self._uplink.send(batch)
        if outcome.server_time is not None:
            self._on_server_time(outcome.server_time)
        for key, reason in outcome.refused.items():
            text = f"reading={key} was refused for good and is set aside: {reason}"
            self._failure_log.report(f"refused {reason.split(':', 1)[0]}", text)
        self._outbox.settle(outcome)
        self._away_since_s = None
        if len(outcome.delivered) + len(outcome.refused) == len(batch):
            self._in_flight = ()
        return len(outcome.delivered) + len(outcome.refused) > 0 and (
            bool(again) or len(found) == self._batch_size or len(batch) < len(found)
        )

    def _paced(self, found: Sequence[StoredReading]) -> Sequence[StoredReading]:
        """The live ones, and of the backlog one at a time: each is a request of its own, and a fleet has one quota.

        So a backlog costs the service no more requests in a minute than the readings did that it consists of.
        """
        now = self._clock.now()
        live = [stored for stored in found if is_live(stored.reading.at, now)]
        if len(live) == len(found):
            self._pace_s = 0.0
            return found
        if self._away_since_s is not None:
            away_s = min(now.monotonic_s - self._away_since_s, _DRAIN_MAX_S)
            self._pace_s = away_s / self._outbox.stats().rows
            self._backlog_at_s = now.monotonic_s
        if now.monotonic_s < self._backlog_at_s:
            chosen: Sequence[StoredReading] = live
        else:
            chosen = found[: len(live) + 1]
            self._backlog_at_s = now.monotonic_s + self._pace_s
        self._due_s = min(self._due_s, self._backlog_at_s)
        return chosen

    def _remember(self, keys: tuple[int, ...], waiting: int | None) -> None:
        """Before the first byte leaves: which readings go together, or which one goes alone.

        What goes alone among few is not written down: the next process sends each of those that it finds alone.
        """
        is_found_alone = False
        if len(keys) == 1:
            rows = self._outbox.stats().rows if waiting is None else waiting
            is_found_alone = rows <= _RESENT_SINGLY // 2
        if not is_found_alone and keys != self._noted:
            self._journal.put_setting(IN_FLIGHT, json.dumps(keys))
            self._noted = keys
        self._in_flight = keys

    def _back_off(self, error: ServiceError | InvalidMessage) -> None:
        delay_s = self._retry_policy.failed(error)
        if self._away_since_s is None:
            self._away_since_s = self._clock.now().monotonic_s
        self._not_before_s = self._clock.now().monotonic_s + delay_s
        self._due_s = self._not_before_s
        state, text, every_s = describe(error)
        if not isinstance(error, Offline):  # the part that keeps the connection logs it
            self._failure_log.report(PART, f"readings={state}: {text}; next try in {delay_s:.0f} s", every_s=every_s)
        self._health.put(PART, state, text)
