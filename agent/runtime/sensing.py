"""The sensors service: reads each sensor at its own instants and puts into the outbox what is worth sending."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final, Protocol

from agent.core.reporting import Reported, ReportRule
from agent.core.schedule import Schedule
from agent.core.values import Moment, Priority, Reading
from agent.errors import StorageError
from agent.frozen import dataclass
from agent.runtime.failure_log import FailureLog
from agent.runtime.health import Health
from agent.runtime.intervals import Intervals
from agent.runtime.service import Actor

if TYPE_CHECKING:
    from agent.ports import Clock, Outbox

_log = logging.getLogger(__name__)


class ReadResult(Protocol):
    """What one read of one sensor gave."""

    @property
    def values(self) -> Mapping[str, float]:
        """Reading name -> number; empty when the read failed."""
        ...

    @property
    def error(self) -> str | None:
        """Why there is nothing, or None."""
        ...

    @property
    def refused(self) -> tuple[str, ...]:
        """One sentence for each reading that was left out."""
        ...


class Reader(Protocol):
    """Reads sensors in bounded time and never raises for what a sensor does."""

    def names(self) -> list[str]:
        """The ready sensors, in the configuration's order."""
        ...

    def read(self, names: list[str] | None = None) -> Mapping[str, ReadResult]:
        """One result per name; ``KeyError`` for a name that is none."""
        ...


@dataclass(frozen=True, slots=True)
class SensorRead:
    """A read came back: message to :class:`SensingService`."""

    name: str
    at: Moment
    result: ReadResult


@dataclass(frozen=True, slots=True)
class IntervalChanged:
    """An interval was set: message to the services that keep it."""

    name: str


@dataclass(frozen=True, slots=True)
class RulesChanged:
    """Other readings are worth sending: message to :class:`SensingService`."""

    rules: Mapping[str, ReportRule]


@dataclass(slots=True)
class _Sensor:
    rule: ReportRule
    schedule: Schedule
    due_s: float
    reported: Reported = field(default_factory=Reported)
    is_reading: bool = False


Submit = Callable[[Callable[[], None], str], None]
"""Run this elsewhere, under this name; it may block."""


def submit_to_thread(task: Callable[[], None], name: str) -> None:
    """Run the task in a thread of its own that nobody waits for."""
    threading.Thread(target=task, name=name, daemon=True).start()


class SensingService(Actor):
    """Reads sensors on time.

    Each read is waited for in a thread of its own, so a slow sensor delays no other. While a read of a sensor is under
    way its further instants are skipped.

    Args:
        device_id: spreads the instants of a fleet over the interval.
        rules: sensor name -> which readings are sent; the sensors that exist.
        priorities: sensor name -> of its readings; the others' is normal.
        post: posts a message to this service, from any thread.
        submit: where reads are waited for.
        on_accepted: the outbox took a reading.
    """

    PART: Final = "sensors"
    patience_s = 30.0

    def __init__(
        self,
        *,
        device_id: str,
        rules: Mapping[str, ReportRule],
        reader: Reader,
        intervals: Intervals,
        outbox: Outbox,
        clock: Clock,
        health: Health,
        post: Callable[[object], bool],
        on_accepted: Callable[[], object],
        priorities: Mapping[str, Priority] | None = None,
        submit: Submit = submit_to_thread,
        repeat_after_s: float = 300.0,
    ) -> None:
        super().__init__(self.PART)
        self._device_id = device_id
        self._reader = reader
        self._intervals = intervals
        self._outbox = outbox
        self._clock = clock
        self._health = health
        self._post = post
        self._on_accepted = on_accepted
        self._priorities = priorities or {}
        self._submit = submit
        self._failure_log = FailureLog(_log, self._now_s, repeat_after_s)
        self._sensors = {name: self._scheduled(name, rule) for name, rule in rules.items()}

    def begin(self) -> None:
        """The first reading comes at once when an interval is long: a new device shows a sign of life."""
        now_s = self._now_s()
        for sensor in self._sensors.values():
            sensor.due_s = min(sensor.due_s, now_s + sensor.schedule.phase_s % 1.0)

    def due_at(self) -> float | None:
        """The next instant of any sensor."""
        return min((sensor.due_s for sensor in self._sensors.values()), default=None)

    def step(self) -> None:
        """Begin the reads that are due."""
        now_s = self._now_s()
        for name, sensor in self._sensors.items():
            if sensor.due_s > now_s:
                continue
            sensor.due_s = sensor.schedule.next_after(now_s)
            if not sensor.is_reading:
                sensor.is_reading = True
                self._begin_read(name)

    def receive(self, message: SensorRead | IntervalChanged | RulesChanged) -> None:
        """A read came back, an interval was set, or the rules changed."""
        if isinstance(message, RulesChanged):
            for name, rule in message.rules.items():
                if name in self._sensors:
                    self._sensors[name].rule = rule
            return
        if isinstance(message, IntervalChanged):
            sensor = self._sensors.get(message.name)
            if sensor is not None:
                changed = self._scheduled(message.name, sensor.rule)
                sensor.schedule, sensor.due_s = changed.schedule, changed.due_s
            return
        self._sensors[message.name].is_reading = False
        self._take(message)

    def _begin_read(self, name: str) -> None:
        def read() -> None:
            is_posted = False
            try:
                result = self._reader.read([name])[name]
                is_posted = self._post(SensorRead(name, self._clock.now(), result))
            except BaseException as error:  # noqa: BLE001 - logged with its traceback, and the sensor is read again
                _log.exception("sensor=%s state=failing: a fault of the program ended its read", name)
                self._health.put(f"sensor:{name}", "failing", f"a fault of the program ended its read: {error!r}")
            finally:
                if not is_posted:
                    # Failed, stopped, or the mailbox is full: the next instant reads again.
                    self._sensors[name].is_reading = False

        try:
            self._submit(read, f"read:{name}")
        except RuntimeError as error:  # the process is out of threads
            self._sensors[name].is_reading = False
            self._failure_log.report(f"thread {name}", f"sensor={name} cannot be read now: {error}")

    def _take(self, read: SensorRead) -> None:
        name, result, part = read.name, read.result, f"sensor:{read.name}"
        for sentence in result.refused:
            self._failure_log.report(f"{part} {sentence}", f"sensor={name} a reading is left out: {sentence}")
        if result.error is not None:
            self._health.put(part, "failing", result.error)
            self._failure_log.report(part, f"sensor={name} state=failing: {result.error}")
            return
        self._health.put(part, "ok")
        self._failure_log.recovered(part, f"sensor={name} state=ok")
        sensor = self._sensors[name]
        chosen, reported = sensor.rule.select(result.values, sensor.reported, read.at.monotonic_s)
        if not chosen:
            return
        try:
            self._outbox.put(Reading(chosen, read.at, self._priorities.get(name, Priority.NORMAL)))
        except StorageError as error:
            self._health.put("outbox", "failing", str(error))
            self._failure_log.report("outbox", f"outbox=failing: a reading could not be stored: {error}")
            return
        self._health.put("outbox", "ok")
        self._failure_log.recovered("outbox", "outbox=ok: readings are stored again")
        sensor.reported = reported
        self._on_accepted()

    def _scheduled(self, name: str, rule: ReportRule) -> _Sensor:
        schedule = Schedule.of(self._device_id, name, self._intervals.get(name))
        return _Sensor(rule, schedule, schedule.next_after(self._now_s()))

    def _now_s(self) -> float:
        return self._clock.now().monotonic_s
