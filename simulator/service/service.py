"""The service's parts, put together: what handlers work with."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.service.clock import SettableClock
from simulator.service.config import ServiceConfig
from simulator.service.due import Due
from simulator.service.feed import Feed
from simulator.service.ids import IdSource
from simulator.service.oauth.attempts import Attempts
from simulator.service.oauth.sessions import Sessions
from simulator.service.passwords import Passwords, hash_password
from simulator.service.presence import Presence
from simulator.service.quota import Quota
from simulator.service.rules.engine import Rules
from simulator.service.seed import Seed, SeedFaultsError, read_seed
from simulator.service.storage import clients, commands, grants, keys, people, reset, seeding, stored_answers, tokens
from simulator.service.storage.clients import NewClient, WantedClient
from simulator.service.storage.database import READERS, Database
from simulator.service.storage.keys import Caller, Keys
from simulator.service.storage.seeding import Target
from simulator.service.storage.stored_answers import RunningKeys
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
        self.clock = SettableClock(config.clock)
        self.due = Due(self.clock)
        self.due.register(_EndsOfCommands(self))
        self.due.register(_TimersOfRules(self))
        self.ids = IdSource(self.clock, config.seed)
        self.presence = Presence()
        self.waiters = Waiters()
        self.feed = Feed()
        self.running_keys = RunningKeys()
        self.passwords = Passwords()
        self.attempts = Attempts()
        self.sessions = Sessions(secure=(config.public_url or "").startswith("https:"))
        self.quota = Quota(config.rate_limit) if config.rate_limit else None
        self.started_ms = self.clock.now_ms()
        self.database = Database(config.data_dir, config.database)
        self.deadline = commands.Deadline()
        self.rules = Rules(self.ids, self.deadline, validate_commands=config.validate_commands)
        self.writer = Writer(self.database, self._before_commit, self.rules.have_changed)
        self.callers: dict[bytes, Caller] = {}
        self.on_reset: list[Callable[[Connection], None]] = []
        """What keeps something of the storage in memory reads it again here, inside the reset's transaction."""
        self.on_reset.append(self.rules.load)
        self.made_keys: Keys | None = None
        self.public_url = config.public_url or f"http://{config.host}:{config.port}"
        """The address that partners know it by, without a slash at the end; a server that listens elsewhere says so."""
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
        seed = read_seed(config.seed_file) if config.seed_file else None
        given = Keys(config.api_key, config.secret_key) if config.api_key and config.secret_key else None
        made = keys.ensure_first_account(connection, given, self.ids.next(), self.clock.now_ms())
        self.callers.update(keys.load_callers(connection))
        self.deadline.load(connection)
        self.rules.load(connection)
        if seed is not None:
            done = self._sow(connection, seed, self.callers[next(iter(self.callers))])
            if isinstance(done, SeedFaultsError):
                raise ConfigurationError([f"seed {config.seed_file} {line}" for line in done.lines()], "seed")
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

    def add_user(
        self,
        email: str,
        password: Secret | str,
        *,
        user_id: str | None = None,
        api_key: str | None = None,
        has_account: bool = True,
    ) -> str:
        """A person who may sign in. Called from any thread but the event loop's.

        Args:
            email: unique on the whole service.
            password: stored as argon2id.
            user_id: the person's id; made when None.
            api_key: a key of the account that the person belongs to; the first account when None.
            has_account: False for a person who is no manufacturer before the first approval of a partner.

        Returns:
            The person's id.

        Raises:
            ConfigurationError: the address or the password cannot be used, or there is no such account.
            ServiceFault: 409, the address or the id is taken.
        """
        account = self._account(api_key) if has_account else None
        password_hash = hash_password(people.check_password(password))
        person = people.make(email, password_hash, user_id or self.ids.next(), account)
        self.writer.call(lambda connection: people.add(connection, person, self.clock.now_ms()))
        return person.user_id

    def add_client(self, wanted: WantedClient, *, api_key: str | None = None) -> NewClient:
        """Register a partner application. Called from any thread but the event loop's.

        Args:
            wanted: what it is to be.
            api_key: a key of the account that it is registered by; the first account when None.

        Raises:
            ConfigurationError: it cannot be registered like that, or there is no such account.
            ServiceFault: 409, the id is taken.
        """
        account = self._account(api_key)
        client, made = clients.make(wanted)
        self.writer.call(lambda connection: clients.add(connection, account, client, self.clock.now_ms()))
        return made

    def _account(self, api_key: str | None) -> int:
        caller = self.callers.get((api_key or self.api_key).encode())
        if caller is None:
            raise ConfigurationError([f"there is no account with the key {api_key!r}"], "service accounts")
        return caller.manufacturer_seq

    def find_bearer(self, token: str) -> Caller | None:
        """Whom an access token speaks for; None when it is unknown or over."""
        now_ms = self.clock.now_ms()
        return self.read_now(lambda connection: tokens.find_bearer(connection, token, now_ms))

    async def read(self, query: Callable[[Connection], T]) -> T:
        """A read beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self.read_now, query)

    def read_now(self, query: Callable[[Connection], T]) -> T:
        """A read right here: for a few rows by key."""
        try:
            with self.database.reading() as connection:
                return query(connection)
        except DBAPIError as exc:
            if not exc.connection_invalidated:
                raise
        # That connection was of a server that has ended since: perhaps it was started anew. All others go with it.
        with self.database.reading() as connection:
            return query(connection)

    async def settle_due(self) -> None:
        """End the commands whose time is over, so that every listing is true."""
        now_ms = self.clock.now_ms()
        if self.deadline.is_due(now_ms):
            for device_seq in await self.writer.submit(lambda c: self.deadline.settle(c, now_ms)):
                self.waiters.wake(device_seq)

    def tell_of_commands(self, device_seqs: Iterable[int]) -> None:
        """Commands were sent to these devices: held polls and event streams wake up. Called on the event loop."""
        for device_seq in device_seqs:
            self.waiters.wake(device_seq)
        self.feed.wake()

    async def fire_timers(self, now_ms: int) -> None:
        """Fire the rules whose conditions have held for long enough."""
        while (next_ms := self.rules.next_due_ms) is not None and next_ms <= now_ms:
            changed = await self.writer.submit(lambda connection: self.rules.run_timers(connection, now_ms))
            if changed:
                self.tell_of_commands(changed)

    async def flush_presence(self) -> None:
        """Write who was seen, so that a filter on it is true."""
        if self.presence.is_pending:
            await self.writer.submit(lambda c: self.presence.flush(c, self.clock.now_ms()))

    async def reset(self, caller: Caller | None = None) -> None:
        """Delete everything but the accounts and their keys; what one account has when a caller is given."""
        account = None if caller is None else caller.manufacturer_seq
        await self.writer.submit(lambda connection: self._delete(connection, account))
        if self.quota is not None:
            of_account = [c.api_key for c in self.callers.values() if c.manufacturer_seq == account]
            self.quota.clear(None if account is None else of_account)
        self.sessions.sign_out_everybody()  # the row of a person who is gone may be the next one's
        self.attempts.clear()
        self.waiters.wake_all()
        self.feed.wake()

    def _delete(self, connection: Connection, account: int | None) -> None:
        if account is None:
            self.presence.clear()
            reset.delete_all(connection)
        else:
            self.presence.flush(connection, self.clock.now_ms())  # the other accounts' devices stay seen
            reset.delete_account(connection, account)
        self.deadline.load(connection)
        for reload in self.on_reset:
            reload(connection)

    def _sow(self, connection: Connection, seed: Seed, caller: Caller) -> dict[str, int] | SeedFaultsError:
        target = Target(caller.manufacturer_seq, self.ids.next, self.clock.now_ms())
        try:
            with connection.begin_nested():
                return seeding.apply(connection, seed, target)
        except SeedFaultsError as exc:
            return exc

    async def sow(self, seed: Seed, caller: Caller) -> dict[str, int]:
        """Bring an account to what the seed says, in one transaction.

        Returns:
            How many items were created, changed and unchanged.

        Raises:
            SeedFaultsError: what does not fit what is stored; then nothing was changed.
        """
        done = await self.writer.submit(lambda connection: self._sow(connection, seed, caller))
        if isinstance(done, SeedFaultsError):
            raise done
        return done

    def first_caller(self) -> Caller:
        """The account that the service always has."""
        return self.callers[self.api_key.encode()]

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
        await self.due.run_due(now_ms)
        if self.presence.is_due(now_ms):
            await self.flush_presence()
        if not 0 <= now_ms - self._pruned_ms < PRUNE_EVERY_MS:
            pruned = await self.writer.submit(lambda c: stored_answers.prune(c, now_ms))
            ended = await self.writer.submit(lambda c: max(tokens.prune(c, now_ms), grants.prune_codes(c, now_ms)))
            if pruned < stored_answers.PRUNE_ROWS and ended < tokens.PRUNE_ROWS:
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


class _EndsOfCommands:
    """Commands whose time ends, as something that falls due."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def next_due_ms(self) -> int | None:
        """The end of the open command that ends first."""
        return self._service.deadline.next_ms

    async def run_due(self, _now_ms: int) -> None:
        """End them."""
        await self._service.settle_due()


class _TimersOfRules:
    """Rules whose conditions have held for long enough, as something that falls due."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def next_due_ms(self) -> int | None:
        """When the next rule fires if no further reading comes."""
        return self._service.rules.next_due_ms

    async def run_due(self, now_ms: int) -> None:
        """Fire them."""
        await self._service.fire_timers(now_ms)
