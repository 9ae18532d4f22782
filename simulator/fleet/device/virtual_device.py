"""A virtual device: the agent's own core between two channels, without any I/O.

The caller owns time and transport. It asks :meth:`VirtualDevice.ask` of each channel what to send, sends it, and hands
back the answer or the error; :meth:`VirtualDevice.due_s` says when to ask again. The two channels are those of the real
agent: commands come through one, reports and readings leave through the other, and neither waits for the other.

Handled here: polling and its pace, triage, lanes, results, sampling, the outbox, back-off, the service's clock.

Never handled here: waiting, sockets, randomness (``fraction``), the time of day (``now``).

Therefore the caller must have at most one request of each channel in flight, and hand back its answer or error before
it asks that channel again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from agent.core.backoff import Backoff
from agent.core.commands import CommandRules
from agent.core.polling import PollIntervals
from agent.core.schedule import Schedule
from agent.core.values import Moment, Reading
from agent.errors import ServiceError
from simulator.fleet.device.exchange import Ask, Operation, Speaker
from simulator.fleet.device.handing_over import HandingOver
from simulator.fleet.device.known_time import KnownTime
from simulator.fleet.device.lanes import Lanes
from simulator.fleet.device.ledger import DeviceLedger
from simulator.fleet.device.listening import Listening
from simulator.fleet.device.store import Disk
from simulator.fleet.device.vocabulary import SENSOR, VOCABULARY, Surroundings, VirtualHandler, rules_of
from simulator.fleet.engine.pool import HttpAnswer
from simulator.fleet.signals.base import Signal, read_all
from simulator.fleet.signals.climate import CLIMATE

_INTERVAL: Final = "interval_s"
_NEVER_S: Final = float("inf")


class Channel(Enum):
    """The two ways between a device and the service."""

    COMMANDS = auto()
    UPLINK = auto()


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """What is the same for all devices of one kind.

    Attributes:
        signals: what the sensor reads, by reading name.
        handlers: the vocabulary.
        rules: what triage goes by; fits ``handlers``.
        interval_s: how often the sensor is read, unless a command set it otherwise.
        polling: how often commands are asked for where the service cannot hold a poll.
        wait_s: how long the service is asked to hold a poll.
        batch: how many readings go at once where the service takes arrays.
        backoff: the pace of retries.
    """

    signals: Mapping[str, Signal] = field(default_factory=lambda: CLIMATE)
    handlers: Mapping[str, VirtualHandler] = field(default_factory=lambda: VOCABULARY)
    rules: CommandRules = field(default_factory=lambda: rules_of(VOCABULARY))
    interval_s: float = 10.0
    polling: PollIntervals = field(default_factory=PollIntervals)
    wait_s: float = 20.0
    batch: int = 100
    backoff: Backoff = field(default_factory=Backoff)


class VirtualDevice:
    """One device from power-on to power-off; the next life is a new object with the same disk and ledger.

    Args:
        speaker: who it is for the service.
        model: what it is.
        disk: what it remembers.
        ledger: what it writes down for the audit.
        seed: of its signals.
        fraction: random numbers in [0, 1).
        now: the instant of power-on.

    Attributes:
        sampling: whether the sensor is read; switched off to let everything drain.
    """

    def __init__(
        self,
        speaker: Speaker,
        model: DeviceModel,
        disk: Disk,
        ledger: DeviceLedger,
        *,
        seed: int,
        fraction: Callable[[], float],
        now: Moment,
    ) -> None:
        self._device_id = speaker.device_id
        self._model = model
        self._disk = disk
        self._ledger = ledger
        self._seed = seed
        self.sampling = True
        self._schedule = self._scheduled()
        self._sample_due_s = self._schedule.next_after(now.monotonic_s)
        self._time = KnownTime()
        self._lanes = Lanes(disk.journal, model.handlers, ledger, self._around)
        self._listening = Listening(
            speaker,
            disk.journal,
            self._lanes,
            ledger,
            rules=model.rules,
            intervals=model.polling,
            wait_s=model.wait_s,
            backoff=model.backoff,
            fraction=fraction,
            time=self._time,
            now=now,
        )
        self._handing_over = HandingOver(
            speaker,
            disk,
            self._lanes,
            ledger,
            batch=model.batch,
            backoff=model.backoff,
            fraction=fraction,
            time=self._time,
        )
        self._lanes.resume(now)

    @property
    def settled(self) -> bool:
        """Nothing runs, and everything that was to be handed over is."""
        return not self._lanes.busy and not self._handing_over.has_work

    def due_s(self, channel: Channel) -> float:
        """When to ask this channel again, on the monotonic clock; it may be in the past, and infinity is never."""
        if channel is Channel.COMMANDS:
            return self._listening.due_s
        own_s = min(self._lanes.due_s, self._sample_due_s if self.sampling else _NEVER_S)
        return min(own_s, self._handing_over.not_before_s) if self._handing_over.has_work else own_s

    def ask(self, channel: Channel, now: Moment) -> Ask | None:
        """What to send now; None when nothing is due. What time alone brings (sensor, handlers) is done first."""
        self._advance(now)
        return self._listening.ask(now) if channel is Channel.COMMANDS else self._handing_over.ask(now)

    def answered(self, ask: Ask, answer: HttpAnswer, sent: Moment, now: Moment) -> None:
        """The answer to an ask.

        Args:
            ask: what was sent.
            answer: what came, good or not.
            sent: when it was sent.
            now: when the answer came.
        """
        self._ledger.requests += 1
        if ask.operation is Operation.POLL:
            self._listening.answered(ask, answer, sent, now)
        else:
            self._handing_over.answered(ask, answer, now)
        self._advance(now)

    def failed(self, ask: Ask, error: ServiceError, now: Moment) -> None:
        """No answer came: the same is asked again after a while."""
        self._ledger.requests += 1
        if ask.operation is Operation.POLL:
            self._listening.failed(error, now)
        else:
            self._handing_over.failed(ask, error, now)
        self._advance(now)

    def _advance(self, now: Moment) -> None:
        for work in self._lanes.advance(now, self._time.at(now)):
            if work.interval_s is not None:
                self._disk.journal.settings[_INTERVAL] = repr(work.interval_s)
                self._schedule = self._scheduled()
                self._sample_due_s = self._schedule.next_after(now.monotonic_s)
        if self.sampling and now.monotonic_s >= self._sample_due_s:
            self._disk.outbox.put(Reading(self._values(now), now), now)
            self._sample_due_s = self._schedule.next_after(now.monotonic_s)

    def _scheduled(self) -> Schedule:
        interval_s = float(self._disk.journal.settings.get(_INTERVAL, self._model.interval_s))
        return Schedule.of(self._device_id, SENSOR, interval_s)

    def _values(self, now: Moment) -> dict[str, float]:
        return read_all(self._model.signals, self._seed, self._device_id, now.wall_s)

    def _around(self, now: Moment) -> Surroundings:
        service_s = self._time.at(now)
        return Surroundings(
            device_id=self._device_id,
            now=now,
            values=self._values(now),
            interval_s=self._model.interval_s,
            service_s=now.wall_s if service_s is None else service_s,
        )
