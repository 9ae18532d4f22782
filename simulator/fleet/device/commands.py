"""The commands of a virtual device: admitted, run and reported by the agent's own core; each handler is a lane.

Every step is written to the journal first. A device has this object from its first command on.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agent.core.admission import Verdict, decide_commands
from agent.core.commands import (
    OPEN_STATES,
    REASON_MAX,
    FailureStreak,
    HandlerRule,
    ReportFault,
    fault_of,
    move,
    recover,
    refuse_at_start,
    start_entry,
)
from agent.core.values import IN_PROGRESS, CommandPoll, CommandState, JournalEntry, Moment, Outcome, Report
from agent.errors import Conflict, ErrorAnswer, ServiceError
from simulator.fleet.audit.ledger import CommandEvent, digest_document
from simulator.fleet.device.answers import is_refused
from simulator.fleet.device.handlers import RULES, VOCABULARY, HandlerContext, Work, parse_payload
from simulator.fleet.device.http_messages import Request
from simulator.fleet.engine.timers import NEVER
from simulator.fleet.outcomes import Attempt

if TYPE_CHECKING:  # import cycle
    from simulator.fleet.device.device import Device

# Progress of shorter work is not reported: it would be over before anybody could look.
_PROGRESS_FROM_S: Final = 0.5
_PROGRESS_KEPT: Final = 16
# How often a result is tried while the run drains, which does not wait as long as the agent would.
_TRIES_IN_DRAIN: Final = 5
_NOWHERE: Final = "the scenario says that the service has no place for results"
_AT_ONCE_S: Final = float("-inf")


def take_in(device: Device, poll: CommandPoll, now: Moment) -> bool:
    """Admit commands to the journal and queue them; returns whether any is new.

    A list also makes the journal forget ended commands that are no longer in it; pushed commands are no list.
    """
    journal = device.disk.journal
    if not poll.commands:
        journal.admit(())
        if not poll.pushed:
            journal.forget(())
        return False
    ids = [command.id for command in poll.commands]
    decided = decide_commands(
        poll.commands,
        journal.known(ids),
        RULES,
        received=now,
        service_now_s=device.time.at(now),
        first_contact=journal.is_empty,
    )
    journal.admit(decided.entries)
    if not poll.pushed:
        journal.forget(ids)
    if decided.entries:
        commands = device.commands = device.commands or Commands(device)
        for entry in decided.entries:
            commands.note(entry, now)
        for decision in decided.of(Verdict.ADMIT):
            if decision.entry is not None:
                commands.queue(decision.entry)
    return bool(decided.entries)


class _Running(NamedTuple):
    command_id: str
    work: Work
    ends_s: float


class Commands:
    """Runs admitted commands, and gives the reports that are to be sent.

    Args:
        device: whose.

    Attributes:
        results_after_s: results wait until then after a failure; readings do not.
    """

    __slots__ = (
        "_backoff",
        "_device",
        "_failures",
        "_progress",
        "_running",
        "_waiting",
        "results_after_s",
    )

    def __init__(self, device: Device) -> None:
        self._device = device
        self._waiting: dict[str, deque[str]] = {}
        self._running: dict[str, _Running] = {}
        self._progress: deque[Report] = deque(maxlen=_PROGRESS_KEPT)
        self.results_after_s = _AT_ONCE_S
        self._backoff = device.member.model.backoff
        self._failures = FailureStreak()  # of results, since one was taken

    # --- running ------------------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a command is running or waits for its lane."""
        return bool(self._running or self._waiting)

    @property
    def due_s(self) -> float:
        """When the next running command ends, on the monotonic clock; infinity when none runs."""
        return min([running.ends_s for running in self._running.values()], default=NEVER)

    def resume(self, started: Moment) -> None:
        """After a power-on at ``started``: recover commands that were running, and queue those that waited."""
        journal = self._device.disk.journal
        for entry in journal.in_state(CommandState.STARTED):
            handler = VOCABULARY.get(entry.handler)
            rule = HandlerRule(handler.contract, entry.handler) if handler else None
            recovery = recover(entry, rule, started)
            if recovery.outcome is not None:
                self._finish(entry.command.id, recovery.outcome, started)
            else:
                self.queue(entry)
        for entry in journal.in_state(CommandState.RECEIVED):
            self.queue(entry)

    def note(self, entry: JournalEntry, now: Moment) -> None:
        """Count a new entry and record it in the audit's ledger."""
        if entry.state not in OPEN_STATES:
            return
        command = entry.command
        self._device.fleet.open_commands += 1
        # A command that ended at once is kept without its payload.
        digest = digest_document(command.payload) if entry.outcome is None else None
        self._write("received", command.id, now, digest=digest, created_at=command.created_at)
        if (outcome := entry.outcome) is not None:
            self._write("finished", command.id, now, detail=outcome.status, error=outcome.error)

    def queue(self, entry: JournalEntry) -> None:
        """Queue an admitted command for its lane."""
        self._waiting.setdefault(entry.handler, deque()).append(entry.command.id)

    def advance(self, now: Moment) -> list[Work]:
        """End work that is due and start what can run; returns the work that ended."""
        ended: list[Work] = []
        self._begin(now)
        # Work without a duration ends in the instant it starts, and the next of its lane starts then.
        while due := [lane for lane, running in self._running.items() if running.ends_s <= now.monotonic_s]:
            for lane in due:
                running = self._running.pop(lane)
                self._finish(running.command_id, running.work.outcome, now)
                ended.append(running.work)
            self._begin(now)
        return ended

    def _begin(self, now: Moment) -> None:
        device = self._device
        for lane in list(self._waiting):
            while lane in self._waiting and lane not in self._running:
                command_id = self._waiting[lane].popleft()
                if not self._waiting[lane]:
                    del self._waiting[lane]
                entry = device.disk.journal.entries[command_id]
                refusal = refuse_at_start(entry, device.time.at(now))
                if refusal is not None:
                    self._finish(command_id, refusal, now)
                else:
                    self._running[lane] = self._start(entry, now)

    def _start(self, entry: JournalEntry, now: Moment) -> _Running:
        device, command_id = self._device, entry.command.id
        started = device.disk.journal.put(start_entry(entry, now))
        handler = VOCABULARY[entry.handler]
        self._write("started", command_id, now, detail=handler.contract, attempt=started.attempts)
        context = HandlerContext(device.member.device_id, now, device.values(now), device.member.model.interval_s)
        work = handler.handle(parse_payload(handler, entry.command.payload), context)
        if work.duration_s >= _PROGRESS_FROM_S:
            self._progress.append(Report(command_id, IN_PROGRESS, started_at=now.wall_s))
        return _Running(command_id, work, now.monotonic_s + work.duration_s)

    def _finish(self, command_id: str, outcome: Outcome, now: Moment) -> None:
        journal = self._device.disk.journal
        journal.put(move(journal.entries[command_id], CommandState.FINISHED, outcome=outcome, finished=now))
        digest = None if outcome.result is None else digest_document(outcome.result)
        self._write("finished", command_id, now, detail=outcome.status, digest=digest, error=outcome.error)

    def _write(self, event: CommandEvent, command_id: str, now: Moment, **facts: Any) -> None:
        """Record an event of a command in the audit's ledger."""
        device = self._device
        device.fleet.ledger.command(event, device.index, command_id, device.run_s(now), **facts)

    # --- reporting ----------------------------------------------------------------------------------------------------

    @property
    def reports_due_s(self) -> float:
        """When the next report is due, on the monotonic clock; infinity while there is none."""
        if self._progress:
            return _AT_ONCE_S
        return NEVER if self._device.disk.journal.first_finished() is None else self.results_after_s

    def next_report(self, now: Moment) -> tuple[Request, Moment] | None:
        """The next report and since when it waits, results before progress; None when nothing is due."""
        journal = self._device.disk.journal
        if now.monotonic_s >= self.results_after_s:
            while (finished := journal.first_finished()) is not None:
                request = self._request(self._report_of(finished))
                if request is not None:
                    return request, finished.finished or now
                self._give_up(finished.command.id, _NOWHERE, now)
        while self._progress:
            report = self._progress.popleft()
            if any(running.command_id == report.command_id for running in self._running.values()):
                request = self._request(report)
                if request is not None:
                    return request, now
        return None

    def _request(self, report: Report) -> Request | None:
        member = self._device.member
        request = self._device.messages.report(member.device_id, member.product_id, report)
        command_id, status, attempt = self._device.disk.report_sent
        if request is not None and (report.command_id, report.status) == (command_id, status):
            request.attempt = attempt
        return request

    def _report_of(self, entry: JournalEntry) -> Report:
        outcome = entry.outcome
        if outcome is None:
            raise AssertionError("the core puts an outcome on every finished entry")
        return Report(
            command_id=entry.command.id,
            status=str(outcome.status),
            result=outcome.result,
            error=outcome.error,
            started_at=entry.started.wall_s if entry.started else None,
            finished_at=entry.finished.wall_s if entry.finished else None,
        )

    def reported(self, report: Report, now: Moment) -> None:
        """The service has taken a report."""
        if report.status == IN_PROGRESS:
            return
        device, journal = self._device, self._device.disk.journal
        self._failures = FailureStreak()
        self._backoff = device.member.model.backoff
        journal.put(move(journal.entries[report.command_id], CommandState.REPORTED))
        device.fleet.open_commands -= 1
        self._write("reported", report.command_id, now)

    def note_failure(self, request: Request, report: Report, error: ServiceError) -> None:
        """Note that a report went out without a final answer."""
        again = request.attempt.again(refused=is_refused(error))
        self._device.disk.report_sent = (report.command_id, report.status, again)

    def handle_refused_result(self, request: Request, report: Report, error: ServiceError, now: Moment) -> bool:
        """Give a refused result up, or retry it later; False where the error does not concern the result itself.

        The limits are those of :mod:`agent.core.commands`. Failures are counted over all results until one is taken:
        several in a row mean that the service has no place for results. Only the oldest is tried; other results wait.
        """
        fault = fault_of(error)
        if fault is ReportFault.NOT_NOW:
            return False
        if report.status == IN_PROGRESS:
            return True
        if isinstance(error, Conflict) and request.attempt is Attempt.AMBIGUOUS:  # an earlier sending was taken
            self.reported(report, now)
            return True
        if fault in {ReportFault.CONTENT, ReportFault.OVER}:
            self._give_up(report.command_id, str(error), now)
            return True
        device, now_s = self._device, now.monotonic_s
        self._failures = self._failures.failed(now_s)
        is_draining = not device.driver.is_sampling
        if self._failures.are_enough(fault, now_s) or (is_draining and self._failures.times >= _TRIES_IN_DRAIN):
            self._give_up(report.command_id, str(error), now)
        else:
            retry_after_s = error.retry_after_s if isinstance(error, ErrorAnswer) else None
            self._backoff, wait_s = self._backoff.failed(device.fleet.chance(), retry_after_s)
            self.results_after_s = now_s + wait_s
            self.note_failure(request, report, error)
        return True

    def _give_up(self, command_id: str, reason: str, now: Moment) -> None:
        """The service will never take this result: keep it in the journal with the reason, and go on."""
        fleet, journal = self._device.fleet, self._device.disk.journal
        journal.put(move(journal.entries[command_id], CommandState.UNDELIVERABLE, undeliverable=reason[:REASON_MAX]))
        fleet.open_commands -= 1
        fleet.undeliverable_results += 1
        self._write("undeliverable", command_id, now)
