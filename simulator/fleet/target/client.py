"""Many requests to the target's own interface before and after a run: concurrent, patient, and each until it is clear.

The load of a run is measured and never repeated here; what is asked here prepares it and is repeated until it is done.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import httpx

from agent.errors import Advice, ErrorAnswer, RateLimited, ServiceError
from agent.health import Backoff
from agent.wire.answers import Answer, PageWalk, Params
from agent.wire.encoding import encode_json
from agent.wire.limits import PAGE_MAX
from agent.wire.server import LIST_PARAMETERS, NO_EXTENSIONS
from simulator.fleet.device.answers import Retries, judge
from simulator.fleet.engine.pool import HttpPool
from simulator.fleet.target.target import Target
from simulator.keys import Keys

PATIENCE_S: Final = 30.0
"""For one answer, at least."""
_RETRY_AFTER_DEFAULT_S: Final = 5.0
"""The wait after a 429 that names none: twelve tries see the next minute of a quota that is counted per minute."""
_SHORTEST_S: Final = 0.1
_TRIES_MAX: Final = 8
_CONCURRENCY: Final = 32
_BACKOFF: Final = Backoff(base_s=0.2, cap_s=5.0)

Item = TypeVar("Item")
Sleep = Callable[[float], Awaitable[object]]


class Keyring:
    """Key pairs that share what belongs to no device: provisioning, cleanup, the audit's reading back.

    A device has one pair for the whole run instead, as it would in the field (:func:`~simulator.fleet.plan.key_of`).

    Args:
        pairs: at least one.
    """

    def __init__(self, pairs: Sequence[Keys]) -> None:
        self._headers = [pair.headers() for pair in pairs]
        self._free_at_s = [0.0] * len(pairs)
        self._turn = 0

    def headers(self, key: int) -> Mapping[str, str]:
        """The headers of the pair of this number, modulo their count."""
        return self._headers[key % len(self._headers)]

    def soonest(self, now_s: float) -> tuple[int, float]:
        """The key to use next, and how long to wait for it; 0 when it may be used now. Free keys take turns."""
        count = len(self._headers)
        self._turn += 1
        turns = range(self._turn, self._turn + count)
        wait_s, turn = min((max(0.0, self._free_at_s[turn % count] - now_s), turn) for turn in turns)
        return turn % count, wait_s

    def refused(self, key: int, retry_after_s: float | None, now_s: float) -> None:
        """A 429 came for this key: it rests until its wait is over, and the others go on."""
        wait_s = _RETRY_AFTER_DEFAULT_S if retry_after_s is None else max(_SHORTEST_S, retry_after_s)
        self._free_at_s[key] = max(self._free_at_s[key], now_s + wait_s)


class TargetClient:
    """Requests to one service with a pool of keys; a key that has to wait lets others go.

    Attributes:
        paging: query parameters that make the pages of a list large.

    Args:
        pool: the connections; it carries no credential.
        keys: they share the load.
        offers: the service's extensions: what is beyond the specification is asked for where it has them.
        sleep: waits that many seconds.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        pool: HttpPool,
        keys: Keyring,
        offers: frozenset[str] = NO_EXTENSIONS,
        *,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._base = httpx.URL(pool.base_url)
        self._prefix = self._base.raw_path.decode("ascii").rstrip("/")
        self._pool = pool
        self._keys = keys
        self._sleep = sleep
        self._clock = clock
        self.paging: Params = {"limit": PAGE_MAX} if LIST_PARAMETERS in offers else {}

    async def ask(self, method: str, target: str, body: Any = None, *, once: str | None = None) -> Answer:
        """One request until it is answered for good; what may pass by itself is asked again.

        Args:
            method: ``GET``, ``POST`` ...
            target: path and query below the base address, percent-encoded.
            body: JSON value, or None.
            once: the idempotency key of a request that must not be carried out twice.

        Raises:
            ServiceError: the service refused it, or did not answer through all tries.
        """
        retries = Retries(_BACKOFF, random.random)
        text = None if body is None else encode_json(body)
        extra = {} if once is None else {"idempotency-key": once}
        while True:
            key = await self._free_key()
            headers = {**self._keys.headers(key), **extra}
            try:
                answer = judge(await self._pool.request(method, target, body=text, headers=headers))
            except RateLimited as error:
                self._keys.refused(key, error.retry_after_s, self._clock())
            except ServiceError as error:
                lasting = isinstance(error, ErrorAnswer) and error.advice is not Advice.RETRY
                if lasting or retries.failures >= _TRIES_MAX:
                    raise
                await self._sleep(retries.failed(error))
            else:
                return answer

    async def _free_key(self) -> int:
        while True:
            key, wait_s = self._keys.soonest(self._clock())
            if wait_s <= 0:
                return key
            await self._sleep(wait_s)

    async def pages(self, path: str, query: Mapping[str, str | int]) -> AsyncIterator[list[Any]]:
        """The pages of a list, one after the other, by cursor or by link.

        Raises:
            ServiceError: a page did not come, or the list never ends.
        """
        walk = PageWalk(path, query, self._base.copy_with(raw_path=f"{self._prefix}{path}".encode("ascii")))
        while not walk.done:
            answer = await self.ask("GET", self._below(walk.target, walk.params))
            page = walk.take(answer)
            yield page.items
            walk.proceed(answer, page)

    def _below(self, target: str, params: Params) -> str:
        """Path and query below the base address; a link comes as an absolute URL of the same origin."""
        path = target.removeprefix(str(self._base.copy_with(raw_path=b"/")).rstrip("/")).removeprefix(self._prefix)
        return f"{path}?{urlencode(params)}" if params else path


@asynccontextmanager
async def open_client(
    target: Target, offers: frozenset[str] = NO_EXTENSIONS, *, timeout_s: float = PATIENCE_S
) -> AsyncIterator[TargetClient]:
    """A client with connections of its own, for the length of the block; all keys of the target share the load.

    Args:
        target: whose service is asked.
        offers: as for :class:`TargetClient`.
        timeout_s: the devices' patience. The client has more, since a page that a hurried client gives up is one that
            nobody has looked at.

    Raises:
        ConfigurationError: the address is none.
    """
    patience_s = max(timeout_s, PATIENCE_S)
    pool = HttpPool(target.base_url, connections=_CONCURRENCY, timeout_s=patience_s, ca_file=target.ca_file)
    try:
        yield TargetClient(pool, Keyring(target.keys), offers)
    finally:
        await pool.close()


async def for_each(items: Iterable[Item], work: Callable[[Item], Awaitable[None]]) -> None:
    """Do the work for every item, a few at once; the first error stops the rest and is raised."""
    waiting = iter(items)

    async def take() -> None:
        for item in waiting:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(_CONCURRENCY):
                group.create_task(take())
    except* Exception as errors:  # noqa: BLE001 - the first of them ends it, whatever it is
        raise errors.exceptions[0] from None
