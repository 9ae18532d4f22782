"""A virtual device's handlers at work: one command at a time in each lane, in the order of their arrival. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from agent.core.commands import HandlerRule, refuse_at_start
from agent.core.recovery import recover
from agent.core.values import CommandState, JournalEntry, Moment, Report
from simulator.fleet.device.exchange import IN_PROGRESS
from simulator.fleet.device.ledger import DeviceLedger, Effect
from simulator.fleet.device.store import MemoryJournal
from simulator.fleet.device.vocabulary import Surroundings, VirtualHandler, Work, parse_payload

Around = Callable[[Moment], Surroundings]

# Shorter works are over before anybody could look.
_PROGRESS_FROM_S: Final = 0.5
_PROGRESS_KEPT: Final = 16


@dataclass(frozen=True, slots=True)
class _Running:
    command_id: str
    work: Work
    ends_s: float


class Lanes:
    """Runs what the journal has admitted; every step is in the journal before it counts.

    Args:
        journal: the device's.
        handlers: its vocabulary; each handler is a lane.
        ledger: where each effect is written down before it begins.
        around: what a handler may see.
    """

    def __init__(
        self, journal: MemoryJournal, handlers: Mapping[str, VirtualHandler], ledger: DeviceLedger, around: Around
    ) -> None:
        self._journal = journal
        self._handlers = handlers
        self._ledger = ledger
        self._around = around
        self._waiting: dict[str, deque[str]] = {}
        self._running: dict[str, _Running] = {}
        self._progress: deque[Report] = deque(maxlen=_PROGRESS_KEPT)

    @property
    def busy(self) -> bool:
        """Whether a command is running or waits for its lane."""
        return bool(self._running or self._waiting)

    @property
    def due_s(self) -> float:
        """When the next running command ends, on the monotonic clock; infinity when none runs."""
        return min((running.ends_s for running in self._running.values()), default=float("inf"))

    def resume(self, started: Moment) -> None:
        """After power-on: judge what the last life left in ``started``, and queue what it left waiting.

        Args:
            started: when this life began.
        """
        for entry in self._journal.in_state(CommandState.STARTED):
            handler = self._handlers.get(entry.handler)
            rule = HandlerRule(handler.contract, entry.handler) if handler else None
            recovery = recover(entry, rule, started)
            if recovery.outcome is not None:
                self._journal.finish(entry.command.id, recovery.outcome, started)
            else:
                self.queue(entry)
        for entry in self._journal.in_state(CommandState.RECEIVED):
            self.queue(entry)

    def queue(self, entry: JournalEntry) -> None:
        """Let an admitted command wait for its lane."""
        self._waiting.setdefault(entry.handler, deque()).append(entry.command.id)

    def advance(self, now: Moment, service_now_s: float | None) -> list[Work]:
        """End what is due and begin what can; the works that ended."""
        ended: list[Work] = []
        self._begin(now, service_now_s)
        # Works without a duration end in the instant they begin, and the next one of their lane begins then.
        while due := [lane for lane, running in self._running.items() if running.ends_s <= now.monotonic_s]:
            for lane in due:
                running = self._running.pop(lane)
                self._journal.finish(running.command_id, running.work.outcome, now)
                ended.append(running.work)
            self._begin(now, service_now_s)
        return ended

    def next_progress(self) -> Report | None:
        """That a command is under way, for the service; None when there is nothing to tell. Not repeated."""
        while self._progress:
            report = self._progress.popleft()
            if any(running.command_id == report.command_id for running in self._running.values()):
                return report
        return None

    @property
    def has_progress(self) -> bool:
        """Whether :meth:`next_progress` may have something."""
        return bool(self._progress)

    def _begin(self, now: Moment, service_now_s: float | None) -> None:
        for lane in list(self._waiting):
            while lane in self._waiting and lane not in self._running:
                entry = self._next(lane)
                refusal = refuse_at_start(entry, service_now_s)
                if refusal is not None:
                    self._journal.finish(entry.command.id, refusal, now)
                else:
                    self._running[lane] = self._start(entry, now)

    def _next(self, lane: str) -> JournalEntry:
        command_id = self._waiting[lane].popleft()
        if not self._waiting[lane]:
            del self._waiting[lane]
        return self._journal.known([command_id])[command_id]

    def _start(self, entry: JournalEntry, now: Moment) -> _Running:
        payload = entry.command.payload
        started = self._journal.start(entry.command.id, now)
        self._ledger.effects.append(Effect(entry.command.id, entry.handler, started.attempts, now.wall_s))
        handler = self._handlers[entry.handler]
        work = handler.handle(parse_payload(handler, payload), self._around(now))
        if work.duration_s >= _PROGRESS_FROM_S:
            self._progress.append(Report(entry.command.id, IN_PROGRESS, started_at=now.wall_s))
        return _Running(entry.command.id, work, now.monotonic_s + work.duration_s)
