"""A small fleet over HTTP, in a thread of its own: for a demo and for tests, where every reading is looked at.

Its ledgers are in memory; a run of any size keeps its ledger on a disk (:mod:`simulator.fleet.audit`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from uuid import uuid4

from simulator.fleet.audit.ledger import CommandEvent, Ledger, ReadingEvent, digest_values
from simulator.fleet.device.driver import HttpDriver
from simulator.fleet.device.model import DeviceModel, Fleet, Member, Observer
from simulator.fleet.engine.addresses import RequestHead, read_origin
from simulator.fleet.engine.http import Http1Engine
from simulator.fleet.engine.timers import LoopClock, Timers
from simulator.fleet.outcomes import OutcomeClass
from simulator.watched import ENDED, PartEnded, make_thread

_FAULTS_KEPT = 10


@dataclass(slots=True)
class DeviceLedger:
    """Everything one device sent, and what came back. It outlives the device's restarts.

    A reading is written down under the millisecond that it carries, once it is first sent.

    Attributes:
        device_id: the service's id.
        name: for a person.
        requests, failures: how many requests were made, and how many got no good answer.
        faults: the last sentences about failures, newest last, at most ten.
        effects: how often a handler began the effect of a command, by its id.
        facts: key and digest of readings that went out at least once, by their number. The key is the millisecond that
            a reading carries; its number where it carries none.
        accepted_numbers, refused_numbers: of those that were answered for good.
    """

    device_id: str
    name: str
    requests: int = 0
    failures: int = 0
    faults: list[str] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)
    facts: dict[int, tuple[int, int]] = field(default_factory=dict)
    accepted_numbers: set[int] = field(default_factory=set)
    refused_numbers: set[int] = field(default_factory=set)

    @property
    def accepted(self) -> int:
        """How many readings the service answered with 2xx."""
        return len(self.accepted_numbers)

    @property
    def sent(self) -> int:
        """How many readings went out at least once."""
        return len(self.facts)


class MemoryLedger(Ledger, Observer):
    """The ledger and the observer of a small fleet.

    Args:
        ledgers: of the devices, by their index.
    """

    def __init__(self, ledgers: Sequence[DeviceLedger]) -> None:
        self._ledgers = ledgers

    # --- exchanges ----------------------------------------------------------------------------------------------------

    def exchanged(self, operation: str, outcome: OutcomeClass, device: int, *_times: Any) -> None:
        """See :meth:`Observer.exchanged`."""
        ledger = self._ledgers[device]
        ledger.requests += 1
        ledger.failures += outcome is not OutcomeClass.OK

    def faulted(self, operation: str, device: int, sentence: str) -> None:
        """Why an exchange was no good one, for a person. See :class:`~simulator.fleet.device.model.Observer`."""
        faults = self._ledgers[device].faults
        faults.append(f"{operation}: {sentence}")
        del faults[:-_FAULTS_KEPT]

    # --- readings and effects -----------------------------------------------------------------------------------------

    def digest(self, values: Mapping[str, float]) -> int:
        """See :meth:`Ledger.digest`."""
        return digest_values(values)

    def reading_sent(
        self, device: int, sequence: int, digest: int, recorded_ms: int | None, made_s: float, at_s: float
    ) -> None:
        """See :meth:`Ledger.reading_sent`."""
        # On a server without recorded_at the number is all that a reading is known by.
        key = sequence if recorded_ms is None else recorded_ms
        self._ledgers[device].facts[sequence] = key, digest

    def readings(self, event: ReadingEvent, device: int, sequences: Sequence[int], at_s: float) -> None:
        """See :meth:`Ledger.readings`."""
        ledger = self._ledgers[device]
        if event == "accepted":
            ledger.accepted_numbers.update(sequences)
        elif event == "refused":
            ledger.refused_numbers.update(sequences)

    def command(self, event: CommandEvent, device: int, command_id: str, at_s: float, **facts: Any) -> None:
        """See :meth:`Ledger.command`."""
        if event == "started":
            self._ledgers[device].effects[command_id] += 1


# A long poll holds its connection: each device needs one for that, and one for the way out.
_SOCKETS_PER_DEVICE: Final = 2
_LOOK_S: Final = 1.0

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class FleetTarget:
    """The service that a fleet uses.

    Attributes:
        headers: the credential, sent with every request.
        offers: its extensions.
    """

    base_url: str
    headers: Mapping[str, str] = field(repr=False)
    offers: frozenset[str]


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """The ids of one registered device."""

    device_id: str
    product_id: str
    name: str


class FleetThread:
    """Virtual devices on an asyncio loop in a thread of its own, each with a ledger in memory.

    Once an error has ended its thread or a task in it, each call raises :class:`~simulator.watched.PartEnded`.

    Args:
        target: who they talk to.
        identities: the devices.
        model: what they are.
        seed: of signals, phases and jitter.
    """

    def __init__(
        self, target: FleetTarget, identities: Sequence[DeviceIdentity], model: DeviceModel, *, seed: int
    ) -> None:
        self._target = target
        self._identities = identities
        self._model = model
        self._seed = seed
        self._ledgers = [DeviceLedger(identity.device_id, identity.name) for identity in identities]
        self._failures: list[PartEnded] = []
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._on_exception)
        self._thread = make_thread(self._loop.run_forever, "fleet", self._fail)

    def __enter__(self) -> Self:
        """Start the thread; no device is on.

        Raises:
            ConfigurationError: the target is no address.
        """
        self._thread.start()
        self._call(self._build())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        closing = self._close()
        try:
            if self._loop.is_running():
                asyncio.run_coroutine_threadsafe(closing, self._loop).result()
            else:  # an error has ended it
                self._thread.join()
                self._loop.run_until_complete(closing)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    @property
    def ledgers(self) -> Mapping[str, DeviceLedger]:
        """What each device wrote down, by device id; complete only for devices that are off or settled."""
        return {ledger.device_id: ledger for ledger in self._ledgers}

    def switch_on(self) -> None:
        """Power for all devices."""
        self._call(self._each(self._driver.switch_on))

    def switch_off(self) -> None:
        """The power goes in this instant: what was in flight is cut off, and only the disks remain."""
        self._call(self._each(self._driver.switch_off))

    def look(self) -> None:
        """Raise when an error has ended it.

        Raises:
            PartEnded: what has ended.
        """
        if self._failures:
            raise self._failures[0]

    def settle(self, timeout_s: float) -> bool:
        """Read no more sensors, and wait until every device that is on has handed over everything; False: too late."""
        return self._call(self._settle(timeout_s))

    async def _build(self) -> None:
        target = self._target
        origin = read_origin(target.base_url)
        timers = Timers(LoopClock())
        connections = max(1, _SOCKETS_PER_DEVICE * len(self._identities))
        self._engine = Http1Engine(origin, timers, pool=connections)
        self._changed = asyncio.Event()
        ledger = MemoryLedger(self._ledgers)
        fleet = Fleet(
            timers=timers,
            offers=target.offers,
            seed=self._seed,
            run=uuid4().hex[:12],
            base_url=target.base_url,
            ledger=ledger,
            observer=ledger,
            on_news=self._changed.set,
        )
        self._driver = HttpDriver(
            self._engine,
            fleet,
            [Member(identity.device_id, identity.product_id, self._model) for identity in self._identities],
            [RequestHead(origin, target.headers)] * len(self._identities),
        )

    async def _settle(self, timeout_s: float) -> bool:
        self._driver.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._driver.has_settled():
                    self._changed.clear()
                    await self._changed.wait()
        return self._driver.has_settled()

    async def _close(self) -> None:
        await self._each(self._driver.switch_off)
        await self._engine.close()

    async def _each(self, switch: Callable[[int], None]) -> None:
        for number in range(len(self._ledgers)):
            switch(number)

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if ENDED in context:
            self._fail(context[ENDED], context["exception"])
        else:
            loop.default_exception_handler(context)

    def _fail(self, name: str, error: BaseException) -> None:
        self._failures.append(PartEnded(name, error))

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            self.look()
        except PartEnded:
            work.close()
            raise
        done = asyncio.run_coroutine_threadsafe(work, self._loop)
        while not wait((done,), _LOOK_S).done:
            if self._failures:
                done.cancel()
                raise self._failures[0]
        return done.result()
