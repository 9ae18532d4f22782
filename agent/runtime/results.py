"""Reports how commands ended, and how far they are.

A result that the service does not take is tried again a bounded number of times (:mod:`agent.core.unreported`) and is
then undeliverable: it stays in the journal, with the reason. Failures are counted for each result, and in a row over
all of them since the last one that was taken:

- While one result alone fails it waits by itself, and the others go.
- Once two different ones fail, the place for results is in doubt: all wait for one back-off. When that has failed for
  long enough all are undeliverable; from then on a new result is tried once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from agent.core.commands import IllegalMove
from agent.core.unreported import REASON_MAX, FailureStreak, ReportFault, fault_of
from agent.core.values import CommandState, JournalEntry, Moment, Outcome, OutcomeStatus, Report
from agent.errors import InvalidMessage, ServiceError
from agent.retry import HOURLY_S
from agent.runtime.failure_log import LineRate
from agent.runtime.sending import SendLoop, SendParts
from agent.wire.secret import mask, mask_json

_log = logging.getLogger(__name__)

_AT_ONCE: Final = 50
_PROGRESS_KEPT: Final = 64


class ResultStream(SendLoop):
    """Sends results out of the journal, and the progress of running commands, which is best effort.

    Messages: a :class:`~agent.core.values.Report` is progress; see :class:`~agent.runtime.sending.SendLoop`.

    Args:
        parts: what it needs.
        wall_of: when a moment was, epoch seconds; None when it is not known.
        expects_place: False where the configuration says that the service takes no results: then it is no trouble.
    """

    def __init__(
        self, parts: SendParts, *, wall_of: Callable[[Moment], float | None], expects_place: bool = True
    ) -> None:
        super().__init__("results", parts)
        self._wall_of = wall_of
        self._expects_place = expects_place
        self._refusals = LineRate(_log, self._now_s, logging.WARNING)
        self._progress: dict[str, Report] = {}
        # What failed, in the order of its last tries.
        self._failed: dict[str, FailureStreak] = {}
        self._failed_due_s = 0.0
        # Failures of any result since one was taken.
        self._place = FailureStreak()
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
        limit = _AT_ONCE + len(self._failed)
        entries = {each.command.id: each for each in self._journal.in_state(CommandState.FINISHED, limit=limit)}
        is_time = self._now_s() >= self._failed_due_s
        again = [entries[each] for each in self._failed if each in entries] if is_time else []
        for entry in [*(entry for each, entry in entries.items() if each not in self._failed), *again]:
            if not self._try(entry):
                break
        self._send_progress()
        if self._failed:
            self._due_s = min(self._due_s, max(self._failed_due_s, self._now_s()))
        elif not self._has_no_place:
            self.went_well()
        return len(entries) == limit

    def _try(self, entry: JournalEntry) -> bool:
        """Report one; False when there is no point in the others."""
        command_id = entry.command.id
        try:
            self._report(entry)
        except (ServiceError, InvalidMessage) as error:
            return self._not_taken(command_id, error)
        self._over(command_id)
        self._retry_policy.succeeded()
        self._has_no_place, self._place = False, FailureStreak()
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
            started_at=self._wall_of(entry.started) if entry.started else None,
            finished_at=self._wall_of(entry.finished) if entry.finished else None,
        )
        try:
            self._send_report(report)
        except (ServiceError, InvalidMessage) as error:
            if fault_of(error) is not ReportFault.CONTENT:
                raise
            # The result itself may be what it cannot take; how the command ended matters more.
            text = f"result_refused: {error}" if report.error is None else f"{report.error} (result refused: {error})"
            self._refusals.write("command=%s its result is refused, so only its end is reported: %s", command_id, error)
            self._send_report(replace(report, result=None, error=text))
        _log.info("command=%s state=reported status=%s", command_id, report.status)

    def _send_report(self, report: Report) -> None:
        # The journal masks what it keeps; progress never comes there.
        error = None if report.error is None else mask(report.error)
        self._parts.uplink.report(replace(report, result=mask_json(report.result), error=error))

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
        """Count the failure and decide on it; False when there is no point in the others.

        Raises:
            ServiceError, InvalidMessage: ``error``, when all results are to wait.
        """
        fault, now_s = fault_of(error), self._now_s()
        if fault is ReportFault.OVER:
            self._refusals.write("command=%s its end is no longer wanted: %s", command_id, error)
            self._over(command_id)
            return True
        if fault is ReportFault.CONTENT:
            self._give_up(command_id, str(error))
            return True
        if fault is ReportFault.NOWHERE:
            self._give_up_all(str(error))
            self._parts.health.put(self.name, "no_place" if self._expects_place else "ok", str(error))
            return False
        tries = self._failed.pop(command_id, FailureStreak())
        if fault is ReportFault.NOT_NOW:
            self._failed[command_id] = tries
            raise error
        self._failed[command_id] = tries = tries.failed(now_s)
        self._place = self._place.failed(now_s)
        is_place_in_doubt = len(self._failed) > 1
        if self._has_no_place or (is_place_in_doubt and self._place.are_enough(fault, now_s)):
            self._give_up_all(str(error))
            raise error
        if tries.are_enough(fault, now_s):
            self._give_up(command_id, str(error))
            return True
        if is_place_in_doubt:
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
        while entries := self._journal.in_state(CommandState.FINISHED, limit=_AT_ONCE):
            for entry in entries:
                self._give_up(entry.command.id, reason)
        self._failed.clear()

    # --- failures -----------------------------------------------------------------------------------------------------

    def describe(self, error: ServiceError | InvalidMessage) -> tuple[str, str, float | None]:
        """As for all, with what to do where there is no place for results."""
        if fault_of(error) is not ReportFault.NO_PLACE:
            return super().describe(error)
        text = (
            f"the service has no place for results ({error}): readings are not concerned; mend that, or set "
            "service.dialect.results: none"
        )
        return "no_place", text, HOURLY_S
