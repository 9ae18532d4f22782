"""A virtual device: the agent's own core between two channels, without any I/O.

The caller owns time and transport. It asks each :class:`Channel` what to send, sends it, and hands back the answer or
the error; ``due_s`` says when to ask again. The two channels are those of the real agent: commands come through one,
reports and readings leave through the other, and neither waits for the other.

Handled here: polling and its pace, triage, lanes, results, sampling, the outbox, back-off, the service's clock.

Never handled here: waiting, sockets, the time of day (``now``).

Each channel has at most one request on its way. Therefore the caller must hand back the answer or the error of each,
and let the device :meth:`VirtualDevice.advance` whenever something is due or came back.
"""

from __future__ import annotations

from typing import Final, Protocol

from agent.core.schedule import Schedule, phase_s
from agent.core.values import Moment
from agent.errors import ServiceError
from simulator.fleet.audit.digest import digest_values
from simulator.fleet.audit.fleet_ledger import SEQUENCE_NAME
from simulator.fleet.device.command_polling import CommandPolling
from simulator.fleet.device.http_codec import Operation, Request, values_text
from simulator.fleet.device.runtime import VERSION, DeviceRuntime
from simulator.fleet.device.uplink import DeviceUplink
from simulator.fleet.engine.ports import HttpAnswer
from simulator.fleet.engine.wheel import NEVER
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.signals import READING, device_key

_INTERVAL: Final = "interval_s"
_AT_ONCE_S: Final = float("-inf")
_POLL: Final = Operation.POLL


class Channel(Protocol):
    """A way between a device and the service: of commands, or of results and readings."""

    @property
    def due_s(self) -> float:
        """When to ask again, on the monotonic clock; may be in the past, infinite while a request is on its way."""
        ...

    @property
    def fault(self) -> str:
        """Why its last exchange was no good one, for a person; empty when it was."""
        ...

    def next_request(self, now: Moment) -> Request | None:
        """What to send now; None when nothing is due. To be asked after :meth:`VirtualDevice.advance`."""
        ...


class VirtualDevice:
    """One device from power-on to power-off; the next life is another runtime with the same disk and chance.

    Args:
        runtime: its parts.
        now: the instant of power-on.

    Attributes:
        commands, uplink: the channels.
        own_due_s: when time alone brings something, on the monotonic clock: the sensor, or the end of a command's work.
    """

    __slots__ = ("_runtime", "_sample_due_s", "_sampling", "_schedule", "commands", "own_due_s", "uplink")

    def __init__(self, runtime: DeviceRuntime, now: Moment) -> None:
        self._runtime = runtime
        self._sampling = True
        self.own_due_s = _AT_ONCE_S
        self._schedule = self._scheduled()
        self._sample_due_s = self._schedule.next_after(now.monotonic_s)
        self.commands = CommandPolling(runtime, now)
        self.uplink = DeviceUplink(runtime)
        if not runtime.disk.journal.is_idle:
            runtime.need_lanes().resume(now)

    @property
    def settled(self) -> bool:
        """Nothing runs, and everything that was to be handed over is."""
        lanes = self._runtime.lanes
        return not (lanes is not None and lanes.busy) and not self.uplink.has_work

    def answered(self, request: Request, answer: HttpAnswer, sent_s: float, now: Moment) -> OutcomeClass:
        """Take the answer to a request.

        Args:
            request: what was sent.
            answer: what came, good or not.
            sent_s: when it was sent, on the monotonic clock.
            now: when the answer came.

        Returns:
            The class that the exchange counts in.
        """
        if request.operation is _POLL:
            outcome = self.commands.answered(request, answer, sent_s, now)
            if self._runtime.lanes is not None:
                self.own_due_s = _AT_ONCE_S  # it may have brought a command
            return outcome
        return self.uplink.answered(request, answer, sent_s, now)

    def failed(self, request: Request, error: ServiceError, now: Moment, *, left: bool = True) -> None:
        """No answer came: the same is asked again after a while; ``left``: the request went out."""
        if request.operation is _POLL:
            self.commands.failed(error, now)
        else:
            self.uplink.failed(request, error, now, left=left)

    def power_lost(self, now: Moment) -> None:
        """This life ends here."""
        in_flight = self._runtime.disk.in_flight
        if self.uplink.is_waiting and in_flight is not None:
            self._runtime.disk.in_flight = in_flight._replace(attempt=Attempt.AMBIGUOUS)
            self._runtime.fleet.ledger.readings_unanswered(
                self._runtime.index, in_flight.keys, self._runtime.run_s(now)
            )

    def advance(self, now: Moment) -> None:
        """Do what time brings by itself: the sensor, and handlers that begin and end."""
        if now.monotonic_s >= self.own_due_s:
            self._work(now)

    def sample(self, *, on: bool) -> None:
        """Read the sensor, or stop reading it, to let everything drain."""
        self._sampling = on
        self.uplink.drain(on=not on)
        self.own_due_s = _AT_ONCE_S

    def _work(self, now: Moment) -> None:
        runtime = self._runtime
        lanes = runtime.lanes
        if lanes is not None and lanes.busy:
            for work in lanes.advance(now, runtime.time.at(now)):
                if work.version is not None:
                    runtime.disk.journal.put_setting(VERSION, work.version)
                if work.interval_s is not None:
                    runtime.disk.journal.put_setting(_INTERVAL, repr(work.interval_s))
                    self._schedule = self._scheduled()
                    self._sample_due_s = self._schedule.next_after(now.monotonic_s)
        if self._sampling and now.monotonic_s >= self._sample_due_s:
            self._sample(now)
        due_s = self._sample_due_s if self._sampling else NEVER
        self.own_due_s = due_s if lanes is None else min(due_s, lanes.due_s)

    def _sample(self, now: Moment) -> None:
        runtime = self._runtime
        fleet, outbox = runtime.fleet, runtime.disk.outbox
        missed = int((now.monotonic_s - self._sample_due_s) / self._schedule.period_s)
        if missed > 0:
            fleet.ages.missed(missed)
        values = runtime.values(now)
        if not values:  # none of its sensors has a value
            self._sample_due_s = self._schedule.next_after(now.monotonic_s)
            return
        digest = digest_values(values)
        if fleet.numbered:
            values[SEQUENCE_NAME] = fleet.first_number + outbox.next_key
        dropped = outbox.put(values_text(values), digest, now, self._sample_due_s)
        fleet.gauges.waiting_readings += 1 - len(dropped)
        if dropped:
            fleet.ages.given_up(dropped, OutcomeClass.TIMEOUT, now.monotonic_s)
        fleet.ledger.reading_made(runtime.index)
        if fleet.faults is not None:
            self.uplink.hold(fleet.faults.held_until_s(runtime.individual, now))
        self._sample_due_s = self._schedule.next_after(now.monotonic_s)

    def _scheduled(self) -> Schedule:
        model = self._runtime.model
        interval_s = float(self._runtime.disk.journal.settings.get(_INTERVAL, model.interval_s))
        fleet = self._runtime.fleet
        own_s = 0.0 if model.in_step else phase_s(device_key(fleet.seed, self._runtime.index), READING, interval_s)
        # The plan counts from the run's begin, the schedule on the machine's clock.
        return Schedule(interval_s, (own_s + fleet.began_s) % interval_s)
