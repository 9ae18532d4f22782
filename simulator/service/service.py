"""The service's parts, put together: what handlers work with."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from sqlalchemy import Connection

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.service.config import ServiceConfig
from simulator.service.ids import IdSource
from simulator.service.presence import Presence
from simulator.service.quota import Quota
from simulator.service.storage import commands, keys, stored_answers
from simulator.service.storage.database import READERS, Database
from simulator.service.storage.keys import Caller, Keys
from simulator.service.storage.stored_answers import RunningKeys
from simulator.service.storage.tables import METADATA
from simulator.service.storage.writer import Writer
from simulator.service.waiting import Waiters

log = logging.getLogger(__name__)

T = TypeVar("T")

TICK_S: Final = 0.5
PRUNE_EVERY_MS: Final = 60_000


class Service:
    """One running service: storage, clock, and the little that is kept in memory.

    Args:
        config: its settings.

    Raises:
        ConfigurationError: the data folder cannot be used.
    """

    def __init__(self, config: ServiceConfig) -> None:
        self.config = config
        self.clock = config.clock
        self.ids = IdSource(config.clock, config.seed)
        self.presence = Presence()
        self.waiters = Waiters()
        self.running_keys = RunningKeys()
        self.quota = Quota(config.rate_limit) if config.rate_limit else None
        self.started_ms = self.clock.now_ms()
        self.database = Database(config.data_dir)
        self.writer = Writer(self.database, self._before_commit)
        self.deadline = commands.Deadline()
        self.callers: dict[bytes, Caller] = {}
        self.made_keys: Keys | None = None
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="service-reader")
        self._pruned_ms = 0
        self.writer.start()
        try:
            self.made_keys = self.writer.call(self._open)
        except BaseException:
            self.close()
            raise

    def _open(self, connection: Connection) -> Keys | None:
        config = self.config
        given = Keys(config.api_key, config.secret_key) if config.api_key and config.secret_key else None
        made = keys.ensure_first_account(connection, given, self.ids.next(), self.clock.now_ms())
        self.callers.update(keys.load_callers(connection))
        self.deadline.load(connection)
        return made

    @property
    def api_key(self) -> str:
        """The public key to use: the one given, made just now, or the oldest stored."""
        if self.config.api_key:
            return self.config.api_key
        if self.made_keys:
            return self.made_keys.api_key
        return next(iter(self.callers.values())).api_key

    @property
    def secret_key(self) -> Secret:
        """The secret that belongs to :attr:`api_key`.

        Raises:
            ConfigurationError: it was shown on the first start and only its hash was kept.
        """
        if self.config.secret_key:
            return self.config.secret_key
        if self.made_keys:
            return self.made_keys.secret_key
        raise ConfigurationError(
            [f"the secret key of {self.api_key} was shown on the first start and is not kept: give it again"], "service"
        )

    def add_account(self, name: str) -> Keys:
        """A further manufacturer with keys of its own. Called from any thread but the event loop's."""
        made = keys.make_keys()
        caller = self.writer.call(
            lambda connection: keys.add_account(connection, name, self.ids.next(), made, self.clock.now_ms())
        )
        self.callers[caller.api_key.encode()] = caller
        return made

    async def read(self, query: Callable[[Connection], T]) -> T:
        """A read beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self.read_now, query)

    def read_now(self, query: Callable[[Connection], T]) -> T:
        """A read right here: for a few rows by key."""
        with self.database.reading() as connection:
            return query(connection)

    async def settle_due(self) -> None:
        """End the commands whose time is over, so that every listing is true."""
        now_ms = self.clock.now_ms()
        if self.deadline.is_due(now_ms):
            for device_seq in await self.writer.submit(lambda c: self.deadline.settle(c, now_ms)):
                self.waiters.wake(device_seq)

    async def flush_presence(self) -> None:
        """Write who was seen, so that a filter on it is true."""
        if self.presence.is_pending:
            await self.writer.submit(lambda c: self.presence.flush(c, self.clock.now_ms()))

    async def reset(self) -> None:
        """Delete everything but the accounts and their keys."""
        await self.writer.submit(self._delete_all)
        self.presence.clear()
        if self.quota is not None:
            self.quota.clear()
        self.waiters.wake_all()

    def _delete_all(self, connection: Connection) -> None:
        for table in reversed(METADATA.sorted_tables):
            if table.name not in {"manufacturers", "api_keys"}:
                connection.execute(table.delete())
        self.deadline.load(connection)

    @contextlib.asynccontextmanager
    async def running(self, _app: object = None) -> AsyncIterator[None]:
        """What happens between requests, from the server's start to its end."""
        ticking = asyncio.create_task(self._tick(), name="service-tick")
        try:
            yield
        finally:
            ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticking
            await self.flush_presence()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self._do_due()
            except Exception:  # a full disk must not end expiry for ever
                log.exception("the service's regular work failed; it is tried again")

    async def _do_due(self) -> None:
        now_ms = self.clock.now_ms()
        await self.settle_due()
        if self.presence.is_due(now_ms):
            await self.flush_presence()
        if not 0 <= now_ms - self._pruned_ms < PRUNE_EVERY_MS:
            pruned = await self.writer.submit(lambda c: stored_answers.prune(c, now_ms))
            if pruned < stored_answers.PRUNE_ROWS:
                self._pruned_ms = now_ms

    def _before_commit(self, connection: Connection) -> None:
        now_ms = self.clock.now_ms()
        if self.presence.is_due(now_ms):
            self.presence.flush(connection, now_ms)

    def close(self) -> None:
        """Write what waits and close the storage. Called after the server has ended."""
        self.writer.stop()
        self._readers.shutdown()
        self.database.close()
