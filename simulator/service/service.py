"""The service object: storage, clock, rules and what is kept in memory, for the handlers of requests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from sqlalchemy import Connection

from agent.errors import ConfigurationError
from agent.wire.instances import InstanceWatch
from simulator.service.accounts import Accounts, read_held
from simulator.service.clock import SettableClock
from simulator.service.config import ServiceConfig
from simulator.service.due import Due, EndsOfCommands, OverdueCommands, TimersOfRules
from simulator.service.epochs import Epochs
from simulator.service.errors import Conflict
from simulator.service.failure_log import FailureLog, already_logged
from simulator.service.faults.rules import FaultRules
from simulator.service.ids import IdSource
from simulator.service.ingest import ReadingStore
from simulator.service.matching import PathTemplates
from simulator.service.passwords import Passwords
from simulator.service.payload_checks import PayloadChecks
from simulator.service.presence import Presence
from simulator.service.quota import Quota
from simulator.service.request_log.recorder import Recorder
from simulator.service.request_log.store import RequestLog
from simulator.service.rules import Rules
from simulator.service.scripted.devices import ScriptedDevices
from simulator.service.seed import Seed, SeedFaultsError, read_seed
from simulator.service.sessions import Sessions
from simulator.service.snapshots import copies
from simulator.service.snapshots.folder import Snapshots
from simulator.service.storage import (
    accounts,
    commands,
    deleting,
    grants,
    keys,
    people,
    rule_firings,
    seeding,
    stored_answers,
    tokens,
)
from simulator.service.storage.database import READERS, Database
from simulator.service.storage.keys import Caller, Keys
from simulator.service.storage.seeding import Hashes, SeedTarget
from simulator.service.storage.stored_answers import RunningKeys
from simulator.service.storage.writer import Writer
from simulator.service.waiting import Feed, Waiters
from simulator.watched import PartEnded, start_task

log = logging.getLogger(__name__)

T = TypeVar("T")

TICK_S: Final = 0.5
PRUNE_EVERY_MS: Final = 60_000
SUMMARIES: Final = max(1, min(READERS, (os.cpu_count() or 1) // 2))
"""Summaries at once. Each keeps a core busy: half are for the rest."""


class Service:
    """One running service: storage, clock, and the little that is kept in memory.

    Args:
        config: its settings.

    Raises:
        ConfigurationError: the data folder cannot be used.
    """

    templates = PathTemplates({})
    """The paths that it has, once it is served."""

    recorder: Recorder | None = None
    """What notes requests, once it is served; None where none are kept or logged."""

    def __init__(self, config: ServiceConfig) -> None:
        self.config = config
        self.clock = SettableClock(config.clock)
        self.control_token = config.control_token
        self.due = Due(self.clock)
        self.ids = IdSource(self.clock, config.seed)
        self.presence = Presence()
        self.instances = InstanceWatch()
        self.waiters, self.feed, self.epochs = Waiters(), Feed(), Epochs()
        self.running_keys = RunningKeys()
        self.passwords = Passwords()
        self.sessions = Sessions()
        self.failure_log = FailureLog(log)
        self.started_ms = self.clock.now_ms()
        self.database = Database(config.data_dir)
        self.deadline = commands.Deadline()
        self.payload_checks = PayloadChecks()
        self.rules = Rules(
            self.ids, self.deadline, payload_checks=self.payload_checks if config.validate_commands else None
        )
        self.store_readings = ReadingStore(self.rules)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.failure: PartEnded | None = None
        """Which of its threads and tasks an error has ended; the server ends then."""
        self._on_failure: list[Callable[[PartEnded], object]] = []
        self.writer = Writer(
            self.database,
            self._before_commit,
            self._after_rollback,
            due_work=OverdueCommands(self.deadline, self.clock, self.commands_have_ended),
            on_failure=self.fail,
        )
        self.faults = FaultRules()
        self.scripted = self._make_scripted()
        self._register_due()
        own = Keys(config.api_key, config.secret_key) if config.api_key and config.secret_key else None
        self.accounts = Accounts(self.writer, self.ids, self.clock, Quota(config.rate_limit), own)
        self.callers, self.profiles, self.quota = self.accounts.callers, self.accounts.profiles, self.accounts.quota
        self.on_reset: list[Callable[[Connection], None]] = [self.rules.load]
        """What keeps something of the storage in memory reads it again here, inside the reset's transaction."""
        self.public_url = f"http://{config.host}:{config.port}"
        """The address that partners know it by, without a slash at the end; a server that listens elsewhere says so."""
        # Of their own, so that no device's poll waits behind four long lists, and no list behind four summaries;
        # threads begin when they are needed.
        self._looking_up, self._readers, self._summing = (
            ThreadPoolExecutor(READERS, thread_name_prefix="service-look-up"),
            ThreadPoolExecutor(READERS, thread_name_prefix="service-reader"),
            ThreadPoolExecutor(SUMMARIES, thread_name_prefix="service-summary"),
        )
        self.snapshots = Snapshots(config.snapshots_dir, self.database.folder)
        self._pruned_ms = 0
        self.writer.start()
        try:
            seed = read_seed(config.seed_file) if config.seed_file else Seed()
            hashes = self._hash_passwords(seed)
            self.made_keys = self.writer.call(lambda connection: self._open(connection, seed, hashes))
            self.accounts.own = self.made_keys or own
        except BaseException:
            self.close()
            raise

    @functools.cached_property
    def requests(self) -> RequestLog:
        """The last requests and their answers, which only the control surface shows."""
        return RequestLog(self.config.keep_requests if self.config.control else 0, self.templates.find)

    def _make_scripted(self) -> ScriptedDevices:
        return ScriptedDevices(
            clock=self.clock,
            ids=self.ids,
            writer=self.writer,
            waiters=self.waiters,
            presence=self.presence,
            store_readings=self.store_readings,
            look_up=self.look_up,
            wake_devices=self.wake_devices,
        )

    def _register_due(self) -> None:
        self.due.register(EndsOfCommands(self.deadline, self.settle_due))
        self.due.register(TimersOfRules(self.rules, self.fire_timers))
        self.due.register(self.scripted)  # last: it acts on what the others have done

    def _hash_passwords(self, seed: Seed) -> Hashes:
        """Before the first account is there, or for it."""
        caller = next(iter(self.read_now(keys.load_callers).values()), None)
        if caller is None:
            return seeding.hash_passwords(seed, {})
        return seeding.hash_passwords(seed, self.read_now(lambda c: seeding.find_hashes(c, seed)))

    def _open(self, connection: Connection, seed: Seed, hashes: Hashes) -> Keys | None:
        config = self.config
        if config.snapshot is not None:
            header = copies.begin_with(connection, config.snapshot, self.database.where)
            self.clock.restore(header.clock)
            self.ids.restart(copies.digest_of(config.snapshot))
            with copies.faults_of_option(config.snapshot), copies.rows_are_of_a_snapshot():
                made = self._open_accounts(connection)
        else:
            made = self._open_accounts(connection)
        self.deadline.load(connection)
        self.rules.load(connection)
        # In the same transaction: a first start that fails must not leave an account whose keys nobody was shown.
        done = self._apply_seed(connection, seed, self._target(next(iter(self.callers.values())), hashes))
        if isinstance(done, SeedFaultsError):
            raise ConfigurationError([f"seed {config.seed_file} {line}" for line in done.lines()], "seed")
        return made

    def _open_accounts(self, connection: Connection) -> Keys | None:
        made = self.accounts.keep_own(connection)
        if self.config.profile is not None:
            self.profiles.store(connection, accounts.first(connection), self.config.profile)
        self.accounts.hold(read_held(connection))
        return made

    def _target(self, caller: Caller, hashes: Hashes) -> SeedTarget:
        return SeedTarget(caller.manufacturer_seq, self.ids.next, self.clock.now_ms(), hashes)

    def fail(self, name: str, error: BaseException) -> None:
        """A thread or task without which nothing that is answered is true has ended. From any thread."""
        if self.failure is None:
            self.failure = PartEnded(name, error)
            log.critical("%s: the service ends", self.failure)
            for call in self._on_failure:
                call(self.failure)

    def on_failed(self, call: Callable[[PartEnded], object]) -> None:
        """Have it called with the first failure, in the thread that fails; at once when that has been."""
        self._on_failure.append(call)
        if self.failure is not None:
            call(self.failure)

    async def find_bearer(self, token: str) -> Caller | None:
        """Whom an access token speaks for; None when it is unknown or over."""
        now_ms = self.clock.now_ms()
        return await self.look_up(lambda connection: tokens.find_bearer(connection, token, now_ms))

    async def look_up(self, query: Callable[[Connection], T]) -> T:
        """A read of a few rows by key. Like every read it runs in a thread: the event loop's serves all requests."""
        return await self._read_in(self._looking_up, query)

    async def read(self, query: Callable[[Connection], T]) -> T:
        """A read of a page; as :meth:`look_up`."""
        return await self._read_in(self._readers, query)

    async def summarise(self, query: Callable[[Connection], T]) -> T:
        """A read that looks at as many rows as there are; as :meth:`look_up`. Few run at once, the others wait."""
        return await self._read_in(self._summing, query)

    async def _read_in(self, threads: ThreadPoolExecutor, query: Callable[[Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, self.read_now, query)

    def read_now(self, query: Callable[[Connection], T]) -> T:
        """A read in this thread; on the event loop use :meth:`look_up`."""
        with self.database.reading() as connection:
            return query(connection)

    async def settle_due(self) -> None:
        """End the commands whose time is over, so that every listing is true.

        Raises:
            Unavailable: it cannot be stored.
        """
        if self.deadline.is_due(self.clock.now_ms()):
            await self.writer.submit(lambda _connection: None)  # the writer ends them before any group

    def wake_devices(self, device_seqs: Iterable[int]) -> None:
        """Wake held polls and event streams: commands were sent to these devices. Called on the event loop."""
        self._wake(device_seqs)
        self.feed.wake()

    async def fire_timers(self, now_ms: int) -> None:
        """Fire the rules whose conditions have held for long enough."""
        while (next_ms := self.rules.next_due_ms) is not None and next_ms <= now_ms:
            changed = await self.writer.submit(lambda connection: self.rules.run_timers(connection, now_ms))
            if changed:
                self.wake_devices(changed)

    async def flush_presence(self) -> None:
        """Write who was seen, so that a filter on it is true."""
        if self.presence.is_pending:
            await self.writer.submit(lambda c: self.presence.flush(c, self.clock.now_ms()))

    async def reset(self, caller: Caller | None = None) -> None:
        """Delete everything but the accounts and their keys; what one account has when a caller is given."""
        account = None if caller is None else caller.manufacturer_seq
        async with self.snapshots.turn if account is None else contextlib.nullcontext():
            gone = await self.writer.submit(lambda connection: self._delete(connection, account))
        of_account = [c.api_key for c in self.callers.values() if c.manufacturer_seq == account]
        self.quota.clear(None if account is None else of_account)
        self._forget(gone)
        self.requests.clear(account)
        await self.scripted.refresh()
        if account is None:
            self.sessions.sign_out_everybody()
            self.clock.follow_base()  # a clock that somebody left standing would outlive everything that it was set for
        self.faults.clear(account)

    async def remove_account(self, account: int) -> None:
        """Delete an account with its keys and all that it has.

        Raises:
            Conflict: ``first_account``: the service always has that one.
        """
        if account == self.first_caller().manufacturer_seq:
            raise Conflict("first_account", "The service always has its first account: a reset empties it.")

        def remove(connection: Connection) -> list[int]:
            gone = self._delete(connection, account)
            accounts.remove(connection, account)
            return gone

        # Nobody comes in with its keys any more, and what has come in before writes nothing after this.
        self.accounts.forget(account)
        self.faults.clear(account)
        self.epochs.account_deleted()
        try:
            self._forget(await self.writer.submit(remove))
            self.requests.clear(account)
            await self.scripted.refresh()
        except BaseException:
            self.accounts.hold(await self.look_up(read_held))
            raise

    def _forget(self, person_seqs: Collection[int]) -> None:
        """Rows were deleted, whose numbers may be given out again: those of devices, and those of people."""
        self.presence.forget_written()
        self.sessions.sign_out_people(person_seqs)
        self.waiters.wake_all()
        self.feed.wake()

    def _delete(self, connection: Connection, account: int | None) -> list[int]:
        """Delete what an account has, or everything; the people who were signed in to it."""
        gone = people.of_account(connection, account)
        if account is None:
            self.presence.clear()
            deleting.delete_all(connection)
        else:
            self.presence.flush(connection, self.clock.now_ms())  # the other accounts' devices stay seen
            deleting.delete_account(connection, account)
        self.deadline.load(connection)
        for reload in self.on_reset:
            reload(connection)
        return gone

    def _apply_seed(self, connection: Connection, seed: Seed, target: SeedTarget) -> dict[str, int] | SeedFaultsError:
        try:
            with connection.begin_nested():
                done = seeding.apply(connection, seed, target)
        except SeedFaultsError as exc:
            return exc
        if seed.rules:
            self.rules.have_changed()
        return done

    async def apply_seed(self, seed: Seed, caller: Caller) -> dict[str, int]:
        """Bring an account to what the seed says, in one transaction.

        Returns:
            How many items were created, changed and unchanged.

        Raises:
            SeedFaultsError: what does not fit what is stored; then nothing was changed.
        """
        stored = await self.read(lambda c: seeding.find_hashes(c, seed))
        hashes = await asyncio.to_thread(seeding.hash_passwords, seed, stored)
        target = self._target(caller, hashes)
        done = await self.writer.submit(lambda connection: self._apply_seed(connection, seed, target))
        if isinstance(done, SeedFaultsError):
            raise done
        return done

    def first_caller(self) -> Caller:
        """The account that the service always has."""
        return self.callers[self.accounts.api_key.encode()]

    @contextlib.asynccontextmanager
    async def running(self, _app: object = None) -> AsyncIterator[None]:
        """What happens between requests, from the server's start to its end."""
        self._loop = asyncio.get_running_loop()
        tasks = [
            start_task(self._tick(), "service-tick", self.fail),
            start_task(self.scripted.serve(), "service-scripted", self.fail),
        ]
        try:
            yield
        except BaseException as error:
            if not self.waiters.closing:  # the server's task of this block has ended, and the server goes on
                self.fail("service-lifespan", error)
            raise
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(tasks)
            if self.writer.is_alive:
                await self.flush_presence()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self._do_due()
            except Exception as exc:  # a full disk must not end expiry for ever
                if not already_logged(exc):
                    log.exception("the service's regular work failed; it is tried again")

    async def _do_due(self) -> None:
        now_ms = self.clock.now_ms()
        await self.due.run_due(now_ms)
        self.scripted.tick(now_ms)
        if self.presence.is_due(now_ms):
            await self.flush_presence()
        if not 0 <= now_ms - self._pruned_ms < PRUNE_EVERY_MS and not await self._prune(now_ms):
            self._pruned_ms = now_ms

    async def _prune(self, now_ms: int) -> bool:
        """Delete what is kept for a while only, a bounded number of rows of each kind; whether more is left."""
        more = False
        for prune in (stored_answers.prune, tokens.prune, grants.prune_codes, rule_firings.prune):
            rows = await self.writer.submit(functools.partial(prune, now_ms=now_ms))
            more = more or rows >= stored_answers.PRUNE_ROWS
        return more

    def commands_have_ended(self, device_seqs: Sequence[int]) -> None:
        """Their time was over, and that is committed. Called from the writing thread."""
        self._on_loop(functools.partial(self._wake, device_seqs))

    def _wake(self, device_seqs: Iterable[int]) -> None:
        for device_seq in device_seqs:
            self.waiters.wake(device_seq)

    def _after_rollback(self) -> None:
        """What is kept in memory may not be what is stored. Called from the writing thread."""
        self.rules.have_changed()
        self.deadline.doubt()
        self.presence.restore()
        self._on_loop(self.waiters.wake_all)

    def _on_loop(self, action: Callable[[], object]) -> None:
        """Before the answers of the group that is being written, which go the same way."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
                loop.call_soon_threadsafe(action)

    def _before_commit(self, connection: Connection) -> None:
        now_ms = self.clock.now_ms()
        if self.presence.is_due(now_ms):
            self.presence.flush(connection, now_ms)

    def close(self) -> None:
        """Write what waits and close the storage. Called after the server has ended."""
        self.snapshots.close()
        self.payload_checks.close()
        self.writer.stop()
        for threads in (self._looking_up, self._readers, self._summing):
            threads.shutdown()
        self.database.close()
