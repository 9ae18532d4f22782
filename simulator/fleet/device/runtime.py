"""One life of a device: what its channels share, and its handlers at work. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent.core.commands import OPEN_STATES, HandlerRule, recover, refuse_at_start
from agent.core.triage import TriageVerdict, triage
from agent.core.values import CommandPoll, CommandState, JournalEntry, Moment, Outcome, Report
from simulator.fleet.audit.digest import digest_document
from simulator.fleet.device.handlers import RULES, VOCABULARY, HandlerContext, Work, parse_payload
from simulator.fleet.device.hashed_random import HashedRandom
from simulator.fleet.device.http_codec import IN_PROGRESS
from simulator.fleet.device.service_clock import ServiceClock
from simulator.fleet.engine.wheel import NEVER
from simulator.fleet.signals import DeviceRandom

if TYPE_CHECKING:
    from simulator.fleet.device.fast_path import KnownAnswers
    from simulator.fleet.device.http_codec import HttpCodec
    from simulator.fleet.device.model import DeviceModel, SharedSettings
    from simulator.fleet.device.store import Disk


VERSION: Final = "firmware"
"""The setting on the disk that holds the version after an update."""
# Shorter works are over before anybody could look.
_PROGRESS_FROM_S: Final = 0.5
_PROGRESS_KEPT: Final = 16


class DeviceRuntime:
    """One life of one device, without its channels.

    Attributes:
        index: in the fleet.
        codec: who it is for the service.
        model: what it is.
        fleet: what it has in common with all others.
        disk: what it remembers.
        chance: its random numbers; they go on over restarts.
        individual: identifies its signals.
        time: what it knows of the service's clock.
        known_answers: bodies that need not be parsed.
        lanes: its handlers at work; None while there never was a command.
        began_s: when this life began, on the monotonic clock.
    """

    __slots__ = (
        "began_s",
        "chance",
        "codec",
        "disk",
        "fleet",
        "index",
        "individual",
        "known_answers",
        "lanes",
        "model",
        "time",
    )

    def __init__(
        self,
        index: int,
        codec: HttpCodec,
        model: DeviceModel,
        fleet: SharedSettings,
        disk: Disk,
        *,
        chance: HashedRandom,
        known_answers: KnownAnswers,
        now: Moment,
    ) -> None:
        self.index = index
        self.codec = codec
        self.model = model
        self.fleet = fleet
        self.disk = disk
        self.chance = chance
        self.known_answers = known_answers
        self.time = ServiceClock()
        self.individual = DeviceRandom.at(fleet.seed, index)
        self.lanes: Lanes | None = None
        self.began_s = now.monotonic_s

    def need_lanes(self) -> Lanes:
        """The lanes of the device, made with its first command."""
        if self.lanes is None:
            self.lanes = Lanes(self)
        return self.lanes

    def run_s(self, now: Moment) -> float:
        """Seconds since the run's begin, as the audit's ledger counts them."""
        return now.monotonic_s - self.fleet.began_s

    def values(self, now: Moment) -> dict[str, float]:
        """The values of its sensors now, by reading name."""
        faults = self.fleet.faults
        if faults is not None:
            return faults.read(self.individual, self.model.signals, now)
        return self.model.signals.read(self.individual, now.wall_s)

    def around(self, now: Moment) -> HandlerContext:
        """What a handler may see."""
        return HandlerContext(
            device_id=self.codec.device_id,
            now=now,
            values=self.values(now),
            interval_s=self.model.interval_s,
            version=self._version(),
            firmware=self.model.firmware,
        )

    def _version(self) -> str:
        """Of its firmware: what an update left on the disk, else what it left the factory with."""
        firmware = self.model.firmware
        factory = "" if firmware is None else firmware.factory_version(self.individual)
        return self.disk.journal.settings.get(VERSION, factory)


@dataclass(frozen=True, slots=True)
class _Running:
    command_id: str
    work: Work
    ends_s: float


class Lanes:
    """Runs what the journal has admitted; every step is in the journal before it counts. Each handler is a lane.

    Args:
        runtime: the device's.
    """

    __slots__ = ("_progress", "_running", "_runtime", "_waiting")

    def __init__(self, runtime: DeviceRuntime) -> None:
        self._runtime = runtime
        self._waiting: dict[str, list[str]] = {}
        self._running: dict[str, _Running] = {}
        self._progress: list[Report] = []

    @property
    def busy(self) -> bool:
        """Whether a command is running or waits for its lane."""
        return bool(self._running or self._waiting)

    @property
    def due_s(self) -> float:
        """When the next running command ends, on the monotonic clock; infinity when none runs."""
        return min([running.ends_s for running in self._running.values()], default=NEVER)

    def resume(self, started: Moment) -> None:
        """Judge after a power-on what the last life left in ``started``, and queue what it left waiting.

        Args:
            started: when this life began.
        """
        journal = self._runtime.disk.journal
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

    def queue(self, entry: JournalEntry) -> None:
        """Let an admitted command wait for its lane."""
        self._waiting.setdefault(entry.handler, []).append(entry.command.id)

    def advance(self, now: Moment, service_now_s: float | None) -> list[Work]:
        """End what is due and begin what can; the works that ended."""
        ended: list[Work] = []
        self._begin(now, service_now_s)
        # Works without a duration end in the instant they begin, and the next one of their lane begins then.
        while due := [lane for lane, running in self._running.items() if running.ends_s <= now.monotonic_s]:
            for lane in due:
                running = self._running.pop(lane)
                self._finish(running.command_id, running.work.outcome, now)
                ended.append(running.work)
            self._begin(now, service_now_s)
        return ended

    def next_progress(self) -> Report | None:
        """That a command is under way, for the service; None when there is nothing to report. Not repeated."""
        while self._progress:
            report = self._progress.pop(0)
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
                    self._finish(entry.command.id, refusal, now)
                else:
                    self._running[lane] = self._start(entry, now)

    def _next(self, lane: str) -> JournalEntry:
        command_id = self._waiting[lane].pop(0)
        if not self._waiting[lane]:
            del self._waiting[lane]
        return self._runtime.disk.journal.known([command_id])[command_id]

    def _start(self, entry: JournalEntry, now: Moment) -> _Running:
        runtime = self._runtime
        payload = entry.command.payload
        started = runtime.disk.journal.start(entry.command.id, now)
        handler = VOCABULARY[entry.handler]
        runtime.fleet.ledger.command_started(
            runtime.index, entry.command.id, handler.contract, started.attempts, runtime.run_s(now)
        )
        work = handler.handle(parse_payload(handler, payload), runtime.around(now))
        if work.duration_s >= _PROGRESS_FROM_S:
            self._progress.append(Report(entry.command.id, IN_PROGRESS, started_at=now.wall_s))
            del self._progress[:-_PROGRESS_KEPT]
        return _Running(entry.command.id, work, now.monotonic_s + work.duration_s)

    def _finish(self, command_id: str, outcome: Outcome, now: Moment) -> None:
        runtime = self._runtime
        runtime.disk.journal.finish(command_id, outcome, now)
        result = None if outcome.result is None else digest_document(outcome.result)
        runtime.fleet.ledger.command_finished(
            runtime.index, command_id, outcome.status, runtime.run_s(now), outcome.error, result
        )


def take_in(runtime: DeviceRuntime, poll: CommandPoll, now: Moment) -> bool:
    """Decide on commands, commit, queue; whether they brought something new.

    What is over is forgotten when a list comes without it. Pushed commands are no list: they say nothing about others.
    """
    journal = runtime.disk.journal
    ids = [command.id for command in poll.commands]
    decided = triage(
        poll.commands,
        journal.known(ids),
        RULES,
        received=now,
        service_now_s=runtime.time.at(now),
        first_contact=journal.is_empty,
    )
    journal.admit(decided.entries)
    if not poll.pushed:
        journal.forget(ids)
    for entry in decided.entries:
        _note(runtime, entry, now)
    admitted = [decision.entry for decision in decided.of(TriageVerdict.ADMIT) if decision.entry is not None]
    if admitted:
        lanes = runtime.need_lanes()
        for entry in admitted:
            lanes.queue(entry)
    return bool(decided.entries)


def _note(runtime: DeviceRuntime, entry: JournalEntry, now: Moment) -> None:
    """Count a new entry and write it down for the audit."""
    if entry.state not in OPEN_STATES:
        return
    runtime.fleet.gauges.open_commands += 1
    command = entry.command
    # What is over at once is kept without its payload.
    payload = digest_document(command.payload) if entry.outcome is None else None
    runtime.fleet.ledger.command_received(runtime.index, command.id, runtime.run_s(now), command.created_at, payload)
    if entry.outcome is not None:
        outcome = entry.outcome
        runtime.fleet.ledger.command_finished(
            runtime.index, entry.command.id, outcome.status, runtime.run_s(now), outcome.error
        )
