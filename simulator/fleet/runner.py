"""A fleet over HTTP: any number of virtual devices on one asyncio loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from uuid import uuid4

from simulator.fleet.device.driver import HttpDriver
from simulator.fleet.device.memory_ledger import DeviceLedger, MemoryLedger
from simulator.fleet.device.model import DeviceModel, Fleet, Member
from simulator.fleet.engine.http import Http1Engine
from simulator.fleet.engine.origin import RequestHead, read_origin
from simulator.fleet.engine.wheel import LoopClock, Wheel
from simulator.watched import ENDED, PartEnded, make_thread

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
        wheel = Wheel(LoopClock())
        connections = max(1, _SOCKETS_PER_DEVICE * len(self._identities))
        self._engine = Http1Engine(origin, wheel, pool=connections)
        self._changed = asyncio.Event()
        ledger = MemoryLedger(self._ledgers)
        fleet = Fleet(
            wheel=wheel,
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
        self._driver.sample(on=False)
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
