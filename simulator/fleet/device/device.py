"""A virtual device: the agent's own core between sensors and channels, with a disk that outlives its power.

A device is one object and one timer on the wheel, for ever; what it knows and does begins with the power and ends with
it, but for the disk. Commands come through one channel, reports and readings leave through the other, and neither waits
for the other. What differs between the transports is in :mod:`~simulator.fleet.device.http_device` and
:mod:`~simulator.fleet.device.mqtt_device`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from agent.core.schedule import Schedule, phase_s
from agent.core.timekeeping import ServiceTime
from agent.core.values import Moment
from simulator.fleet.audit.digest import digest_values
from simulator.fleet.audit.ledger import SEQUENCE_NAME
from simulator.fleet.device.commands import Commands
from simulator.fleet.device.disk import Disk
from simulator.fleet.device.hashed_random import HashedRandom
from simulator.fleet.device.http_messages import HttpMessages, Request, values_text
from simulator.fleet.device.model import Exchange, Member
from simulator.fleet.device.uplink import Uplink
from simulator.fleet.engine.wheel import NEVER, Timer
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.signals import READING, DeviceRandom, device_key

if TYPE_CHECKING:  # a driver has devices, which are a driver's
    from simulator.fleet.device.driver import DeviceDriver

_VERSION: Final = "firmware"
"""The setting on the disk that holds the version after an update."""
_INTERVAL: Final = "interval_s"
_AT_ONCE_S: Final = float("-inf")


class Device(Timer, ABC):
    """One device of a driver, over one transport.

    Args:
        driver: of this device among others.
        messages: what it sends, as bytes.
        index: in the fleet.
        member: what it is.

    Attributes:
        fleet: what it has in common with all others.
        disk: what it remembers without power.
        chance: its random numbers; they go on over restarts.
        random: where the chance of its signals and faults comes from.
        is_on: it has power.
        began_s: the instant of power-on, on the monotonic clock.
        time: what it knows of the service's clock.
        uplink: over which results and readings leave.
        commands: those that it has; None while there never was one.
        own_due_s: when time alone brings something, on the monotonic clock: the sensor, or the end of a command's work.
    """

    __slots__ = (
        "_sample_due_s",
        "_schedule",
        "began_s",
        "chance",
        "commands",
        "disk",
        "driver",
        "fleet",
        "index",
        "is_on",
        "member",
        "messages",
        "own_due_s",
        "random",
        "time",
        "uplink",
    )

    uplink: Uplink
    time: ServiceTime
    _schedule: Schedule
    _sample_due_s: float

    def __init__(self, driver: DeviceDriver, messages: HttpMessages, index: int, member: Member) -> None:
        super().__init__()
        self.driver = driver
        self.fleet = driver.fleet
        self.messages = messages
        self.index = index
        self.member = member
        self.disk = Disk()
        self.chance = HashedRandom(self.fleet.seed, index)
        self.random = DeviceRandom.at(self.fleet.seed, index)
        self.is_on = False
        self.began_s = 0.0
        self.commands: Commands | None = None
        self.own_due_s = NEVER

    # --- power --------------------------------------------------------------------------------------------------------

    def switch_on(self) -> None:
        """Power; nothing happens when it has it."""
        if self.is_on:
            return
        now = self.now()
        self.is_on = True
        self.began_s = now.monotonic_s
        self.time = ServiceTime(trust_wall=True)
        self.uplink = Uplink(self)
        self._set_interval(now)
        self.own_due_s = _AT_ONCE_S
        if self.disk.journal.entries:
            self.commands = Commands(self)
            self.commands.resume(now)
        self.boot(now)
        self.fleet.gauges.online += 1
        self.turn(now)

    def switch_off(self) -> None:
        """The power goes in this instant: what was in flight is cut off, and only the disk remains."""
        if not self.is_on:
            return
        driver = self.driver
        driver.engine.cut(self.index)
        driver.wheel.cancel(self)
        self.uplink.power_lost(self.now())
        self.is_on = False
        self.commands = None
        self.power_gone()
        self.fleet.gauges.online -= 1

    @abstractmethod
    def boot(self, now: Moment) -> None:
        """The power has come: prepare the transport."""

    @abstractmethod
    def power_gone(self) -> None:
        """Forget what was under way."""

    @abstractmethod
    def turn(self, now: Moment) -> None:
        """Do what is due, and wake up for what is not."""

    def end(self) -> None:
        """The run is over: count what is under way."""

    def look(self) -> None:
        """Do what is due now that sensors are read no more, or again."""
        if self.is_on:
            self.own_due_s = _AT_ONCE_S
            if self.commands is not None and not self.driver.is_sampling:
                self.commands.results_after_s = _AT_ONCE_S  # results that were not taken are tried now
            self.turn(self.now())

    def fire(self) -> None:
        """Do what is due: the timer fired."""
        if self.is_on:
            self.turn(self.moment(self.driver.clocks.monotonic()))

    def wait_until(self, due_s: float) -> None:
        """Wake up then; at the end of each turn."""
        driver = self.driver
        if due_s != self.due_s:
            driver.wheel.at(due_s, self)
        if not driver.is_sampling:
            driver.note(self.index, settled=self.is_settled)

    @property
    def is_settled(self) -> bool:
        """Whether nothing runs, and everything that was to be handed over is; also without power."""
        is_busy = self.commands is not None and self.commands.is_busy
        return not self.is_on or not (is_busy or self.uplink.has_work())

    # --- time ---------------------------------------------------------------------------------------------------------

    def now(self) -> Moment:
        """This instant as the device sees it."""
        return self.moment(self.driver.clocks.monotonic())

    def moment(self, now_s: float) -> Moment:
        """An instant of the monotonic clock as the device sees it."""
        moment, faults = self.driver.clocks.moment(now_s), self.fleet.faults
        return moment if faults is None else faults.moment(self.random, moment)

    def run_s(self, now: Moment) -> float:
        """Seconds since the run's begin, as the audit's ledger counts them."""
        return now.monotonic_s - self.fleet.began_s

    # --- sensors and commands -----------------------------------------------------------------------------------------

    def advance(self, now: Moment) -> None:
        """Do what time brings by itself: the sensor, and handlers that begin and end."""
        commands = self.commands
        if commands is not None and commands.is_busy:
            for work in commands.advance(now):
                if work.version is not None:
                    self.disk.journal.settings[_VERSION] = work.version
                if work.interval_s is not None:
                    self.disk.journal.settings[_INTERVAL] = repr(work.interval_s)
                    self._set_interval(now)
        due_s = NEVER
        if self.driver.is_sampling:
            if now.monotonic_s >= self._sample_due_s:
                self._read_sensor(now)
            due_s = self._sample_due_s
        self.own_due_s = due_s if commands is None else min(due_s, commands.due_s)

    @property
    def firmware_version(self) -> str:
        """Of its firmware; empty where it reports none."""
        firmware = self.member.model.firmware
        factory = "" if firmware is None else firmware.factory_version(self.random)
        return self.disk.journal.settings.get(_VERSION, factory)

    def values(self, now: Moment) -> dict[str, float]:
        """The values of its sensors now, by reading name."""
        signals, faults = self.member.model.signals, self.fleet.faults
        return signals.read(self.random, now.wall_s) if faults is None else faults.read(self.random, signals, now)

    def _read_sensor(self, now: Moment) -> None:
        fleet, outbox, due_s = self.fleet, self.disk.outbox, self._sample_due_s
        missed = int((now.monotonic_s - due_s) / self._schedule.period_s)
        if missed > 0:
            fleet.ages.missed(missed)
        self._sample_due_s = self._schedule.next_after(now.monotonic_s)
        values = self.values(now)
        if not values:  # none of its sensors has a value
            return
        digest = digest_values(values)
        if fleet.numbered:
            values[SEQUENCE_NAME] = fleet.first_number + outbox.next_key
        dropped = outbox.put(values_text(values), digest, now, due_s)
        fleet.gauges.waiting_readings += 1 - len(dropped)
        if dropped:
            fleet.ages.given_up(dropped, OutcomeClass.TIMEOUT, now.monotonic_s)
        if fleet.faults is not None:
            self.uplink.hold(fleet.faults.held_until_s(self.random, now))

    def _set_interval(self, now: Moment) -> None:
        """Read the sensor from now on as the model says, or the command that set it otherwise."""
        model, fleet = self.member.model, self.fleet
        interval_s = float(self.disk.journal.settings.get(_INTERVAL, model.interval_s))
        own_s = 0.0 if model.in_step else phase_s(device_key(fleet.seed, self.index), READING, interval_s)
        # The plan counts from the run's begin, the schedule on the machine's clock.
        self._schedule = Schedule(interval_s, (own_s + fleet.began_s) % interval_s)
        self._sample_due_s = self._schedule.next_after(now.monotonic_s)

    # --- measuring ----------------------------------------------------------------------------------------------------

    def measure(
        self, operation: str, outcome: OutcomeClass, request: Request, sent_s: float | None, now_s: float
    ) -> None:
        """Hand an exchange that ended to the observer."""
        intended_s, ready_s, attempt = request.intended_s, request.ready_s, request.attempt
        self.driver.observer.exchanged(
            Exchange(operation, outcome, self.index, intended_s, ready_s, sent_s, now_s, attempt)
        )
