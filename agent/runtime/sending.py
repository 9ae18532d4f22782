"""The one loop by which readings and results go out: send what waits, back off after a failure,
and look into the store every five minutes even without a message."""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.core.commands import REASON_MAX, FailureStreak, IllegalMove, ReportFault, fault_of
from agent.core.outbox import BatchSize, batch_key
from agent.core.values import (
    BatchKey,
    CommandState,
    JournalEntry,
    Outcome,
    OutcomeStatus,
    Report,
    SendOutcome,
    StoredReading,
)
from agent.errors import InvalidMessage, Offline, ServiceError, StorageError, Unanswered
from agent.health import FLOOD_S, HOURLY_S, REPEAT_AFTER_S, FailureLog, RetryPolicy, describe
from agent.ports import Uplink
from agent.runtime.actor import Actor, Context
from agent.wire.secret import mask, mask_json

_log = logging.getLogger(__name__)

_STORE_RETRY_S: Final = 5.0
# How often to check without a message.
_CHECK_EVERY_S: Final = 300.0
# At the stop, sending may continue this long.
_FLUSH_S: Final = 1.0


class SendLoop(Actor):
    """Hands over what waits; what cannot be handed over stays in the store.

    Messages: :data:`CONNECTED`: the connection is back, so a back-off ends. Any other one: something new waits.

    Args:
        name: of the stream, in health and log.
        context: what it shares with the other parts.
        uplink: what it sends through.
    """

    CONNECTED: Final = "connected"

    def __init__(self, name: str, context: Context, uplink: Uplink) -> None:
        super().__init__(name, context)
        self._uplink = uplink
        self._journal, self._outbox = context.store.journal, context.store.outbox
        self._retry_policy = RetryPolicy(context.fraction)
        self._failure_log = FailureLog(_log, self.now_s, REPEAT_AFTER_S)
        # What an earlier process left is sent at once.
        self._due_s = self.now_s()
        self._not_before_s = self._due_s + context.first_s

    @abstractmethod
    def send(self) -> bool:
        """Hand over some of what waits; True when more can follow at once.

        Raises:
            ServiceError, InvalidMessage: nothing is sent until a back-off is over.
            StorageError: nothing is sent until a short wait is over.
        """

    def receive(self, message: Any) -> None:
        """Something new waits, or the connection is back."""
        self._due_s = min(self._due_s, self.now_s())
        if message == self.CONNECTED:
            self._not_before_s = self.now_s()

    def due_at(self) -> float:
        """When :meth:`step` runs next; never during a back-off."""
        return max(self._due_s, self._not_before_s)

    def step(self) -> None:
        """Send once."""
        self._due_s = self.now_s() + _CHECK_EVERY_S
        try:
            more = self.send()
        except StorageError as error:
            self._failure_log.report("store", f"{self.name}=waiting: the store cannot be read or written: {error}")
            self._not_before_s = self._due_s = self.now_s() + _STORE_RETRY_S
        except (ServiceError, InvalidMessage) as error:
            delay_s = self._retry_policy.failed(error)
            self._not_before_s = self._due_s = self.now_s() + delay_s
            self.log_failure(error, delay_s)
        else:
            self._failure_log.recovered("store", f"{self.name}=ok: the store works again")
            if more:
                self._due_s = self.now_s()

    def finish(self) -> None:
        """A last second of tries; what fails, or takes longer, is sent by the next process."""
        until_s = self.now_s() + _FLUSH_S
        if self.now_s() < self._not_before_s:
            return
        try:
            while self.send() and self.now_s() < until_s:
                pass
        except (StorageError, ServiceError, InvalidMessage) as error:
            _log.info("%s=stopped what waits is sent after the next start: %s", self.name, error)

    def went_well(self) -> None:
        """Nothing failed, or nothing waits: end the back-off and report that all is well."""
        self._retry_policy.succeeded()
        self._failure_log.recovered(self.name, f"{self.name}=ok: the service takes {self.name} again")
        self.context.health.put(self.name, "ok")

    def log_failure(self, error: ServiceError | InvalidMessage, delay_s: float) -> None:
        """Say that it failed, in log and health."""
        state, text, every_s = self.describe(error)
        if not isinstance(error, Offline):  # the part that keeps the connection logs it
            line = f"{self.name}={state}: {text}; next try in {delay_s:.0f} s"
            self._failure_log.report(self.name, line, every_s=every_s)
        self.context.health.put(self.name, state, text)

    def describe(self, error: ServiceError | InvalidMessage) -> tuple[str, str, float | None]:
        """See :func:`agent.health.describe`."""
        return describe(error)


# --- readings ---------------------------------------------------------------------------------------------------------


IN_FLIGHT: Final = "uplink.in_flight"
"""Name of the journal's setting with the last batch that was sent."""

# With at most so many waiting at the start, each that may have been sent alone is sent alone again. A process that had
# more waiting has written its last array down.
_ALONE_MAX: Final = 1000
# What a reading has beside its values when it is sent: the device's id, the time, punctuation.
_ENVELOPE_BYTES: Final = 120


@dataclass(frozen=True, slots=True)
class _Batch:
    """Readings that go under one key, until the fate of each is known.

    Attributes:
        key: of the whole.
        rows: what is left of it, in its order.
        done_count: so many readings of it are done already.
        unanswered_sizes: how many readings each unanswered attempt carried, all from the beginning of ``rows``; the
            service has stored one of these attempts at most.
        next_size: so many are sent next, to find out which attempt that is; 0 for as many as the link carries.
    """

    key: str
    rows: tuple[int, ...]
    done_count: int = 0
    unanswered_sizes: tuple[int, ...] = ()
    next_size: int = 0

    @classmethod
    def of(cls, readings: Sequence[StoredReading], *, unanswered_sizes: tuple[int, ...] = ()) -> _Batch:
        """A new batch of these readings."""
        key = readings[0].idempotency_key if len(readings) == 1 else batch_key(readings)
        return cls(key, tuple(stored.key for stored in readings), unanswered_sizes=unanswered_sizes)

    @property
    def is_alone(self) -> bool:
        """One reading under its own key."""
        return len(self.rows) == 1 and not self.done_count

    @property
    def wire_key(self) -> BatchKey:
        """The key as it is sent; of what is left of a batch it says where that begins."""
        return BatchKey(
            f"{self.key}+{self.done_count}" if self.done_count else self.key, was_sent=bool(self.unanswered_sizes)
        )

    def without_first(self, count: int) -> _Batch | None:
        """The batch without its first ``count`` readings, whose fate is known; None when nothing is left."""
        rest = self.rows[count:]
        return _Batch(self.key, rest, self.done_count + count) if rest else None

    def to_json(self) -> str:
        """For the journal."""
        return json.dumps([self.key, self.rows, self.done_count, self.unanswered_sizes, self.next_size])

    @classmethod
    def from_json(cls, text: str) -> _Batch:
        """Out of the journal.

        Raises:
            ValueError, TypeError: the text is no batch.
        """
        key, rows, done_count, sent, next_size = json.loads(text)
        return cls(str(key), tuple(map(int, rows)), int(done_count), tuple(map(int, sent)), int(next_size))


class ReadingStream(SendLoop):
    """Sends readings in batches: live ones first, then the backlog.

    A batch that was not answered is tried again before anything else, under the same key: as it was, or only its
    beginning where it was too large for the link. The other side stores no more than one of them, and says so.

    Args:
        context: what it shares with the other parts.
        uplink: what it sends through.
        batch_size: how many readings go at once.
        apart_s: the least time between two batches that are not full, seconds. Readings may be committed sooner,
            together with a command; they wait for their batch all the same.
        takes_arrays: one request carries many readings; else each is a request of its own. May ask the service, and
            raise its errors.
        repeats_batches: the other side may know a batch only as a whole, so the same readings go together again; False
            where it knows each reading by its own key.
    """

    def __init__(
        self,
        context: Context,
        uplink: Uplink,
        *,
        batch_size: int = 500,
        apart_s: float = 1.0,
        takes_arrays: Callable[[], bool] = lambda: True,
        repeats_batches: bool = True,
    ) -> None:
        super().__init__("readings", context, uplink)
        self._batch_size = batch_size
        self._apart_s = apart_s
        self._takes_arrays = takes_arrays
        self._repeats_batches = repeats_batches
        self._size = BatchSize()
        self._batch: _Batch | None = None
        self._journaled_text: str | None = None
        self._alone_up_to_key = 0
        self._last_send_s = self._due_s - apart_s

    def begin(self) -> None:
        """Remember what an earlier process may have sent without learning its fate."""
        if not self._repeats_batches:
            return
        try:
            self._journaled_text = self._journal.setting(IN_FLIGHT)
            if self._journaled_text:
                self._batch = _Batch.from_json(self._journaled_text)
            if self._outbox.stats().rows <= _ALONE_MAX:
                waiting = self._outbox.next_batch(_ALONE_MAX)
                self._alone_up_to_key = max((stored.key for stored in waiting), default=0)
        except (StorageError, ValueError, TypeError) as error:
            _log.warning("readings=unsure what was sent last cannot be remembered: %s", error)

    def receive(self, message: object) -> None:
        """Take a message: whether new readings are urgent, or else may wait for others; or the connection is back."""
        if message is False:
            self._due_s = min(self._due_s, self._last_send_s + self._apart_s)
        else:
            super().receive(message)

    def send(self) -> bool:
        """Send one batch; True when more can follow at once."""
        self._last_send_s = self.now_s()
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
            found = [stored for stored in found if stored.key <= self._alone_up_to_key][:1] or found
        next_size = self._batch.next_size if self._batch is not None else 0
        part = found[: next_size or self._size.fit(map(_size_bytes, found))]
        batch = self._remember(part) if goes_together else None
        began_s = self.now_s()
        try:
            outcome = self._uplink.send(part, None if batch is None else batch.wire_key)
        except Unanswered:
            self._not_answered(part)
            raise
        self.went_well()
        if len(part) < len(found):
            self._size = self._size.after_answer(self.now_s() - began_s)
        if outcome.earlier_is_stored and batch is not None:
            others = tuple(count for count in batch.unanswered_sizes if count != len(part)) or (len(part),)
            if len(others) > 1:
                # Just one of these attempts is stored. Send the smallest: its old answer comes, or it is ruled out.
                self._batch = replace(batch, unanswered_sizes=others, next_size=min(others))
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
            self._batch = (
                _Batch.of(left, unanswered_sizes=(len(left),)) if left else self._batch.without_first(len(part))
            )
        is_all = not again and len(part) == waiting < self._batch_size
        return bool(known) and not is_all

    def _again(self) -> Sequence[StoredReading]:
        """What is left of the batch whose fate is unknown; empty when some of its readings have left the outbox."""
        if self._batch is None:
            return ()
        found = self._outbox.again(self._batch.rows)
        if len(found) != len(self._batch.rows):
            self._batch = None
        return found

    def _remember(self, part: Sequence[StoredReading]) -> _Batch | None:
        """Write down, before sending, which readings go together. The batch as it was before; None for one alone.

        What goes alone among few is not written down: the next process sends each of those that it finds alone.
        """
        batch = self._batch or _Batch.of(part)
        self._batch = replace(batch, unanswered_sizes=tuple(dict.fromkeys((*batch.unanswered_sizes, len(part)))))
        text = self._batch.to_json()
        if text != self._journaled_text and not (batch.is_alone and self._outbox.stats().rows <= _ALONE_MAX // 2):
            self._journal.put_setting(IN_FLIGHT, text)
            self._journaled_text = text
        return None if batch.is_alone else batch

    def _not_answered(self, part: Sequence[StoredReading]) -> None:
        if len(part) == 1:
            return
        self._size = self._size.after_no_answer(sum(map(_size_bytes, part)))
        # The next attempt carries fewer readings, so its back-off starts small.
        self._retry_policy.succeeded()
        fewer = self._size.fit(map(_size_bytes, part))
        text = (
            f"readings=slow: {len(part)} readings at once were not answered in time, so {fewer} go at once from now on"
        )
        self._failure_log.report("slow", text)


def _size_bytes(stored: StoredReading) -> int:
    return _ENVELOPE_BYTES + len(json.dumps(stored.reading.values))


# --- results ----------------------------------------------------------------------------------------------------------


_RESULTS_PER_ROUND: Final = 50
_PROGRESS_KEPT: Final = 64


class ResultStream(SendLoop):
    """Sends results out of the journal, and the progress of running commands, which is best effort.

    Messages: a :class:`~agent.core.values.Report` is progress; see :class:`~agent.runtime.sending.SendLoop`.

    Args:
        context: what it shares with the other parts.
        uplink: what it sends through.
        expects_place: False where the configuration says that the service takes no results: they may stay here.
    """

    def __init__(self, context: Context, uplink: Uplink, *, expects_place: bool = True) -> None:
        super().__init__("results", context, uplink)
        self._expects_place = expects_place
        self._progress: dict[str, Report] = {}
        # What failed, in the order of its last tries.
        self._failed: dict[str, FailureStreak] = {}
        self._failed_due_s = 0.0
        # Failures of any result since one was taken.
        self._any_result = FailureStreak()
        self._has_no_place = False

    def receive(self, message: object) -> None:
        """Take a message; see the class."""
        if isinstance(message, Report):
            self._progress.pop(message.command_id, None)
            self._progress[message.command_id] = message
            if len(self._progress) > _PROGRESS_KEPT:
                del self._progress[next(iter(self._progress))]
        super().receive(message)

    def send(self) -> bool:
        """Report some results, and progress. What never failed goes first, then what failed longest ago."""
        limit = _RESULTS_PER_ROUND + len(self._failed)
        entries = {each.command.id: each for each in self._journal.in_state(CommandState.FINISHED, limit=limit)}
        may_retry_failed = self.now_s() >= self._failed_due_s
        again = [entries[each] for each in self._failed if each in entries] if may_retry_failed else []
        for entry in [*(entry for each, entry in entries.items() if each not in self._failed), *again]:
            if not self._try(entry):
                break
        self._send_progress()
        if self._failed:
            self._due_s = min(self._due_s, max(self._failed_due_s, self.now_s()))
        elif not self._has_no_place:
            self.went_well()
        return len(entries) == limit

    def _try(self, entry: JournalEntry) -> bool:
        """Report one; False when this round is to stop."""
        command_id = entry.command.id
        try:
            self._report(entry)
        except (ServiceError, InvalidMessage) as error:
            return self._not_taken(command_id, error)
        self._over(command_id)
        self._retry_policy.succeeded()
        self._has_no_place, self._any_result = False, FailureStreak()
        return True

    def _report(self, entry: JournalEntry) -> None:
        command_id, outcome = entry.command.id, entry.outcome
        if outcome is None:
            # The journal writes state and outcome in one transaction; a row without is a row of a broken disk.
            outcome = Outcome(OutcomeStatus.FAILED, error="indeterminate: the outcome was lost on this device")
        report = Report(
            command_id=command_id,
            status=str(outcome.status),
            result=outcome.result,
            error=outcome.error,
            started_at=self.context.time.recorded_at(entry.started) if entry.started else None,
            finished_at=self.context.time.recorded_at(entry.finished) if entry.finished else None,
        )
        try:
            self._send_report(report)
        except (ServiceError, InvalidMessage) as error:
            if fault_of(error) is not ReportFault.CONTENT:
                raise
            # The result itself may be what it cannot take; how the command ended matters more.
            text = f"result_refused: {error}" if report.error is None else f"{report.error} (result refused: {error})"
            line = f"command={command_id} its result is refused, so only its end is reported: {error}"
            self._failure_log.report("refused", line, every_s=FLOOD_S)
            self._send_report(replace(report, result=None, error=text))
        _log.info("command=%s state=reported status=%s", command_id, report.status)

    def _send_report(self, report: Report) -> None:
        # The journal masks what it keeps; progress never comes there.
        error = None if report.error is None else mask(report.error)
        self._uplink.report(replace(report, result=mask_json(report.result), error=error))

    def _send_progress(self) -> None:
        if self._has_no_place:
            self._progress.clear()
        while self._progress:
            command_id = next(iter(self._progress))
            report = self._progress.pop(command_id)
            known = self._journal.known([command_id]).get(command_id)
            if known is None or known.state is not CommandState.STARTED:
                continue  # it has ended meanwhile
            try:
                self._send_report(report)
            except (ServiceError, InvalidMessage) as error:
                if fault_of(error) is ReportFault.NOT_NOW:
                    raise
                _log.info("command=%s its progress is not taken: %s", command_id, error)

    # --- what became of it --------------------------------------------------------------------------------------------

    def _not_taken(self, command_id: str, error: ServiceError | InvalidMessage) -> bool:
        """Count the failure and decide on it; False when this round is to stop.

        Raises:
            ServiceError, InvalidMessage: ``error``, when all results are to wait.
        """
        fault, now_s = fault_of(error), self.now_s()
        if fault is ReportFault.OVER:
            line = f"command={command_id} its end is no longer wanted: {error}"
            self._failure_log.report("over", line, every_s=FLOOD_S)
            self._over(command_id)
            return True
        if fault is ReportFault.CONTENT:
            self._give_up(command_id, str(error))
            return True
        if fault is ReportFault.NOWHERE:
            self._give_up_all(str(error))
            self.context.health.put(self.name, "no_place" if self._expects_place else "ok", str(error))
            return False
        tries = self._failed.pop(command_id, FailureStreak())
        if fault is ReportFault.NOT_NOW:
            self._failed[command_id] = tries
            raise error
        self._failed[command_id] = tries = tries.failed(now_s)
        self._any_result = self._any_result.failed(now_s)
        several_fail = len(self._failed) > 1
        if self._has_no_place or (several_fail and self._any_result.are_enough(fault, now_s)):
            self._give_up_all(str(error))
            raise error
        if tries.are_enough(fault, now_s):
            self._give_up(command_id, str(error))
            return True
        if several_fail:
            raise error
        delay_s = self._retry_policy.failed(error)
        self._failed_due_s = now_s + delay_s
        self.log_failure(error, delay_s)
        return True

    def _over(self, command_id: str) -> None:
        """The service has the result, or no longer wants it."""
        try:
            self._journal.reported([command_id])
        except IllegalMove:
            _log.debug("command=%s was reported twice, which its key makes harmless", command_id)
        self._progress.pop(command_id, None)
        self._failed.pop(command_id, None)

    def _give_up(self, command_id: str, reason: str) -> None:
        self._journal.undeliverable(command_id, reason[:REASON_MAX])
        self._progress.pop(command_id, None)
        self._failed.pop(command_id, None)
        level = logging.WARNING if self._expects_place else logging.INFO
        text = f"results=undeliverable they stay on this device ({reason}); device-agent status lists them"
        self._failure_log.report("undeliverable", text, every_s=HOURLY_S, level=level)

    def _give_up_all(self, reason: str) -> None:
        self._has_no_place = True
        while entries := self._journal.in_state(CommandState.FINISHED, limit=_RESULTS_PER_ROUND):
            for entry in entries:
                self._give_up(entry.command.id, reason)
        self._failed.clear()

    # --- failures -----------------------------------------------------------------------------------------------------

    def describe(self, error: ServiceError | InvalidMessage) -> tuple[str, str, float | None]:
        """As for all, with what to do where there is no place for results."""
        if fault_of(error) is not ReportFault.NO_PLACE:
            return super().describe(error)
        text = (
            f"the service has no place for results ({error}): readings are not affected; correct this, or set "
            "service.dialect.results: none"
        )
        return "no_place", text, HOURLY_S
