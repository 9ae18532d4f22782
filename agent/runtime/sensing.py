"""The sensors service: reads each sensor at its own instants and puts into the outbox what is worth sending."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from agent.core.timekeeping import ReportRule, Schedule, Sent
from agent.core.values import Moment, Priority, Reading
from agent.errors import StorageError
from agent.health import REPEAT_AFTER_S, FailureLog
from agent.runtime.actor import Actor, Context, Intervals

if TYPE_CHECKING:
    from agent.sensors.reader import Read, ReadOutcome, SensorReader

_log = logging.getLogger(__name__)

GATHER_S: Final = 1.0
"""So long a reading waits for those of other sensors of the same instant."""


@dataclass(frozen=True, slots=True)
class SensorRead:
    """A read came back: message to :class:`SensingService`."""

    name: str
    at: Moment
    read: Read


@dataclass(slots=True)
class _Sensor:
    """One sensor: when it is read next, and the read under way until its timeout at ``timeout_at_s``."""

    rule: ReportRule
    schedule: Schedule
    due_s: float
    sent: Sent = field(default_factory=dict)
    read: Read | None = None
    timeout_at_s: float = math.inf


@dataclass(slots=True)
class _Gathered:
    """What was read at one instant, until it is stored at ``due_s``: values, and what counts as sent then."""

    due_s: float
    at: Moment
    values: dict[str, float] = field(default_factory=dict)
    sent: dict[str, Sent] = field(default_factory=dict)


class SensingService(Actor):
    """Reads sensors on time.

    A read ends as a message, or with its timeout, so a slow sensor delays no other. While a read of a sensor is under
    way its further instants are skipped. Sensors with the same interval are read at the same instant, and what they
    read within :data:`GATHER_S` is one reading: one row in the store, one object on the wire.

    Messages: a :class:`SensorRead`, or the name of a sensor whose interval was set.

    Args:
        context: what it shares with the other parts; the device's id spreads the instants of a fleet.
        reader: reads the sensors.
        intervals: of the sensors.
        rules: sensor name -> which readings are sent; the sensors that exist.
        priorities: sensor name -> of its readings; the others' is normal.
    """

    max_step_s = 30.0

    def __init__(
        self,
        context: Context,
        reader: SensorReader,
        intervals: Intervals,
        rules: Mapping[str, ReportRule],
        priorities: Mapping[str, Priority],
    ) -> None:
        super().__init__("sensors", context)
        self._clock, self._health = context.clock, context.health
        self._reader = reader
        self._intervals = intervals
        self._priorities = priorities
        self._failure_log = FailureLog(_log, self.now_s, REPEAT_AFTER_S)
        self._sensors = {name: self._scheduled(name, rule) for name, rule in rules.items()}
        self._gathered: dict[Priority, _Gathered] = {}

    def begin(self) -> None:
        """The first reading comes at once when an interval is long: a new device shows a sign of life."""
        now_s = self.now_s()
        for sensor in self._sensors.values():
            sensor.due_s = min(sensor.due_s, now_s + sensor.schedule.phase_s % 1.0)

    def due_at(self) -> float | None:
        """The next instant or timeout of any sensor, or when what was gathered is stored."""
        dues = [min(sensor.due_s, sensor.timeout_at_s) for sensor in self._sensors.values()]
        return min([*dues, *(each.due_s for each in self._gathered.values())], default=None)

    def step(self) -> None:
        """Begin the reads that are due, give up those that have lasted too long, and store what was gathered."""
        now = self._clock.now()
        now_s = now.monotonic_s
        for priority, gathered in list(self._gathered.items()):
            if gathered.due_s <= now_s:
                self._store(priority)
        for name, sensor in self._sensors.items():
            if sensor.read is not None and sensor.timeout_at_s <= now_s:
                sensor.timeout_at_s = math.inf
                self._take(name, now, sensor.read.outcome())
            if sensor.read is not None and sensor.timeout_at_s == math.inf and sensor.read.result.done():
                sensor.read = None
            if sensor.due_s > now_s:
                continue
            sensor.due_s = sensor.schedule.next_after(now_s)
            if sensor.read is None:
                self._begin_read(name, sensor, now_s)
            elif sensor.timeout_at_s == math.inf:
                self._take(name, now, sensor.read.overdue())

    def receive(self, message: SensorRead | str) -> None:
        """See the class."""
        if isinstance(message, str):
            sensor = self._sensors.get(message)
            if sensor is not None:
                changed = self._scheduled(message, sensor.rule)
                sensor.schedule, sensor.due_s = changed.schedule, changed.due_s
            return
        sensor = self._sensors[message.name]
        if sensor.read is message.read:
            is_late, sensor.read, sensor.timeout_at_s = sensor.timeout_at_s == math.inf, None, math.inf
            if not is_late:
                self._take(message.name, message.at, message.read.result.result())

    def _begin_read(self, name: str, sensor: _Sensor, now_s: float) -> None:
        sensor.read = read = self._reader.begin(name)
        sensor.timeout_at_s = now_s + read.timeout_s
        # A full mailbox loses the message: then the timeout finds the result.
        read.result.add_done_callback(lambda _result: self.post(SensorRead(name, self._clock.now(), read)))

    def _take(self, name: str, at: Moment, result: ReadOutcome) -> None:
        part = f"sensor:{name}"
        if result.refused:
            others = len(result.refused) - 1
            more = f"; and {others} more" if others else ""
            self._failure_log.report(
                f"{part} refused", f"sensor={name} a reading is left out: {result.refused[0]}{more}"
            )
        if result.error is not None:
            self._health.put(part, "failing", result.error)
            self._failure_log.report(part, f"sensor={name} state=failing: {result.error}")
            return
        self._health.put(part, "ok")
        self._failure_log.recovered(part, f"sensor={name} state=ok")
        sensor = self._sensors[name]
        chosen, sent = sensor.rule.select(result.values, sensor.sent, at.monotonic_s)
        if not chosen:
            return
        priority = self._priorities.get(name, Priority.NORMAL)
        if name in self._gathered.get(priority, _Gathered(0.0, at)).sent:
            self._store(priority)  # it was read again before the others were
        gathered = self._gathered.setdefault(priority, _Gathered(at.monotonic_s + GATHER_S, at))
        gathered.values.update(chosen)
        gathered.sent[name] = sent
        if not any(each.read is not None and each.timeout_at_s < math.inf for each in self._sensors.values()):
            self._store(priority)

    def _store(self, priority: Priority) -> None:
        """Put what was gathered into the outbox; only then it counts as sent."""
        gathered = self._gathered.pop(priority)
        try:
            self.context.store.outbox.put(Reading(gathered.values, gathered.at, priority))
        except StorageError as error:
            self._health.put("outbox", "failing", str(error))
            self._failure_log.report("outbox", f"outbox=failing: a reading could not be stored: {error}")
            return
        self._health.put("outbox", "ok")
        self._failure_log.recovered("outbox", "outbox=ok: readings are stored again")
        for name, sent in gathered.sent.items():
            self._sensors[name].sent = sent

    def _scheduled(self, name: str, rule: ReportRule) -> _Sensor:
        schedule = Schedule.of(self.context.device_id, "sensors", self._intervals.get(name))
        return _Sensor(rule, schedule, schedule.next_after(self.now_s()))
