"""The store's thread: it alone owns the connection, and what waits together shares one commit.

Other threads use :attr:`StoreService.journal` and :attr:`StoreService.outbox`. Their methods return, or raise, after
the commit. A reading that nobody waits for stays in memory for at most the grouping window and goes with the first
commit that comes along.

When the disk fails, everybody who waits gets a :class:`~agent.errors.StorageError` that names cause and fix, nothing is
acknowledged, and the thread goes on: readings stay in a bounded buffer and are tried again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from agent.adapters.sqlite_store import SqliteStore
from agent.adapters.store.failures import error_name, is_damage
from agent.adapters.store.outbox_rows import Draft
from agent.adapters.store.shared import SharedBootTimes, SharedJournal, SharedOutbox
from agent.core.outbox import Bounds
from agent.core.values import SendOutcome
from agent.errors import AgentError, StorageError
from agent.ports import Clock

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

BUFFER_MAX: Final = 20_000
"""Readings in memory that wait for their commit; beyond it the oldest are dropped and counted."""

SETTLE_WITHIN_S: Final = 90.0
"""How long the deletion of delivered readings may wait for a commit that comes along."""

_FLUSH_AT: Final = 5_000
_REQUESTS_MAX: Final = 1_024
_SETTLE_AT: Final = 1_000
_ANSWER_WITHIN_S: Final = 30.0
_RETRY_FIRST_S: Final = 1.0
_RETRY_CAP_S: Final = 30.0
_REOPEN_AFTER: Final = 3
_WORTH_REOPENING: Final = ("SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")
# So often an idle writer shows that it lives.
_TICK_S: Final = 10.0
_PATIENCE_S: Final = 30.0


@dataclass(slots=True, eq=False)
class _Request:
    """Work for the writer that somebody waits for.

    Attributes:
        may_write: the result of a look is the work of a write, or None.
    """

    work: Callable[[SqliteStore], Any]
    writes: bool
    may_write: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    result: Any = None
    error: BaseException | None = None

    def resolve(self, error: BaseException | None = None) -> None:
        if error is not None:
            self.error = error
        self.done.set()


@dataclass(slots=True)
class _Buffer:
    """Readings that wait for their commit, and what had to be dropped."""

    drafts: deque[Draft] = field(default_factory=deque)
    due_s: float | None = None
    dropped: int = 0
    dropped_from_s: float = 0.0
    dropped_to_s: float = 0.0

    def drop_oldest(self) -> None:
        wall_s = self.drafts.popleft().at.wall_s
        self.dropped_from_s = min(self.dropped_from_s, wall_s) if self.dropped else wall_s
        self.dropped_to_s = max(self.dropped_to_s, wall_s) if self.dropped else wall_s
        self.dropped += 1

    def saved(self, before: _Buffer) -> None:
        """What was in the buffer ``before`` is on the disk; it may have grown since, and dropped some of that."""
        dropped_since = self.dropped - before.dropped
        for _ in range(len(before.drafts) - dropped_since):
            self.drafts.popleft()
        self.dropped = max(0, dropped_since - len(before.drafts))


class StoreService:
    """One thread around a :class:`~agent.adapters.sqlite_store.SqliteStore`.

    Args:
        path: the database, see :data:`~agent.adapters.sqlite_store.FILE_NAME`.
        clock: as for the store.
        bounds: how much may wait in the outbox.
        group_window_s: how long a reading may wait for company before it is committed, seconds.
        lazy_settle: the service knows idempotency keys, so the deletion of delivered readings may wait up to
            :data:`SETTLE_WITHIN_S` for the next commit. May be set later, when the service's extensions are known.
        buffer_max: readings in memory at most.
        max_pages, trusts_wall: as for the store.
        on_incident: told each incident, from the writer's thread; by default it is logged as an error.

    Attributes:
        progress: grows with each turn of the writer, at least every 10 s while it is healthy.
        incidents: what happened to the file since the start of this process, one sentence each.
        fault: why the last commit failed; None when it went well.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        bounds: Bounds | None = None,
        group_window_s: float = 1.0,
        lazy_settle: bool = False,
        buffer_max: int = BUFFER_MAX,
        max_pages: int | None = None,
        trusts_wall: bool = True,
        on_incident: Callable[[str], None] | None = None,
    ) -> None:
        self.path = path
        self.lazy_settle = lazy_settle
        self.progress = 0
        self.incidents: list[str] = []
        self.fault: str | None = None
        self._clock = clock
        self._bounds = bounds
        self._group_window_s = group_window_s
        self._buffer_max = buffer_max
        self._flush_at = min(_FLUSH_AT, max(1, buffer_max // 2))
        self._max_pages = max_pages
        self._trusts_wall = trusts_wall
        self._on_incident = on_incident or (lambda text: _log.error("store=replaced %s", text))
        self._changed = threading.Condition()
        self._requests: deque[_Request] = deque()
        self._buffer = _Buffer()
        self._settle_due_s: float | None = None
        self._failures = 0
        self._retry_s = 0.0
        self._closing = False
        self._store: SqliteStore | None = None
        self._thread: threading.Thread | None = None
        self._opened = threading.Event()
        self._opening_errors: list[BaseException] = []
        self._mark_s: float | None = None
        self._has_crashed = False
        self._gave_up = False
        self.journal = SharedJournal(self)
        self.outbox = SharedOutbox(self)
        self.boot_times = SharedBootTimes(self)

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the store and start the writer; returns once it is open. After a failure it may be called again.

        Raises:
            StorageError: it cannot be opened now, as :class:`SqliteStore` says; nothing runs then.
            ConfigurationError: it is a newer program's file, or another program's.
        """
        self._opened.clear()
        self._opening_errors.clear()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()
        self._opened.wait()
        if self._opening_errors:
            self._thread.join()
            self._thread = None
            raise self._opening_errors[0]

    def stop(self, timeout_s: float) -> bool:
        """Take nothing more, commit what waits, close. True when all of it is on the disk and the thread has ended."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive() and not self._buffer.drafts

    def stuck_for_s(self, now_s: float) -> float:
        """For how long one turn has lasted beyond patience; 0 when the writer is healthy or waits for work."""
        if self._has_crashed:
            return math.inf
        mark_s = self._mark_s
        return 0.0 if mark_s is None else max(0.0, now_s - mark_s - _PATIENCE_S)

    def _run(self) -> None:
        try:
            self._store = SqliteStore(
                self.path,
                clock=self._clock,
                bounds=self._bounds,
                max_pages=self._max_pages,
                trusts_wall=self._trusts_wall,
            )
            self._tell_incidents(self._store)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that called start
            self._opening_errors.append(error)
            return
        finally:
            self._opened.set()
        try:
            while self._wait():
                self._turn(self._store)
        except Exception as error:  # noqa: BLE001 - it is logged, and the watchdog ends the process
            _log.exception("store=crashed: nothing more can be stored; the agent must be started anew")
            self.fault = f"the store's thread ended: {error}"
            self._has_crashed = True
        finally:
            self._end(self._store)

    def _end(self, store: SqliteStore) -> None:
        with self._changed:
            self._closing = True
            left = list(self._requests)
            self._requests.clear()
        for request in left:
            request.resolve(self._closed_error())
        if self._buffer.drafts:
            _log.error("store=lost %d readings could not be saved at the stop", len(self._buffer.drafts))
        store.close()
        self._mark_s = None

    # --- what other threads do ------------------------------------------------------------------------------------

    def call(self, work: Callable[[SqliteStore], _T], *, writes: bool) -> _T:
        """Have the writer do this, and wait for its result and, if it writes, the commit.

        Raises:
            StorageError: nothing was written, or the disk does not answer and nobody knows.
        """
        request = _Request(work, writes)
        self._have_done(request)
        return cast("_T", request.result)

    def look_and_write(self, look: Callable[[SqliteStore], Callable[[SqliteStore], None] | None]) -> None:
        """Have the writer look, and commit what follows from it, in one turn; None means that nothing does.

        Raises:
            StorageError: as :meth:`call`.
        """
        self._have_done(_Request(look, writes=False, may_write=True))

    def submit(self, work: Callable[[SqliteStore], object]) -> None:
        """Have the writer do and commit this soon; nobody waits, and nobody learns whether it failed."""
        with self._changed:
            if not self._closing and len(self._requests) < _REQUESTS_MAX:
                self._requests.append(_Request(work, writes=True))
                self._changed.notify_all()

    def _have_done(self, request: _Request) -> None:
        with self._changed:
            if self._closing:
                raise self._closed_error()
            if len(self._requests) >= _REQUESTS_MAX:
                raise StorageError(f"{self.path}: {_REQUESTS_MAX} requests wait already: the disk is too slow")
            self._requests.append(request)
            self._changed.notify_all()
        if not request.done.wait(_ANSWER_WITHIN_S):
            with self._changed:
                if request in self._requests:
                    self._requests.remove(request)
            if not request.done.is_set():
                raise StorageError(f"{self.path}: the disk did not answer within {_ANSWER_WITHIN_S:g} s: check it")
        if request.error is not None:
            raise request.error

    def buffer(self, draft: Draft) -> None:
        """Take a reading that nobody waits for."""
        with self._changed:
            if self._closing:
                raise self._closed_error()
            # A full buffer in front of a healthy disk only means that the producer is faster: let it wait.
            if not self._failures:
                self._changed.wait_for(self._has_room, _ANSWER_WITHIN_S)
            buffer = self._buffer
            if len(buffer.drafts) >= self._buffer_max:
                buffer.drop_oldest()
            buffer.drafts.append(draft)
            if buffer.due_s is None:
                buffer.due_s = self._now_s() + self._group_window_s
                self._changed.notify_all()
            elif len(buffer.drafts) == self._flush_at:
                self._changed.notify_all()

    def settle(self, outcome: SendOutcome) -> None:
        """Delete or set aside; a mere deletion may wait when a repeat is harmless."""
        if not self.lazy_settle or outcome.refused:
            self.call(lambda store: store.settle(outcome), writes=True)
            return
        self.call(lambda store: store.hide(outcome.delivered), writes=False)
        with self._changed:
            if self._settle_due_s is None:
                self._settle_due_s = self._now_s() + SETTLE_WITHIN_S
                self._changed.notify_all()

    def _has_room(self) -> bool:
        return self._closing or bool(self._failures) or len(self._buffer.drafts) < self._buffer_max

    def _closed_error(self) -> StorageError:
        return StorageError(f"{self.path}: the store is closed: the agent stops, or its store has failed")

    def _now_s(self) -> float:
        return self._clock.now().monotonic_s

    # --- what the writer does -------------------------------------------------------------------------------------

    def _wait(self) -> bool:
        """Wait until there is something to do; False when the store was closed and all is done."""
        self._mark_s = None
        with self._changed:
            while not self._requests and not self._closing:
                due_s = self._due_s()
                wait_s = _TICK_S if due_s is None else min(_TICK_S, due_s - self._now_s())
                if wait_s <= 0:
                    break
                self._changed.wait(wait_s)
                self.progress += 1
            self._mark_s = self._now_s()
            if not self._closing:
                return True
            waits = self._buffer.drafts or (self._store is not None and self._store.hidden)
            return bool(self._requests) or (bool(waits) and not self._gave_up)

    def _due_s(self) -> float | None:
        """When the next commit is due that nobody waits for."""
        buffer = self._buffer
        dues = [due_s for due_s in (buffer.due_s, self._settle_due_s) if due_s is not None]
        if not dues:
            return None
        if self._failures:
            return self._retry_s
        return 0.0 if len(buffer.drafts) >= self._flush_at else min(dues)

    def _turn(self, store: SqliteStore) -> None:
        with self._changed:
            requests = list(self._requests)
            self._requests.clear()
            due_s = self._due_s()
            is_due = self._closing or (due_s is not None and due_s <= self._now_s())
        for request in requests:
            if not request.writes:
                self._look(store, request)
        writes = [request for request in requests if request.writes]
        if writes or is_due or len(store.hidden) >= _SETTLE_AT:
            self._commit(store, writes)
        self.progress += 1

    def _look(self, store: SqliteStore, request: _Request) -> None:
        try:
            request.result = request.work(store)
        except StorageError as error:
            self._mend(store, error)
            request.resolve(error)
        except Exception as error:  # noqa: BLE001 - a fault of the caller's work is the caller's
            request.resolve(error)
        else:
            if request.may_write and request.result is not None:
                request.work, request.writes = request.result, True
            else:
                request.resolve()

    def _commit(self, store: SqliteStore, writes: Sequence[_Request]) -> None:
        """One commit for everything that waits."""
        with self._changed:
            waiting = replace(self._buffer, drafts=self._buffer.drafts.copy())
        try:
            self._write(store, waiting, writes)
        except StorageError as error:
            self._failed(store, error)
            for request in writes:
                request.resolve(error)
            return
        with self._changed:
            self._buffer.saved(waiting)
            self._buffer.due_s = self._now_s() + self._group_window_s if self._buffer.drafts else None
            self._settle_due_s = None
            self._failures = 0
            self._changed.notify_all()
        self.fault = None
        for request in writes:
            request.resolve()

    def _write(self, store: SqliteStore, waiting: _Buffer, writes: Sequence[_Request]) -> None:
        hidden = store.hidden
        # A commit of nothing but deletions that a resend would survive needs no flush of the disk's cache.
        with store.transaction(durable=bool(writes or waiting.drafts)):
            if hidden:
                store.settle(SendOutcome(delivered=hidden))
            if waiting.drafts:
                store.put_drafts(waiting.drafts)
            if waiting.dropped:
                store.note_unsaved(waiting.dropped, waiting.dropped_from_s, waiting.dropped_to_s)
            for request in writes:
                try:
                    request.result = store.attempt(lambda work=request.work: work(store))  # type: ignore[misc]
                except AgentError as error:
                    request.error = error

    def _failed(self, store: SqliteStore, error: StorageError) -> None:
        with self._changed:
            self._failures += 1
            self._gave_up = self._closing
            delay_s = min(_RETRY_CAP_S, _RETRY_FIRST_S * 2.0 ** min(self._failures - 1, 10))
            self._retry_s = self._now_s() + delay_s
            self._changed.notify_all()
        if self.fault is None:
            _log.error("store=failing %s; readings wait in memory and are tried again", error)
        self.fault = str(error)
        self._mend(store, error)
        # A file whose disk came back may need a new handle. Not when the disk is full: opening needs room, too.
        if self._failures % _REOPEN_AFTER == 0 and error_name(error.__cause__).startswith(_WORTH_REOPENING):
            self._reopen(store)

    def _mend(self, store: SqliteStore, error: StorageError) -> None:
        """Replace a damaged file; other failures pass or are the disk's."""
        if not is_damage(error.__cause__):
            return
        try:
            store.replace_damaged(error.__cause__)
        except StorageError as failure:
            _log.error("store=failing %s", failure)
        self._tell_incidents(store)

    def _reopen(self, store: SqliteStore) -> None:
        try:
            store.reopen()
        except StorageError as failure:
            _log.debug("the store could not be opened again: %s", failure)
        self._tell_incidents(store)

    def _tell_incidents(self, store: SqliteStore) -> None:
        for text in store.incidents:
            self.incidents.append(text)
            self._on_incident(text)
        store.incidents.clear()
