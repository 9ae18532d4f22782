"""The service object: storage, clock, and the little that is kept in memory, for the handlers of requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final

from agent.wire.instances import InstanceWatch
from agent.wire.limits import IDEMPOTENCY_S
from agent.wire.secret import Secret
from simulator.service.api.rules import Rules
from simulator.service.caller import Caller
from simulator.service.changes import Changes
from simulator.service.child_program import ChildProgram
from simulator.service.clock import SettableClock, Timers
from simulator.service.config import ServiceConfig
from simulator.service.connections import Connections
from simulator.service.control.accounts import Keys, first_account, open_first_account
from simulator.service.control.faults import FaultRules
from simulator.service.control.requests import RequestLog
from simulator.service.control.seed import sow_file
from simulator.service.db import Database
from simulator.service.ids import IdSource
from simulator.service.oauth.sessions import Sessions
from simulator.service.oauth.store import forget_clients_of
from simulator.service.oauth.tokens import find_bearer, prune
from simulator.service.quota import Quota

if TYPE_CHECKING:
    from simulator.service.control.devices import ScriptedDevices
    from simulator.service.control.matching import Paths

log = logging.getLogger(__name__)

TICK_S: Final = 0.5
FLUSH_SEEN_MS: Final = 5_000
PRUNE_EVERY_MS: Final = 60_000
PRUNE_ROWS: Final = 5_000
ACCOUNT_TABLES: Final = (
    "users",
    "products",
    "devices",
    "commands",
    "readings",
    "stored_answers",
    "reading_keys",
    "schemas",
    "tables",
    "runtime_records",
    "rules",
    "people",
    "partner_clients",
    "grants",
    "authorization_codes",
    "tokens",
)
"""Tables whose rows belong to an account: what a reset empties."""


class Service:
    """One running service. Only the event loop's thread uses it once requests are served.

    Args:
        config: its settings.

    Raises:
        ConfigurationError: the data folder or the seed cannot be used.
    """

    paths: Paths
    """Of the API, once there is an application."""
    scripted: ScriptedDevices
    """The devices that the service plays, once there is an application."""

    def __init__(self, config: ServiceConfig) -> None:
        self.config = config
        self.clock = SettableClock(config.clock)
        self.ids = IdSource(self.clock, config.seed)
        self.timers = Timers(self.clock)
        self.changes = Changes()
        self.instances = InstanceWatch()
        self.quota = Quota()
        self._children: list[ChildProgram] = []
        self.payload_checker = self.child_program("simulator.service.payload_checks")
        """Of ``--validate-commands``."""
        self.sessions = Sessions()
        self.connections = Connections()
        self.faults = FaultRules(config.seed)
        self.requests = RequestLog(config.keep_requests if config.control else 0)
        self.saving = asyncio.Lock()
        """Held while a snapshot is saved."""
        self.control_token = config.control_token
        self.console_token = Secret(secrets.token_urlsafe(24)) if config.console and config.control else None
        """What the console's pages send, which ask for more than a device may; None without a console."""
        self.running_keys: set[tuple[int, str]] = set()
        """(account, Idempotency-Key) of requests that are under way."""
        self.public_url = f"http://{config.host}:{config.port}"
        """The address that partners know it by, without a slash at the end; the server sets it."""
        self.started_ms = self.clock.now_ms()
        self._seen: dict[int, int] = {}
        self._flushed_ms = self._pruned_ms = 0
        self._ticks: list[Callable[[], None]] = []
        self._resets: list[Callable[[int | None], None]] = [lambda _account: self.sessions.clear()]
        self._ends: list[Callable[[], Awaitable[object]]] = []
        self.rules = Rules(self)
        self.db = Database(config.data_dir)
        try:
            with self.db.write() as sql:  # in one: a start that fails leaves no account whose keys nobody was shown
                self.made_keys = open_first_account(self)
                given = Keys(config.api_key, config.secret_key) if config.api_key and config.secret_key else None
                self.own_keys = given or self.made_keys
                """A key pair of the first account whose secret is known, until that pair is removed."""
                if config.seed_file is not None:
                    sow_file(self, first_account(sql), config.seed_file)
        except BaseException:
            self.close()
            raise

    # --- who asks ---

    def find_bearer(self, token: str) -> Caller | None:
        """Whom an access token speaks for; None when it is unknown or over."""
        return find_bearer(self.db.sql, token, self.clock.now_ms())

    # --- presence ---

    def saw(self, device: int) -> None:
        """The device was seen: a poll or a reading of it came. Written a little later, since each poll says so."""
        self._seen[device] = self.clock.now_ms()

    def flush_seen(self) -> None:
        """Write who was seen, so that a list that is read now is true."""
        self._flushed_ms = self.clock.now_ms()
        if self._seen:
            seen, self._seen = self._seen, {}
            with self.db.write() as sql:
                sql.executemany("UPDATE devices SET last_seen_at = ? WHERE row = ?", [(t, d) for d, t in seen.items()])

    # --- what others want to know ---

    def changed(self, device: int, *, sent: bool = False) -> None:
        """A device's commands have changed (``sent``: one is new): wake who waits for them.

        Call it in the turn of the write; who is woken reads after that.
        """
        self.changes.wake(device, sent=sent)

    def every_tick(self, call: Callable[[], None]) -> None:
        """Have it called twice a second."""
        self._ticks.append(call)

    def on_reset(self, forget: Callable[[int | None], None]) -> None:
        """Have it called when an account was emptied, or everything (None): what is kept in memory is forgotten."""
        self._resets.append(forget)

    def child_program(self, module: str) -> ChildProgram:
        """A program of ours for what comes from outside; it is ended with the service."""
        made = ChildProgram(module)
        self._children.append(made)
        return made

    def _close_children(self) -> None:
        for child in self._children:
            child.close()

    def at_end(self, end: Callable[[], Awaitable[object]]) -> None:
        """Have it awaited when the server ends."""
        self._ends.append(end)

    # --- the whole state ---

    def empty(self, sql: sqlite3.Connection, account: int | None) -> None:
        """Delete the rows of an account, or of all; accounts and their keys stay. Then call :meth:`forget`."""
        where, values = ("", ()) if account is None else (" WHERE account = ?", (account,))
        self.flush_seen()
        if account is not None:
            forget_clients_of(sql, account)
        for table in ACCOUNT_TABLES:
            sql.execute(f"DELETE FROM {table}{where}", values)
        if account is None:
            # One that a user's approval made has no keys: without its user nobody can reach it any more.
            sql.execute("DELETE FROM accounts WHERE row NOT IN (SELECT account FROM api_keys)")

    def reset(self, account: int | None = None) -> None:
        """Delete all that an account has; without one, everything but the accounts and their keys."""
        with self.db.write() as sql:
            self.empty(sql, account)
        if account is None:
            self.clock.follow_base()  # a clock that was left standing would outlive everything that it was set for
        self.forget(account)

    def forget(self, account: int | None) -> None:
        """What memory holds of an account, or of everything, is no longer true."""
        keys = self.db.sql.execute("SELECT api_key FROM api_keys WHERE account = ?", (account,)).fetchall()
        self.quota.clear(None if account is None else [row["api_key"] for row in keys])
        if account is None:
            self._seen.clear()
        for forget in self._resets:
            forget(account)
        self.changes.wake_all()

    # --- while it runs ---

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What happens between requests, from the server's start to its end."""
        self.db.loop = asyncio.get_running_loop()
        task = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            for end in self._ends:
                await end()
            self.flush_seen()
            await self.db.committed()
            self.db.loop = None

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                self._do_due()
                await self.db.committed()
            except Exception:  # a full disk must not end expiry for ever
                log.exception("the service's regular work failed; it is tried again")

    def _do_due(self) -> None:
        now_ms = self.clock.now_ms()
        self.timers.run_due(now_ms)
        for call in self._ticks:
            call()
        if not 0 <= now_ms - self._flushed_ms < FLUSH_SEEN_MS:  # a clock that was set back makes it due too
            self.flush_seen()
        if not 0 <= now_ms - self._pruned_ms < PRUNE_EVERY_MS:
            with self.db.write() as sql:
                is_full = False
                for table in ("stored_answers", "reading_keys"):
                    pruned = sql.execute(
                        f"DELETE FROM {table} WHERE (account, idempotency_key) IN "
                        f"(SELECT account, idempotency_key FROM {table} WHERE created_at <= ? LIMIT ?)",
                        (now_ms - IDEMPOTENCY_S * 1000, PRUNE_ROWS),
                    )
                    is_full = is_full or pruned.rowcount >= PRUNE_ROWS
                prune(sql, now_ms)
            if not is_full:  # else more of them wait, and the next turn goes on
                self._pruned_ms = now_ms

    def stop_waiting(self) -> None:
        """The server ends: held polls, event streams and what a fault holds are answered."""
        self.faults.close()
        self.changes.close()
        self._close_children()

    def close(self) -> None:
        """Close the storage. Called after the server has ended."""
        self._close_children()
        self.db.close()
