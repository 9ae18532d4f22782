"""What devices of one kind, and all devices of one worker, share: held once, however many devices there are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Final
from uuid import uuid4

from agent.core.timekeeping import PollIntervals
from agent.health import Backoff
from agent.wire.server import Dialect
from simulator.fleet.audit.ledger import Ledger
from simulator.fleet.engine.timers import Timers
from simulator.fleet.faults import ActiveFaults
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.signals import CLIMATE, DeviceRandom, SignalSet, salt_of

TIMEOUT_S: Final = 10.0
RUN_OVER: Final = "the run was over before the answer"
_READING: Final = salt_of("reading")


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """Settings that all devices of one kind share.

    Attributes:
        signals: what the sensor reads, by reading name.
        interval_s: how often the sensor is read, unless a command set it otherwise.
        in_step: all devices read at the same time, unlike a real fleet; otherwise each has its own moment in the
            interval, by the hash of its index.
        polling: how often commands are asked for where the service cannot hold a poll.
        wait_s: how long the service is asked to hold a poll.
        batch: how many readings go at once where the service takes arrays.
        backoff: the pace of retries.
    """

    signals: SignalSet = field(default_factory=lambda: CLIMATE)
    interval_s: float = 10.0
    in_step: bool = False
    polling: PollIntervals = field(default_factory=PollIntervals)
    wait_s: float = 20.0
    batch: int = 100
    backoff: Backoff = field(default_factory=Backoff)

    def place_s(self, device: DeviceRandom, interval_s: float) -> float:
        """This device's moment in each interval, seconds from the interval's begin."""
        return 0.0 if self.in_step else device.fraction(_READING) * interval_s


@dataclass(frozen=True, slots=True)
class Member:
    """One device of a fleet: its ids and its model.

    Attributes:
        device_id, product_id: the service's ids.
        model: shared with all devices of its kind.
    """

    device_id: str
    product_id: str
    model: DeviceModel


class Observer:
    """Base of observers, one for all devices of a worker; measures nothing by itself.

    Called from the loop's thread for each exchange: cheap, and never blocking.
    """

    def exchanged(
        self,
        operation: str,
        outcome: OutcomeClass,
        device: int,
        intended_s: float,
        ready_s: float,
        sent_s: float | None,
        now_s: float,
        attempt: Attempt = Attempt.FIRST,
    ) -> None:
        """A request or message ended. Times are on the loop's clock.

        Args:
            operation: such as ``http.poll``.
            outcome: how it ended.
            device: index in the fleet.
            intended_s: when it was due by the device's plan: waiting is measured from here.
            ready_s: from when on only the generator kept it waiting, and not an earlier request of the same device; a
                generator that lags is seen by this.
            sent_s: when its bytes went to the socket; None when nothing went out.
            now_s: when the answer was whole, or it was given up.
            attempt: whether it went out before, and what the service may have of that.
        """

    def faulted(self, operation: str, device: int, sentence: str) -> None:
        """Why an exchange was no good one, for a person."""

    def readings_ended(self, taken_s: Iterable[float], outcome: OutcomeClass, now_s: float) -> None:
        """Readings that were taken at these times are accepted now, or will not be sent any more."""

    def readings_missed(self, count: int) -> None:
        """So many readings were never taken: their time went by while the generator stood still."""


@dataclass(slots=True, kw_only=True)
class Fleet:
    """What all devices of one worker share.

    Attributes:
        timers: on the same clock as ``monotonic``; what concerns every device is spread over its turns.
        offers: the extensions that the service has.
        seed: of signals and jitter.
        run: begins each idempotency key; another one for each run against the same service.
        first_index: of the worker's first device, in the whole fleet: another worker has the others.
        numbered: each reading carries its sequence number as one more value.
        first_number: these numbers count from here: another run with the same devices has others.
        began_s: the run's begin on the monotonic clock: the ledger's times count from it.
        timeout_s: for one exchange, beside the wait that it asks for.
        faults: None for a run without them.
        dialect: what the scenario says of the service beside its extensions.
        base_url: of the service: links to further pages lead below it.
        ledger: where the audit's facts go.
        observer: called with each exchange, and with the end of each reading.
        on_news: called after each exchange, and when all devices have been reached.
        chance: for jitter: numbers in [0, 1).
        monotonic, wall: the clocks of the machine, seconds, and since the epoch.
        boot_id: of the monotonic clock.
        online: devices that are switched on.
        waiting_readings: readings in the outboxes, also of devices that are off.
        open_commands: commands that a device has and the service has no final result of.
        undeliverable_results: results that nothing on the service takes.
    """

    timers: Timers
    offers: frozenset[str]
    seed: int
    run: str
    first_index: int = 0
    numbered: bool = False
    first_number: int = 0
    began_s: float = 0.0
    timeout_s: float = TIMEOUT_S
    faults: ActiveFaults | None = None
    dialect: Dialect = field(default_factory=Dialect)
    base_url: str = "http://service.invalid"
    ledger: Ledger = field(default_factory=Ledger)
    observer: Observer = field(default_factory=Observer)
    on_news: Callable[[], None] = lambda: None
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    boot_id: str = field(default_factory=lambda: uuid4().hex)
    online: int = 0
    waiting_readings: int = 0
    open_commands: int = 0
    undeliverable_results: int = 0
    chance: Callable[[], float] = field(init=False)

    def __post_init__(self) -> None:
        self.chance = Random(f"{self.seed}/{self.first_index}").random  # noqa: S311 - it is no secret
