"""Reports how commands ended, and backs off by itself: nothing that happens to a reading delays a result.

A result that the service does not take is tried a bounded number of times and then put aside in the journal, with the
reason (:mod:`agent.core.unreported`). Failures are counted for each result and, over all results, since the last one
that was taken:

- While one result alone fails, it waits by a back-off of its own, and the others go.
- Once two different ones have failed in a row, the place for results is in doubt: then all wait by one back-off, each
  turn tries one of them, and what has waited longest since its last try comes first. When that row is long enough, all
  are put aside; from then on a new result is tried once.

What is put aside stays in the journal, bounded, and ``device-agent status`` lists it; it is not sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from agent.core.commands import IllegalMove
from agent.core.unreported import REASON_MAX, FailureStreak, ReportFault, fault_of
from agent.core.values import CommandState, JournalEntry, Moment, Outcome, OutcomeStatus, Report
from agent.errors import InvalidMessage, Offline, ServiceError, StorageError
from agent.runtime.failure_log import FailureLog, LineRate
from agent.runtime.health import Health
from agent.runtime.retry_policy import HOURLY_S, RetryPolicy, describe
from agent.runtime.service import Actor
from agent.wire.secret import mask, mask_json

if TYPE_CHECKING:
    from agent.ports import Clock, Uplink
    from agent.store.journal import Journal

_log = logging.getLogger(__name__)

PART: Final = "results"
_AT_ONCE: Final = 50
_PROGRESS_KEPT: Final = 64
_FRESH_KEPT: Final = 16
_HANDLED_KEPT: Final = 1000
_FAILED_KEPT: Final = 50
_STORE_RETRY_S: Final = 5.0
# A row of failures of as many different results puts the place in doubt, not the results.
_DOUBT_AT: Final = 2


class _Failed:
    """One result that was not taken.

    Args:
        retry_policy: its own.
    """

    __slots__ = ("not_before_s", "retry_policy", "tries")

    def __init__(self, retry_policy: RetryPolicy) -> None:
        self.retry_policy = retry_policy
        self.tries = FailureStreak()
        self.not_before_s = 0.0


class ResultReporter(Actor):
    """Reports results and progress.

    Messages: a :class:`~agent.core.values.Report` is progress of a running command, best effort; a finished
    :class:`~agent.core.values.JournalEntry` goes out without another look into the journal, which has it besides;
    :data:`RESULT` says that there is something new, :data:`CONNECTED` that a back-off has lost its reason.

    Args:
        make_retry_policy: a back-off; one for all, and one for each result that fails.
        first_s: how long after the start the first request comes, seconds.
        wall_of: when a moment was, epoch seconds; None when it is not known.
        expects_place: False where the configuration says that the service takes no results: then it is no trouble.
        look_s: how often to look without a message, seconds.
    """

    RESULT: Final = "result"
    CONNECTED: Final = "connected"

    def __init__(
        self,
        *,
        uplink: Uplink,
        journal: Journal,
        clock: Clock,
        make_retry_policy: Callable[[], RetryPolicy],
        health: Health,
        on_server_time: Callable[[float], None] = lambda _wall_s: None,
        wall_of: Callable[[Moment], float | None] = lambda moment: moment.wall_s,
        first_s: float = 0.0,
        expects_place: bool = True,
        look_s: float = 300.0,
        repeat_after_s: float = 300.0,
    ) -> None:
        super().__init__(PART)
        self._uplink = uplink
        self._journal = journal
        self._clock = clock
        self._make_retry_policy = make_retry_policy
        self._retry_policy = make_retry_policy()
        self._health = health
        self._on_server_time = on_server_time
        self._wall_of = wall_of
        self._expects_place = expects_place
        self._look_s = look_s
        self._failure_log = FailureLog(_log, lambda: clock.now().monotonic_s, repeat_after_s)
        self._refusals = LineRate(_log, lambda: clock.now().monotonic_s, logging.WARNING)
        self._progress: dict[str, Report] = {}
        self._fresh: dict[str, JournalEntry] = {}
        self._handled: dict[str, bool] = {}
        # In the order of their last tries.
        self._failed: dict[str, _Failed] = {}
        self._row = FailureStreak()
        self._row_ids: set[str] = set()
        self._no_place = ""
        # What an earlier process left is reported at once.
        self._due_s = self._clock.now().monotonic_s
        self._not_before_s = self._due_s + first_s

    def receive(self, message: Report | JournalEntry | str) -> None:
        """Take a message; see the class."""
        now_s = self._clock.now().monotonic_s
        if isinstance(message, JournalEntry):
            was_handled = self._handled.pop(message.command.id, False)
            if not was_handled and len(self._fresh) < _FRESH_KEPT:
                self._fresh[message.command.id] = message
        elif isinstance(message, Report):
            # What was reported already from the journal has ended: its progress may still have been on the way to here.
            if message.command_id not in self._handled:
                self._progress.pop(message.command_id, None)
                self._progress[message.command_id] = message
                if len(self._progress) > _PROGRESS_KEPT:
                    del self._progress[next(iter(self._progress))]
        elif message == self.CONNECTED:
            self._not_before_s = now_s
        self._due_s = min(self._due_s, now_s)

    def due_at(self) -> float:
        """When something waits, but never before a back-off is over."""
        return max(self._due_s, self._not_before_s)

    def step(self) -> None:
        """Report some results, and progress."""
        self._due_s = self._clock.now().monotonic_s + self._look_s
        self._refusals.sum_up("results=refused count=%d more: the service does not take them, or no longer wants them")
        try:
            more = self._send_results()
            self._send_progress()
        except StorageError as error:
            self._failure_log.report("store", f"results=waiting: the store cannot be read or written: {error}")
            self._not_before_s = self._due_s = self._clock.now().monotonic_s + _STORE_RETRY_S
        except (ServiceError, InvalidMessage) as error:
            self._back_off(error)
        else:
            self._failure_log.recovered("store", "results=ok: the store works again")
            if not self._failed and not self._no_place:
                self._failure_log.recovered(PART, "results=ok: the service takes results again")
                self._health.put(PART, "ok")
            if more:
                self._due_s = self._clock.now().monotonic_s

    def finish(self) -> None:
        """One last try to hand over what waits; whatever fails stays in the journal."""
        if self._clock.now().monotonic_s < self._not_before_s:
            return
        try:
            self._send_results()
        except (StorageError, ServiceError, InvalidMessage) as error:
            _log.info("results=stopped what waits goes with the next start: %s", error)

    # --- sending ------------------------------------------------------------------------------------------------------

    def _send_results(self) -> bool:
        fresh = list(self._fresh.values())
        # Whatever fails is in the journal.
        self._fresh.clear()
        for entry in fresh:
            self._try(entry)
        limit = _AT_ONCE + len(self._failed)
        entries = self._journal.in_state(CommandState.FINISHED, limit=limit)
        for entry in self._in_turn(entries):
            self._try(entry)
            # Its own message may still be on the way to here.
            self._note_handled(entry.command.id)
        return len(entries) == limit

    def _in_turn(self, entries: Iterable[JournalEntry]) -> Iterator[JournalEntry]:
        """What never failed, then what failed longest ago; without what waits by itself."""
        by_id = {entry.command.id: entry for entry in entries}
        yield from [entry for command_id, entry in by_id.items() if command_id not in self._failed]
        now_s = self._clock.now().monotonic_s
        for command_id, failed in list(self._failed.items()):
            if failed.not_before_s > now_s:
                self._due_s = min(self._due_s, failed.not_before_s)
            elif command_id in by_id:
                yield by_id[command_id]

    def _try(self, entry: JournalEntry) -> None:
        command_id = entry.command.id
        try:
            self._report(entry)
        except (ServiceError, InvalidMessage) as error:
            self._not_taken(command_id, error)
            return
        self._reported(command_id)
        self._retry_policy.succeeded()
        self._forget_row()

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
            started_at=self._wall_of(entry.started) if entry.started else None,
            finished_at=self._wall_of(entry.finished) if entry.finished else None,
        )
        try:
            self._send(report)
        except (ServiceError, InvalidMessage) as error:
            if fault_of(error) is not ReportFault.CONTENT:
                raise
            # The result itself may be what it cannot take; how the command ended matters more.
            text = f"result_refused: {error}" if report.error is None else f"{report.error} (result refused: {error})"
            self._refusals.write("command=%s its result is refused, so only its end is reported: %s", command_id, error)
            self._send(Report(command_id, report.status, None, text, report.started_at, report.finished_at))
        _log.info("command=%s state=reported status=%s", command_id, report.status)

    def _send(self, report: Report) -> None:
        # The journal masks what it keeps; progress never comes there.
        error = None if report.error is None else mask(report.error)
        server_time = self._uplink.report(replace(report, result=mask_json(report.result), error=error))
        if server_time is not None:
            self._on_server_time(server_time)

    def _send_progress(self) -> None:
        if self._no_place:
            self._progress.clear()
        while self._progress:
            command_id = next(iter(self._progress))
            report = self._progress.pop(command_id)
            try:
                self._send(report)
            except (ServiceError, InvalidMessage) as error:
                if fault_of(error) is ReportFault.NOT_NOW:
                    raise
                _log.info("command=%s its progress is not taken: %s", command_id, error)

    # --- what became of it --------------------------------------------------------------------------------------------

    def _not_taken(self, command_id: str, error: ServiceError | InvalidMessage) -> None:
        """Count the failure and decide on it.

        Raises:
            ServiceError, InvalidMessage: ``error``, when all results are to wait.
        """
        fault, now_s = fault_of(error), self._clock.now().monotonic_s
        if fault is ReportFault.OVER:
            self._refusals.write("command=%s its end is no longer wanted: %s", command_id, error)
            self._reported(command_id)
            return
        if fault is ReportFault.CONTENT:
            self._put_aside([command_id], str(error))
            return
        failed = self._failed.pop(command_id, None) or _Failed(self._make_retry_policy())
        self._failed[command_id] = failed
        failed.not_before_s = 0.0
        if fault is ReportFault.NOT_NOW:
            self._bound_failures()
            raise error
        failed.tries = failed.tries.failed(now_s)
        self._row = self._row.failed(now_s)
        if len(self._row_ids) < _DOUBT_AT:
            self._row_ids.add(command_id)
        is_place_in_doubt = len(self._row_ids) >= _DOUBT_AT or fault is ReportFault.NOWHERE
        if self._no_place or (is_place_in_doubt and self._row.are_enough(fault, now_s)):
            self._no_place = str(error)[:REASON_MAX]
            self._put_all_aside(str(error))
        elif failed.tries.are_enough(fault, now_s):
            self._put_aside([command_id], str(error))
        elif not is_place_in_doubt:
            delay_s = failed.retry_policy.failed(error)
            failed.not_before_s = now_s + delay_s
            self._due_s = min(self._due_s, failed.not_before_s)
            self._log_failure(error, delay_s)
        self._bound_failures()
        if is_place_in_doubt or self._no_place:
            raise error

    def _forget_row(self) -> None:
        self._no_place, self._row = "", FailureStreak()
        self._row_ids.clear()

    def _reported(self, command_id: str) -> None:
        try:
            self._journal.reported([command_id])
        except IllegalMove:
            _log.debug("command=%s was reported twice, which its key makes harmless", command_id)
        self._progress.pop(command_id, None)
        self._failed.pop(command_id, None)

    def _bound_failures(self) -> None:
        """Remember a bounded number of results that failed."""
        if len(self._failed) <= _FAILED_KEPT:
            return
        # What was only met by a network that was away has nothing to lose; else the one that was tried most gives way.
        command_id = next((each for each, failed in self._failed.items() if not failed.tries.times), "")
        if not command_id:
            command_id = max(self._failed, key=lambda each: self._failed[each].tries.times)
            self._put_aside([command_id], "the service does not take too many results at a time")
        self._failed.pop(command_id, None)

    def _put_aside(self, command_ids: Sequence[str], reason: str) -> None:
        reason = reason[:REASON_MAX]
        for each in command_ids:
            try:
                self._journal.undeliverable(each, reason)
            except IllegalMove:
                _log.debug("command=%s its result is settled already", each)
            self._progress.pop(each, None)
            self._failed.pop(each, None)
            self._note_handled(each)
        level = logging.WARNING if self._expects_place else logging.INFO
        text = f"results=put_aside {len(command_ids)} stay on this device ({reason}); device-agent status lists them"
        self._failure_log.report("put_aside", text, every_s=HOURLY_S, level=level)

    def _put_all_aside(self, reason: str) -> None:
        self._fresh.clear()
        self._progress.clear()
        while entries := self._journal.in_state(CommandState.FINISHED, limit=_AT_ONCE):
            self._put_aside([entry.command.id for entry in entries], reason)
        self._failed.clear()

    # --- failures -----------------------------------------------------------------------------------------------------

    def _back_off(self, error: ServiceError | InvalidMessage) -> None:
        if fault_of(error) is ReportFault.NOWHERE:
            self._due_s = self._clock.now().monotonic_s + self._look_s
            state = "no_place" if self._expects_place else "ok"
            self._health.put(PART, state, str(error))
            return
        delay_s = self._retry_policy.failed(error)
        self._not_before_s = self._clock.now().monotonic_s + delay_s
        self._due_s = self._not_before_s
        self._log_failure(error, delay_s)

    def _log_failure(self, error: ServiceError | InvalidMessage, delay_s: float) -> None:
        state, text, every_s = describe(error)
        if fault_of(error) is ReportFault.NO_PLACE:
            state, every_s = "no_place", HOURLY_S
            text = (
                f"the service has no place for results ({error}): readings are not concerned; mend that, or set "
                "service.dialect.results: none"
            )
        if not isinstance(error, Offline):  # the part that keeps the connection logs it
            self._failure_log.report(PART, f"results={state}: {text}; next try in {delay_s:.0f} s", every_s=every_s)
        self._health.put(PART, state, text)

    def _note_handled(self, command_id: str) -> None:
        self._handled[command_id] = True
        if len(self._handled) > _HANDLED_KEPT:
            del self._handled[next(iter(self._handled))]
