"""A device out of the agent's own parts, without threads, on a clock that the test moves.

Source service, reading uplink, result reporter, sensors, intake, dispatcher and lanes are the real ones; what they
stand on (journal, outbox, the way to the service) is the test's.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from agent.core.commands import HandlerRule, RunLimits
from agent.core.poll_interval import PollIntervals
from agent.core.schedule import ReportRule, phase_s
from agent.core.triage import CommandRules
from agent.core.values import Command, Contract, JournalEntry, Moment, Outcome, OutcomeStatus
from agent.ports import Clock, CommandSource, Journal, Outbox, Uplink
from agent.runtime.command_poller import CommandPoller
from agent.runtime.controls import Intervals
from agent.runtime.dispatcher import Dispatcher
from agent.runtime.health import Health
from agent.runtime.intake import Intake, resume
from agent.runtime.jobs import Attempt, Ended, Job
from agent.runtime.lanes import Lane, LaneParts
from agent.runtime.reading_uplink import ReadingUplink
from agent.runtime.result_reporter import ResultReporter
from agent.runtime.retry_policy import RetryPolicy
from agent.runtime.sensing import SensingService
from agent.runtime.service_clock import WaitingForTime
from tests.threadless import ThreadlessService

SENSOR = "board"
NEVER_S = float("inf")


class KnowsTime(Protocol):
    """The service clock, as far as a device needs it."""

    def now(self) -> float | None: ...
    def recorded_at(self, moment: Moment) -> float | None: ...
    def on_time_known(self, then: Callable[[], object]) -> None: ...


@dataclass
class _Read:
    values: dict[str, float]
    error: str | None = None
    refused: tuple[str, ...] = ()


@dataclass
class _Ended:
    """A read that has ended."""

    values: _Read
    timeout_s: float = 1.0

    def __post_init__(self) -> None:
        self.result: Future[_Read] = Future()
        self.result.set_result(self.values)

    def outcome(self, *, skipped: bool = False) -> _Read:
        return self.values


class _Counter:
    """A sensor that numbers its readings."""

    def __init__(self, device: VirtualDevice) -> None:
        self._device = device

    def names(self) -> list[str]:
        return [SENSOR]

    def read(self, names: list[str] | None = None) -> dict[str, _Read]:
        return {SENSOR: self.begin(SENSOR).values}

    def begin(self, name: str) -> _Ended:
        return _Ended(_Read({"n": float(self._device.next_number())}))


@dataclass
class _Inline:
    """A job whose effect is one line in the test's own book."""

    command_id: str
    effects: list[str]
    contract: Contract
    handler: str = "ping"
    limits: RunLimits = field(default_factory=lambda: RunLimits(5.0))
    unwind_s: float = 1.0

    def run(self, attempt: Attempt) -> Outcome:
        self.effects.append(self.command_id)
        return Outcome(OutcomeStatus.SUCCEEDED)

    def verify(self, attempt: Attempt) -> Outcome | None:
        raise AssertionError("its handler has no verify hook")


class VirtualDevice:
    """One device; a restart is a new one on the same journal, outbox and book of effects.

    Args:
        effects: gets the id of each command whose handler runs.
        numbers: gets (number, true time) of each reading.
        true_s: the true time now.
    """

    def __init__(
        self,
        device_id: str,
        *,
        clock: Clock,
        journal: Journal,
        outbox: Outbox,
        source: CommandSource,
        uplink: Uplink,
        service_clock: KnowsTime,
        fraction: Callable[[], float],
        true_s: Callable[[], float],
        effects: list[str],
        numbers: list[float],
        intervals: PollIntervals,
        interval_s: float = 60.0,
        first_s: float = 0.0,
        contract: Contract = Contract.ONCE,
        takes_arrays: Callable[[], bool] = lambda: True,
    ) -> None:
        self._clock = clock
        self._effects = effects
        self._contract = contract
        self._true_s = true_s
        self._numbers = numbers
        health = Health(clock)
        self.readings = ThreadlessService(
            ReadingUplink(
                uplink=uplink,
                journal=journal,
                outbox=outbox,
                clock=clock,
                retry_policy=RetryPolicy(fraction),
                health=health,
                takes_arrays=takes_arrays,
                first_s=first_s,
            ),
            clock,
        )
        self.results = ThreadlessService(
            ResultReporter(
                uplink=uplink,
                journal=journal,
                clock=clock,
                make_retry_policy=lambda: RetryPolicy(fraction),
                health=health,
                wall_of=service_clock.recorded_at,
                first_s=first_s,
            ),
            clock,
        )
        waiting = WaitingForTime(clock, service_clock.now)
        parts = LaneParts(
            journal=journal,
            jobs=self,
            runner=self,
            clock=clock,
            health=health,
            service_now=service_clock.now,
            on_finished=self.results.post,
            on_progress=self.results.post,
            wall_of=service_clock.recorded_at,
            holds=waiting.holds,
        )
        self._lanes: list[ThreadlessService] = []
        rules = CommandRules({"ping": HandlerRule(contract, "ping")})
        dispatcher = Dispatcher(parts, rules, self._start_lane, 8)

        def dispatch_again(entry: JournalEntry, verify: bool) -> None:
            dispatcher.dispatch(entry, verify=verify)

        service_clock.on_time_known(lambda: waiting.release(dispatch_again))
        intake = Intake(
            journal=journal,
            rules=rules,
            dispatcher=dispatcher,
            clock=clock,
            service_now=service_clock.now,
            on_finished=lambda: self.results.post(ResultReporter.RESULT),
        )
        resume(journal, rules, dispatcher, clock, clock.now())
        configured = Intervals(journal, {SENSOR: interval_s}, on_change=lambda _name: None)
        self.sensing = ThreadlessService(
            SensingService(
                device_id=device_id,
                rules={SENSOR: ReportRule()},
                reader=_Counter(self),
                intervals=configured,
                outbox=outbox,
                clock=clock,
                health=health,
            ),
            clock,
        )
        self.source = ThreadlessService(
            CommandPoller(
                source=source,
                take=intake.take,
                intervals=lambda: intervals,
                wait_s=lambda: 0.0,
                is_busy=dispatcher.is_busy,
                clock=clock,
                retry_policy=RetryPolicy(fraction),
                health=health,
                on_server_time=lambda _time: None,
                fraction=fraction,
                first_s=first_s,
            ),
            clock,
        )

    def due_at(self) -> float:
        """When something of it falls due, monotonic seconds."""
        dues = [driven.actor.due_at() for driven in (self.sensing, self.readings, self.results, self.source)]
        return min((due_s for due_s in dues if due_s is not None), default=NEVER_S)

    def process_all(self) -> None:
        """Do what is due by now, and what follows from it."""
        is_done = False
        while not is_done:
            if self.sensing.process_all():
                self.readings.post(ReadingUplink.READING)
            others = (self.source, *self._lanes, self.results, self.readings)
            is_done = sum(driven.process_all() for driven in others) == 0

    def next_number(self) -> int:
        """The number of the next reading, whose true time is written down."""
        self._numbers.append(self._true_s())
        return len(self._numbers) - 1

    # What lanes need of a registry and a runner.

    def prepare(self, command: Command) -> Job | Outcome:
        return _Inline(command.id, self._effects, self._contract)

    def run(self, job: Job, attempt: Attempt, on_long: Callable[[], None]) -> Ended:
        return Ended(job.run(attempt))

    def stop(self) -> None:
        """Nothing runs beside the caller."""

    def _start_lane(self, lane: Lane) -> ThreadlessService:
        self._lanes.append(ThreadlessService(lane, self._clock))
        return self._lanes[-1]


def first_contact_s(device_id: str, spread_s: float = 2.0) -> float:
    """As :mod:`agent.app.agent` spreads it."""
    return phase_s(device_id, "first contact", spread_s)
