"""Pure load: readings made for their request, closed users, and what is measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from agent.core.values import Moment
from simulator.fleet.audit.digest import digest_values
from simulator.fleet.audit.fleet_ledger import SEQUENCE_NAME
from simulator.fleet.device.http_codec import Request, TimedReading, values_text
from simulator.fleet.device.model import TIMEOUT_S, Clocks, Observer, SharedSettings
from simulator.fleet.engine.wheel import Timer, Wheel
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.signals.base import Individual, SignalSet
from simulator.fleet.signals.climate import CLIMATE

CLEAR: Final = frozenset({OutcomeClass.OK, OutcomeClass.REFUSED, OutcomeClass.LIMITED})
"""Outcomes after which it is known whether the service has what was sent."""


RUN_OVER: Final = "the run was over before the answer"


class RequestKind(StrEnum):
    """What is asked for; the words of a scenario's ``arrivals``."""

    SENSOR_DATA = "sensor_data"
    POLL = "poll"
    SEND_COMMAND = "send_command"


@dataclass(frozen=True, slots=True)
class LoadDevice:
    """A device that requests are made for.

    Attributes:
        device_id: the service's.
        signals: what its readings hold; shared with all of its model.
    """

    device_id: str
    signals: SignalSet = field(default_factory=lambda: CLIMATE)


class ReadingMaker:
    """Makes readings, each for its request, and records what becomes of them.

    Args:
        fleet: what the devices have in common; its ledger gets every reading.
        first_index: of the first of them, in the fleet.
        subjects: the devices.
    """

    def __init__(
        self, fleet: SharedSettings, first_index: int, subjects: Sequence[LoadDevice], *, is_dated: bool = True
    ) -> None:
        self._fleet = fleet
        self._first = first_index
        self._is_dated = is_dated
        self._signals = [subject.signals for subject in subjects]
        self._individuals = [Individual.at(fleet.seed, first_index + place) for place in range(len(subjects))]
        self._sequences = array("L", bytes(array("L").itemsize * len(subjects)))
        self._taken_s: dict[tuple[int, int], float] = {}  # of those under way, by device and number

    def make(self, device: int, now: Moment) -> TimedReading:
        """The next reading of a device, which is written down as sent; its key is its number on this device."""
        fleet, place = self._fleet, device - self._first
        sequence = self._sequences[place] + 1
        self._sequences[place] = sequence
        values = self._signals[place].read(self._individuals[place], now.wall_s)
        digest = digest_values(values)
        if fleet.numbered:
            values[SEQUENCE_NAME] = fleet.first_number + sequence
        recorded_ms = round(now.wall_s * 1000)
        carried_ms = recorded_ms if self._is_dated else None
        at_s = now.monotonic_s - fleet.began_s
        self._taken_s[device, sequence] = now.monotonic_s
        fleet.ledger.reading_made(device)
        fleet.ledger.reading_sent(device, sequence, digest, recorded_ms=carried_ms, made_s=at_s, at_s=at_s)
        return TimedReading(sequence, values_text(values), recorded_ms)

    def write_down(self, device: int, sequence: int, outcome: OutcomeClass, sent_s: float | None, now_s: float) -> None:
        """Write down what became of a reading.

        Args:
            device: whose, its index in the fleet.
            sequence: its number.
            outcome: how its request ended.
            sent_s: None when nothing went out.
            now_s: when it ended, on the monotonic clock.
        """
        ledger, at_s = self._fleet.ledger, now_s - self._fleet.began_s
        taken_s = self._taken_s.pop((device, sequence))
        self._fleet.ages.given_up((taken_s,), outcome, now_s)
        if outcome is OutcomeClass.OK:
            ledger.readings_accepted(device, (sequence,), at_s)
        elif outcome is OutcomeClass.REFUSED:
            ledger.readings_refused(device, (sequence,), at_s)
        elif outcome not in CLEAR and sent_s is not None:
            ledger.readings_unanswered(device, (sequence,), at_s)


OnEnd = Callable[[float], None]
Sender = Callable[[RequestKind, int, float, OnEnd], None]
"""Sends a request for a device that was due at a time, and calls with the time of its end."""


class Users:
    """Closed users: each sends the next request a pause after the answer; they take turns at devices.

    Args:
        wheel: for the pauses.
        time: the wheel's clock.
        devices: their places in the fleet.
        send: see :data:`Sender`.
    """

    def __init__(
        self,
        wheel: Wheel,
        time: Callable[[], float],
        devices: range,
        send: Sender,
    ) -> None:
        self.wheel = wheel
        self.time = time
        self.devices = devices
        self.send = send
        self._users: list[_User] = []

    def start(self, kind: RequestKind, users: int, pause_s: float = 0.0) -> None:
        """Start so many more users."""
        now_s = self.time()
        for number in range(users):
            user = _User(self, kind, number, users, pause_s)
            self._users.append(user)
            self.wheel.at(now_s, user)

    def stop(self) -> None:
        """No user begins another request; what is under way still ends."""
        for user in self._users:
            user.stop()
        self._users.clear()


class _User(Timer):
    """One closed user: a request, its answer, a pause, the next request."""

    __slots__ = ("_device", "_kind", "_pause_s", "_step", "_stopped", "_users", "_wanted_s")

    def __init__(self, users: Users, kind: RequestKind, number: int, step: int, pause_s: float) -> None:
        super().__init__()
        self._wanted_s = users.time()
        self._users = users
        self._kind = kind
        self._pause_s = pause_s
        self._step = step
        self._device = number
        self._stopped = False

    def stop(self) -> None:
        """Begin no further request."""
        self._stopped = True
        self._users.wheel.cancel(self)

    def fire(self) -> None:
        """Begin the next request: the pause is over."""
        users = self._users
        device = users.devices[self._device % len(users.devices)]
        self._device += self._step
        users.send(self._kind, device, self._wanted_s, self._ended)

    def _ended(self, now_s: float) -> None:
        if not self._stopped:
            self._wanted_s = now_s + self._pause_s
            self._users.wheel.at(self._wanted_s, self)


class LoadRequest(Protocol):
    """A request of pure load that has not ended."""

    @property
    def device(self) -> int:
        """Index in the fleet."""
        ...


class LoadBase(ABC):
    """Pure load: its users, what is measured of its requests, and how it ends.

    Args:
        wheel: for the pauses of closed users.
        fleet: what the devices have in common.
        count: how many there are.
        first_index, observer, clocks, timeout_s, on_news: see
            :class:`~simulator.fleet.device.model.TransportOptions`.

    Attributes:
        devices: their places in the fleet.
        is_over: the run is over; what ends from now on has not come to an end by itself.
        undelivered: open arrivals that were under way then.
        under_way: requests that have not ended.
    """

    under_way: AbstractSet[LoadRequest]

    def __init__(
        self,
        wheel: Wheel,
        fleet: SharedSettings,
        count: int,
        *,
        first_index: int = 0,
        observer: Observer | None = None,
        clocks: Clocks | None = None,
        timeout_s: float = TIMEOUT_S,
        on_news: Callable[[], None] | None = None,
    ) -> None:
        self.wheel = wheel
        self.fleet = fleet
        self.devices = devices = range(first_index, first_index + count)
        self.observer = observer or Observer()
        self.clocks = clocks or Clocks()
        self.timeout_s = timeout_s
        self.is_over = False
        self.undelivered = 0
        self._on_news = on_news
        users = Users(wheel, self.clocks.monotonic, devices, self.send)
        self.start_users = users.start
        self.stop_users = users.stop

    @abstractmethod
    def send(self, kind: RequestKind, device: int, due_s: float, on_end: OnEnd | None = None) -> None:
        """Send one request now.

        Args:
            kind: what for.
            device: index in the fleet.
            due_s: when it was to be sent, on the monotonic clock: what was waited is counted from here.
            on_end: called with the time of the end.
        """

    @abstractmethod
    def end(self) -> None:
        """End what is under way: the run is over."""

    def notify(self) -> None:
        """Call ``on_news``: something changed."""
        if self._on_news is not None:
            self._on_news()

    def end_of(self, outcome: OutcomeClass, reason: str, *, is_open: bool) -> tuple[OutcomeClass, str]:
        """Outcome and reason of a request that failed; one that ends with the run counts as a timeout.

        Args:
            outcome: why the engine ended it.
            reason: the same, for a person.
            is_open: it is an open arrival, and no closed user waits for it.
        """
        if not self.is_over:
            return outcome, reason
        self.undelivered += is_open
        return OutcomeClass.TIMEOUT, RUN_OVER

    def measure(
        self,
        operation: str,
        request: Request,
        outcome: OutcomeClass,
        device: int,
        *,
        sent_s: float | None,
        now_s: float,
    ) -> None:
        """Hand an exchange that ended to the observer; nothing is sent twice here."""
        self.observer.exchanged(
            operation,
            outcome,
            device,
            intended_s=request.intended_s,
            ready_s=request.ready_s,
            sent_s=sent_s,
            now_s=now_s,
            attempt=Attempt.FIRST,
        )
