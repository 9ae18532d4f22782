"""A fleet over HTTP: any number of virtual devices on one asyncio loop, each switched on and off as one pleases."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from uuid import uuid4

from agent.core.values import Moment
from agent.errors import ServiceError
from simulator.fleet.device.exchange import Speaker
from simulator.fleet.device.ledger import DeviceLedger
from simulator.fleet.device.store import Disk
from simulator.fleet.device.virtual_device import Channel, DeviceModel, VirtualDevice
from simulator.fleet.engine.pool import HttpPool

_LONGEST_WAIT_S: Final = 60.0

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class FleetTarget:
    """The service that a fleet talks to.

    Attributes:
        headers: the credential, sent with every request.
        offers: its extensions.
    """

    base_url: str
    headers: Mapping[str, str] = field(repr=False)
    offers: frozenset[str]


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """One registered device."""

    device_id: str
    product_id: str
    name: str


class Fleet:
    """Virtual devices on the running loop.

    Args:
        target: who they talk to.
        identities: the devices.
        model: what they are.
        seed: of signals, phases and jitter.
        now: the clocks.
    """

    def __init__(
        self,
        target: FleetTarget,
        identities: Sequence[DeviceIdentity],
        model: DeviceModel,
        *,
        seed: int,
        now: Callable[[], Moment] | None = None,
    ) -> None:
        # A long poll holds its connection: each device needs one for that, and all share some for the way out.
        self._pool = HttpPool(target.base_url, target.headers, connections=2 * len(identities) + 1)
        self._now = now or _system_moments()
        run = uuid4().hex[:12]
        self._changed = asyncio.Event()
        self._posts: dict[str, _Post] = {}
        for index, identity in enumerate(identities):
            speaker = Speaker(identity.device_id, identity.product_id, target.offers)
            life = _Life(speaker, model, Disk.empty(f"{run}-{index}"), seed, random.Random(f"{seed}-{index}").random)  # noqa: S311 - jitter, no secret
            self._posts[identity.device_id] = _Post(identity.name, life, self._changed.set)

    @property
    def ledgers(self) -> Mapping[str, DeviceLedger]:
        """What each device wrote down, by device id."""
        return {device_id: post.ledger for device_id, post in self._posts.items()}

    def switch_on(self, device_ids: Sequence[str] | None = None) -> None:
        """Power for these devices, or for all."""
        for post in self._chosen(device_ids):
            post.switch_on(self._pool, self._now)

    async def switch_off(self, device_ids: Sequence[str] | None = None) -> None:
        """The power goes in this instant: what was in flight is cut off, and only the disks remain."""
        await asyncio.gather(*(post.switch_off() for post in self._chosen(device_ids)))

    def sample(self, *, on: bool) -> None:
        """Read the sensors, or stop reading them."""
        for post in self._posts.values():
            if post.device is not None:
                post.device.sampling = on
                post.news.set()

    async def settle(self, timeout_s: float) -> list[str]:
        """Wait until every device that is on has handed over everything; the names of those that have not in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._unsettled():
                    self._changed.clear()
                    await self._changed.wait()
        return self._unsettled()

    async def close(self) -> None:
        """Switch everything off and close the connections."""
        await self.switch_off()
        await self._pool.close()

    def _unsettled(self) -> list[str]:
        return [
            post.ledger.name for post in self._posts.values() if post.device is not None and not post.device.settled
        ]

    def _chosen(self, device_ids: Sequence[str] | None) -> list[_Post]:
        return [self._posts[name] for name in (self._posts if device_ids is None else device_ids)]


@dataclass(frozen=True, slots=True)
class _Life:
    """What each life of a device begins with."""

    speaker: Speaker
    model: DeviceModel
    disk: Disk
    seed: int
    fraction: Callable[[], float]


class _Post:
    """One device's place on the loop: its disk and ledger for ever, its life while the power is on."""

    def __init__(self, name: str, life: _Life, on_change: Callable[[], None]) -> None:
        self._life = life
        self._on_change = on_change
        self._tasks: list[asyncio.Task[None]] = []
        self.ledger = DeviceLedger(life.speaker.device_id, name)
        self.device: VirtualDevice | None = None
        self.news = asyncio.Event()

    def switch_on(self, pool: HttpPool, now: Callable[[], Moment]) -> None:
        if self.device is not None:
            return
        life = self._life
        device = VirtualDevice(
            life.speaker, life.model, life.disk, self.ledger, seed=life.seed, fraction=life.fraction, now=now()
        )
        self.device = device
        self._tasks = [
            asyncio.create_task(self._run(device, channel, pool, now), name=f"{self.ledger.name}:{channel.name}")
            for channel in Channel
        ]

    async def switch_off(self) -> None:
        self.device = None
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended

    async def _run(self, device: VirtualDevice, channel: Channel, pool: HttpPool, now: Callable[[], Moment]) -> None:
        while True:
            sent = now()
            ask = device.ask(channel, sent)
            if ask is None:
                await self._rest(device.due_s(channel) - now().monotonic_s)
                continue
            try:
                answer = await pool.request(
                    ask.method, ask.target, body=ask.body, headers=ask.headers, wait_s=ask.wait_s
                )
            except ServiceError as error:
                device.failed(ask, error, now())
            else:
                device.answered(ask, answer, sent, now())
            self.news.set()
            self._on_change()

    async def _rest(self, seconds: float) -> None:
        """Until something is due, or the other channel brought news."""
        self.news.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(max(seconds, 0.0), _LONGEST_WAIT_S)):
                await self.news.wait()


class FleetThread:
    """A fleet on a loop in a thread of its own, for callers that are not asynchronous.

    Args:
        target, identities, model, seed: as for :class:`Fleet`.
    """

    def __init__(
        self, target: FleetTarget, identities: Sequence[DeviceIdentity], model: DeviceModel, *, seed: int
    ) -> None:
        self._loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="fleet", daemon=True)
        self._make: Callable[[], Fleet] = lambda: Fleet(target, identities, model, seed=seed)

    def __enter__(self) -> Self:
        self._thread.start()
        self._fleet = self._call(self._made())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._call(self._fleet.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    @property
    def ledgers(self) -> Mapping[str, DeviceLedger]:
        """See :attr:`Fleet.ledgers`; complete only for devices that are off or settled."""
        return self._fleet.ledgers

    def switch_on(self, device_ids: Sequence[str] | None = None) -> None:
        """See :meth:`Fleet.switch_on`."""
        self._call(_soon(lambda: self._fleet.switch_on(device_ids)))

    def switch_off(self, device_ids: Sequence[str] | None = None) -> None:
        """See :meth:`Fleet.switch_off`."""
        self._call(self._fleet.switch_off(device_ids))

    def sample(self, *, on: bool) -> None:
        """See :meth:`Fleet.sample`."""
        self._call(_soon(lambda: self._fleet.sample(on=on)))

    def settle(self, timeout_s: float) -> list[str]:
        """See :meth:`Fleet.settle`."""
        return self._call(self._fleet.settle(timeout_s))

    def _run(self) -> None:
        self._loop.run_forever()

    async def _made(self) -> Fleet:
        return self._make()

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _soon(work: Callable[[], None]) -> None:
    work()


def _system_moments() -> Callable[[], Moment]:
    boot_id = uuid4().hex
    return lambda: Moment(time.monotonic(), time.time(), boot_id)
